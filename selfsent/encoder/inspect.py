"""What an open encoder is: its transformer, tokenizer, pooling, widths, lengths and digest."""

import json
import math

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Pooling,
    StaticEmbedding,
    Transformer,
    WeightedLayerPooling,
    WordWeights,
)
from tokenizers import Tokenizer
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from selfsent.encoder import prompt
from selfsent.encoder.base import UNLIMITED
from selfsent.encoder.folder import UNIT
from selfsent.encoder.static import unknown_token
from selfsent.errors import EncoderError

LIKE_BERT = "BERT, RoBERTa, DistilBERT, MPNet or ELECTRA"  # what to give where another encoder does not fit


def transformer_of(encoder: SentenceTransformer) -> PreTrainedModel | None:
    """Return the transformers model inside, or None where there is none (static vectors)."""
    return getattr(encoder[0], "model", None) if isinstance(encoder[0], Transformer) else None


def family_of(encoder: SentenceTransformer) -> str:
    """Name the encoder's kind: transformers' model type, or the class of its first module."""
    return getattr(getattr(transformer_of(encoder), "config", None), "model_type", type(encoder[0]).__name__)


def tokenizer_of(encoder: SentenceTransformer) -> PreTrainedTokenizerBase:
    """Return the transformers tokenizer; that of static vectors adds no special tokens."""
    if not isinstance(encoder[0], StaticEmbedding):
        found: PreTrainedTokenizerBase = encoder.tokenizer
        return found
    definition = json.loads(encoder[0].tokenizer.to_str())
    definition |= {"post_processor": None, "truncation": None, "padding": None}
    added = {token["content"] for token in definition["added_tokens"]}
    specials = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "mask", "cls", "sep")}
    specials = {role: token for role, token in specials.items() if token in added}
    if unknown := unknown_token(encoder[0].tokenizer):
        specials["unk_token"] = unknown
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(definition)), **specials)


def adds_unit(encoder: SentenceTransformer) -> bool:
    """Tell whether the last module is the Normalize that ``save_encoder`` added to what was trained."""
    return getattr(encoder[-1], UNIT, False)


def prompt_weights(encoder: SentenceTransformer) -> WordWeights | None:
    """Return the weights under which only the mask token of a prompt counts, if the encoder has such."""
    weights = next((module for module in encoder if isinstance(module, WordWeights)), None)
    one = weights is not None and len(weights.word_weights) == 1 and not weights.unknown_word_weight
    return weights if one else None


def mask_id(encoder: SentenceTransformer) -> int | None:
    """Return the id of the mask token; a tokenizer with a prompt inserts it and does not list it among its own."""
    if weights := prompt_weights(encoder):
        return weights.vocab.index(next(iter(weights.word_weights)))
    found: int | None = tokenizer_of(encoder).mask_token_id
    return found


def template_length(encoder: SentenceTransformer) -> int:
    """Count the tokens that a prompt puts around every text; any length includes them, as it does [CLS]."""
    return 0 if transformer_of(encoder) is None else prompt.prompt_length(tokenizer_of(encoder))


def embedding_width(encoder: SentenceTransformer) -> int:
    """Return D, the width of the encoder's sentence embeddings."""
    if width := encoder.get_embedding_dimension():
        return int(width)
    raise EncoderError("the encoder does not say how wide its embeddings are: give it a pooling")


def is_linear_map(dense: Dense, *, affine: bool = False) -> bool:
    """Tell whether a Dense multiplies embeddings by a matrix, and does nothing else; if ``affine``, with an offset."""
    names = {dense.module_input_name or "sentence_embedding", dense.module_output_name or "sentence_embedding"}
    plain = isinstance(dense.activation_function, nn.Identity) and (affine or dense.linear.bias is None)
    plain = plain and not getattr(dense, "use_residual", False)  # since sentence-transformers 5.5
    return plain and names == {"sentence_embedding"}


def pooling_name(encoder: SentenceTransformer) -> str:
    """Name the pooling, in the words of ``POOLINGS`` where it is one of them."""
    if isinstance(encoder[0], StaticEmbedding):
        return "mean"
    pools = [module for module in encoder if isinstance(module, Pooling)]
    if not pools:
        return "none"
    for module in encoder:
        if isinstance(module, WeightedLayerPooling):
            return {0: "first_last_paper", 1: "first_last"}.get(module.layer_start, "top2")
    if any(isinstance(module, Dense) and isinstance(module.activation_function, nn.Tanh) for module in encoder):
        return f"{pools[0].pooling_mode}_pooler"
    if prompt_weights(encoder) is not None:
        return "prompt"
    mode = pools[0].pooling_mode
    if any(isinstance(module, WordWeights) for module in encoder) and mode == "mean":
        return "weighted_mean"
    return mode if isinstance(mode, str) else "+".join(mode)


def readable_positions(model: nn.Module | None) -> int | None:
    """Return how many tokens the table of positions has room for; None: there is no table.

    RoBERTa and its kin count positions from behind the padding index.
    """
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    if not isinstance(table, nn.Embedding):
        return None
    return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)


def max_length_of(encoder: SentenceTransformer) -> int:
    """Return how many tokens, special tokens included, the encoder reads of a text."""
    return UNLIMITED if encoder.max_seq_length == math.inf else int(encoder.max_seq_length or 512)


def describe_encoder(encoder: SentenceTransformer, name: str) -> str:
    """Describe an encoder in one line."""
    model = transformer_of(encoder)
    pooling = f"pooling {pooling_name(encoder)}, {embedding_width(encoder)} wide"
    if model is None:
        return f"{name}, static vectors, {pooling}"
    size = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    return f"{name}, {model.config.model_type}, {size:.1f} M parameters, {pooling}"
