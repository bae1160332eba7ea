"""Trained relatedness: a regression on pairs of vectors, where ``sts`` scores their cosine.

    features     [|u-v|, u*v]
    model        p = softmax(W x + b) over the scores 1 to 5; the prediction is sum_k k p_k
    target       score y puts y - floor(y) on floor(y) + 1 and the rest on floor(y).  As in the original, a score below
                 1 has a target that sums to y, and 0 one of zeros.
    loss         mean squared error of p, Adam, batches of 64, no penalty
    stopping     rounds of 50 passes; training ends after the fourth round, in total, whose development correlation is
                 not above the best, or after more than 1,000 passes

Stopping by Pearson is SentEval's and DeCLUTR's; by Spearman that of SimCSE's fork.  The correlations of this regression
and those of the cosine are different numbers.  Gradients and updates are written out: torch.optim took 1.5 to 1.9 times
and autograd 2.3 times as long.

Source: the behaviour of facebookresearch/SentEval @ 5d6dc11, senteval/sick.py and tools/relatedness.py; the fork in
princeton-nlp/SimCSE @ 49fa580.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from selfsent.errors import DataError
from selfsent.evaluation import sts
from selfsent.evaluation.score import Score, measured
from selfsent.evaluation.senteval.batched_classifier import SEED, Stopping, adam, initial_weights, zero_moments
from selfsent.evaluation.senteval.classification import pair_features
from selfsent.evaluation.task import FORM, LabelledExamples, Task, Vectors
from selfsent.progress import SILENT, Prefixed, Progress

CLASSES = 5
PASSES = 50  # of a round
MAX_PASSES = 1000
TENACITY = 3
BATCH_SIZE = 64
LEAST = {"sickr-regression": 1.0, "stsb-regression": 0.0}  # the scale's lower end; its upper end is 5

Scored = tuple[Float[Tensor, "_ F"], Float[np.ndarray, " _"]]  # features of pairs, and their scores
StopOn = Literal["pearson", "spearman"]
STOP_ON = get_args(StopOn)


@dataclass(frozen=True, kw_only=True)
class Regression:
    """A trained regression."""

    weights: list[Tensor]  # W (5, F) and b (5, 1)
    best: float  # development correlation, -1 to 1
    passes: int


@dataclass(frozen=True, kw_only=True)
class Relatedness(Task):
    """The three splits of SICK-R or STS-B."""

    splits: Mapping[str, LabelledExamples]  # train, dev, test
    stop_on: StopOn
    form: str = FORM  # of the texts

    def __post_init__(self) -> None:
        """Refuse scores outside their scale."""
        least = LEAST[self.name]
        for split, pairs in self.splits.items():
            if outside := [score for score in pairs.labels if not least <= score <= CLASSES]:
                raise DataError(
                    f"{self.name} has the score {outside[0]:g} in {split}, outside its scale from {least:g} to "
                    f"{CLASSES}: get the data again"
                )

    @property
    def texts(self) -> list[str]:
        """Of each split, all left sides, then all right sides."""
        return [text for pairs in self.splits.values() for text in pairs.texts]

    def content(self) -> Iterator[str | bytes]:
        """Yield texts and scores."""
        yield from super().content()
        yield from (name.encode() + np.array(pairs.labels).tobytes() for name, pairs in self.splits.items())

    def score(self, vectors: Vectors, *, resamples: int, seed: int, progress: Progress = SILENT) -> list[Score]:
        """Score vectors given in the order of ``texts``: test Spearman and Pearson, the development correlation."""
        counts = [len(pairs.labels) for pairs in self.splits.values()]
        sides = torch.from_numpy(vectors.astype(np.float32)).split(np.repeat(counts, 2).tolist())
        features = (pair_features(*pair) for pair in zip(sides[::2], sides[1::2], strict=True))
        gold = (np.array(pairs.labels, dtype=np.float64) for pairs in self.splits.values())
        train, dev, (test_x, test_gold) = zip(features, gold, strict=True)
        progress = Prefixed(progress, f"{self.name}: ")
        regression = train_relatedness(train, dev, stop_on=self.stop_on, progress=progress)
        predicted = np.round(predict_relatedness(regression.weights, test_x), 6)  # float32: equal pairs must tie
        drawn = sts.resample(predicted, test_gold, resamples, seed, self.name)
        protocol = {
            "classifier": f"regression stopped by {self.stop_on}",
            "classifier_seed": SEED,
            "features": "|u-v|, u*v",
            "texts": self.form,
            "passes": regression.passes,
            "interval": "over test rows",
        }
        points = {metric: 100 * _correlation(metric, predicted, test_gold) for metric in ("spearman", "pearson")}
        tests = [
            measured(self.name, "test", metric, value, row, counts[2], protocol)
            for (metric, value), row in zip(points.items(), drawn, strict=True)
        ]
        best = 100 * regression.best
        return [*tests, measured(self.name, "dev", self.stop_on, best, None, counts[1], protocol)]


def soft_labels(scores: Float[np.ndarray, " N"]) -> Float[np.ndarray, "N 5"]:
    """Spread each score over the two nearest whole numbers; the part of 0 is dropped."""
    whole = np.floor(scores).astype(np.int64)
    rest = scores - whole
    targets = np.zeros((len(scores), CLASSES + 2))  # columns 0 to 6
    rows = np.arange(len(scores))
    targets[rows, whole] = 1 - rest
    targets[rows, whole + 1] = rest
    return targets[:, 1:-1].astype(np.float32)


def train_relatedness(train: Scored, dev: Scored, *, stop_on: StopOn, progress: Progress = SILENT) -> Regression:
    """Train the regression on pair features and scores from 0 to 5."""
    x, gold = train
    weights, _ = initial_weights(x.shape[1], CLASSES)
    moments, steps = zero_moments(weights), 0
    orders = np.random.RandomState(SEED)
    target = torch.from_numpy(soft_labels(gold))
    stopping = Stopping((1,), TENACITY)
    kept, passes = weights, 0
    while stopping.running.any() and passes <= MAX_PASSES:
        for _ in range(PASSES):
            order = torch.from_numpy(orders.permutation(len(x)))
            for rows in order.split(BATCH_SIZE):
                given = x[rows]
                p = _probabilities(weights, given)  # (5, B)
                slope = (p - target[rows].T) * (2 / p.numel())
                error = p * (slope - (p * slope).sum(dim=0))
                steps += 1
                adam(weights, [error @ given, error.sum(dim=1, keepdim=True)], moments, steps)
        passes += PASSES
        progress.report(f"passes of at most {MAX_PASSES + PASSES}", passes)
        if stopping.update(np.array([_correlation(stop_on, predict_relatedness(weights, dev[0]), dev[1])])):
            kept = [weight.clone() for weight in weights]
    return Regression(weights=kept, best=float(stopping.best[0]), passes=passes)


def predict_relatedness(weights: list[Tensor], x: Float[Tensor, "N F"]) -> Float[np.ndarray, " N"]:
    """Return the expected score of each row, 1 to 5."""
    return np.arange(1, CLASSES + 1) @ _probabilities(weights, x).double().numpy()


def _probabilities(weights: list[Tensor], x: Float[Tensor, "B F"]) -> Float[Tensor, "5 B"]:
    return torch.addmm(weights[1], weights[0], x.T).softmax(dim=0)


def _correlation(metric: str, x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"]) -> float:
    from scipy import stats

    # Predictions that differ by rounding errors of float32 alone rank nothing.
    if len(x) < 2 or np.ptp(x) < 1e-6 or np.ptp(y) == 0:
        return 0.0
    return float((stats.pearsonr if metric == "pearson" else stats.spearmanr)(x, y)[0])
