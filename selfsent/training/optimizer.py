"""Learning-rate schedules, AdamW's settings, and fp32 master weights beside bf16 matrices."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from selfsent.config import TrainConfig


def learning_rate(step: int, steps: int, config: TrainConfig) -> float:
    """Return the rate of update ``step``, counted from 0: a pure function, so there is no schedule to save."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    if config.schedule == "slanted":
        return slanted_triangular(step + 1, steps, config.learning_rate)
    left = (steps - step) / max(1, steps - config.warmup_steps)
    shape = {"constant": 1.0, "linear": left, "cosine": (1 + math.cos(math.pi * (1 - left))) / 2}[config.schedule]
    return config.learning_rate * shape


def slanted_triangular(step: int, steps: int, peak: float, cut_share: float = 0.1, ratio: int = 32) -> float:
    """Return a rate that rises from ``peak / ratio`` over a tenth of the steps, then falls back to it.

    Source: Howard & Ruder 2018, https://arxiv.org/abs/1801.06146, equation 3, with step 1 as its first update.
    """
    cut = math.floor(cut_share * steps)
    height = step / cut if step < cut else 1 - (step - cut) / (steps - cut)
    return peak * (1 + height * (ratio - 1)) / ratio


def adam_settings(step: int, rate: float, weight_decay: float, config: TrainConfig) -> dict[str, float]:
    """Return AdamW's settings for update ``step``, counted from 0.

    Without bias correction an update is rate * m / (sqrt(v) + eps).  Torch's divides m by 1 - beta1^t and v by
    1 - beta2^t; the same update results from another rate and eps, and a weight decay that undoes the rate's change.
    """
    if config.adam_bias_correction:
        return {"lr": rate, "eps": config.adam_epsilon, "weight_decay": weight_decay}
    first, second = (1 - beta ** (step + 1) for beta in config.adam_betas)
    factor = first / math.sqrt(second)
    return {"lr": rate * factor, "eps": config.adam_epsilon / math.sqrt(second), "weight_decay": weight_decay / factor}


def parameter_groups(parameters: Sequence[nn.Parameter], weight_decay: float) -> list[dict[str, object]]:
    """Apart: matrices, which decay, and vectors (biases, LayerNorm), which do not."""
    matrices = [p for p in parameters if p.ndim >= 2]
    vectors = [p for p in parameters if p.ndim < 2]
    return [{"params": matrices, "decay": weight_decay}, {"params": vectors, "decay": 0.0}]


_LARGE_TABLE = 2**20  # elements


@contextmanager
def row_gradients(module: nn.Module) -> Iterator[None]:
    """Let large tables of embeddings collect their gradients as rows for the block, on a CPU.

    Otherwise every forward pass of a step, of which DeCLUTR has a dozen, makes a gradient as large as the table and
    adds it to the others.  Here each backward pass makes one of all rows, so that ``grad`` is never sparse behind it.
    """
    tables = [
        layer
        for layer in module.modules()
        if isinstance(layer, nn.Embedding)
        and layer.weight.device.type == "cpu"
        and layer.weight.numel() >= _LARGE_TABLE
    ]
    own = [layer.sparse for layer in tables]
    hooks = [
        layer.weight.register_post_accumulate_grad_hook(_join_rows) for layer in tables if layer.weight.requires_grad
    ]
    try:
        for layer in tables:
            layer.sparse = True
        yield
    finally:
        for layer, sparse in zip(tables, own, strict=True):
            layer.sparse = sparse
        for hook in hooks:
            hook.remove()


def _join_rows(table: Tensor) -> None:
    if table.grad is not None and table.grad.is_sparse:
        table.grad = table.grad.to_dense()


class MasterWeights:
    """Matrices of a module held in bf16 for the arithmetic and in fp32 for the optimizer.

    What ``torch.autocast`` does, without casting every weight again in every step.  Vectors (biases, LayerNorm) stay
    in fp32 throughout, and so do the tables of embeddings: the gradient of a row is a sum over every place where its
    word stands, and torch sums it in the type of the table; in bf16 the sum of 4,096 places is less than half of what
    it should be.  Runs under autocast, which leaves the bf16 matrices alone.

        optimizer = AdamW(masters.parameters())
        loss.backward(); masters.collect_gradients(); optimizer.step(); masters.publish()
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        tables = {id(layer.weight) for layer in module.modules() if isinstance(layer, nn.Embedding | nn.EmbeddingBag)}
        self._working: list[nn.Parameter] = [
            p
            for p in module.parameters()
            if p.ndim >= 2 and p.dtype == torch.float32 and p.requires_grad and id(p) not in tables
        ]
        self._masters: list[nn.Parameter] = [nn.Parameter(p.detach().clone()) for p in self._working]
        self.publish()

    def parameters(self) -> list[nn.Parameter]:
        """List what the optimizer updates: the fp32 copy of each matrix, every other parameter itself."""
        master = {id(p): m for p, m in zip(self._working, self._masters, strict=True)}
        return [master.get(id(p), p) for p in self.module.parameters() if p.requires_grad]

    def collect_gradients(self) -> None:
        """Hand the bf16 gradients of this step to the fp32 copies."""
        for working, master in zip(self._working, self._masters, strict=True):
            master.grad = None if working.grad is None else working.grad.float()
            working.grad = None

    def publish(self) -> None:
        """Round the fp32 copies into the matrices that the arithmetic uses."""
        for working, master in zip(self._working, self._masters, strict=True):
            if working.dtype == torch.bfloat16:
                working.data.copy_(master.data)
            else:
                working.data = master.data.to(torch.bfloat16)

    def restore(self) -> None:
        """Put the fp32 values into the module for good."""
        for working, master in zip(self._working, self._masters, strict=True):
            working.data = master.data

    @contextmanager
    def exact(self) -> Iterator[None]:
        """Put the fp32 values into the module for the block: to save or evaluate them."""
        rounded: list[Tensor] = [p.data for p in self._working]
        self.restore()
        try:
            yield
        finally:
            for working, data in zip(self._working, rounded, strict=True):
                working.data = data
