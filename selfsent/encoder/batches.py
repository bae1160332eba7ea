"""Rows of token ids in batches, and passes without gradients: of similar lengths, with fused products, in bf16.

torch adds the bias of a linear layer in a second pass and its activation in a third, and autocast converts around every
LayerNorm and product.  oneDNN computes product, bias and GELU in one pass over weights in a layout of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import chain

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from selfsent.encoder.base import Encoder
from selfsent.progress import SILENT, Progress
from selfsent.runtime import hardware
from selfsent.runtime.precision import require_precision

Tokens = dict[str, Tensor]  # what a tokenizer returns: input_ids (B, T), attention_mask (B, T)

_TOKENS_A_BATCH = 4096  # encode() on a CPU: enough rows for full-speed products, few enough to stay in the cache
_TOKENS_ELSEWHERE = 16 * _TOKENS_A_BATCH  # on a GPU, which is waited for after each batch; other sizes were not tried
_ROWS = 4096  # for which the layout of the weights is chosen; other numbers of rows give correct results, too


def pad_rows(rows: Sequence[Sequence[int]], padding: int, device: torch.device | str, width: int | None) -> Tokens:
    """Pad rows of token ids to the longest of them, or to ``width``."""
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(width or int(lengths.max())) < lengths[:, None]
    ids = torch.full(mask.shape, padding, dtype=torch.long)
    flat = np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum()))  # torch reads lists more slowly
    ids[mask] = torch.from_numpy(flat)
    return {"input_ids": ids.to(device), "attention_mask": mask.long().to(device)}


def encode_rows(
    rows: Sequence[Sequence[int]],
    embed: Callable[[list[Sequence[int]]], list[Tensor]],
    device: str,
    progress: Progress = SILENT,
    *,
    budget: int | None = None,
) -> list[Float[np.ndarray, "N _"]]:
    """Embed rows, longest first, in batches of at most ``budget`` tokens, or of one row.

    Args:
        embed: returns one (B, D) tensor or several of a batch of rows.
        budget: tokens, padding included.  Default: as many as ``device`` computes well.

    Returns:
        As many (N, D) arrays in the order of the rows; none if there is no row.
    """
    budget = budget or (_TOKENS_A_BATCH if device == "cpu" else _TOKENS_ELSEWHERE)
    arrays: list[Float[np.ndarray, "N _"]] = []
    done, order = 0, sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    with torch.inference_mode():
        while done < len(order):
            batch = order[done : done + max(1, budget // max(1, len(rows[order[done]])))]
            vectors = [tensor.cpu().numpy() for tensor in embed([rows[i] for i in batch])]
            arrays = arrays or [np.empty((len(rows), vector.shape[1]), np.float32) for vector in vectors]
            for array, vector in zip(arrays, vectors, strict=True):
                array[batch] = vector
            done += len(batch)
            progress.report("encode", done, len(rows))
    return arrays


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
        with hardware.bf16_weights(around or model) if low else nullcontext():
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


class LayersEncoder(Encoder):
    """What encoders that have layers share: a device, a precision, and layers that stay ready for many calls."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self._low = False
        self._ready = ExitStack()
        self._passing: Callable[[], AbstractContextManager[None]] | None = None

    def in_bf16(self, precision: str) -> bool:  # noqa: D102 - of the base class, as the others
        require_precision(precision)
        return precision == "bf16" or (precision == "auto" and hardware.has_fast_bf16(self.device.type))

    def prepare(self, precision: str = "auto") -> None:  # noqa: D102
        super().prepare(precision)
        self._low = self.in_bf16(precision)

    def close(self) -> None:  # noqa: D102
        self._ready.close()
        self._passing = None

    def _keep_ready(self, layers: nn.Module, around: nn.Module | None = None) -> AbstractContextManager[None]:
        """Return what a pass is made under; the first call prepares the layers, as ``ready_weights`` does."""
        if self._passing is None:
            ready = ready_weights(layers, self.device.type, low=self._low, around=around)
            self._passing = self._ready.enter_context(ready)
        return self._passing()
