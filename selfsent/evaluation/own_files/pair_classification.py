"""Pair classification: cosine against a yes or no for each pair, over all thresholds.

    average precision        sum over thresholds of (recall gained) x precision: the main score
    best accuracy, best F1   each at the threshold that is best for it on the same pairs

Source: AbsTaskPairClassification of embeddings-benchmark/mteb 1.0.0.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from selfsent.errors import DataError
from selfsent.evaluation import bootstrap
from selfsent.evaluation.score import Score, measured
from selfsent.evaluation.sts import cosine
from selfsent.evaluation.task import Task
from selfsent.progress import SILENT, Progress

MEASURES = ("average precision", "best accuracy", "best f1")


@dataclass(frozen=True, kw_only=True)
class PairClassification(Task):
    """Pairs of texts, and whether both mean the same."""

    left: list[str]
    right: list[str]
    same: list[bool]

    def __post_init__(self) -> None:
        """Refuse pairs that all have one label."""
        if len(set(self.same)) < 2:
            raise DataError(f"{self.name} has pairs of one kind only: it needs some that say the same and some not")

    @property
    def texts(self) -> list[str]:
        """All left sides, then all right sides."""
        return self.left + self.right

    def content(self) -> Iterable[str]:
        """Yield each pair with its label."""
        pairs = zip(self.left, self.right, self.same, strict=True)
        return (f"{left}\t{right}\t{int(same)}\n" for left, right, same in pairs)

    def score(
        self, vectors: Float[np.ndarray, "N D"], *, resamples: int, seed: int, progress: Progress = SILENT
    ) -> list[Score]:
        """Compute the three measures; intervals resample the pairs."""
        half = len(self.left)
        similarity, same = cosine(vectors[:half], vectors[half:]), np.array(self.same)
        values = 100 * measures(similarity, same, np.ones((half, 1)))[:, 0]
        chunks = bootstrap.bootstrap_draws(half, resamples, seed=seed, name=self.name)
        drawn = np.concatenate([100 * measures(similarity, same, counts) for counts in chunks], axis=1)
        return [
            measured(self.name, "test", metric, float(value), replicates, half, {"similarity": "cosine"})
            for metric, value, replicates in zip(MEASURES, values, drawn, strict=True)
        ]


def measures(
    similarity: Float[np.ndarray, " N"], same: np.ndarray, counts: Float[np.ndarray, "N R"]
) -> Float[np.ndarray, "3 R"]:
    """Return average precision, best accuracy and best F1 of every resample; pairs that tie share a threshold."""
    order = np.argsort(-similarity, kind="stable")
    ends = np.flatnonzero(np.r_[np.diff(similarity[order]) != 0, True])
    drawn, answer = counts[order], same[order][:, None]
    right = np.cumsum(drawn * answer, axis=0)[ends]  # true positives above each threshold, (T, R)
    above = np.cumsum(drawn, axis=0)[ends]
    total, positive = above[-1], right[-1]
    precision = np.divide(right, above, out=np.zeros_like(right), where=above > 0)
    gained = np.diff(right, axis=0, prepend=0.0)
    average = (gained * precision).sum(axis=0) / np.maximum(positive, 1)
    accuracy = (right + (total - positive) - (above - right)).max(axis=0)
    accuracy = np.maximum(accuracy, total - positive) / total  # or no pair at all above the threshold
    f1 = np.divide(2 * right, above + positive, out=np.zeros_like(right), where=above + positive > 0).max(axis=0)
    return np.stack([average, accuracy, f1])
