"""Classification from a few examples of each class, on frozen vectors: MTEB's protocol.

Ten times, a logistic regression learns from s texts of each class and is scored on all test texts; the ten accuracies
are averaged.  Which texts are drawn follows numpy's generator seeded with 42: one order of the training texts, shuffled
further before each of the ten draws.

Source: AbsTaskClassification of embeddings-benchmark/mteb 1.0.0: max_iter 100, C 1, random_state 42.
"""

import hashlib
import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from selfsent.errors import UserError
from selfsent.evaluation import bootstrap
from selfsent.evaluation.score import Score, measured

SEED = 42
SHOTS = 8  # of each class


@dataclass(frozen=True, kw_only=True)
class FewShot:
    """Texts with labels, some to learn from and some to test on."""

    name: str
    train: list[str]
    train_labels: list[str]
    test: list[str]
    test_labels: list[str]
    shots: int = SHOTS
    experiments: int = 10
    parting: str = "as given"  # how train and test were told apart

    def __post_init__(self) -> None:
        """Refuse what cannot be learned."""
        known = sorted(set(self.train_labels))
        if len(known) < 2:
            raise UserError(
                f"{self.name} has {'one class' if known else 'no labels'} to learn"
                + (f", {known[0]!r}" if known else "")
                + ": classification needs two classes or more"
            )
        if not self.test:
            raise UserError(f"{self.name} has no texts to test on")

    @property
    def texts(self) -> list[str]:
        """Training texts, then test texts."""
        return self.train + self.test

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits of texts and labels."""
        digest = hashlib.sha256()
        for text, label in zip(self.texts, self.train_labels + self.test_labels, strict=True):
            digest.update(f"{text}\t{label}\n".encode())
        return digest.hexdigest()[:16]

    def score(self, vectors: Float[np.ndarray, "N D"], *, resamples: int, seed: int) -> list[Score]:
        """Score vectors given in the order of ``texts``: accuracy and macro F1; intervals resample the test texts."""
        from sklearn.metrics import f1_score

        classes = {label: number for number, label in enumerate(sorted({*self.train_labels, *self.test_labels}))}
        labels = np.array([classes[label] for label in self.train_labels])
        answers = np.array([classes[label] for label in self.test_labels])
        cut = len(self.train)
        guesses = [
            self._learn(vectors[:cut][rows], labels[rows], vectors[cut:])
            for rows in few_shot_draws(labels, self.shots, self.experiments)
        ]
        right = np.mean([guess == answers for guess in guesses], axis=0)[:, None]  # (N, 1), of the experiments
        protocol = {
            "classifier": f"logistic regression, {self.shots} texts a class, {self.experiments} draws",
            "train": len(self.train),
            "classes": len(classes),
            "parting": self.parting,
        }
        drawn = bootstrap.means(100 * right, resamples, seed=seed, name=self.name)
        f1 = float(np.mean([f1_score(answers, guess, average="macro") for guess in guesses]))
        return [
            measured(
                self.name,
                "test",
                "accuracy",
                float(100 * right.mean()),
                None if drawn is None else drawn[0],
                len(answers),
                protocol,
            ),
            measured(self.name, "test", "macro f1", 100 * f1, None, len(answers), protocol),
        ]

    def _learn(
        self, vectors: Float[np.ndarray, "S D"], labels: Int[np.ndarray, " S"], test: Float[np.ndarray, "N D"]
    ) -> Int[np.ndarray, " N"]:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(random_state=SEED, max_iter=100)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a hundred iterations are the protocol
            model.fit(vectors, labels)
        return np.asarray(model.predict(test), dtype=np.int64)


def few_shot_draws(labels: Int[np.ndarray, " N"], shots: int, experiments: int) -> list[Int[np.ndarray, " _"]]:
    """Return the training rows of each experiment: the first ``shots`` of every class in a shuffled order."""
    random = np.random.RandomState(SEED)
    order = np.arange(len(labels))
    chosen = []
    for _ in range(experiments):
        random.shuffle(order)
        taken = dict.fromkeys(np.unique(labels).tolist(), 0)
        rows = []
        for row in order:
            label = int(labels[row])
            if taken[label] < shots:
                taken[label] += 1
                rows.append(row)
        chosen.append(np.array(rows))
    return chosen
