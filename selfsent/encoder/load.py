"""Open an encoder for training, as a SentenceTransformer: the built-in one, a folder, or a name on the hub."""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from itertools import chain
from pathlib import Path
from threading import RLock
from typing import Any

import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Normalize,
    Pooling,
    StaticEmbedding,
    Transformer,
    WeightedLayerPooling,
    WordWeights,
)
from tokenizers import Tokenizer
from torch import nn
from transformers import MODEL_MAPPING, AutoConfig, AutoModel, PreTrainedModel
from transformers.utils import logging

from selfsent.encoder import prompt
from selfsent.encoder.base import read_settings
from selfsent.encoder.checks import is_decoder, limit_length, require_transformer, require_vectors, require_vocabulary
from selfsent.encoder.dropout import install_dropout, set_dropout
from selfsent.encoder.embed import install_word_dropout
from selfsent.encoder.folder import (
    CLOSED,
    PAIR,
    UNIT,
    ModuleEntry,
    find_model,
    one_sentence,
    read_headers,
    read_modules,
)
from selfsent.encoder.inspect import pooling_name, transformer_of
from selfsent.encoder.pair_module import open_pair
from selfsent.errors import ConfigurationError, EncoderError, unknown
from selfsent.runtime.imports import without_collection

_LOADING = RLock()
POOLINGS = ("cls", "cls_pooler", "first_last", "first_last_paper", "lasttoken", "mean", "prompt", "top2")
_OF_LAYERS = {"first_last_paper": 0, "first_last": 1, "top2": -1}  # the first layer of the mean; the other is the last
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
        folder = find_model(name)
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


def assemble(where: Path, pooling: str, template: str) -> SentenceTransformer:
    """Build a SentenceTransformer of stock modules that pools as asked."""
    base = Transformer(
        str(where),
        model_kwargs={"use_safetensors": True, **({} if pooling == "cls_pooler" else without_pooler(where)), **CLOSED},
        config_kwargs={**({"output_hidden_states": True} if pooling in _OF_LAYERS else {}), **CLOSED},
        processor_kwargs={**CLOSED},
    )
    model = base.model
    weights = None
    if pooling == "prompt":
        mask, vocabulary = base.tokenizer.mask_token, base.tokenizer.get_vocab()
        base.processor = prompt.wrap_tokenizer(base.tokenizer, template)
        words = [""] * max(model.config.vocab_size, 1 + max(vocabulary.values()))
        for word, number in vocabulary.items():
            words[number] = word
        weights = WordWeights(words, {mask: 1.0}, unknown_word_weight=0.0)
    if pooling == "cls_pooler":
        _, loading = AutoModel.from_pretrained(where, use_safetensors=True, output_loading_info=True, **CLOSED)
        if getattr(model, "pooler", None) is None or any("pooler" in key for key in loading["missing_keys"]):
            raise EncoderError(f"{str(where)!r} has no pretrained pooler: choose pooling 'cls' or 'mean'")
    return SentenceTransformer(modules=[base, *pooling_modules(pooling, model, weights)], device="cpu")


def pooling_modules(pooling: str, model: PreTrainedModel, mask_weights: WordWeights | None = None) -> list[nn.Module]:
    """Build the modules that pool the hidden states of ``model``; ``prompt`` needs weights: 1 for the mask, else 0."""
    width = model.config.hidden_size
    modules: list[nn.Module] = []
    if pooling in _OF_LAYERS:
        layers = model.config.num_hidden_layers
        start = layers - 1 if pooling == "top2" else _OF_LAYERS[pooling]
        weights = torch.zeros(layers + 1 - start, device=model.device)
        weights[0] = weights[-1] = 1.0
        layered = WeightedLayerPooling(width, layers, start)
        layered.layer_weights = nn.Parameter(weights, requires_grad=False)
        modules.append(layered)
    if pooling == "prompt":
        if mask_weights is None:
            raise EncoderError("this encoder was opened without a prompt: open it with pooling='prompt'")
        # With weight 1 for the mask and 0 for every other token, the mean is exactly the state of the mask.
        modules.append(mask_weights)
    mode = "cls" if pooling.startswith("cls") else "lasttoken" if pooling == "lasttoken" else "mean"
    modules.append(Pooling(width, mode))
    if pooling == "cls_pooler":
        pooler = getattr(getattr(model, "pooler", None), "dense", None)
        if pooler is None:
            raise EncoderError("this encoder was opened without a pooler: open it with pooling='cls_pooler'")
        dense = Dense(width, width, activation_function=nn.Tanh()).to(model.device)
        dense.linear.load_state_dict(pooler.state_dict())
        modules.append(dense)
    return modules


def without_pooler(where: Path) -> dict[str, object]:
    """Leave BERT's pooler out where the class allows: it is unused, and often random, which no digest could compare."""
    model = MODEL_MAPPING.get(type(AutoConfig.from_pretrained(where, **CLOSED)), None)
    return {"add_pooling_layer": False} if isinstance(model, type) and may_have_pooler(model) else {}


def may_have_pooler(model: type[PreTrainedModel]) -> bool:
    """Tell whether a model class can be built with or without BERT's pooler."""
    return "add_pooling_layer" in signature(model).parameters


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
