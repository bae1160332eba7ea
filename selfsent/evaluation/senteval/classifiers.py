"""The classifiers by name.

    senteval_full    Adam, 10 folds: the literature's numbers
    senteval_fast    RMSprop, 5 folds, fewer passes: for evaluation during development
    senteval_mlp     senteval_full with a sigmoid layer, its width and dropout chosen by the development accuracy
    sklearn          scikit-learn's logistic regression, 10 folds

Numbers of different classifiers differ by points and are never averaged or compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from selfsent.evaluation.senteval.batched_classifier import (
    ClassifierSettings,
    Features,
    Fits,
    Fold,
    Grid,
    Rows,
    fit_classifiers,
)
from selfsent.progress import SILENT, Progress

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

SEED = 1111  # of the folds, too


@dataclass(frozen=True)
class SentEval:
    """SentEval's own classifier, trained in batches of fits."""

    settings: ClassifierSettings
    grid: Sequence[float] = (1e-5, 1e-4, 1e-3, 1e-2)  # L2 penalties, smallest first

    def fit(
        self, features: Features, labels: Rows, folds: Sequence[Fold], regularisers: Grid, progress: Progress = SILENT
    ) -> Fits:
        """Train a classifier for every fold and regulariser."""
        return fit_classifiers(features, labels, folds, regularisers, self.settings, progress=progress)


@dataclass(frozen=True)
class Sklearn:
    """scikit-learn's logistic regression; it learns from all training rows and does not stop early."""

    grid: Sequence[float] = (1e-3, 1e-2, 1e-1, 1.0, 10.0)  # C

    def fit(
        self, features: Features, labels: Rows, folds: Sequence[Fold], regularisers: Grid, progress: Progress = SILENT
    ) -> "SklearnFits":
        """Train a classifier for every fold and regulariser."""
        from sklearn.linear_model import LogisticRegression

        fits = SklearnFits(accuracy=np.full(regularisers.shape, np.nan), models=[])
        for index, fold in enumerate(folds):
            x, y = features.take(torch.from_numpy(fold.train)).numpy(), labels[fold.train]
            fits.models.append([])
            for place, c in enumerate(regularisers[index]):
                model = LogisticRegression(C=float(c), max_iter=1000, random_state=SEED).fit(x, y)
                fits.models[index].append(model)
                if fold.stop is not None:
                    predicted = fits.predict(features, fold.stop, index, place)
                    fits.accuracy[index, place] = (predicted == labels[fold.stop]).mean()
                progress.report("classifiers trained", index * regularisers.shape[1] + place + 1, regularisers.size)
        return fits


@dataclass(frozen=True, kw_only=True)
class SklearnFits:
    """Logistic regressions of F folds with R regularisers each."""

    accuracy: Grid  # on the stopping rows, 0-1; NaN without any
    models: "list[list[LogisticRegression]]"

    def predict(self, features: Features, rows: Rows, fold: int, regulariser: int) -> Rows:
        """Return the class that one model predicts for each row."""
        model = self.models[fold][regulariser]
        return np.asarray(model.predict(features.take(torch.from_numpy(rows)).numpy()), dtype=np.int64)


Learner = SentEval | Sklearn


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A classifier by name: its learners, of which the best on the development rows is used, and its folds."""

    name: str
    learners: tuple[tuple[str, Learner], ...]  # label in a protocol, learner
    folds: int
    linear: Learner | None = None  # used instead where a task needs a linear classifier

    def for_linear_task(self) -> "Classifier":
        """Return this classifier without its hidden layer, if it has one."""
        return self if self.linear is None else replace(self, learners=(("", self.linear),), linear=None)

    def without_regulariser(self, *, max_passes: int, passes: int) -> "Classifier":
        """Return this classifier without a penalty and with another length, as SNLI is scored."""

        def bare(learner: Learner) -> Learner:
            if isinstance(learner, Sklearn):
                return Sklearn(grid=(1e9,))
            return SentEval(replace(learner.settings, max_passes=max_passes, passes=passes), grid=(1e-9,))

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
