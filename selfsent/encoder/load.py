"""Open an encoder for training, as a SentenceTransformer: the built-in one, a folder, or a name on the hub."""

from itertools import chain
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding, WordWeights

from selfsent.encoder.assemble import POOLINGS, assemble, assemble_int8, quietly, without_pooler
from selfsent.encoder.checks import limit_length, require_transformer, require_vectors, require_vocabulary
from selfsent.encoder.dropout import install_dropout, set_dropout
from selfsent.encoder.embed import install_word_dropout
from selfsent.encoder.folder import CLOSED, PAIR, UNIT, ModelFolder, one_sentence
from selfsent.encoder.inspect import pooling_name, transformer_of
from selfsent.encoder.pair_module import open_pair
from selfsent.encoder.released import read_encoder
from selfsent.errors import ConfigurationError, EncoderError, unknown

_FIXED = {"StaticEmbedding": "static vectors, which are averaged", PAIR: "a pair of encoders"}


def load_encoder(
    name: str | Path | ModelFolder,
    *,
    pooling: str | None = None,
    template: str | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
) -> SentenceTransformer:
    """Open an encoder, ready for training and encoding.

    Args:
        name: "builtin", "builtin-static", "builtin-mlm", a folder, a name on the Hugging Face hub, or what
            ``read_encoder`` read of one.
        pooling: one of ``POOLINGS``; ``mean`` keeps a folder's word weights.  Default: the folder's, or
            ``mean``, or of a decoder ``lasttoken``, whose state alone has seen the whole text.
        template: what ``prompt`` puts around a text.  Default: the folder's, or ``prompt.TEMPLATE``.
        max_length: tokens of a text, special ones included and a prompt's own not; longer texts are cut.  Static
            vectors read everything.  Default: the encoder's own.
        dropout: the rate for every site.  Default: the encoder's own rates.

    Raises:
        UserError: no such folder or name, not an encoder of text, damaged weights, an unknown pooling, or a template
            that does not fit.

    Examples:
        >>> encoder = selfsent.load("runs/tickets/model")
        >>> print(encoder.get_embedding_dimension(), encoder.max_seq_length)
    """
    if pooling is not None and pooling not in POOLINGS:
        raise unknown("pooling", pooling, POOLINGS)
    if template is not None and pooling != "prompt":
        raise ConfigurationError(
            f"template {template!r} does not fit pooling {pooling!r}: give it with pooling 'prompt'"
        )
    folder = read_encoder(name)
    first = folder.kinds[0]
    if first in _FIXED and pooling not in (None, *["mean"] * (first == "StaticEmbedding")):
        raise EncoderError(f"{folder.name!r} holds {_FIXED[first]}: leave pooling {pooling!r} out")
    with quietly(), one_sentence(folder.name):
        if folder.encoders:
            return open_pair(folder, load_encoder)
        encoder = _open(folder, pooling, template)
        for tensor in chain(encoder.parameters(), encoder.buffers()):
            tensor.data = tensor.data.clone()  # and not mapped to a file, which another program may write into
        for module in encoder:
            if isinstance(module, WordWeights):
                module.requires_grad_(False)  # the weights of words are fixed
        model = transformer_of(encoder)
        if model is not None:
            model.float()
            install_dropout(model)
        elif isinstance(encoder[0], StaticEmbedding):
            install_word_dropout(encoder[0].float())
        if dropout is not None:
            set_dropout(encoder, dropout)
        require_vocabulary(encoder, folder.name)
        if model is not None:
            limit_length(encoder, max_length)
        require_vectors(encoder.eval(), folder.name)
        return encoder


def _open(folder: ModelFolder, pooling: str | None, template: str | None) -> SentenceTransformer:
    first = folder.modules[0]
    config = require_transformer(first) if first.kind == "Transformer" else None
    encoder = assemble_int8(folder) if config is None else None
    if folder.listed and (
        "message" in (folder.texts.get("modality_config") or {}) or folder.texts.get("processing_kwargs")
    ):
        raise EncoderError(
            f"{folder.name} puts its texts into a template of chats, or reads them by settings of its own, which is "
            "not done here: give an encoder that reads text as it is"
        )
    if encoder is None and folder.listed and pooling in (None, "prompt", "mean"):
        # In fp32 from the start: modules behind a transformer in fp16 would be rounded to it.
        exact = {"dtype": torch.float32, "use_safetensors": True}
        kwargs = {} if config is None else exact | without_pooler(config)
        encoder = SentenceTransformer(str(folder.path), device="cpu", model_kwargs=kwargs, **CLOSED)
    if encoder is not None and folder.unit_added:
        setattr(encoder[-1], UNIT, True)
    # A mean with weights for words counts as that folder's mean.
    own = () if encoder is None else (None, pooling_name(encoder).removeprefix("weighted_"))
    if encoder is not None and pooling in own and template is None:
        return encoder
    assert config is not None  # static vectors have no pooling but their own
    return assemble(folder, config, pooling, template)
