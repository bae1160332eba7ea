"""SentEval's classifier on frozen vectors: all fits of a cross-validation as one batched problem.

    model        softmax(W x + b), or softmax(W2 sigmoid(dropout(W1 x + b1)) + b2); cross-entropy, mean over the batch
    update       Adam (lr 1e-3) or RMSprop (lr 1e-2, alpha 0.99), the L2 penalty coupled into the gradient of weights
                 and biases
    round        so many passes over the training rows, each in a new order; then the accuracy on the stopping rows
    stopping     a strictly better accuracy keeps the weights.  Any other round stops the fit when the counter of such
                 rounds has reached ``tenacity``, and raises the counter; it is never set back.  No new round starts
                 after more than ``max_passes`` passes.

The seed is set before each classifier is built, so fits on equally many rows start from the same weights and draw the
same orders: such a stream is drawn once and read by all of them.  Fits go through their steps together, (G, R) of them
for G folds and R regularisers; the R fits of a fold share its rows.  Each fit has its own penalty, its own best weights
and its own end.

Source: the behaviour of facebookresearch/SentEval @ 5d6dc11, senteval/tools/classifier.py.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from selfsent.evaluation.senteval.network import OPTIMIZERS, Stopping, gradients_of, initial_weights, logits_of

TILE = 4 << 20  # bytes of rows and weights that one step of a batch of fits works on: stays in the processor's cache
BLOCK = 8192  # rows scored at a time
HELD_OUT = 0.05  # share of the training rows that stops a fit for which no other rows are given

Rows = Int[np.ndarray, " _"]  # of any number: several stand in one signature


@dataclass(frozen=True, kw_only=True)
class ClassifierSettings:
    """How one classifier is trained; the defaults are those behind the literature's numbers."""

    optimizer: Literal["adam", "rmsprop"] = "adam"
    batch_size: int = 64
    passes: int = 4  # of a round
    tenacity: int = 5
    max_passes: int = 200
    hidden: int = 0  # width of the sigmoid layer; 0: a linear classifier
    dropout: float = 0.0  # before the sigmoid
    seed: int = 1111


@dataclass(frozen=True)
class Fold:
    """Rows to learn from, and rows whose accuracy says when to stop; None holds out 5 % of the first."""

    train: Rows
    stop: Rows | None


