"""What an open encoder is: its transformer, tokenizer, widths, lengths and digest."""

import json
import math

import torch
import xxhash
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding, Transformer, WordWeights
from tokenizers import Tokenizer
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from selfsent.encoder import prompt
from selfsent.errors import EncoderError

_SPECIALS = ("unk_token", "pad_token", "mask_token", "cls_token", "sep_token")
UNLIMITED = 1 << 20  # word pieces: the maximum length of static vectors, which have none


def transformer_of(encoder: SentenceTransformer) -> PreTrainedModel | None:
    """Return the transformers model inside, or None where there is none (static vectors)."""
    return getattr(encoder[0], "model", None) if isinstance(encoder[0], Transformer) else None


def tokenizer_of(encoder: SentenceTransformer) -> PreTrainedTokenizerBase:
    """Return the tokenizer of the transformers model, or of the static vectors, inside."""
    if isinstance(encoder[0], StaticEmbedding):
        return static_tokenizer(encoder[0])
    found: PreTrainedTokenizerBase = encoder.tokenizer
    return found


def static_tokenizer(vectors: StaticEmbedding) -> PreTrainedTokenizerFast:
    """Return a transformers tokenizer for the vectors, which adds no special tokens."""
    definition = json.loads(vectors.tokenizer.to_str()) | {"post_processor": None, "truncation": None, "padding": None}
    backend = Tokenizer.from_str(json.dumps(definition))
    added = {token["content"] for token in definition["added_tokens"]}
    names = {name: f"[{name.removesuffix('_token').upper()}]" for name in _SPECIALS}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, **{name: token for name, token in names.items() if token in added}
    )


def prompt_weights(encoder: SentenceTransformer) -> WordWeights | None:
    """Return the weights under which only the mask token of a prompt counts, if the encoder has such."""
    weights = next((module for module in encoder if isinstance(module, WordWeights)), None)
    one = weights is not None and len(weights.word_weights) == 1 and not weights.unknown_word_weight
    return weights if one else None


def mask_id(encoder: SentenceTransformer) -> int | None:
    """Return the id of the mask token; a tokenizer with a prompt inserts it and does not list it among its own."""
    weights = prompt_weights(encoder)
    if weights is None:
        found: int | None = tokenizer_of(encoder).mask_token_id
        return found
    return weights.vocab.index(next(iter(weights.word_weights)))


def template_length(encoder: SentenceTransformer) -> int:
    """Count the word pieces that a prompt puts around every text; they are part of any length, as [CLS] and [SEP] are.

    0 without a prompt.
    """
    return 0 if transformer_of(encoder) is None else prompt.prompt_length(tokenizer_of(encoder))


def embedding_width(encoder: SentenceTransformer) -> int:
    """Return D, the width of the encoder's sentence embeddings."""
    width = encoder.get_embedding_dimension()
    if width is None:
        raise EncoderError("the encoder does not say how wide its embeddings are: give it a pooling")
    return int(width)


def encoder_digest(encoder: SentenceTransformer) -> str:
    """Digest all that an embedding depends on: modules, weights, tokenizer, maximum length, prompts and truncation."""
    settings = [encoder.prompts, encoder.default_prompt_name, encoder.truncate_dim, max_length_of(encoder)]
    digest = xxhash.xxh3_128(repr([str(encoder), *settings]).encode())
    for name, tensor in encoder.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    backend = getattr(tokenizer_of(encoder), "backend_tokenizer", None)
    definition = {} if backend is None else json.loads(backend.to_str())
    # Truncation and padding are what the last call set.
    digest.update(json.dumps({**definition, "truncation": None, "padding": None}).encode())
    return digest.hexdigest()


def max_length_of(encoder: SentenceTransformer) -> int:
    """Return how many word pieces, special tokens included, the encoder reads of a text."""
    return UNLIMITED if encoder.max_seq_length == math.inf else int(encoder.max_seq_length or 512)
