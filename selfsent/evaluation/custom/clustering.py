"""Clustering: k-means on the vectors, k the number of classes, against the classes: v-measure.

    h  homogeneity   1 - H(class | cluster) / H(class)
    c  completeness  1 - H(cluster | class) / H(cluster)
    v = 2 h c / (h + c)

Of several starts of k-means the scores are averaged.  The interval resamples the texts, with the clusters as they are.

Source: Rosenberg & Hirschberg 2007, https://aclanthology.org/D07-1043/; k-means as AbsTaskClustering of
embeddings-benchmark/mteb 1.0.0 (mini-batches of 500).
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from selfsent.errors import UserError
from selfsent.evaluation import bootstrap
from selfsent.evaluation.score import Score, measured


@dataclass(frozen=True, kw_only=True)
class Clustering:
    """Texts with the classes that clusters should find again."""

    name: str
    texts: list[str]
    labels: list[str]
    starts: int = 5  # of k-means

    def __post_init__(self) -> None:
        """Refuse what has nothing to find."""
        known = set(self.labels)
        if len(known) < 2:
            raise UserError(f"{self.name} has {len(known)} class: clustering needs two or more to find again")
        if len(known) == len(self.labels):
            raise UserError(f"{self.name} has a class of its own for each text: clustering has nothing to group")

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits of texts and labels."""
        digest = hashlib.sha256()
        for text, label in zip(self.texts, self.labels, strict=True):
            digest.update(f"{text}\t{label}\n".encode())
        return digest.hexdigest()[:16]

    def score(self, vectors: Float[np.ndarray, "N D"], *, resamples: int, seed: int) -> list[Score]:
        """Score vectors given in the order of ``texts``."""
        from sklearn.cluster import MiniBatchKMeans
        from sklearn.metrics import v_measure_score

        names = {label: number for number, label in enumerate(sorted(set(self.labels)))}
        classes = np.array([names[label] for label in self.labels])
        values, replicates = [], []
        for start in range(self.starts):
            model = MiniBatchKMeans(n_clusters=len(names), batch_size=500, n_init="auto", random_state=start)
            clusters = np.asarray(model.fit_predict(vectors), dtype=np.int64)
            values.append(100 * float(v_measure_score(classes, clusters)))
            if resamples:
                chunks = bootstrap.bootstrap_draws(len(classes), resamples, seed=seed, name=self.name)
                replicates.append(np.concatenate([100 * v_measures(classes, clusters, counts) for counts in chunks]))
        return [
            measured(
                self.name,
                "test",
                "v-measure",
                float(np.mean(values)),
                np.mean(replicates, axis=0) if resamples else None,
                len(classes),
                {"clusters": f"k-means, {len(names)} clusters, mean of {self.starts} starts"},
            )
        ]


def v_measures(
    classes: Int[np.ndarray, " N"], clusters: Int[np.ndarray, " N"], counts: Float[np.ndarray, "N R"]
) -> Float[np.ndarray, " R"]:
    """Return the v-measure of every resample; 1 where there is but one class or one cluster, as scikit-learn has it."""
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
