"""One ONNX graph of everything between token ids and the embedding, written by torch's exporter; int8 by onnxruntime's.

    input_ids, attention_mask[, token_type_ids]  (B, T)  ->  last_hidden_state (B, T, H), sentence_embedding (B, D)
                                                 or      ->  sentence_embedding (B, D)

The first form is for a transformer with cls or mean pooling and for static vectors, which other libraries pool by
themselves from the first output.  Of any other pipeline (word weights, a prompt, several layers, a dense layer) they
would pool something else without a word, so that its graph has the embedding alone.

A pair of encoders is one graph, too, whose embedding is that of ``EncoderPair``.  Encoders that read the same token ids
share the inputs; otherwise encoder k has inputs of its own, with token ids by its own tokenizer:

    input_ids_k, attention_mask_k[, token_type_ids_k]  (B, T_k)  for each k  ->  sentence_embedding (B, D_0 + D_1 + ...)
"""

import json
import logging
import warnings
from collections.abc import Iterator, Sequence
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
from torch.nn import functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from selfsent.encoder.inspect import tokenizer_of, transformer_of
from selfsent.encoder.pair import spread_prompt
from selfsent.encoder.pair_module import map_of, parts_of, weights_of
from selfsent.encoder.save import read_length
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
            f"export to ONNX needs the package {package.partition('.')[0]}: pip install '.[onnx]' in the checkout"
        ) from None


def require_one_graph(encoder: SentenceTransformer, name: str) -> None:
    """Refuse an encoder that no graph over token ids can express.

    Raises:
        EncoderError: another kind of encoder than transformers and static vectors, or a pooling that leaves a prompt
            out.
    """
    for one in parts_of(encoder) or [encoder]:
        if transformer_of(one) is None and not isinstance(one[0], StaticEmbedding):
            kind = type(one[0]).__name__
            raise EncoderError(f"{name} begins with {kind}: only transformers and static vectors become ONNX graphs")
        if any(encoder.prompts.values()) and not all(part.include_prompt for part in one if isinstance(part, Pooling)):
            raise EncoderError(
                f"the pooling of {name} leaves the words of a prompt out, which no graph over token ids can"
            )


def share_tokens(encoders: Sequence[SentenceTransformer]) -> bool:
    """Tell whether encoders read the same token ids of every text, with the same prompt before it.

    Static vectors read all of it, and no special ones.
    """
    if any(isinstance(one[0], StaticEmbedding) for one in encoders):
        return False
    if len({*spread_prompt("a prompt", [one.prompts for one in encoders])}) > 1:
        return False
    return len({repr(_reading(tokenizer_of(one), read_length(one))) for one in encoders}) == 1


def tokenizer_count(encoder: SentenceTransformer) -> int:
    """Return by how many tokenizers the inputs of a graph are made: by each of those side by side, or by one."""
    parts = parts_of(encoder) or [encoder]
    return 1 if len(parts) == 1 or share_tokens(parts) else len(parts)


