"""A SentenceTransformer of stock modules: a transformer and what pools its hidden states, or static vectors."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from inspect import signature
from threading import RLock
from typing import Any

import torch
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
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_MAPPING,
    MT5Config,
    MT5EncoderModel,
    PreTrainedConfig,
    PreTrainedModel,
    T5Config,
    T5EncoderModel,
    UMT5Config,
    UMT5EncoderModel,
)
from transformers.utils import logging

from selfsent.encoder import prompt
from selfsent.encoder.bert import TEXT_DEFAULTS
from selfsent.encoder.folder import CLOSED, ModelFolder
from selfsent.encoder.static import read_vectors
from selfsent.errors import EncoderError
from selfsent.runtime.imports import without_collection

_LOADING = RLock()
# Of these, which have a decoder, too, the encoder alone is opened, as sentence-transformers does.
HALVES: dict[type, Any] = {T5Config: T5EncoderModel, MT5Config: MT5EncoderModel, UMT5Config: UMT5EncoderModel}
POOLINGS = ("cls", "cls_pooler", "first_last", "first_last_paper", "lasttoken", "mean", "prompt", "top2")
_OF_LAYERS = {"first_last_paper": 0, "first_last": 1, "top2": -1}  # the first layer of the mean; the other is the last


def assemble(
    folder: ModelFolder, config: PreTrainedConfig, pooling: str | None, template: str | None
) -> SentenceTransformer:
    """Build a SentenceTransformer of the folder's transformer and of stock modules that pool as asked, or as is usual.

    Of a decoder every token sees those before it alone, so that the last one sees the whole text.
    """
    module, kind = folder.modules[0], type(config)
    causal = kind in MODEL_FOR_CAUSAL_LM_MAPPING and kind not in MODEL_FOR_MASKED_LM_MAPPING and kind not in HALVES
    pooling = pooling or ("lasttoken" if causal else "mean")
    pooler = {} if pooling == "cls_pooler" else without_pooler(config)
    plain = {key: TEXT_DEFAULTS[key] for key in ("modality_config", "module_output_name")}  # no text becomes a chat
    base = Transformer(
        str(module.path),
        **deepcopy(plain),
        max_seq_length=folder.texts.get("max_seq_length"),
        do_lower_case=bool(folder.texts.get("do_lower_case")),
        model_kwargs={"use_safetensors": True, **pooler, **CLOSED},
        config_kwargs={**({"output_hidden_states": True} if pooling in _OF_LAYERS else {}), **CLOSED},
        processor_kwargs={**CLOSED},
    )
    model = base.model
    weights = None
    if pooling == "prompt":
        mask, vocabulary = base.tokenizer.mask_token, base.tokenizer.get_vocab()
        base.processor = prompt.wrap_tokenizer(base.tokenizer, template or prompt.TEMPLATE)
        words = [""] * max(model.config.vocab_size, 1 + max(vocabulary.values()))
        for word, number in vocabulary.items():
            words[number] = word
        weights = WordWeights(words, {mask: 1.0}, unknown_word_weight=0.0)
    if pooling == "cls_pooler" and not any(name.endswith("pooler.dense.weight") for name in module.headers):
        raise EncoderError(f"{str(module.path)!r} has no pretrained pooler: choose pooling 'cls' or 'mean'")
    modules = [base, *pooling_modules(pooling, model, weights)]
    return SentenceTransformer(modules=modules, device="cpu", **folder.arguments)


def assemble_int8(folder: ModelFolder) -> SentenceTransformer | None:
    """Open static vectors in int8, as model2vec writes them, as floats, which torch trains; None: they are floats."""
    first, behind = folder.modules[0], folder.kinds[1:]
    if "I8" not in {kind for kind, _ in first.headers.values()} or (table := read_vectors(first)) is None:
        return None
    if {*behind} - {"Normalize"}:
        raise EncoderError(f"{folder.path} has {behind[0]} behind static vectors in int8: save its vectors as floats")
    static = StaticEmbedding(Tokenizer.from_file(str(first.path / "tokenizer.json")), embedding_weights=table)
    return SentenceTransformer(modules=[static, *(Normalize() for _ in behind)], device="cpu", **folder.arguments)


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


def without_pooler(config: PreTrainedConfig) -> dict[str, object]:
    """Leave BERT's pooler out where the class allows: it is unused, and often random, which no digest could compare."""
    model = MODEL_MAPPING.get(type(config), None)
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
