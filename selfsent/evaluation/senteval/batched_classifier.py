"""SentEval's classifier on frozen vectors: all fits of a cross-validation as one batched problem.

    model        softmax(W x + b), or softmax(W2 sigmoid(dropout(W1 x + b1)) + b2); cross-entropy, mean over the batch
    update       Adam (lr 1e-3) or RMSprop (lr 1e-2, alpha 0.99); the L2 penalty is added to the gradient of weights
                 and biases
    round        a number of passes over the training rows, each in a new order; then the accuracy on the stopping rows
    stopping     a strictly better accuracy keeps the weights.  Any other round ends the fit if ``tenacity`` such rounds
                 came before it, in total and not in a row.  No round starts after more than ``max_passes`` passes.

The seed is set before each classifier is built, so fits on equally many rows start from the same weights and use the
same orders, which are drawn once for all of them.  Fits are trained together in batches of G folds with R regularisers
each; the R fits of a fold share its rows.  Each fit has its own penalty, best weights and end.

Weights are a list: W (G, R, C, D) and b (G, R, C, 1); with a hidden layer of H units W1 (G, R, H, D), b1, W2
(G, R, C, H), b2.  Updates are element-wise, so stacking fits changes none of them.  Gradients are written out because
autograd took 1.7 to 2.3 times as long on matrices this small.

Source: the behaviour of facebookresearch/SentEval @ 5d6dc11, senteval/tools/classifier.py.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Lock
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from selfsent.progress import SILENT, Progress
from selfsent.runtime.hardware import one_thread

SEED = 1111
TILE = 4 << 20  # bytes of rows and weights that one step of a batch of fits works on: stays in the processor's cache
BLOCK = 8192  # rows scored at a time
HELD_OUT = 0.05  # share of the training rows that stops a fit for which no other rows are given

Rows = Int[np.ndarray, " _"]  # of any number: several occur in one signature
Grid = Float[np.ndarray, "F R"]  # a value for each fold and regulariser


@dataclass(frozen=True)
class Fold:
    """Training rows, and the rows whose accuracy stops the training; None holds out 5 % of the training rows."""

    train: Rows
    stop: Rows | None


@dataclass(frozen=True)
class Features:
    """Rows of features, in memory or computed when needed."""

    width: int
    take: Callable[[Int[Tensor, " N"]], Float[Tensor, "N D"]]

    @classmethod
    def of(cls, values: Float[Tensor, "N D"]) -> "Features":
        """Return features in memory."""
        return cls(values.shape[1], partial(values.index_select, 0))


@dataclass(kw_only=True)
class Fits:
    """The trained classifiers of F folds with R regularisers each."""

    accuracy: Grid  # best on the stopping rows, 0-1
    passes: Int[np.ndarray, "F R"]  # over the training rows until the fit stopped
    history: list[list[list[float]]]  # [fold][regulariser]: accuracy after each round
    weights: list[Tensor] = field(repr=False)  # the best, with F for G

    def predict(self, features: Features, rows: Rows, fold: int, regulariser: int) -> Rows:
        """Return the class that one fit predicts for each row."""
        one = [weight[fold, regulariser][None, None] for weight in self.weights]
        return _predict(one, features, torch.from_numpy(rows))[0].numpy()


@dataclass(frozen=True, kw_only=True)
class SentEval:
    """How SentEval's classifier is trained; the defaults are those behind the literature's numbers."""

    optimizer: Literal["adam", "rmsprop"] = "adam"
    batch_size: int = 64
    passes: int = 4  # of a round
    tenacity: int = 5
    max_passes: int = 200
    hidden: int = 0  # width of the sigmoid layer; 0: a linear classifier
    dropout: float = 0.0  # before the sigmoid
    grid: Sequence[float] = (1e-5, 1e-4, 1e-3, 1e-2)  # L2 penalties, smallest first

    def fit(
        self, features: Features, labels: Rows, folds: Sequence[Fold], regularisers: Grid, progress: Progress = SILENT
    ) -> Fits:
        """Train a classifier for every fold and regulariser; the classes are 0 to the largest label.

        Raises:
            ValueError: a fold has no training rows or no stopping rows.
        """
        splits = [_split(fold) for fold in folds]
        for split in splits:
            if not len(split.train) or not len(split.stop):
                raise ValueError(f"a fold has {len(split.train)} training rows and {len(split.stop)} stopping rows")
        classes = int(labels.max()) + 1
        first, _ = initial_weights(features.width, classes, hidden=self.hidden)
        fits = Fits(
            accuracy=np.full(regularisers.shape, -1.0),
            passes=np.zeros(regularisers.shape, dtype=np.int64),
            history=[[[] for _ in row] for row in regularisers],
            weights=[weight.expand(*regularisers.shape, *weight.shape).clone() for weight in first],
        )
        target, lock, stopped, done = torch.from_numpy(labels), Lock(), Event(), 0

        def train(members: list[int]) -> None:
            nonlocal done
            penalties = torch.from_numpy(regularisers[members].astype(np.float32))
            batch = _Batch(self, features, target, [splits[index] for index in members], penalties)
            for ended in batch.train(fits, members):
                if stopped.is_set():
                    return
                if ended:
                    with lock:
                        done += ended
                        progress.report("classifiers trained", done, regularisers.size)

        parameters = regularisers.shape[1] * (self.hidden or classes) * features.width
        most = max(1, TILE // (4 * (self.batch_size * features.width + parameters)))
        _in_threads(train, _batches(splits, most), stopped)
        return fits


def _batches(splits: Sequence["_Split"], most: int) -> list[list[int]]:
    """Group the folds that draw the same orders into batches of at most ``most``, at least one for each thread."""
    groups: dict[tuple[int, int], list[int]] = {}
    for index, split in enumerate(splits):
        groups.setdefault((split.drawn, len(split.train)), []).append(index)
    batches: list[list[int]] = []
    for members in groups.values():
        count = max(math.ceil(len(members) / most), min(torch.get_num_threads(), len(members)))
        batches += [part.tolist() for part in np.array_split(members, count)]
    return batches


def _in_threads(train: Callable[[list[int]], None], batches: list[list[int]], stopped: Event) -> None:
    """Train all batches, one thread each: matrices this small do not profit from several."""
    threads = torch.get_num_threads()
    if threads == 1 or len(batches) == 1:
        for members in batches:
            train(members)
        return
    with one_thread():
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            futures = [pool.submit(train, members) for members in sorted(batches, key=len, reverse=True)]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                stopped.set()  # ends the threads that still run after an error or Ctrl-C
        for future in futures:
            future.result()


class _Split(NamedTuple):
    train: Rows
    stop: Rows
    drawn: int  # length of the permutation drawn from the random stream before the first pass; 0: none


def _split(fold: Fold) -> _Split:
    if fold.stop is not None:
        return _Split(fold.train, fold.stop, 0)
    order = np.random.RandomState(SEED).permutation(len(fold.train))
    cut = int(HELD_OUT * len(order))
    return _Split(fold.train[order[cut:]], fold.train[order[:cut]], len(order))


class _Batch:
    """Fits on equally many rows, trained step by step together."""

    def __init__(
        self, settings: SentEval, features: Features, labels: Tensor, splits: list[_Split], penalties: Tensor
    ) -> None:
        classes = int(labels.max()) + 1
        self._settings, self._features, self._labels, self._splits = settings, features, labels, splits
        self._rows = torch.from_numpy(np.stack([split.train for split in splits]))  # (G, n)
        self._penalties = penalties[:, :, None, None]  # of (G, R)
        self._orders = np.random.RandomState(SEED)
        if splits[0].drawn:
            self._orders.permutation(splits[0].drawn)
        first, self._masks = initial_weights(features.width, classes, hidden=settings.hidden)
        self._weights = [weight.expand(*penalties.shape, *weight.shape).clone() for weight in first]
        self._moments, self._steps = zero_moments(self._weights), 0

    def train(self, fits: Fits, members: list[int]) -> Iterator[int]:
        """Train until all fits have stopped, storing results in ``fits``; yield how many ended, after each pass."""
        settings = self._settings
        stopping = Stopping(tuple(self._penalties.shape[:2]), settings.tenacity)
        alive, where = np.arange(len(members)), np.array(members)  # alive: folds with a fit that has not stopped
        passes = 0
        while len(alive) and passes <= settings.max_passes:
            for _ in range(settings.passes):
                self._pass()
                yield 0
            passes += settings.passes
            accuracy = stopping.best.copy()
            accuracy[alive] = self._accuracy()
            ran = stopping.running.copy()
            better = stopping.update(accuracy)
            for g, r in np.argwhere(ran):
                fits.history[where[g]][r].append(float(accuracy[g, r]))
                fits.passes[where[g], r] = passes
            for place, g in enumerate(alive):
                improved = torch.from_numpy(np.flatnonzero(better[g]))
                for kept, weight in zip(fits.weights, self._weights, strict=True):
                    kept[int(where[g]), improved] = weight[place, improved]
            yield int((ran & ~stopping.running).sum())
            still = stopping.running[alive].any(axis=1)
            if not still.all():
                self._keep(torch.from_numpy(np.flatnonzero(still)))
                alive = alive[still]
        fits.accuracy[where] = stopping.best
        yield int(stopping.running.sum())

    def _pass(self) -> None:
        hidden, keep = self._settings.hidden, 1 - self._settings.dropout
        update = adam if self._settings.optimizer == "adam" else rmsprop
        mask = None
        order = torch.from_numpy(self._orders.permutation(self._rows.shape[1]))
        for rows in self._rows[:, order].split(self._settings.batch_size, dim=1):  # (G, B)
            x = self._features.take(rows.reshape(-1)).view(*rows.shape, -1)
            if hidden and keep < 1:
                mask = torch.empty(rows.shape[1], hidden).bernoulli_(keep, generator=self._masks).div_(keep).T
            gradients = gradients_of(self._weights, x, self._labels[rows], mask)
            for gradient, weight in zip(gradients, self._weights, strict=True):
                gradient.addcmul_(weight, self._penalties)
            self._steps += 1
            update(self._weights, gradients, self._moments, self._steps)

    def _accuracy(self) -> Float[np.ndarray, "G R"]:
        accuracies = []
        for place, split in enumerate(self._splits):
            rows = torch.from_numpy(split.stop)
            predicted = _predict([weight[place][None] for weight in self._weights], self._features, rows)
            accuracies.append((predicted == self._labels[rows]).double().mean(dim=1).numpy())
        return np.stack(accuracies)

    def _keep(self, places: Int[Tensor, " K"]) -> None:
        """Drop all folds but these."""
        self._rows, self._penalties = self._rows[places], self._penalties[places]
        self._splits = [self._splits[int(place)] for place in places]
        self._weights = [weight[places] for weight in self._weights]
        self._moments = [(mean[places], square[places]) for mean, square in self._moments]


class Stopping:
    """Early stopping of many fits, as the head of this module defines it."""

    def __init__(self, shape: tuple[int, ...], tenacity: int) -> None:
        self.best = np.full(shape, -1.0)
        self.running = np.ones(shape, dtype=bool)
        self._tenacity = tenacity
        self._failures = np.zeros(shape, dtype=np.int64)

    def update(self, accuracy: Float[np.ndarray, "*S"]) -> Bool[np.ndarray, "*S"]:
        """Take the accuracies after a round and return which running fits improved."""
        better = self.running & (accuracy > self.best)
        self.best = np.where(better, accuracy, self.best)
        worse = self.running & ~better
        self.running = self.running & ~(worse & (self._failures >= self._tenacity))
        self._failures += worse
        return better


Moments = list[tuple[Tensor, Tensor]]  # running means of each weight's gradients and of their squares


def zero_moments(weights: list[Tensor]) -> Moments:
    """Return the moments before the first step."""
    return [(torch.zeros_like(weight), torch.zeros_like(weight)) for weight in weights]


def adam(weights: list[Tensor], gradients: list[Tensor], moments: Moments, step: int) -> None:
    """Update weights and moments in place by Adam with PyTorch's defaults; steps count from 1."""
    means, squares = zip(*moments, strict=True)
    # What torch.optim.Adam(fused=True) calls: one operation in place of seven for each weight, a fifth of the time.
    torch._fused_adam_(
        weights,
        gradients,
        list(means),
        list(squares),
        [],
        [torch.tensor(float(step))] * len(weights),
        lr=1e-3,
        beta1=0.9,
        beta2=0.999,
        weight_decay=0.0,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )


