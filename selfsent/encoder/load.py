"""Open an encoder: the built-in one, a folder, or a name on the hub."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding, WordWeights
from sentence_transformers.util import is_sentence_transformer_model, load_file_path
from transformers import MODEL_FOR_MASKED_LM_MAPPING, AutoConfig
from transformers.utils import logging

from selfsent.encoder import prompt, static
from selfsent.encoder.dropout import install_dropout, set_dropout
from selfsent.encoder.inspect import transformer_of
from selfsent.encoder.pooling import POOLINGS, assemble, pooling_name, without_pooler
from selfsent.errors import ConfigurationError, EncoderError, first_line, unknown

BUILTIN = Path(__file__).parent.parent / "builtin" / "encoder"


def load_encoder(
    name: str | Path,
    *,
    pooling: str | None = None,
    template: str | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
    prompts: bool = True,
) -> SentenceTransformer:
    """Open an encoder, ready for training and encoding.

    Args:
        name: "builtin", a folder, or a name on the Hugging Face hub.
        pooling: one of ``POOLINGS``; ``mean`` keeps the weights that a folder gives to words.  Default: the folder's,
            or ``mean`` where it has none.
        template: what ``prompt`` puts around a text.  Default: the folder's, or ``prompt.TEMPLATE``.
        max_length: word pieces, special tokens included; static vectors read everything.  Default: the encoder's own.
        dropout: the rate for every site.  Default: the encoder's own rates.
        prompts: keep the folder's prompts and truncation for ``encode``; training reads and embeds plain texts.

    Raises:
        UserError: no such folder or name, not an encoder of text, an unknown pooling, or a template that does not fit.
    """
    if pooling is not None and pooling not in POOLINGS:
        raise unknown("pooling", pooling, POOLINGS)
    if template is not None and pooling != "prompt":
        raise ConfigurationError(
            f"template {template!r} does not fit pooling {pooling!r}: give it with pooling 'prompt'"
        )
    where = BUILTIN if str(name) == "builtin" else name
    finished = _is_sentence_transformer(where)
    layered = _has_layers(where, finished)
    if layered:
        _require_encoder(where)
    try:
        with quietly():
            kept = finished and (not layered or pooling in (None, "prompt", "mean"))
            encoder = _as_saved(where, layered) if kept else None
            if encoder is not None and not layered and pooling not in (None, pooling_name(encoder)):
                raise EncoderError(
                    f"{str(name)!r} holds static vectors, which are averaged: leave pooling {pooling!r} out"
                )
            # A mean with weights for words counts as that folder's mean.
            own = () if encoder is None else (None, pooling_name(encoder).removeprefix("weighted_"))
            if encoder is None or pooling not in own or template is not None:
                encoder = assemble(where, pooling or "mean", template or prompt.TEMPLATE)
    except (OSError, ValueError) as error:
        raise EncoderError(f"cannot open {str(name)!r} as an encoder: {first_line(error)}") from error
    for module in encoder:
        if isinstance(module, WordWeights):
            module.requires_grad_(False)  # the weights of words are fixed
    model = transformer_of(encoder)
    if model is not None:
        model.float()
        install_dropout(model)
    elif isinstance(encoder[0], StaticEmbedding):
        static.install_static(encoder[0].float())
    if max_length is not None and layered:  # static vectors read everything
        encoder.max_seq_length = max_length
    if dropout is not None:
        set_dropout(encoder, dropout)
    if not prompts:
        encoder.prompts, encoder.default_prompt_name, encoder.truncate_dim = {}, None, None
    return encoder.eval()


def _as_saved(where: str | Path, layered: bool) -> SentenceTransformer:
    # In fp32 from the start: modules behind a transformer in fp16 would be rounded to it, and scored as that.
    kwargs = {"dtype": torch.float32, **without_pooler(where)} if layered else {}
    return SentenceTransformer(str(where), device="cpu", model_kwargs=kwargs)


def _has_layers(where: str | Path, finished: bool) -> bool:
    """Tell a transformer from static vectors."""
    if not finished:
        return True
    found = load_file_path(str(where), "modules.json")
    modules = json.loads(Path(found).read_text(encoding="utf-8")) if found else []
    return not any(module["type"].endswith("StaticEmbedding") for module in modules)


@contextmanager
def quietly() -> Iterator[None]:
    """Keep transformers from drawing bars and load reports over ours; errors still get through."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _is_sentence_transformer(where: str | Path) -> bool:
    if Path(where).is_dir():
        return (Path(where) / "modules.json").is_file()
    return is_sentence_transformer_model(str(where))


def _require_encoder(where: str | Path) -> None:
    folder = Path(where)
    if folder.is_file():
        raise EncoderError(f"{folder} is a file: give the folder of the model, or a name on the hub")
    if folder.is_dir() and not any((folder / name).is_file() for name in ("config.json", "modules.json")):
        raise EncoderError(
            f"{folder} holds no encoder: expected a config.json or modules.json, as save_pretrained writes"
        )
    if folder.is_dir() and not (folder / "config.json").is_file():
        return  # a sentence-transformers folder without a transformer, such as static vectors
    if not folder.is_dir() and (len(folder.parts) > 2 or folder.is_absolute()):
        raise EncoderError(f"base {str(where)!r} does not exist: give 'builtin', a folder, or a name on the hub")
    try:
        config = AutoConfig.from_pretrained(str(where))
    except (OSError, ValueError) as error:
        raise EncoderError(
            f"base {str(where)!r} is neither a folder nor a name that the hub answers to ({first_line(error)}): "
            "give 'builtin', a folder, or a name on the hub"
        ) from error
    if type(config) not in MODEL_FOR_MASKED_LM_MAPPING or getattr(config, "is_encoder_decoder", False):
        raise EncoderError(
            f"{str(where)!r} is no encoder: its model type is {config.model_type!r}; "
            "give a bidirectional one, such as BERT, RoBERTa, DistilBERT, MPNet or ELECTRA"
        )
