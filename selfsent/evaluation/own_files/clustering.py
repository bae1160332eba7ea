"""Clustering: v-measure of k-means on the vectors, with k the number of classes, against the classes.

    h  homogeneity   1 - H(class | cluster) / H(class)
    c  completeness  1 - H(cluster | class) / H(cluster)
    v = 2 h c / (h + c)

The scores of several starts of k-means are averaged.  The interval resamples the texts and keeps the clusters.  A text
drawn twice agrees with itself, so that resamples score too high: they are moved to have the score as their mean.

Source: Rosenberg & Hirschberg 2007, https://aclanthology.org/D07-1043/; k-means as AbsTaskClustering of
embeddings-benchmark/mteb 1.0.0 (mini-batches of 500).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from selfsent.errors import DataError
from selfsent.evaluation import bootstrap
from selfsent.evaluation.score import Score, measured
from selfsent.evaluation.task import Task
from selfsent.progress import SILENT, Progress


@dataclass(frozen=True, kw_only=True)
class Clustering(Task):
    """Texts with the classes that the clusters should match."""

    documents: list[str]
    labels: list[str]
    starts: int = 5  # of k-means

    def __post_init__(self) -> None:
        """Refuse one class for all texts, and a class of its own for each."""
        known = len(set(self.labels))
        if not 1 < known < len(self.labels):
            raise DataError(
                f"{self.name} has {known} classes of {len(self.labels)} texts: clustering needs two or more, and "
                "texts that share one"
            )

    @property
    def texts(self) -> list[str]:
        """The documents."""
        return self.documents

    def content(self) -> Iterable[str]:
        """Yield each text with its label."""
        return (f"{text}\t{label}\n" for text, label in zip(self.documents, self.labels, strict=True))

    def score(
        self, vectors: Float[np.ndarray, "N D"], *, resamples: int, seed: int, progress: Progress = SILENT
    ) -> list[Score]:
        """Compute the v-measure, averaged over the starts of k-means."""
        from sklearn.cluster import MiniBatchKMeans
        from sklearn.metrics import v_measure_score

        names, classes = np.unique(self.labels, return_inverse=True)
        values, replicates = [], []
        for start in range(self.starts):
            model = MiniBatchKMeans(n_clusters=len(names), batch_size=500, n_init="auto", random_state=start)
            clusters = np.asarray(model.fit_predict(vectors), dtype=np.int64)
            values.append(100 * float(v_measure_score(classes, clusters)))
            chunks = bootstrap.bootstrap_draws(len(classes), resamples, seed=seed, name=self.name)
            replicates.append(np.concatenate([100 * v_measures(classes, clusters, counts) for counts in chunks]))
        protocol = {"clusters": f"k-means, {len(names)} clusters, mean of {self.starts} starts"}
        value, drawn = float(np.mean(values)), np.mean(replicates, axis=0)
        if drawn.size:
            drawn += value - drawn.mean()
        return [measured(self.name, "test", "v-measure", value, drawn, len(classes), protocol)]


def v_measures(
    classes: Int[np.ndarray, " N"], clusters: Int[np.ndarray, " N"], counts: Float[np.ndarray, "N R"]
) -> Float[np.ndarray, " R"]:
    """Return the v-measure of every resample; homogeneity is 1 for one class, completeness for one cluster."""
    pairs, cell = np.unique(np.stack([classes, clusters]), axis=1, return_inverse=True)  # (2, cells)
    joint = _summed(cell.reshape(-1), counts)
    of_class, of_cluster = _entropy(_summed(pairs[0], joint)), _entropy(_summed(pairs[1], joint))
    shared = of_class + of_cluster - _entropy(joint)  # mutual information
    homogeneity = np.divide(shared, of_class, out=np.ones_like(shared), where=of_class > 0)
    completeness = np.divide(shared, of_cluster, out=np.ones_like(shared), where=of_cluster > 0)
    total = homogeneity + completeness
    return np.divide(2 * homogeneity * completeness, total, out=np.zeros_like(total), where=total > 0)


def _summed(group: Int[np.ndarray, " N"], values: Float[np.ndarray, "N R"]) -> Float[np.ndarray, "G R"]:
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(group[order]) > 0])
    return np.add.reduceat(values[order], starts, axis=0)


def _entropy(counts: Float[np.ndarray, "G R"]) -> Float[np.ndarray, " R"]:
    share = counts / counts.sum(axis=0)
    return -(share * np.log(share, out=np.zeros_like(share), where=share > 0)).sum(axis=0)
