"""Semantic textual similarity in SentEval's layout: cosine against human scores.

    STS12-16   one Spearman over the concatenated sub-files of a year ("all"); the mean over sub-files ("mean") and
               the mean weighted by size ("wmean") are reported under their own names
    STS-B      the split's rows          SICK-R   the split's relatedness

No regression on top.  A year's rows without a gold score are dropped, and the remaining rows must have the known
counts.  Texts are the tokens of the files, joined by single spaces.

Source: the convention of princeton-nlp/SimCSE @ 49fa580, SentEval/senteval/sts.py.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float

from selfsent.evaluation import bootstrap
from selfsent.evaluation.score import Score, measured
from selfsent.evaluation.task import FORM, LabelledExamples, Task, Vectors
from selfsent.progress import SILENT, Progress


@dataclass(frozen=True, kw_only=True)
class STS(Task):
    """One test set: a year of STS, or a split of STS-B or SICK-R."""

    split: str
    parts: Mapping[str, LabelledExamples]  # by sub-file
    form: str = FORM

    @property
    def texts(self) -> list[str]:
        """All left sides in the order of the parts, then all right sides."""
        parts = self.parts.values()
        return [text for side in (*(p.left for p in parts), *(p.right or [] for p in parts)) for text in side]

    @property
    def gold(self) -> Float[np.ndarray, " N"]:
        """The gold scores of all parts, in order."""
        return np.array([score for part in self.parts.values() for score in part.labels], dtype=np.float64)

    def content(self) -> Iterable[str | bytes]:
        """Yield texts and gold scores."""
        yield from super().content()
        yield self.gold.tobytes()

    def score(self, vectors: Vectors, *, resamples: int, seed: int, progress: Progress = SILENT) -> list[Score]:
        """Compute Spearman and Pearson; the aggregation ``all`` comes first.

        Intervals resample all pairs for ``all``, and the pairs within each sub-file for ``mean`` and ``wmean``.
        """
        half = len(vectors) // 2
        similarity, gold = cosine(vectors[:half], vectors[half:]), self.gold

        def figures(x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], name: str) -> Float[np.ndarray, "2 S"]:
            """Return Spearman and Pearson, each value before its replicates, in points."""
            return np.hstack([_points(x, y), resample(x, y, resamples, seed, name)])

        found = {"all": figures(similarity, gold, self.name)}
        if len(self.parts) > 1:
            sizes = [len(part.labels) for part in self.parts.values()]
            cut = partial(np.split, indices_or_sections=np.cumsum(sizes)[:-1])
            within = zip(cut(similarity), cut(gold), self.parts, strict=True)
            each = [figures(x, y, f"{self.name}/{part}") for x, y, part in within]
            found |= {"mean": np.mean(each, axis=0), "wmean": np.average(each, axis=0, weights=sizes)}
        protocol = {"similarity": "cosine", "texts": self.form}
        return [
            measured(self.name, self.split, metric, float(row[0]), row[1:], half, protocol, aggregation=aggregation)
            for metric, rows in zip(("spearman", "pearson"), zip(*found.values(), strict=True), strict=True)
            for aggregation, row in zip(found, rows, strict=True)
        ]


def cosine(left: Float[np.ndarray, "N D"], right: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
    """Return the cosine of each pair of rows; 0 where one of them is the zero vector."""
    left, right = left.astype(np.float64), right.astype(np.float64)
    product = np.einsum("nd,nd->n", left, right)
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    result = np.divide(product, norms, out=np.zeros_like(product), where=norms > 0)
    # Pairs of equal texts have cosines that differ from 1 by about 1e-16: rounded, they tie.
    return np.round(result, 12)


def resample(
    x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], resamples: int, seed: int, name: str
) -> Float[np.ndarray, "2 R"]:
    """Return Spearman and Pearson of the same resamples, in points."""
    chunks = [
        np.stack([bootstrap.spearman(x, y, counts), bootstrap.pearson(x, y, counts)])
        for counts in bootstrap.bootstrap_draws(len(x), resamples, seed=seed, name=name)
    ]
    return 100 * np.concatenate(chunks, axis=1)


def _points(x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"]) -> Float[np.ndarray, "2 1"]:
    """Return Spearman and Pearson, in points."""
    from scipy import stats

    # A collapsed encoder gives every pair the same cosine, which ranks nothing: 0 points, not NaN.
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return np.zeros((2, 1))
    return 100 * np.array([[stats.spearmanr(x, y).statistic], [stats.pearsonr(x, y).statistic]])
