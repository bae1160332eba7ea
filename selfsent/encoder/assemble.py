"""A SentenceTransformer of stock modules: a transformer, and what pools its hidden states."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from threading import RLock
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Pooling,
    Transformer,
    WeightedLayerPooling,
    WordWeights,
)
from torch import nn
from transformers import MODEL_MAPPING, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from selfsent.encoder import prompt
from selfsent.encoder.folder import CLOSED, ModuleEntry
from selfsent.errors import EncoderError
from selfsent.runtime.imports import without_collection

_LOADING = RLock()
POOLINGS = ("cls", "cls_pooler", "first_last", "first_last_paper", "lasttoken", "mean", "prompt", "top2")
_OF_LAYERS = {"first_last_paper": 0, "first_last": 1, "top2": -1}  # the first layer of the mean; the other is the last


def assemble(module: ModuleEntry, config: PreTrainedConfig, pooling: str, template: str) -> SentenceTransformer:
    """Build a SentenceTransformer of stock modules that pools as asked."""
    pooler = {} if pooling == "cls_pooler" else without_pooler(config)
    base = Transformer(
        str(module.path),
        model_kwargs={"use_safetensors": True, **pooler, **CLOSED},
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
    if pooling == "cls_pooler" and not any(name.endswith("pooler.dense.weight") for name in module.headers):
        raise EncoderError(f"{str(module.path)!r} has no pretrained pooler: choose pooling 'cls' or 'mean'")
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


def take_settings(encoder: SentenceTransformer, settings: Mapping[str, Any]) -> SentenceTransformer:
    """Give an encoder what ``config_sentence_transformers.json`` says, and return it."""
    encoder.prompts |= {name: text or "" for name, text in settings.get("prompts", {}).items()}
    encoder.default_prompt_name, encoder.truncate_dim, encoder.similarity_fn_name = (
        settings.get(name) for name in ("default_prompt_name", "truncate_dim", "similarity_fn_name")
    )
    return encoder


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
