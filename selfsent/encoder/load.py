"""Open an encoder for training, as a SentenceTransformer: the built-in one, a folder, or a name on the hub."""

from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding, WordWeights
from tokenizers import Tokenizer

from selfsent.encoder import prompt
from selfsent.encoder.assemble import POOLINGS, assemble, quietly, without_pooler
from selfsent.encoder.base import read_settings
from selfsent.encoder.checks import is_decoder, limit_length, require_transformer, require_vectors, require_vocabulary
from selfsent.encoder.dropout import install_dropout, set_dropout
from selfsent.encoder.embed import install_word_dropout
from selfsent.encoder.folder import CLOSED, PAIR, UNIT, ModuleEntry, one_sentence, read_headers, read_modules
from selfsent.encoder.inspect import pooling_name, transformer_of
from selfsent.encoder.pair_module import open_pair
from selfsent.encoder.released import find_encoder
from selfsent.errors import ConfigurationError, EncoderError, unknown

_FIXED = {"StaticEmbedding": "static vectors, which are averaged", PAIR: "a pair of encoders"}


def load_encoder(
    name: str | Path,
    *,
    pooling: str | None = None,
    template: str | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
) -> SentenceTransformer:
    """Open an encoder, ready for training and encoding.

    Args:
        name: "builtin", "builtin-static", "builtin-mlm", a folder, or a name on the Hugging Face hub.
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
    with quietly(), one_sentence(str(name)):
        folder = find_encoder(name)
        first = read_modules(folder)[0]
        if first.kind in _FIXED and pooling not in (None, *["mean"] * (first.kind == "StaticEmbedding")):
            raise EncoderError(f"{str(name)!r} holds {_FIXED[first.kind]}: leave pooling {pooling!r} out")
        if first.kind == PAIR:
            return open_pair(folder, load_encoder)
        if first.kind == "Transformer":
            require_transformer(first.folder)
        encoder = _open(folder, first, pooling, template)
        for tensor in chain(encoder.parameters(), encoder.buffers()):
            tensor.data = tensor.data.clone()  # and not mapped to a file, which another program may write into
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
        require_vectors(encoder.eval(), str(name))
        return encoder


def _open(folder: Path, first: ModuleEntry, pooling: str | None, template: str | None) -> SentenceTransformer:
    encoder = _open_int8(folder, first) if first.kind == "StaticEmbedding" else None
    if encoder is None and (folder / "modules.json").exists() and pooling in (None, "prompt", "mean"):
        kwargs = {}
        if first.kind == "Transformer":
            # In fp32 from the start: modules behind a transformer in fp16 would be rounded to it.
            kwargs = {"dtype": torch.float32, "use_safetensors": True, **without_pooler(first.folder)}
        encoder = SentenceTransformer(str(folder), device="cpu", model_kwargs=kwargs, **CLOSED)
        if read_modules(folder)[-1].folder.name.endswith(UNIT):
            setattr(encoder[-1], UNIT, True)
    # A mean with weights for words counts as that folder's mean.
    own = () if encoder is None else (None, pooling_name(encoder).removeprefix("weighted_"))
    if encoder is None or pooling not in own or template is not None:
        usual = "lasttoken" if is_decoder(first.folder) else "mean"
        encoder = assemble(first.folder, pooling or usual, template or prompt.TEMPLATE)
        settings = read_settings(folder)
        encoder.prompts |= {name: text or "" for name, text in settings.get("prompts", {}).items()}
        encoder.default_prompt_name, encoder.truncate_dim = (
            settings.get(name) for name in ("default_prompt_name", "truncate_dim")
        )
        encoder.similarity_fn_name = settings.get("similarity_fn_name")
    return encoder


def _open_int8(folder: Path, first: ModuleEntry) -> SentenceTransformer | None:
    """Open static vectors in int8, as model2vec writes them, as floats, which torch trains; None: they are floats."""
    if "I8" not in {kind for kind, _ in read_headers(first.folder).values()}:
        return None
    behind = [entry.kind for entry in read_modules(folder)[1:]]
    if {*behind} - {"Normalize"}:
        raise EncoderError(f"{folder} has {behind[0]} behind static vectors in int8: save its vectors as floats")
    (path,) = first.folder.glob("model*.safetensors")
    tensors, settings = load_file(path), read_settings(folder)
    table = tensors["embedding.weight" if "embedding.weight" in tensors else "embeddings"].float()
    if "mapping" in tensors:  # the row of every token
        table = table[tensors["mapping"].long()]
    if "weights" in tensors:
        table = (table * tensors["weights"][:, None]).float()
    static = StaticEmbedding(Tokenizer.from_file(str(first.folder / "tokenizer.json")), embedding_weights=table)
    names = ("prompts", "default_prompt_name", "truncate_dim", "similarity_fn_name")
    kept: Any = {key: settings.get(key) for key in names}
    return SentenceTransformer(modules=[static, *(Normalize() for _ in behind)], device="cpu", **kept)
