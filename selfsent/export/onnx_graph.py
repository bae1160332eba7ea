"""One ONNX graph of everything between token ids and the embedding, written by torch's exporter; int8 by onnxruntime's.

    input_ids, attention_mask[, token_type_ids]  (B, T)  ->  last_hidden_state (B, T, H), sentence_embedding (B, D)
                                                 or      ->  sentence_embedding (B, D)

The first form is for a transformer with cls or mean pooling, which other libraries pool by themselves from the first
output.  Of any other pipeline (word weights, a prompt, several layers, a dense layer) they would pool something else
without a word, so that its graph has the embedding alone.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, StaticEmbedding
from torch import Tensor, nn
from transformers import PreTrainedModel

from selfsent.encoder.inspect import tokenizer_of, transformer_of
from selfsent.encoder.side_by_side import parts_of
from selfsent.errors import ConfigurationError, EncoderError, first_line

OPSET = 20
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_OUTPUTS = ("last_hidden_state", "sentence_embedding")


def require_onnx(package: str) -> ModuleType:
    """Import a package of the extra ``onnx``.

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        return import_module(package)
    except ImportError:
        raise ConfigurationError(
            f"export to ONNX needs the package {package.partition('.')[0]}: pip install 'selfsent[onnx]'"
        ) from None


def require_one_graph(encoder: SentenceTransformer, name: str) -> None:
    """Refuse an encoder that no single graph over one tokenizer's ids can express.

    Raises:
        EncoderError: two encoders side by side, or static vectors, or a pooling that leaves a prompt out.
    """
    if parts_of(encoder):
        raise EncoderError(
            f"{name} holds two encoders side by side, each with a tokenizer of its own, which no single ONNX graph can "
            "express: export each of its folders, or distil both into one with selfsent train distil"
        )
    if isinstance(encoder[0], StaticEmbedding):
        raise EncoderError(
            f"{name} holds static word vectors, a table that needs no graph: StaticEmbedding of sentence-transformers "
            "and model2vec open the folder as it is"
        )
    if transformer_of(encoder) is None:
        raise EncoderError(f"{name} begins with {type(encoder[0]).__name__}: only transformers become ONNX graphs")
    if any(encoder.prompts.values()) and not all(one.include_prompt for one in encoder if isinstance(one, Pooling)):
        raise EncoderError(f"the pooling of {name} leaves the words of a prompt out, which no graph over token ids can")


def pooled_elsewhere(encoder: SentenceTransformer) -> bool:
    """Tell whether other libraries can pool the hidden states by themselves: cls or mean, then perhaps Normalize."""
    modules = list(encoder)[1:]
    pooling = modules[0] if modules else None
    return (
        isinstance(pooling, Pooling)
        and pooling.pooling_mode in ("cls", "mean")
        and all(isinstance(one, Normalize) for one in modules[1:])
    )


class _Graph(nn.Module):
    """The modules of an encoder with tensors as arguments, as an exporter wants them."""

    def __init__(self, encoder: SentenceTransformer, outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.layers, self.behind = transformer_of(encoder), nn.ModuleList(list(encoder)[1:])
        self.outputs = outputs

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Any:  # noqa: ANN401
        tokens = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            tokens["token_type_ids"] = token_type_ids
        assert self.layers is not None
        output = self.layers(**tokens)
        features: dict[str, Any] = {**tokens, "token_embeddings": output.last_hidden_state}
        if output.hidden_states is not None:
            features["all_layer_embeddings"] = output.hidden_states
        for module in self.behind:
            features = module(features)
        found = {"last_hidden_state": output.last_hidden_state, "sentence_embedding": features["sentence_embedding"]}
        return tuple(found[name] for name in self.outputs)


def write_graph(encoder: SentenceTransformer, path: Path) -> tuple[str, ...]:
    """Write the graph of an encoder in fp32; return the names of its outputs.

    Raises:
        UserError: a layer has no ONNX operator (the message quotes the exporter), or a package is missing.
    """
    require_onnx("onnxscript")
    model = transformer_of(encoder)
    assert model is not None, "require_one_graph is asked before"
    taken = {*signature(type(model).forward).parameters} & {*tokenizer_of(encoder).model_input_names}
    names = [name for name in _INPUTS if name in taken]
    outputs = _OUTPUTS if pooled_elsewhere(encoder) else _OUTPUTS[1:]
    # Two rows of three tokens, because the exporter takes a size of 1 for a constant.
    example = tuple(torch.full((2, 3), int(name != "token_type_ids")) for name in names)
    with _exportable(encoder, model):
        try:
            program = torch.onnx.export(
                _Graph(encoder, outputs),
                example,
                dynamo=True,
                dynamic_shapes=[{0: "batch", 1: "sequence"}] * len(names),
                input_names=names,
                output_names=list(outputs),
                opset_version=OPSET,
                verbose=False,
            )
        except Exception as error:  # of the exporter, of torch.export, or of any layer
            raise EncoderError(f"this encoder cannot be written as ONNX: {_reason(error)}") from error
    assert program is not None
    program.save(path, external_data=False)
    return outputs


def quantize_graph(path: Path, target: Path) -> None:
    """Write a graph with int8 weights, one scale a channel; activations are quantised while it runs.

    Raises:
        ConfigurationError: a package is missing.
    """
    require_onnx("onnx")
    quantization = require_onnx("onnxruntime.quantization")
    with _quiet():
        quantization.quantize_dynamic(
            path,
            target,
            weight_type=quantization.QuantType.QInt8,
            per_channel=True,
            extra_options={"DefaultTensorType": 1},  # of tensors whose type shape inference does not find: float
        )


@contextmanager
def _exportable(encoder: SentenceTransformer, model: PreTrainedModel) -> Iterator[None]:
    """Compute attention by plain products, which every exporter knows, without dropout, for the block."""
    training, attention = encoder.training, model.config._attn_implementation
    encoder.eval()
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad(), _quiet():
            yield
    finally:
        model.set_attn_implementation(attention)
        encoder.train(training)


@contextmanager
def _quiet() -> Iterator[None]:
    """Turn the exporters' log lines and warnings off for the block: an error is raised all the same."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "root", "")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _reason(error: BaseException) -> str:
    """Return what the exporter says of the first operator that it does not know, or the first line of its error."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)
