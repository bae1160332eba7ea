"""SentEval's three procedures that turn features and labels into an accuracy, with any of its classifiers.

    nested       nested cross-validation: per outer fold the regulariser with the best mean inner accuracy
                 (MR, CR, SUBJ, MPQA)
    cross        the regulariser by cross-validation on the training rows, the accuracy on the test rows (TREC, MRPC)
    split        the regulariser by the accuracy on the development rows (SST, SICK-E, SNLI, probing)

Accuracies are rounded to two decimals before the best is taken, and ties go to the smallest value of the grid.  After
``nested`` and ``cross`` a classifier with the chosen regulariser is trained on all training rows, 5 % of them, drawn at
random, stopping it; after ``split`` it would be trained again on the same rows from the same seed, so it is kept.

The classifiers by name:

    senteval_full    Adam, 10 folds: the literature's numbers
    senteval_fast    RMSprop, 5 folds, fewer passes: for evaluation during development
    senteval_mlp     senteval_full with a sigmoid layer, its width and dropout chosen by the development accuracy
    sklearn          scikit-learn's logistic regression, 10 folds

Numbers of different classifiers differ by points and are never averaged or compared.

Source: the behaviour of facebookresearch/SentEval @ 5d6dc11, senteval/tools/validation.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from selfsent.errors import DataError
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


@dataclass(frozen=True, kw_only=True)
class CrossValidated:
    """The result of a procedure; accuracies in points."""

    devacc: float  # with the chosen regulariser, on the rows it was chosen by
    accuracy: float
    predictions: Rows  # of each test row, in order; in nested cross-validation of every row
    shares: Float[np.ndarray, " N"]  # weight of each test row in the accuracy; mean 1
    chosen: tuple[str, ...]  # regulariser of each (outer) fold, as it is named in a protocol
    fits: int  # of all learners


def cross_validate(
    features: Features, labels: Rows, rows: Mapping[str, Rows], classifier: Classifier, *, progress: Progress = SILENT
) -> CrossValidated:
    """Score by the procedure that the splits of the rows call for; return the best of the classifier's learners.

    Args:
        rows: of the one split ``all`` for nested cross-validation, of ``train`` and ``test``, or of ``dev`` as well.

    Raises:
        DataError: the labels cannot be learned: one class only, one too rare for the folds, or one without training
            rows.
    """
    dev = rows.get("dev")
    outer = stratified_folds(labels, classifier.folds) if "all" in rows else [(rows["train"], rows["test"])]
    for train, test in outer:
        _require_learnable(labels[train], labels[train if dev is None else dev], labels[test])
    if dev is None:
        inner = [
            Fold(train[part], train[stop])
            for train, _ in outer
            for part, stop in stratified_folds(labels[train], classifier.folds)
        ]
        refits = [Fold(train, None) for train, _ in outer]
    else:
        inner, refits = [Fold(rows["train"], dev)], []
    tested = np.sort(np.concatenate([test for _, test in outer]))
    count = sum(len(inner) * len(learner.grid) + len(refits) for _, learner in classifier.learners)
    total = _Total(progress, count)

    def score(label: str, learner: Learner) -> CrossValidated:
        grid = np.tile(learner.grid, (len(inner), 1))
        fits = learner.fit(features, labels, inner, grid, total)
        best = [_best(row) for row in fits.accuracy.reshape(len(outer), -1, grid.shape[1]).mean(axis=1)]
        places = [place for place, _ in best]
        chosen = [learner.grid[place] for place in places]
        if refits:
            fits, places = learner.fit(features, labels, refits, np.array(chosen)[:, None], total), [0] * len(outer)
        predictions, shares, accuracies = np.empty_like(labels), np.empty(len(labels)), []
        for fold, (_, test) in enumerate(outer):
            predictions[test] = fits.predict(features, test, fold, places[fold])
            shares[test] = len(tested) / (len(outer) * len(test))
            accuracies.append(round(100 * float(np.mean(predictions[test] == labels[test])), 2))
        return CrossValidated(
            devacc=round(float(np.mean([points for _, points in best])), 2),
            accuracy=round(float(np.mean(accuracies)), 2),
            predictions=predictions[tested],
            shares=shares[tested],
            chosen=tuple(f"{label}, {value:g}" if label else f"{value:g}" for value in chosen),
            fits=count,
        )

    results = [score(label, learner) for label, learner in classifier.learners]
    return max(results, key=lambda result: result.devacc)  # the first of equals


def stratified_folds(labels: Rows, folds: int) -> list[tuple[Rows, Rows]]:
    """Return training and test rows of scikit-learn's stratified folds, shuffled with ``SEED``.

    Raises:
        DataError: a class has fewer rows than there are folds.
    """
    from sklearn.model_selection import StratifiedKFold

    counts = np.bincount(labels)
    rarest = int(counts[counts > 0].min()) if len(labels) else 0
    if rarest < folds:
        raise DataError(
            f"a class has {rarest} training rows where {folds} folds need at least {folds}: "
            "give more rows of it, or leave the class out"
        )
    splitter = StratifiedKFold(n_splits=folds, shuffle=True, random_state=SEED)
    return list(splitter.split(np.zeros(len(labels)), labels))


class _Total(Progress):
    """Adds up the classifiers that one call of ``fit`` after another trains."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._before = progress, total, 0

    def report(self, stage: str, done: int, total: int | None = None) -> None:
        self._progress.report(stage, self._before + done, self._total)
        self._before += done if done == total else 0


def _best(accuracies: Float[np.ndarray, " R"]) -> tuple[int, float]:
    """Return the index of the best regulariser and its accuracy in points, rounded first; the first of equals."""
    points = [round(100 * float(value), 2) for value in accuracies]
    index = int(np.argmax(points))
    return index, points[index]


def _require_learnable(train: Rows, dev: Rows, test: Rows) -> None:
    classes = np.unique(train)
    if len(classes) < 2:
        raise DataError(f"the training rows have {len(classes)} class: a classifier needs at least 2")
    for name, given in (("development", dev), ("test", test)):
        if len(unknown := np.setdiff1d(given, classes)):
            raise DataError(
                f"the {name} rows have {len(unknown)} classes that no training row has: "
                "they cannot be learned; get the data again"
            )
