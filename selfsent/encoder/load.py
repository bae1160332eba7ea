"""Open an encoder: the built-in one, a folder, or a name on the hub."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding, WordWeights
from sentence_transformers.util import load_file_path
from transformers import MODEL_FOR_MASKED_LM_MAPPING, AutoConfig
from transformers.utils import logging

from selfsent.encoder import prompt
from selfsent.encoder.dropout import install_dropout, set_dropout
from selfsent.encoder.embed import install_word_dropout
from selfsent.encoder.inspect import transformer_of
from selfsent.encoder.pooling import POOLINGS, assemble, pooling_name, without_pooler
from selfsent.encoder.side_by_side import SideBySide
from selfsent.errors import ConfigurationError, EncoderError, first_line, unknown

BUILTIN = Path(__file__).parent.parent / "builtin" / "encoder"
SHIPPED = {"builtin": BUILTIN, "builtin-static": BUILTIN.parent / "static"}  # the encoders that come with the package


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
        name: "builtin", "builtin-static", a folder, or a name on the Hugging Face hub.
        pooling: one of ``POOLINGS``; ``mean`` keeps a folder's word weights.  Default: the folder's, or ``mean``.
        template: what ``prompt`` puts around a text.  Default: the folder's, or ``prompt.TEMPLATE``.
        max_length: word pieces, special tokens included; static vectors read everything.  Default: the encoder's own.
        dropout: the rate for every site.  Default: the encoder's own rates.
        prompts: keep the folder's prompts and truncation for ``encode``; training reads and embeds plain texts.

    Raises:
        UserError: no such folder or name, not an encoder of text, damaged weights, an unknown pooling, or a template
            that does not fit.
    """
    if pooling is not None and pooling not in POOLINGS:
        raise unknown("pooling", pooling, POOLINGS)
    if template is not None and pooling != "prompt":
        raise ConfigurationError(
            f"template {template!r} does not fit pooling {pooling!r}: give it with pooling 'prompt'"
        )
    where = str(SHIPPED.get(str(name), name))
    found = load_file_path(where, "modules.json")
    modules = json.loads(Path(found).read_text(encoding="utf-8")) if found else []
    if any(module["type"].endswith(".SideBySide") for module in modules):
        if pooling is not None:
            raise EncoderError(f"{str(name)!r} holds two encoders side by side: leave pooling {pooling!r} out")
        with quietly():
            return SentenceTransformer(modules=[SideBySide.load(where)], device="cpu").eval()
    layered = not any(module["type"].endswith("StaticEmbedding") for module in modules)
    if layered:
        _require_encoder(where)
    elif pooling not in (None, "mean"):
        raise EncoderError(f"{str(name)!r} holds static vectors, which are averaged: leave pooling {pooling!r} out")
    try:
        with quietly():
            encoder = None
            if modules and pooling in (None, "prompt", "mean"):
                # In fp32 from the start: modules behind a transformer in fp16 would be rounded to it.
                kwargs = {"dtype": torch.float32, **without_pooler(where)} if layered else {}
                encoder = SentenceTransformer(where, device="cpu", model_kwargs=kwargs)
            # A mean with weights for words counts as that folder's mean.
            own = () if encoder is None else (None, pooling_name(encoder).removeprefix("weighted_"))
            if encoder is None or pooling not in own or template is not None:
                encoder = assemble(where, pooling or "mean", template or prompt.TEMPLATE)
    except SafetensorError as error:
        raise EncoderError(
            f"the weights in {name} are cut short or damaged ({error}): wait if they are still being written, "
            "or copy them again"
        ) from error
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
        install_word_dropout(encoder[0].float())
    if max_length is not None and layered:
        encoder.max_seq_length = max_length
    if dropout is not None:
        set_dropout(encoder, dropout)
    if not prompts:
        encoder.prompts, encoder.default_prompt_name, encoder.truncate_dim = {}, None, None
    return encoder.eval()


@contextmanager
def quietly() -> Iterator[None]:
    """Turn transformers' progress bars and load reports off for the block; errors are still logged."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _require_encoder(where: str) -> None:
    folder = Path(where)
    if folder.is_file():
        raise EncoderError(f"{folder} is a file: give the folder of the model, or a name on the hub")
    if folder.is_dir() and not (folder / "config.json").is_file():
        if (folder / "modules.json").is_file():
            return  # its transformer, if it has one, is in a subfolder
        raise EncoderError(
            f"{folder} holds no encoder: expected a config.json or modules.json, as save_pretrained writes"
        )
    try:
        if not folder.is_dir() and (len(folder.parts) > 2 or folder.is_absolute()):
            raise OSError("no such folder")
        config = AutoConfig.from_pretrained(where)
    except (OSError, ValueError) as error:
        raise EncoderError(
            f"base {where!r} cannot be found ({first_line(error)}): give 'builtin', a folder, or a name on the hub"
        ) from error
    if type(config) not in MODEL_FOR_MASKED_LM_MAPPING or getattr(config, "is_encoder_decoder", False):
        raise EncoderError(
            f"{where!r} is no encoder: its model type is {config.model_type!r}; "
            "give a bidirectional one, such as BERT, RoBERTa, DistilBERT, MPNet or ELECTRA"
        )