def rmsprop(weights: list[Tensor], gradients: list[Tensor], moments: Moments, _step: int) -> None:
    """Update weights and squares in place by RMSprop as SentEval sets it."""
    for weight, gradient, (_, square) in zip(weights, gradients, moments, strict=True):
        square.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
        weight.addcdiv_(gradient, square.sqrt().add_(1e-8), value=-1e-2)


def initial_weights(width: int, classes: int, *, hidden: int = 0) -> tuple[list[Tensor], torch.Generator]:
    """Return W (out, in) and b (out, 1) of each layer as PyTorch draws them from ``SEED``, and the stream after it."""
    generator = torch.Generator().manual_seed(SEED)
    weights = []
    for out, into in [(hidden, width), (classes, hidden)] if hidden else [(classes, width)]:
        weight, bias = torch.empty(out, into), torch.empty(out)
        nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
        nn.init.uniform_(bias, -1 / math.sqrt(into), 1 / math.sqrt(into), generator=generator)
        weights += [weight, bias[:, None]]
    return weights, generator


def logits_of(
    weights: list[Tensor], x: Float[Tensor, "G B D"], mask: Float[Tensor, "H B"] | None
) -> tuple[Float[Tensor, "G R C B"], Float[Tensor, "G R H B"] | None]:
    """Return logits and, with a hidden layer, its output.  Rows come last, so that softmax reads contiguous memory."""
    groups, fits, out, width = weights[0].shape
    flat = weights[0].view(groups, fits * out, width), weights[1].view(groups, fits * out, 1)
    z = torch.baddbmm(flat[1], flat[0], x.transpose(1, 2)).view(groups, fits, out, -1)
    if len(weights) == 2:
        return z, None
    hidden = (z if mask is None else z * mask).sigmoid()
    return weights[2] @ hidden + weights[3], hidden


def gradients_of(
    weights: list[Tensor], x: Float[Tensor, "G B D"], labels: Int[Tensor, "G B"], mask: Float[Tensor, "H B"] | None
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


def _predict(weights: list[Tensor], features: Features, rows: Int[Tensor, " N"]) -> Int[Tensor, "R N"]:
    """Return the classes that R fits of one fold predict for rows."""
    parts = [logits_of(weights, features.take(part)[None], None)[0][0].argmax(dim=1) for part in rows.split(BLOCK)]
    return torch.cat(parts, dim=1)
