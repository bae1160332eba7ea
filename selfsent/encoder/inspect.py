"""What an open encoder is: its transformer, tokenizer, widths, lengths and digest."""

import json
import math
import re
from typing import NamedTuple

import torch
import xxhash
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling, StaticEmbedding, Transformer, WordWeights
from tokenizers import Tokenizer
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from selfsent.encoder import prompt
from selfsent.encoder.base import UNLIMITED
from selfsent.encoder.bert import DIRECT_POOLINGS, MAP, MODULES_BEHIND, WORD_WEIGHTS, EncodingSteps, steps_digest
from selfsent.encoder.bert_layers import BertShape
from selfsent.encoder.pair import joined_digest
from selfsent.encoder.pair_module import parts_of, weights_of
from selfsent.encoder.static import vectors_digest
from selfsent.errors import EncoderError

# Of a transformer: settings that change between two saves, or act in training alone.
_WITHOUT_EFFECT = re.compile(
    "_name_or_path|transformers_version|architectures|dtype|dropout|use_cache|output_hidden_states|initializer"
).search


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
    specials = {f"{role}_token": f"[{role.upper()}]" for role in ("unk", "pad", "mask", "cls", "sep")}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(definition)),
        **{role: token for role, token in specials.items() if token in added},
    )


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


def encoder_digest(encoder: SentenceTransformer) -> str:
    """Digest all that an embedding depends on: modules, weights, tokenizer, maximum length, prompts and settings."""
    settings = [encoder.prompts, encoder.default_prompt_name, encoder.truncate_dim, max_length_of(encoder)]
    kinds = [type(module).__name__ for module in encoder]
    if kinds in (["StaticEmbedding"], ["StaticEmbedding", "Normalize"]):  # also opened without torch
        table, tokenizer = encoder[0].get_parameter("embedding.weight").detach().cpu(), encoder[0].tokenizer
        assert isinstance(tokenizer, Tokenizer)
        return vectors_digest(table.float().numpy(), tokenizer, [*settings[:3], len(kinds) == 2])
    if parts := parts_of(encoder):
        return joined_digest(settings[:3], weights_of(encoder) or [], [encoder_digest(part) for part in parts])
    if steps := _steps_of(encoder):  # also opened without transformers
        return steps_digest(steps.steps, settings[:3], *steps[1:])
    configs = [module.config.to_dict() for module in encoder.modules() if isinstance(module, PreTrainedModel)]
    acting = [(key, config[key]) for config in configs for key in sorted(config) if not _WITHOUT_EFFECT(key)]
    digest = xxhash.xxh3_128(repr([str(encoder), *settings, acting]).encode())
    for name, tensor in encoder.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    backend = getattr(tokenizer_of(encoder), "backend_tokenizer", None)
    definition = {} if backend is None else json.loads(backend.to_str())
    # Truncation and padding are what the last call set.
    digest.update(json.dumps({**definition, "truncation": None, "padding": None}).encode())
    return digest.hexdigest()


class _Direct(NamedTuple):
    steps: EncodingSteps
    layers: dict[str, torch.Tensor]
    behind: dict[str, torch.Tensor]
    tokenizer: Tokenizer


def _steps_of(encoder: SentenceTransformer) -> _Direct | None:
    """Return what ``bert_encoder`` would read from this encoder's folder; None where it would not open it."""
    modules, model = {type(module).__name__: module for module in encoder}, transformer_of(encoder)
    if model is None or [type(module).__name__ for module in encoder][1:] not in MODULES_BEHIND:
        return None
    shape, pooling = BertShape.of(model.config.to_dict()), modules["Pooling"]
    backend = getattr(encoder.tokenizer, "backend_tokenizer", None)
    assert isinstance(pooling, Pooling)
    mode = pooling.pooling_mode
    if shape is None or backend is None or not isinstance(mode, str) or mode not in DIRECT_POOLINGS:
        return None
    if not pooling.include_prompt:
        return None
    as_text = bool(getattr(encoder.tokenizer, "split_special_tokens", False))
    steps = EncodingSteps(shape, mode, "Normalize" in modules, max_length_of(encoder), as_text)
    layers = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("pooler.")}
    behind = {}
    if "WordWeights" in modules:
        behind[WORD_WEIGHTS] = modules["WordWeights"].get_parameter("emb_layer.weight").flatten()
    if isinstance(dense := modules.get("Dense"), Dense):
        if not is_linear_map(dense):
            return None
        behind[MAP] = dense.linear.weight
    return _Direct(steps, layers, behind, backend)


def is_linear_map(dense: Dense) -> bool:
    """Tell whether a Dense multiplies embeddings by a matrix, and does nothing else."""
    names = {dense.module_input_name or "sentence_embedding", dense.module_output_name or "sentence_embedding"}
    plain = isinstance(dense.activation_function, torch.nn.Identity) and dense.linear.bias is None
    plain = plain and not getattr(dense, "use_residual", False)  # since sentence-transformers 5.5
    return plain and names == {"sentence_embedding"}


def max_length_of(encoder: SentenceTransformer) -> int:
    """Return how many tokens, special tokens included, the encoder reads of a text."""
    return UNLIMITED if encoder.max_seq_length == math.inf else int(encoder.max_seq_length or 512)
