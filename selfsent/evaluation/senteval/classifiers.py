"""The classifiers by name.

    senteval_full    Adam, 10 folds: the literature's numbers
    senteval_fast    RMSprop, 5 folds, fewer passes: for evaluation during development
    senteval_mlp     senteval_full with a sigmoid layer, its width and dropout chosen by the development accuracy
    sklearn          scikit-learn's logistic regression, 10 folds

Numbers of different classifiers differ by points and are never averaged or compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from selfsent.evaluation.senteval.batched_classifier import SEED, Features, Fold, Grid, Rows, SentEval
from selfsent.progress import SILENT, Progress


@dataclass(frozen=True)
class SklearnFits:
    """Logistic regressions of F folds with R regularisers each."""

    accuracy: Grid  # on the stopping rows, 0-1; NaN without any
    models: list[list[Any]]

    def predict(self, features: Features, rows: Rows, fold: int, regulariser: int) -> Rows:
        """Return the class that one model predicts for each row."""
        predicted = self.models[fold][regulariser].predict(features.take(torch.from_numpy(rows)).numpy())
        return np.asarray(predicted, dtype=np.int64)


@dataclass(frozen=True)
class Sklearn:
    """scikit-learn's logistic regression; it learns from all training rows and does not stop early."""

    grid: Sequence[float] = (1e-3, 1e-2, 1e-1, 1.0, 10.0)  # C

    def fit(
        self, features: Features, labels: Rows, folds: Sequence[Fold], regularisers: Grid, progress: Progress = SILENT
    ) -> SklearnFits:
        """Train a classifier for every fold and regulariser."""
        from sklearn.linear_model import LogisticRegression

        fits = SklearnFits(np.full(regularisers.shape, np.nan), [[] for _ in folds])
        for done, (index, place) in enumerate(np.ndindex(*regularisers.shape), start=1):
            fold = folds[index]
            x = features.take(torch.from_numpy(fold.train)).numpy()
            model = LogisticRegression(C=float(regularisers[index, place]), max_iter=1000, random_state=SEED)
            fits.models[index].append(model.fit(x, labels[fold.train]))
            if fold.stop is not None:
                predicted = fits.predict(features, fold.stop, index, place)
                fits.accuracy[index, place] = (predicted == labels[fold.stop]).mean()
            progress.report("classifiers trained", done, regularisers.size)
        return fits


Learner = SentEval | Sklearn


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A classifier by name: its learners, of which the best on the development rows is used, and its folds."""

    name: str
    learners: tuple[tuple[str, Learner], ...]  # label in a protocol, learner
    folds: int = 10


FAST = SentEval(optimizer="rmsprop", batch_size=128, passes=2, tenacity=3)
NETWORKS = tuple(
    (f"{hidden} units, dropout {dropout:g}", SentEval(hidden=hidden, dropout=dropout))
    for hidden in (50, 100, 200)
    for dropout in (0.0, 0.1, 0.2)
)
CLASSIFIERS = {
    "senteval_full": Classifier(name="senteval_full", learners=(("", SentEval()),)),
    "senteval_fast": Classifier(name="senteval_fast", learners=(("", FAST),), folds=5),
    "senteval_mlp": Classifier(name="senteval_mlp", learners=NETWORKS),
    "sklearn": Classifier(name="sklearn", learners=(("", Sklearn()),)),
}


def linear_classifier(classifier: Classifier) -> Classifier:
    """Return the classifier with a linear learner in place of its networks, if it has any."""
    return replace(classifier, learners=(("", SentEval()),)) if classifier.learners == NETWORKS else classifier


def unregularised_classifier(classifier: Classifier, *, max_passes: int, passes: int) -> Classifier:
    """Return the classifier without a penalty and with another length, as SNLI is scored."""
    learners = [
        (label, Sklearn(grid=(1e9,)))
        if isinstance(learner, Sklearn)
        else (label, replace(learner, max_passes=max_passes, passes=passes, grid=(1e-9,)))
        for label, learner in classifier.learners
    ]
    return replace(classifier, learners=tuple(learners))
