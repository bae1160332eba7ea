"""Inference on a CPU with fused products, bias and GELU included, in bf16 or fp32.

A linear layer of torch adds its bias in a pass of its own, activations are another, and under autocast every LayerNorm
and product brings its conversions.  oneDNN does product, bias and GELU in one pass over weights that are laid out for
it once.  Within the block the stock modules stay; only their ``forward`` is replaced.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from transformers.activations import GELUActivation

_ROWS = 4096  # for which the layout of the weights is chosen; any other number of rows is right, too


def fused_products_fit(module: nn.Module, device: str) -> bool:
    """Tell whether this is a CPU whose torch has the fused products, and the module is one they can compute."""
    has = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return device == "cpu" and has and all(p.dtype in (torch.float32, torch.bfloat16) for p in module.parameters())


@contextmanager
def fused_products(module: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Run the linear layers of ``module`` fused, and its matrices in ``dtype``, for the block; without gradients.

    With bf16 the states between the layers are bf16, too.  Vectors (LayerNorm) stay fp32, which torch's kernels take
    beside bf16 states.
    """
    replaced: list[nn.Module] = []
    linear = [child for child in module.modules() if type(child) is nn.Linear]
    biases = [child.bias for child in linear if child.bias is not None]
    matrices = [p for p in module.parameters() if p.ndim >= 2]
    exact = [(p, p.data) for p in (*matrices, *biases)]
    try:
        for parameter, data in exact:
            parameter.data = data.to(dtype)
        forwards: list[tuple[nn.Module, Callable[[Tensor], Tensor]]] = []
        forwards += [(layer, _product(layer, "none")) for layer in linear]
        for parent in module.modules():
            forwards += _with_activation(parent)
        for child, forward in forwards:
            vars(child)["forward"] = forward  # on the instance, over that of the class
            replaced.append(child)
        yield
    finally:
        for child in replaced:
            vars(child).pop("forward", None)
        for parameter, data in exact:
            parameter.data = data


def _with_activation(parent: nn.Module) -> list[tuple[nn.Module, Callable[[Tensor], Tensor]]]:
    """Join a dense layer and the exact GELU behind it, where a family of BERT's kind keeps the two side by side."""
    dense, activation = getattr(parent, "dense", None), getattr(parent, "intermediate_act_fn", None)
    if type(dense) is nn.Linear and type(activation) is GELUActivation and activation.act is nn.functional.gelu:
        return [(dense, _product(dense, "gelu")), (activation, _unchanged)]
    return []


def _unchanged(states: Tensor) -> Tensor:
    return states


def _product(layer: nn.Linear, after: str) -> Callable[[Tensor], Tensor]:
    with torch.no_grad():
        weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), _ROWS)
    bias = None if layer.bias is None else layer.bias.detach()
    return partial(_apply, weight, bias, after)


def _apply(weight: Tensor, bias: Tensor | None, after: str, states: Tensor) -> Tensor:
    output: Tensor = torch.ops.mkldnn._linear_pointwise(
        states, weight, bias, after, [], "none" if after == "gelu" else ""
    )
    return output
