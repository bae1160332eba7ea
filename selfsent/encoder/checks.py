"""Whether a model is whole: every weight from its file and none left over, a vocabulary that fits, finite vectors."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import nn
from transformers import MODEL_FOR_MASKED_LM_MAPPING, AutoConfig, AutoModel, PreTrainedModel

from selfsent.encoder.base import UNLIMITED
from selfsent.encoder.folder import CLOSED, read_headers
from selfsent.encoder.inspect import (
    embedding_width,
    max_length_of,
    template_length,
    tokenizer_of,
    transformer_of,
)
from selfsent.encoder.static import require_words
from selfsent.errors import ConfigurationError, EncoderError, first_line

_NAMED = 3  # tensors in a message


def require_transformer(folder: Path) -> None:
    """Refuse a folder whose transformer is no bidirectional encoder, or whose weights are not those of its settings.

    Only names and shapes are read.  transformers itself draws what is missing at random, and says so in a report that
    nothing forces anybody to read.

    Raises:
        EncoderError: not an encoder, or weights that are missing, left over or of another shape.
    """
    config = AutoConfig.from_pretrained(folder, **CLOSED)
    if type(config) not in MODEL_FOR_MASKED_LM_MAPPING or getattr(config, "is_encoder_decoder", False):
        raise EncoderError(
            f"{str(folder)!r} is no encoder: its model type is {config.model_type!r}; "
            "give a bidirectional one, such as BERT, RoBERTa, DistilBERT, MPNet or ELECTRA"
        )
    tensors = len(read_headers(folder))
    if not 0 < getattr(config, "num_hidden_layers", 1) <= tensors:  # otherwise all of them would be built first
        raise EncoderError(
            f"config.json of {folder} does not fit its weights: it says {config.num_hidden_layers} layers, and the "
            f"weights are {tensors} tensors; copy the folder again, whole"
        )
    model, found = AutoModel.from_pretrained(
        folder,
        device_map="meta",
        ignore_mismatched_sizes=True,
        use_safetensors=True,
        output_loading_info=True,
        **CLOSED,
    )
    require_loaded(folder, model, found, needed=lambda key: not key.startswith("pooler."))


def require_loaded(
    folder: str | Path, model: PreTrainedModel, found: Mapping[str, Iterable[Any]], *, needed: Callable[[str], bool]
) -> None:
    """Refuse weights with tensors that are missing, left over or of another shape.

    Args:
        found: what transformers returns with ``output_loading_info``.
        needed: whether a missing tensor matters.  Heads of ``model`` that it does not have may be left over.

    Raises:
        EncoderError: names the first tensors.
    """
    inside = {name for name, _ in model.base_model.named_children()}
    prefix = f"{model.base_model_prefix}."

    def own(key: str) -> bool:  # a tensor of the layers, not of a head
        key = key.removeprefix(prefix)
        return key.partition(".")[0] in inside and not key.startswith("pooler.") and not key.endswith(".position_ids")

    faults = {
        "missing": sorted(filter(needed, found["missing_keys"])),
        "of another shape": sorted(key for key, *_ in found["mismatched_keys"] if needed(key)),
        "left over": sorted(key for key in found["unexpected_keys"] if own(key)),
    }
    said = [
        f"{len(keys)} {fault} ({', '.join(keys[:_NAMED])}{', ...' if len(keys) > _NAMED else ''})"
        for fault, keys in faults.items()
        if keys
    ]
    if said:
        raise EncoderError(
            f"the weights in {folder} are not those of its config.json: tensors {', '.join(said)}; copy the folder "
            "again, whole"
        )


def require_vocabulary(encoder: SentenceTransformer, name: str) -> None:
    """Refuse an encoder without a vocabulary, or with that of another one.

    Raises:
        EncoderError: says how many tokens there are, and how many the weights know.
    """
    tokenizer = tokenizer_of(encoder)
    model = transformer_of(encoder)
    table = encoder[0].get_submodule("embedding") if model is None else model.get_input_embeddings()
    require_words(tokenizer.get_vocab(), tokenizer.all_special_tokens, len(table.get_parameter("weight")), name)


def require_vectors(encoder: SentenceTransformer, name: str) -> None:
    """Refuse an encoder whose modules do not fit each other, by encoding a word.

    Raises:
        EncoderError: its modules fail, or give no finite vector of the width that they say.
    """
    try:
        vector = encoder.encode(["a"], prompt="", convert_to_tensor=True, show_progress_bar=False)[0]
    except Exception as error:  # any module of it, in its own words
        raise EncoderError(f"the modules of {name} do not fit each other: {first_line(error)}") from error
    width = min(embedding_width(encoder), encoder.truncate_dim or embedding_width(encoder))
    if len(vector) != width:
        raise EncoderError(
            f"the modules of {name} do not fit each other: its vectors are {len(vector)} wide, and its settings say "
            f"{width}"
        )
    if not torch.isfinite(vector).all():
        raise EncoderError(f"the weights of {name} are broken: a vector holds values that are not finite")


def readable_positions(model: nn.Module | None) -> int | None:
    """Return how many tokens the table of positions has room for; None: there is no table.

    RoBERTa and its kin count positions from behind the padding index.
    """
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    if not isinstance(table, nn.Embedding):
        return None
    return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)


def limit_length(encoder: SentenceTransformer, max_length: int | None) -> None:
    """Set how many tokens of a text an encoder reads, beside those of its prompt, if it has positions for them.

    Raises:
        ConfigurationError: ``max_length`` is more.
    """
    positions, around = readable_positions(transformer_of(encoder)) or UNLIMITED, template_length(encoder)
    if max_length is not None and not 0 < max_length <= positions - around:
        raise ConfigurationError(
            f"max_length {max_length} does not fit: the encoder reads {positions - around} tokens of a text at most"
        )
    encoder.max_seq_length = min(positions, max_length_of(encoder) if max_length is None else max_length + around)
