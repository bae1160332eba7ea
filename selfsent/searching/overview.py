"""An index at a glance: a map of its documents in two dimensions, and whether queries are like its own text.

The map shows the first sentences of a sample of the documents along the two directions in which they differ most
(principal components).  Queries drift away when more of them are far from every document than of the index's own
sentences, of which 5 % are by definition: each sentence is compared with the documents of the others.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from selfsent.searching.index import Index

_ON_MAP = 1500  # documents that are shown
_COMPARED = 300  # sentences that show how near the text is to itself
_FAR = 0.05  # of them that are called far
_KEPT = 200  # queries that are remembered, as near or far
_LEAST = 20  # queries before anything is said
_SURE = 0.01  # chance to be called drifting without being so


@dataclass(frozen=True)
class Overview:
    """What is known of an index as a whole.

    Attributes:
        documents: the numbers of those on the map, ascending.
        points: (M, 2), where they are, the farthest at 1.
        far: the cosine with the nearest document that 5 % of the index's own sentences do not reach; None where there
            are fewer than 20 of them.
    """

    documents: list[int]
    points: Float[np.ndarray, "M 2"]
    far: float | None
    _mean: Float[np.ndarray, " D"]
    _axes: Float[np.ndarray, "D 2"]

    def project(self, vectors: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N 2"]:
        """Return where vectors of length 1 are on the map."""
        points: np.ndarray = (vectors - self._mean) @ self._axes
        return points


def survey_index(index: Index) -> Overview:
    """Compute the overview of an index; a second or two for a large one."""
    draw = np.random.default_rng(0)
    live = np.flatnonzero(~index.deleted)
    chosen = np.sort(draw.choice(live, min(_ON_MAP, len(live)), replace=False))
    vectors = index.opening_vectors(chosen)
    mean = vectors.mean(axis=0)
    # Of the covariance, not of the vectors: as wide as an embedding, however many documents there are.
    values, directions = np.linalg.eigh((vectors - mean).T @ (vectors - mean))
    axes = directions[:, np.argsort(-values, kind="stable")[:2]]
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), [0, 1]] < 0, -1, 1)  # a sign of its own
    points = (vectors - mean) @ axes
    scale = max(float(np.abs(points).max(initial=0)), 1e-12)
    return Overview(chosen.tolist(), points / scale, _far(index, chosen, vectors, draw), mean, axes / scale)


def _far(
    index: Index, documents: np.ndarray, vectors: Float[np.ndarray, "M D"], draw: np.random.Generator
) -> float | None:
    if len(documents) < _LEAST:
        return None
    rows = np.sort(draw.choice(len(documents), min(_COMPARED, len(documents)), replace=False))
    rankings = index.dense.rank(vectors[rows], 2)
    best = [
        max((cosine for other, cosine in zip(*ranking, strict=True) if other != own), default=-1.0)
        for own, ranking in zip(documents[rows].tolist(), rankings, strict=True)
    ]
    return float(np.quantile(best, _FAR))


class DriftGauge:
    """How many of the last queries were far from every document."""

    def __init__(self, far: float | None) -> None:
        self._far = far
        self._last: deque[bool] = deque(maxlen=_KEPT)

    def count_query(self, nearest: float) -> None:
        """Take note of a query's cosine with the nearest document; nothing else of it is kept."""
        if self._far is not None:
            self._last.append(nearest < self._far)

    def report(self) -> dict[str, object]:
        """Return the counts, whether queries drift, and a sentence."""
        from scipy.stats import binomtest

        queries, far = len(self._last), sum(self._last)
        drifting = None
        if self._far is None:
            sentence = f"The index is too small to tell what is like it: {_LEAST} documents are needed."
        elif queries < _LEAST:
            sentence = f"Too few queries to tell whether they are like this text: {queries} of {_LEAST}."
        else:
            drifting = bool(binomtest(far, queries, _FAR, alternative="greater").pvalue < _SURE)
            compared = f"{far / queries:.0%} of the last {queries} are far from every document, of its own {_FAR:.0%}"
            like = "unlike" if drifting else "like"
            sentence = f"Queries are {like} this text: {compared}."
        return {"queries": queries, "far": far, "expected": _FAR, "drifting": drifting, "sentence": sentence}
