"""The small network on frozen vectors, for many fits at once: first weights, gradients, updates, and when to stop.

Weights are a list: W (G, R, C, D) and b (G, R, C, 1) for G folds with R fits each; with a hidden layer of H units
W1 (G, R, H, D), b1, W2 (G, R, C, H), b2.  Updates are element-wise, so stacking fits changes none of them.
"""

import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn


def initial_weights(width: int, classes: int, *, hidden: int, seed: int) -> tuple[list[Tensor], torch.Generator]:
    """Return W (out, in) and b (out, 1) of each layer as PyTorch draws them from the seed, and the stream after it."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [(hidden, width), (classes, hidden)] if hidden else [(classes, width)]
    weights = []
    for out, into in sizes:
        weight, bias = torch.empty(out, into), torch.empty(out)
        nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
        nn.init.uniform_(bias, -1 / math.sqrt(into), 1 / math.sqrt(into), generator=generator)
        weights += [weight, bias[:, None]]
    return weights, generator


class Stopping:
    """When fits stop: cumulative, strict, each on its own."""

    def __init__(self, shape: tuple[int, ...], tenacity: int) -> None:
        self.best = np.full(shape, -1.0)
        self.running = np.ones(shape, dtype=bool)
        self._tenacity = tenacity
        self._failures = np.zeros(shape, dtype=np.int64)

    def update(self, accuracy: Float[np.ndarray, "*S"]) -> Bool[np.ndarray, "*S"]:
        """Hear the accuracies after a round and return which running fits got better."""
        better = self.running & (accuracy > self.best)
        self.best = np.where(better, accuracy, self.best)
        worse = self.running & ~better
        self.running = self.running & ~(worse & (self._failures >= self._tenacity))
        self._failures += worse
        return better


class Adam:
    """Adam with PyTorch's defaults, as element-wise updates of stacked weights."""

    def __init__(self, weights: list[Tensor]) -> None:
        self._moments = [(torch.zeros_like(weight), torch.zeros_like(weight)) for weight in weights]
        self._steps = 0

    def step(self, weights: list[Tensor], gradients: list[Tensor]) -> None:
        """Change the weights in place."""
        self._steps += 1
        rate = 1e-3 / (1 - 0.9**self._steps)
        root = math.sqrt(1 - 0.999**self._steps)
        for weight, gradient, (mean, square) in zip(weights, gradients, self._moments, strict=True):
            mean.lerp_(gradient, 0.1)
            square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            weight.addcdiv_(mean, square.sqrt().div_(root).add_(1e-8), value=-rate)

    def keep(self, places: Int[Tensor, " K"]) -> None:
        """Go on with some of the stacked weights alone."""
        self._moments = [(mean[places], square[places]) for mean, square in self._moments]


class RMSprop:
    """RMSprop as SentEval sets it."""

    def __init__(self, weights: list[Tensor]) -> None:
        self._squares = [torch.zeros_like(weight) for weight in weights]

    def step(self, weights: list[Tensor], gradients: list[Tensor]) -> None:
        """Change the weights in place."""
        for weight, gradient, square in zip(weights, gradients, self._squares, strict=True):
            square.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
            weight.addcdiv_(gradient, square.sqrt().add_(1e-8), value=-1e-2)

    def keep(self, places: Int[Tensor, " K"]) -> None:
        """Go on with some of the stacked weights alone."""
        self._squares = [square[places] for square in self._squares]


OPTIMIZERS: dict[str, type[Adam] | type[RMSprop]] = {"adam": Adam, "rmsprop": RMSprop}


def logits_of(
    weights: list[Tensor], x: Float[Tensor, "G B D"], mask: Float[Tensor, "H B"] | None
) -> tuple[Float[Tensor, "G R C B"], Float[Tensor, "G R H B"] | None]:
    """Return logits and, with a hidden layer, its output; rows last: so softmax and products run along memory."""
    groups, fits, out, width = weights[0].shape
    flat = weights[0].view(groups, fits * out, width), weights[1].view(groups, fits * out, 1)
    z = torch.baddbmm(flat[1], flat[0], x.transpose(1, 2)).view(groups, fits, out, -1)
    if len(weights) == 2:
        return z, None
    hidden = (z if mask is None else z * mask).sigmoid()
    return weights[2] @ hidden + weights[3], hidden


def gradients_of(
    weights: list[Tensor],
    x: Float[Tensor, "G B D"],
    labels: Int[Tensor, "G B"],
    mask: Float[Tensor, "H B"] | None,
) -> list[Tensor]:
    """Return the gradient of each fit's own mean cross-entropy, one for each of the weights."""
    logits, hidden = logits_of(weights, x, mask)
    groups, fits, _, rows = logits.shape
    error = logits.softmax(dim=2)
    answers = labels[:, None, None, :].expand(groups, fits, 1, rows)
    error.scatter_add_(2, answers, error.new_full((1,), -1.0).expand_as(answers))
    error /= rows
    gradients: list[Tensor] = []
    if hidden is not None:
        gradients = [error @ hidden.transpose(2, 3), error.sum(dim=3, keepdim=True)]
        error = (weights[2].transpose(2, 3) @ error) * hidden * (1 - hidden)
        if mask is not None:
            error = error * mask
    first = torch.bmm(error.reshape(groups, -1, rows), x).view_as(weights[0])
    return [first, error.sum(dim=3, keepdim=True), *gradients]
