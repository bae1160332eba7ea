"""Labelled texts and pairs under MTEB's protocols: few-shot classification, clustering, pair classification.

Classification: ten times, a logistic regression is trained on s texts of each class and scored on all test texts; the
ten accuracies are averaged.  The draws follow numpy's generator: one order of the training texts, shuffled again, from
where it stands, before each of the ten draws, with the generator seeded with 42 anew, as MTEB's evaluators seed it.

Clustering: v-measure of k-means on the vectors, with k the number of classes, against the classes.

    h  homogeneity   1 - H(class | cluster) / H(class)
    c  completeness  1 - H(cluster | class) / H(cluster)
    v = 2 h c / (h + c)

The scores of several starts of k-means are averaged.  The interval resamples the texts and keeps the clusters.  A text
drawn twice agrees with itself, so that resamples score too high: they are moved to have the score as their mean.

Pair classification: cosine against a yes or no for each pair, over all thresholds.

    average precision        sum over thresholds of (recall gained) x precision: the main score
    best accuracy, best F1   each at the threshold that is best for it on the same pairs

Sources: AbsTaskClassification (max_iter 100, C 1, random_state 42), AbsTaskClustering (mini-batches of 500) and
AbsTaskPairClassification of embeddings-benchmark/mteb 1.0.0; Rosenberg & Hirschberg 2007,
https://aclanthology.org/D07-1043/.
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from selfsent.errors import DataError
from selfsent.evaluation import bootstrap
from selfsent.evaluation.score import Score, measured
from selfsent.evaluation.sts import cosine
from selfsent.evaluation.task import Task, Vectors
from selfsent.progress import SILENT, Progress

SEED = 42
SHOTS = 8  # of each class

Labelled = list[tuple[str, str]]  # texts, each with its label


@dataclass(frozen=True, kw_only=True)
class FewShot(Task):
    """Texts with labels, for training and for testing."""

    train: Labelled
    test: Labelled
    shots: int = SHOTS
    experiments: int = 10
    parting: str = "as given"  # how the texts were split into train and test

    def __post_init__(self) -> None:
        """Refuse labels that no classifier can be trained on."""
        known = sorted({label for _, label in self.train})
        if len(known) < 2:
            raise DataError(f"{self.name} has the classes {known} to learn: classification needs two or more")
        if not self.test:
            raise DataError(f"{self.name} has no texts to test on")
        asked = sorted({label for _, label in self.test})
        if not {*known} & {*asked}:
            raise DataError(
                f"{self.name} learns the classes {_shown(known)} and tests {_shown(asked)}: none is the same, and "
                "labels should be written alike in both parts"
            )

    @property
    def texts(self) -> list[str]:
        """Training texts, then test texts."""
        return [text for text, _ in self.train + self.test]

    def content(self) -> Iterable[str]:
        """Yield each text with its label."""
        return (f"{text}\t{label}\n" for text, label in self.train + self.test)

    def score(self, vectors: Vectors, *, resamples: int, seed: int, progress: Progress = SILENT) -> list[Score]:
        """Compute accuracy and macro F1; the interval of the accuracy resamples the test texts."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression
        from sklearn.metrics import f1_score

        cut = len(self.train)
        names, classes = np.unique([label for _, label in self.train + self.test], return_inverse=True)
        labels, answers = classes[:cut], classes[cut:]
        predictions = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a hundred iterations are the protocol
            for rows in few_shot_draws(labels, self.shots, self.experiments):
                model = LogisticRegression(random_state=SEED, max_iter=100).fit(vectors[:cut][rows], labels[rows])
                predictions.append(model.predict(vectors[cut:]))
        correct = np.mean([predicted == answers for predicted in predictions], axis=0)  # (N,), over experiments
        protocol = {
            "classifier": f"logistic regression, {self.shots} texts a class, {self.experiments} draws",
            "train": len(self.train),
            "classes": len(names),
            "parting": self.parting,
        }
        (drawn,) = bootstrap.means(100 * correct[:, None], resamples, seed=seed, name=self.name)
        f1 = 100 * float(np.mean([f1_score(answers, predicted, average="macro") for predicted in predictions]))
        return [
            measured(self.name, "test", metric, value, replicates, len(answers), protocol)
            for metric, value, replicates in (("accuracy", float(100 * correct.mean()), drawn), ("macro f1", f1, None))
        ]


def _shown(labels: list[str]) -> str:
    return ", ".join(labels[:5]) + (", ..." if len(labels) > 5 else "")


def few_shot_draws(labels: Int[np.ndarray, " N"], shots: int, experiments: int) -> list[Int[np.ndarray, " _"]]:
    """Return the training rows of each experiment: the first ``shots`` of every class in a shuffled order."""
    order = np.arange(len(labels))
    chosen = []
    for _ in range(experiments):
        np.random.RandomState(SEED).shuffle(order)
        first = [np.flatnonzero(labels[order] == label)[:shots] for label in np.unique(labels)]
        chosen.append(order[np.sort(np.concatenate(first))])
    return chosen


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

    def score(self, vectors: Vectors, *, resamples: int, seed: int, progress: Progress = SILENT) -> list[Score]:
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

    def score(self, vectors: Vectors, *, resamples: int, seed: int, progress: Progress = SILENT) -> list[Score]:
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
