"""Open an encoder: the built-in one, a folder, or a name on the hub."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding, WordWeights
from transformers.utils import logging

from selfsent.encoder import prompt
from selfsent.encoder.checks import limit_length, require_transformer, require_vectors, require_vocabulary
from selfsent.encoder.dropout import install_dropout, set_dropout
from selfsent.encoder.embed import install_word_dropout
from selfsent.encoder.folder import CLOSED, PAIR, ModuleEntry, find_model, one_sentence, read_modules
from selfsent.encoder.inspect import transformer_of
from selfsent.encoder.pair_module import open_pair
from selfsent.encoder.pooling import POOLINGS, assemble, pooling_name, without_pooler
from selfsent.errors import ConfigurationError, EncoderError, unknown
from selfsent.runtime.imports import without_collection

_LOADING = RLock()
_FIXED = {"StaticEmbedding": "static vectors, which are averaged", PAIR: "a pair of encoders"}


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
        name: "builtin", "builtin-static", "builtin-mlm", a folder, or a name on the Hugging Face hub.
        pooling: one of ``POOLINGS``; ``mean`` keeps a folder's word weights.  Default: the folder's, or ``mean``.
        template: what ``prompt`` puts around a text.  Default: the folder's, or ``prompt.TEMPLATE``.
        max_length: tokens of a text, special ones included and a prompt's own not; longer texts are cut.  Static
            vectors read everything.  Default: the encoder's own.
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
    with quietly(), one_sentence(str(name)):
        folder = find_model(name)
        first = read_modules(folder)[0]
        if first.kind in _FIXED and pooling not in (None, *["mean"] * (first.kind == "StaticEmbedding")):
            raise EncoderError(f"{str(name)!r} holds {_FIXED[first.kind]}: leave pooling {pooling!r} out")
        if first.kind == PAIR:
            pair = open_pair(folder, load_encoder)
            return pair if prompts else _plain(pair)
        if first.kind == "Transformer":
            require_transformer(first.folder)
        encoder = _open(folder, first, pooling, template)
        require_vocabulary(encoder, str(name))
        for module in encoder:
            if isinstance(module, WordWeights):
                module.requires_grad_(False)  # the weights of words are fixed
        model = transformer_of(encoder)
        if model is not None:
            model.float()
            install_dropout(model)
            limit_length(encoder, max_length)
        elif isinstance(encoder[0], StaticEmbedding):
            install_word_dropout(encoder[0].float())
        if dropout is not None:
            set_dropout(encoder, dropout)
        if not prompts:
            _plain(encoder)
        require_vectors(encoder.eval(), str(name))
        return encoder


def _plain(encoder: SentenceTransformer) -> SentenceTransformer:
    """Leave out the prompts and the truncation of a folder."""
    encoder.prompts, encoder.default_prompt_name, encoder.truncate_dim = {}, None, None
    return encoder


def _open(folder: Path, first: ModuleEntry, pooling: str | None, template: str | None) -> SentenceTransformer:
    encoder = None
    if (folder / "modules.json").exists() and pooling in (None, "prompt", "mean"):
        kwargs = {}
        if first.kind == "Transformer":
            # In fp32 from the start: modules behind a transformer in fp16 would be rounded to it.
            kwargs = {"dtype": torch.float32, "use_safetensors": True, **without_pooler(first.folder)}
        encoder = SentenceTransformer(str(folder), device="cpu", model_kwargs=kwargs, **CLOSED)
    # A mean with weights for words counts as that folder's mean.
    own = () if encoder is None else (None, pooling_name(encoder).removeprefix("weighted_"))
    if encoder is None or pooling not in own or template is not None:
        encoder = assemble(first.folder, pooling or "mean", template or prompt.TEMPLATE)
    return encoder


@contextmanager
def quietly() -> Iterator[None]:
    """Turn transformers' progress bars and load reports off for the block, in one thread at a time.

    transformers replaces methods of its classes while it loads: two threads that load at once can leave them replaced,
    and no later model would have its output tied to its word embeddings.  Errors are still logged.
    """
    with _LOADING, without_collection():
        level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(level)
            if bars:
                logging.enable_progress_bar()