@runtime_checkable
class Features(Protocol):
    """Rows of features, wherever they come from."""

    @property
    def width(self) -> int:
        """Return D."""

    def take(self, rows: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
        """Return the features of these rows."""


@dataclass
class Matrix:
    """Features that stand in memory."""

    values: Float[Tensor, "N D"]

    @property
    def width(self) -> int:
        """Return D."""
        return self.values.shape[1]

    def take(self, rows: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
        """Return the features of these rows."""
        return self.values.index_select(0, rows)


@dataclass(kw_only=True)
class Fits:
    """What came of F folds with R regularisers each."""

    accuracy: Float[np.ndarray, "F R"]  # best on the stopping rows, 0-1
    passes: Int[np.ndarray, "F R"]  # over the training rows until the fit stopped
    history: list[list[list[float]]]  # [fold][regulariser]: accuracy after each round
    weights: list[Tensor] = field(repr=False)  # the best: W (F, R, C, D), b (F, R, C, 1), with a hidden layer four

    def predict(self, features: Features, rows: Rows, fold: int, regulariser: int) -> Rows:
        """Return the class that one fit gives to each row."""
        one = [weight[fold, regulariser][None, None] for weight in self.weights]
        return _predict(one, features, torch.from_numpy(rows))[0].numpy()


def fit_classifiers(
    features: Features,
    labels: Int[np.ndarray, " N"],
    folds: Sequence[Fold],
    regularisers: Float[np.ndarray, "F R"],
    settings: ClassifierSettings,
    *,
    classes: int,
    tick: Callable[[int], None] | None = None,
) -> Fits:
    """Train a classifier for every fold and regulariser.

    Args:
        labels: 0 to classes - 1.
        regularisers: of each fold, the L2 penalties to train with.
        tick: is told how many more fits have ended.

    Raises:
        ValueError: a fold has nothing to learn from or to stop by.
    """
    plans = [_plan(fold, settings.seed) for fold in folds]
    for plan in plans:
        if not len(plan.train) or not len(plan.stop):
            raise ValueError(f"a fold has {len(plan.train)} rows to learn from and {len(plan.stop)} to stop by")
    groups: dict[tuple[int, int], list[int]] = {}  # folds that draw the same stream
    for index, plan in enumerate(plans):
        groups.setdefault((plan.drawn, len(plan.train)), []).append(index)
    workers = torch.get_num_threads()
    parameters = regularisers.shape[1] * (settings.hidden or classes) * features.width
    most = max(1, TILE // (4 * (settings.batch_size * features.width + parameters)))
    batches: list[list[int]] = []
    for members in groups.values():
        count = max(math.ceil(len(members) / most), min(workers, len(members)))
        batches += [part.tolist() for part in np.array_split(members, count)]

    target, lock, stopped = torch.from_numpy(labels), Lock(), Event()
    fits = Fits(
        accuracy=np.full(regularisers.shape, -1.0),
        passes=np.zeros(regularisers.shape, dtype=np.int64),
        history=[[[] for _ in row] for row in regularisers],
        weights=[
            weight.expand(*regularisers.shape, *weight.shape).clone()
            for weight in initial_weights(features.width, classes, hidden=settings.hidden, seed=settings.seed)[0]
        ],
    )

    def run(members: list[int]) -> None:
        def ended(count: int) -> None:
            if tick is not None:
                with lock:
                    tick(count)

        chosen = [plans[index] for index in members]
        penalties = torch.from_numpy(regularisers[members].astype(np.float32))
        _Batch(features, target, chosen, penalties, settings, classes, stopped).run(fits, members, ended)

    if workers == 1 or len(batches) == 1:
        for members in batches:
            run(members)
        return fits
    # Matrices this small gain nothing from several threads each: every thread takes whole batches of fits instead.
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            futures = [pool.submit(run, members) for members in sorted(batches, key=len, reverse=True)]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                stopped.set()  # the threads that still run must not keep Ctrl-C waiting
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    finally:
        torch.set_num_threads(workers)
    return fits


@dataclass(frozen=True)
class _Plan:
    train: Rows
    stop: Rows
    drawn: int  # length of the permutation that the stream gave away before the first pass; 0: none


def _plan(fold: Fold, seed: int) -> _Plan:
    if fold.stop is not None:
        return _Plan(fold.train, fold.stop, 0)
    order = np.random.RandomState(seed).permutation(len(fold.train))
    cut = int(HELD_OUT * len(order))
    return _Plan(fold.train[order[cut:]], fold.train[order[:cut]], len(order))


class _Batch:
    """Fits on equally many rows, in lockstep."""

    def __init__(
        self,
        features: Features,
        labels: Int[Tensor, " N"],
        plans: list[_Plan],
        penalties: Float[Tensor, "G R"],
        settings: ClassifierSettings,
        classes: int,
        stopped: Event,
    ) -> None:
        self._features, self._labels, self._plans, self._settings = features, labels, plans, settings
        self._stopped = stopped
        self._rows = torch.from_numpy(np.stack([plan.train for plan in plans]))  # (G, n)
        self._penalties = penalties[:, :, None, None]
        self._orders = np.random.RandomState(settings.seed)
        if plans[0].drawn:
            self._orders.permutation(plans[0].drawn)
        first, self._masks = initial_weights(features.width, classes, hidden=settings.hidden, seed=settings.seed)
        self._weights = [weight.expand(*penalties.shape, *weight.shape).clone() for weight in first]
        self._optimizer = OPTIMIZERS[settings.optimizer](self._weights)

    def run(self, fits: Fits, members: list[int], ended: Callable[[int], None]) -> None:
        """Train until all have stopped; results go into ``fits`` at ``members``."""
        settings = self._settings
        stopping = Stopping(tuple(self._penalties.shape[:2]), settings.tenacity)
        alive = np.arange(len(members))  # folds with a fit that still runs
        where = np.array(members)
        passes = 0
        while len(alive) and passes <= settings.max_passes:
            for _ in range(settings.passes):
                if self._stopped.is_set():
                    return
                self._pass()
            passes += settings.passes
            accuracy = stopping.best.copy()
            accuracy[alive] = self._accuracy()
            ran = stopping.running.copy()
            better = stopping.update(accuracy)
            for g, r in np.argwhere(ran):
                fits.history[where[g]][r].append(float(accuracy[g, r]))
                fits.passes[where[g], r] = passes
            for place, g in enumerate(alive):
                chosen = torch.from_numpy(np.flatnonzero(better[g]))
                for kept, weight in zip(fits.weights, self._weights, strict=True):
                    kept[int(where[g]), chosen] = weight[place, chosen]
            ended(int((ran & ~stopping.running).sum()))
            still = stopping.running[alive].any(axis=1)
            if not still.all():
                self._keep(torch.from_numpy(np.flatnonzero(still)))
                alive = alive[still]
        fits.accuracy[where] = stopping.best
        ended(int(stopping.running.sum()))

    def _pass(self) -> None:
        size = self._settings.batch_size
        order = torch.from_numpy(self._orders.permutation(self._rows.shape[1]))
        rows = self._rows[:, order]  # (G, n)
        for start in range(0, rows.shape[1], size):
            chosen = rows[:, start : start + size]  # (G, B)
            x = self._features.take(chosen.reshape(-1)).view(*chosen.shape, -1)
            gradients = gradients_of(self._weights, x, self._labels[chosen], self._mask(chosen.shape[1]))
            for gradient, weight in zip(gradients, self._weights, strict=True):
                gradient.addcmul_(weight, self._penalties)
            self._optimizer.step(self._weights, gradients)

    def _mask(self, rows: int) -> Float[Tensor, "H B"] | None:
        settings = self._settings
        if not (settings.hidden and settings.dropout):
            return None
        keep = 1 - settings.dropout
        mask = torch.empty(rows, settings.hidden).bernoulli_(keep, generator=self._masks)
        return mask.div_(keep).T

    def _accuracy(self) -> Float[np.ndarray, "G R"]:
        found = []
        for place, plan in enumerate(self._plans):
            rows = torch.from_numpy(plan.stop)
            predicted = _predict([weight[place][None] for weight in self._weights], self._features, rows)
            found.append((predicted == self._labels[rows]).double().mean(dim=1).numpy())
        return np.stack(found)

    def _keep(self, places: Int[Tensor, " K"]) -> None:
        self._rows, self._penalties = self._rows[places], self._penalties[places]
        self._plans = [self._plans[int(place)] for place in places]
        self._weights = [weight[places] for weight in self._weights]
        self._optimizer.keep(places)


def _predict(weights: list[Tensor], features: Features, rows: Int[Tensor, " N"]) -> Int[Tensor, "R N"]:
    """Return the classes that R fits of one fold give to rows."""
    found = [logits_of(weights, features.take(part)[None], None)[0][0].argmax(dim=1) for part in rows.split(BLOCK)]
    return torch.cat(found, dim=1)
