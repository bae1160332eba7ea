"""Inference on a CPU with fused products, bias and GELU included, in bf16 or fp32.

torch adds the bias of a linear layer in a second pass and its activation in a third, and autocast converts around every
LayerNorm and product.  oneDNN computes product, bias and GELU in one pass over weights in a layout of its own.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selfsent.runtime.hardware import bf16_weights

_ROWS = 4096  # for which the layout of the weights is chosen; other numbers of rows give correct results, too


def fused_products_fit(module: nn.Module, device: str, dtype: torch.dtype = torch.float32) -> bool:
    """Tell whether torch has the fused products in ``dtype`` on this device, for parameters of these types."""
    has = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if dtype == torch.bfloat16:  # oneDNN has none on processors without AVX-512
        has = has and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return device == "cpu" and has and all(p.dtype in (torch.float32, torch.bfloat16) for p in module.parameters())


@contextmanager
def fused_products(module: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Run the linear layers of ``module`` fused, and its matrices in ``dtype``, for the block; without gradients.

    With bf16 the states between the layers are bf16, too.  Vectors (LayerNorm) stay fp32, which torch's kernels take
    beside bf16 states.  Only the ``forward`` of the modules is replaced.
    """
    linear = [child for child in module.modules() if type(child) is nn.Linear]
    biases = [child.bias for child in linear if child.bias is not None]
    exact = [(p, p.data) for p in (*(p for p in module.parameters() if p.ndim >= 2), *biases)]
    forwards: dict[nn.Module, Callable[[Tensor], Tensor]] = {}
    try:
        for parameter, data in exact:
            parameter.data = data.to(dtype)
        forwards |= {layer: _product(layer, "none") for layer in linear}
        for parent in module.modules():
            # A dense layer and the exact GELU behind it, where a family of BERT's kind keeps the two side by side.
            dense, activation = getattr(parent, "dense", None), getattr(parent, "intermediate_act_fn", None)
            if type(dense) is nn.Linear and isinstance(activation, nn.Module) and _is_exact_gelu(activation):
                forwards |= {dense: _product(dense, "gelu"), activation: lambda states: states}
        for child, forward in forwards.items():
            vars(child)["forward"] = forward  # on the instance, over that of the class
        yield
    finally:
        for child in forwards:
            vars(child).pop("forward", None)
        for parameter, data in exact:
            parameter.data = data


def _is_exact_gelu(activation: nn.Module) -> bool:
    """Recognise torch's GELU, and that of transformers, which holds a function, without importing transformers."""
    if type(activation) is nn.GELU:
        return activation.approximate == "none"
    return type(activation).__name__ == "GELUActivation" and getattr(activation, "act", None) is F.gelu


@contextmanager
def ready_weights(
    model: nn.Module, device: str, *, low: bool, around: nn.Module | None = None
) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Prepare layers for passes without gradients, in bf16 (``low``) or fp32; yield what every pass is made under.

    Autocast is of the thread and of the block of ``torch.inference_mode`` that it is entered in, and ends with it: so
    that it is not part of what is prepared once.

    Args:
        around: the module whose matrices are held in bf16 where there are no fused products.  Default: ``model``.
    """
    dtype = torch.bfloat16 if low else torch.float32
    if fused_products_fit(model, device, dtype):
        with fused_products(model, dtype):
            yield nullcontext
    else:
        with bf16_weights(around or model) if low else nullcontext():
            yield lambda: torch.autocast(device, torch.bfloat16, enabled=low)


@contextmanager
def ready_layers(model: nn.Module, device: str, *, low: bool, around: nn.Module | None = None) -> Iterator[None]:
    """Prepare layers as ``ready_weights`` does, for passes within the block and its thread."""
    with ready_weights(model, device, low=low, around=around) as passing, passing():
        yield


def _product(layer: nn.Linear, after: str) -> Callable[[Tensor], Tensor]:
    with torch.no_grad():
        weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), _ROWS)
    bias = None if layer.bias is None else layer.bias.detach()
    last = "none" if after == "gelu" else ""
    return lambda states: torch.ops.mkldnn._linear_pointwise(states, weight, bias, after, [], last)
