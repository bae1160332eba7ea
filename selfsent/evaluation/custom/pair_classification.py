"""Pair classification: do two texts say the same?  Cosine against yes or no, over all thresholds.

    average precision   sum over thresholds of (recall gained) x precision: the score that counts
    best accuracy, best F1   at the threshold that is best for them on these very pairs

Source: AbsTaskPairClassification of embeddings-benchmark/mteb 1.0.0.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from selfsent.errors import UserError
from selfsent.evaluation import bootstrap
from selfsent.evaluation.score import Score, measured
from selfsent.evaluation.sts import cosine


@dataclass(frozen=True, kw_only=True)
class Duplicates:
    """Pairs of texts, and whether each says the same twice."""

    name: str
    left: list[str]
    right: list[str]
    same: list[bool]

    def __post_init__(self) -> None:
        """Refuse what has but one answer."""
        if len(set(self.same)) < 2:
            raise UserError(f"{self.name} has pairs of one kind only: it needs some that say the same and some not")

    @property
    def texts(self) -> list[str]:
        """All left sides, then all right sides."""
        return self.left + self.right

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits of texts and answers."""
        digest = hashlib.sha256()
        for left, right, same in zip(self.left, self.right, self.same, strict=True):
            digest.update(f"{left}\t{right}\t{int(same)}\n".encode())
        return digest.hexdigest()[:16]

    def score(self, vectors: Float[np.ndarray, "N D"], *, resamples: int, seed: int) -> list[Score]:
        """Score vectors given in the order of ``texts``; intervals resample the pairs."""
        half = len(self.left)
        similarity, same = cosine(vectors[:half], vectors[half:]), np.array(self.same)
        values = 100 * measures(similarity, same, np.ones((half, 1)))[:, 0]
        drawn = None
        if resamples:
            chunks = bootstrap.bootstrap_draws(half, resamples, seed=seed, name=self.name)
            drawn = np.concatenate([100 * measures(similarity, same, counts) for counts in chunks], axis=1)
        return [
            measured(
                self.name,
                "test",
                metric,
                float(values[row]),
                None if drawn is None else drawn[row],
                half,
                {"similarity": "cosine"},
            )
            for row, metric in enumerate(("average precision", "best accuracy", "best f1"))
        ]


def measures(
    similarity: Float[np.ndarray, " N"], same: np.ndarray, counts: Float[np.ndarray, "N R"]
) -> Float[np.ndarray, "3 R"]:
    """Return average precision, best accuracy and best F1 of every resample; pairs that tie share a threshold."""
    order = np.argsort(-similarity, kind="stable")
    ends = np.flatnonzero(np.r_[np.diff(similarity[order]) != 0, True])
    drawn, answer = counts[order], same[order][:, None]
    right = np.cumsum(drawn * answer, axis=0)[ends]  # pairs above the threshold that say the same, (T, R)
    above = np.cumsum(drawn, axis=0)[ends]
    total, positive = above[-1], right[-1]
    precision = np.divide(right, above, out=np.zeros_like(right), where=above > 0)
    gained = np.diff(right, axis=0, prepend=0.0)
    average = (gained * precision).sum(axis=0) / np.maximum(positive, 1)
    accuracy = (right + (total - positive) - (above - right)).max(axis=0)
    accuracy = np.maximum(accuracy, total - positive) / total  # or no pair at all above the threshold
    f1 = (2 * right / (above + positive)).max(axis=0)
    return np.stack([average, accuracy, f1])