def _reading(tokenizer: PreTrainedTokenizerBase, length: int) -> list[Any]:
    """Return all that the token ids of a text depend on; a slow tokenizer is like no other."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return [id(tokenizer)]
    definition = json.loads(backend.to_str()) | {"truncation": None, "padding": None}  # these are of the last call
    return [definition, length, bool(getattr(tokenizer, "split_special_tokens", False))]


def pooled_elsewhere(encoder: SentenceTransformer) -> bool:
    """Tell whether other libraries can pool the hidden states by themselves: cls or mean, then perhaps Normalize."""
    first, *behind = encoder
    if not isinstance(first, StaticEmbedding):  # which is a mean by itself
        pooling = behind.pop(0) if behind else None
        if not (isinstance(pooling, Pooling) and pooling.pooling_mode in ("cls", "mean")):
            return False
    return all(isinstance(one, Normalize) for one in behind)


class _Layers(nn.Module):
    """A transformer and the modules behind it."""

    def __init__(self, encoder: SentenceTransformer) -> None:
        super().__init__()
        self.layers, self.behind = transformer_of(encoder), nn.ModuleList(list(encoder)[1:])
        self.names = _taken(encoder)

    def forward(self, tokens: dict[str, Tensor]) -> dict[str, Any]:
        assert self.layers is not None
        output = self.layers(**{name: tokens[name] for name in self.names})
        features: dict[str, Any] = {**tokens, "token_embeddings": output.last_hidden_state}
        if output.hidden_states is not None:
            features["all_layer_embeddings"] = output.hidden_states
        for module in self.behind:
            features = module(features)
        return features | {"last_hidden_state": output.last_hidden_state}


class _Words(nn.Module):
    """Static word vectors, averaged; a text without words is zero, as it is in an EmbeddingBag."""

    def __init__(self, encoder: SentenceTransformer) -> None:
        super().__init__()
        self.vectors, self.behind = encoder[0].get_parameter("embedding.weight"), nn.ModuleList(list(encoder)[1:])

    def forward(self, tokens: dict[str, Tensor]) -> dict[str, Any]:
        mask = tokens["attention_mask"].unsqueeze(-1).float()
        words = F.embedding(tokens["input_ids"], self.vectors)
        mean = (words * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        features: dict[str, Any] = {"sentence_embedding": mean, "last_hidden_state": words}
        for module in self.behind:
            features = module(features)
        return features


class _Graph(nn.Module):
    """The modules of an encoder, or of several side by side, with tensors as arguments, as an exporter wants them."""

    def __init__(self, encoder: SentenceTransformer, outputs: tuple[str, ...]) -> None:
        super().__init__()
        parts = parts_of(encoder) or [encoder]
        self.parts = nn.ModuleList(_Layers(one) if transformer_of(one) is not None else _Words(one) for one in parts)
        self.weights = weights_of(encoder)
        self.behind = map_of(encoder)
        self.widths = [one.truncate_dim for one in parts]
        self.outputs = outputs

    def forward(self, tokens: dict[str, Tensor]) -> Any:  # noqa: ANN401
        if self.weights is None:
            found = self.parts[0](tokens)
            return tuple(found[name] for name in self.outputs)
        sides = []
        for number, (part, weight, width) in enumerate(zip(self.parts, self.weights, self.widths, strict=True)):
            end = f"_{number}"
            own = {name.removesuffix(end): value for name, value in tokens.items() if name.endswith(end)}
            vector = part(own or tokens)["sentence_embedding"][:, :width]
            sides.append(weight**0.5 * F.normalize(vector.float(), dim=1))
        joined = F.normalize(torch.cat(sides, dim=1), dim=1)
        return (joined if self.behind is None else self.behind(joined),)


def _taken(encoder: SentenceTransformer) -> list[str]:
    """Return the inputs of an encoder, in order."""
    model = transformer_of(encoder)
    if model is None:
        return list(_INPUTS[:2])
    taken = {*signature(type(model).forward).parameters} & {*tokenizer_of(encoder).model_input_names}
    return [name for name in _INPUTS if name in taken]


def _inputs(encoder: SentenceTransformer) -> tuple[dict[str, Tensor], dict[str, dict[int, str]]]:
    """Return an example of the inputs of a graph, and the names of their axes."""
    parts = parts_of(encoder) or [encoder]
    if tokenizer_count(encoder) == 1:
        taken = {name for one in parts for name in _taken(one)}
        inputs = {name: (name, 3, "sequence") for name in _INPUTS if name in taken}
    else:
        inputs = {
            f"{name}_{number}": (name, 3 + number, f"sequence_{number}")
            for number, one in enumerate(parts)
            for name in _taken(one)
        }
    # Two rows of three tokens or more, because the exporter takes a size of 1 for a constant.
    example = {key: torch.full((2, size), int(name != "token_type_ids")) for key, (name, size, _) in inputs.items()}
    return example, {key: {0: "batch", 1: axis} for key, (*_, axis) in inputs.items()}


def write_graph(encoder: SentenceTransformer, path: Path) -> tuple[str, ...]:
    """Write the graph of an encoder in fp32; return the names of its outputs.

    Raises:
        UserError: a layer has no ONNX operator (the message quotes the exporter), or a package is missing.
    """
    require_onnx("onnxscript")
    example, axes = _inputs(encoder)
    outputs = _OUTPUTS if pooled_elsewhere(encoder) else _OUTPUTS[1:]
    with _exportable(encoder):
        try:
            program = torch.onnx.export(
                _Graph(encoder, outputs),
                kwargs={"tokens": example},
                dynamo=True,
                dynamic_shapes={"tokens": axes},
                input_names=list(example),
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
def _exportable(encoder: SentenceTransformer) -> Iterator[None]:
    """Compute attention by plain products, which every exporter knows, without dropout, for the block."""
    models = [module for module in encoder.modules() if isinstance(module, PreTrainedModel)]
    training, attentions = encoder.training, [model.config._attn_implementation for model in models]
    encoder.eval()
    for model in models:
        model.set_attn_implementation("eager")
    try:
        with torch.no_grad(), _quiet():
            yield
    finally:
        for model, attention in zip(models, attentions, strict=True):
            model.set_attn_implementation(attention)
        encoder.train(training)


@contextmanager
def _quiet() -> Iterator[None]:
    """Turn the exporters' log lines and warnings off for the block: an error is raised all the same.

    A first log line without a handler adds one to the root logger, which would print what others log from then on.
    """
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "root", "")]
    levels, handlers = [logger.level for logger in loggers], logging.root.handlers[:]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.root.handlers[:] = handlers
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _reason(error: BaseException) -> str:
    """Return what the exporter says of the first operator that it does not know, or the first line of its error."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)
