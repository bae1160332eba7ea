"""Few-shot classification on frozen vectors: MTEB's protocol.

Ten times, a logistic regression is trained on s texts of each class and scored on all test texts; the ten accuracies
are averaged.  The draws follow numpy's generator: one order of the training texts, shuffled again, from where it
stands, before each of the ten draws, with the generator seeded with 42 anew, as MTEB's evaluators seed it.

Source: AbsTaskClassification of embeddings-benchmark/mteb 1.0.0: max_iter 100, C 1, random_state 42.
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from selfsent.errors import DataError
from selfsent.evaluation import bootstrap
from selfsent.evaluation.score import Score, measured
from selfsent.evaluation.task import Task
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

    def score(
        self, vectors: Float[np.ndarray, "N D"], *, resamples: int, seed: int, progress: Progress = SILENT
    ) -> list[Score]:
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
