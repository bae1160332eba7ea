"""The classifiers by name, and one way to call them all.

    senteval_full    Adam, 10 folds: the literature's numbers
    senteval_fast    RMSprop, 5 folds, fewer passes: to look now and then
    senteval_mlp     senteval_full with a sigmoid layer, its width and dropout by the development accuracy
    sklearn          scikit-learn's logistic regression, 10 folds

Numbers of different classifiers differ by points and are never averaged or compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from selfsent.evaluation.senteval import batched_classifier
from selfsent.evaluation.senteval.batched_classifier import ClassifierSettings, Features, Fold, Rows

SEED = 1111  # of the folds, too
REGULARISERS = (1e-5, 1e-4, 1e-3, 1e-2)
UNREGULARISED = (1e-9,)


@runtime_checkable
class LabelLearner(Protocol):
    """A family of classifiers with a grid of regularisers, smallest first."""

    @property
    def grid(self) -> Sequence[float]:
        """The regularisers."""

    def accuracies(
        self, features: Features, labels: Rows, folds: Sequence[Fold], classes: int, tick: Callable[[int], None]
    ) -> Float[np.ndarray, "F R"]:
        """Return the accuracy, 0-1, on the stopping rows of every fold and regulariser."""

    def predictions(
        self,
        features: Features,
        labels: Rows,
        folds: Sequence[Fold],
        chosen: Sequence[int],
        tests: Sequence[Rows],
        classes: int,
        tick: Callable[[int], None],
    ) -> list[Rows]:
        """Train once more on each fold with its chosen regulariser and return the classes of its test rows."""


@dataclass(frozen=True)
class SentEval:
    """SentEval's own classifier, trained in batches of fits."""

    settings: ClassifierSettings
    grid: Sequence[float] = REGULARISERS

    def accuracies(
        self, features: Features, labels: Rows, folds: Sequence[Fold], classes: int, tick: Callable[[int], None]
    ) -> Float[np.ndarray, "F R"]:
        """Return the best accuracies that stopped the fits."""
        penalties = np.tile(np.array(self.grid), (len(folds), 1))
        return batched_classifier.fit_classifiers(
            features, labels, folds, penalties, self.settings, classes=classes, tick=tick
        ).accuracy

    def predictions(
        self,
        features: Features,
        labels: Rows,
        folds: Sequence[Fold],
        chosen: Sequence[int],
        tests: Sequence[Rows],
        classes: int,
        tick: Callable[[int], None],
    ) -> list[Rows]:
        """Train on each fold until its stopping rows say so."""
        penalties = np.array([[self.grid[index]] for index in chosen])
        fits = batched_classifier.fit_classifiers(
            features, labels, folds, penalties, self.settings, classes=classes, tick=tick
        )
        return [fits.predict(features, rows, fold, 0) for fold, rows in enumerate(tests)]


@dataclass(frozen=True)
class Sklearn:
    """scikit-learn's logistic regression; learns from all training rows, stops by none."""

    grid: Sequence[float] = (1e-3, 1e-2, 1e-1, 1.0, 10.0)  # C

    def accuracies(
        self, features: Features, labels: Rows, folds: Sequence[Fold], classes: int, tick: Callable[[int], None]
    ) -> Float[np.ndarray, "F R"]:
        """Return the accuracies on the stopping rows."""
        found = np.empty((len(folds), len(self.grid)))
        for index, fold in enumerate(folds):
            assert fold.stop is not None
            for place, c in enumerate(self.grid):
                predicted = self._predict(features, labels, fold.train, c, fold.stop)
                found[index, place] = (predicted == labels[fold.stop]).mean()
                tick(1)
        return found

    def predictions(
        self,
        features: Features,
        labels: Rows,
        folds: Sequence[Fold],
        chosen: Sequence[int],
        tests: Sequence[Rows],
        classes: int,
        tick: Callable[[int], None],
    ) -> list[Rows]:
        """Train on all rows of each fold."""
        found = []
        for fold, index, rows in zip(folds, chosen, tests, strict=True):
            found.append(self._predict(features, labels, fold.train, self.grid[index], rows))
            tick(1)
        return found

    def _predict(self, features: Features, labels: Rows, train: Rows, c: float, rows: Rows) -> Rows:
        import torch
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(C=c, max_iter=1000, random_state=SEED)
        model.fit(features.take(torch.from_numpy(train)).numpy(), labels[train])
        return np.asarray(model.predict(features.take(torch.from_numpy(rows)).numpy()), dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A classifier by name: its learners, the best of which on the development rows counts, and its folds."""

    name: str
    learners: tuple[tuple[str, LabelLearner], ...]  # label in a protocol, learner
    folds: int
    linear: LabelLearner | None = None  # stands in where a task asks for a linear classifier

    def for_linear_task(self) -> "Classifier":
        """Return this classifier without its hidden layer, if it has one."""
        return self if self.linear is None else replace(self, learners=(("", self.linear),), linear=None)

    def without_regulariser(self, *, max_passes: int, passes: int) -> "Classifier":
        """Return this classifier without a penalty and with another length, as SNLI is scored."""

        def bare(learner: LabelLearner) -> LabelLearner:
            if not isinstance(learner, SentEval):
                return replace(learner, grid=(1e9,)) if isinstance(learner, Sklearn) else learner
            settings = replace(learner.settings, max_passes=max_passes, passes=passes)
            return SentEval(settings, UNREGULARISED)

        return replace(self, learners=tuple((label, bare(learner)) for label, learner in self.learners))


FULL = ClassifierSettings()
FAST = ClassifierSettings(optimizer="rmsprop", batch_size=128, passes=2, tenacity=3)
CLASSIFIERS = {
    known.name: known
    for known in (
        Classifier(name="senteval_full", learners=(("", SentEval(FULL)),), folds=10),
        Classifier(name="senteval_fast", learners=(("", SentEval(FAST)),), folds=5),
        Classifier(
            name="senteval_mlp",
            learners=tuple(
                (f"{hidden} units, dropout {dropout:g}", SentEval(replace(FULL, hidden=hidden, dropout=dropout)))
                for hidden in (50, 100, 200)
                for dropout in (0.0, 0.1, 0.2)
            ),
            folds=10,
            linear=SentEval(FULL),
        ),
        Classifier(name="sklearn", learners=(("", Sklearn()),), folds=10),
    )
}
