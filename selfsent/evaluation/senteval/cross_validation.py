"""SentEval's three procedures that turn features and labels into an accuracy, with any of its classifiers.

    nested       nested cross-validation: per outer fold the regulariser with the best mean inner accuracy
                 (MR, CR, SUBJ, MPQA)
    cross        the regulariser by cross-validation on the training rows, the accuracy on the test rows (TREC, MRPC)
    split        the regulariser by the accuracy on the development rows (SST, SICK-E, SNLI, probing)

Accuracies are rounded to two decimals before the best is taken, and ties go to the smallest value of the grid.  After
``nested`` and ``cross`` a classifier with the chosen regulariser is trained on all training rows, 5 % of them, drawn at
random, stopping it; after ``split`` it would be trained again on the same rows from the same seed, so it is kept.

Source: the behaviour of facebookresearch/SentEval @ 5d6dc11, senteval/tools/validation.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from selfsent.errors import DataError
from selfsent.evaluation.senteval.batched_classifier import Features, Fold, Rows
from selfsent.evaluation.senteval.classifiers import SEED, Classifier, Learner
from selfsent.progress import SILENT, Progress


@dataclass(frozen=True, kw_only=True)
class CrossValidated:
    """The result of a procedure; accuracies in points."""

    devacc: float  # with the chosen regulariser, on the rows it was chosen by
    accuracy: float
    predictions: Rows  # of each test row, in order; in nested cross-validation of every row
    shares: Float[np.ndarray, " N"]  # weight of each test row in the accuracy; mean 1
    chosen: tuple[str, ...]  # regulariser of each (outer) fold, as it is named in a protocol
    fits: int = 0  # of all learners


def nested_cross_validation(
    features: Features, labels: Rows, classifier: Classifier, *, progress: Progress = SILENT
) -> CrossValidated:
    """Score by nested cross-validation; every row is a test row once.

    Raises:
        DataError: a class has too few rows to be in every fold.
    """
    _require_classes(labels)
    outer = stratified_folds(labels, classifier.folds)
    inner = [
        Fold(train[part], train[stop])
        for train, _ in outer
        for part, stop in stratified_folds(labels[train], classifier.folds)
    ]

    def score(learner: Learner, label: str, progress: Progress) -> CrossValidated:
        grid = np.tile(learner.grid, (len(inner), 1))
        fits = learner.fit(features, labels, inner, grid, progress=progress)
        means = fits.accuracy.reshape(len(outer), -1, grid.shape[1]).mean(axis=1)  # (outer, R)
        best = [_best(row) for row in means]
        chosen = np.array([[learner.grid[index]] for index, _ in best])
        refits = [Fold(train, None) for train, _ in outer]
        fits = learner.fit(features, labels, refits, chosen, progress=progress)
        predictions, shares = np.empty_like(labels), np.empty(len(labels))
        accuracies = []
        for fold, (_, test) in enumerate(outer):
            predictions[test] = fits.predict(features, test, fold, 0)
            shares[test] = len(labels) / (len(outer) * len(test))
            accuracies.append(_accuracy(predictions[test], labels[test]))
        return CrossValidated(
            devacc=round(float(np.mean([value for _, value in best])), 2),
            accuracy=round(float(np.mean(accuracies)), 2),
            predictions=predictions,
            shares=shares,
            chosen=tuple(f"{label}{learner.grid[index]:g}" for index, _ in best),
        )

    return _best_learner(classifier, score, folds=len(inner), refits=len(outer), progress=progress)


def cross_validation(
    features: Features, labels: Rows, train: Rows, test: Rows, classifier: Classifier, *, progress: Progress = SILENT
) -> CrossValidated:
    """Choose by cross-validation on the training rows and score on the test rows.

    Raises:
        DataError: a class has too few rows to be in every fold, or is in the test rows alone.
    """
    _require_classes(labels[train])
    _require_known(labels[train], labels[test], "test")
    folds = [Fold(train[part], train[stop]) for part, stop in stratified_folds(labels[train], classifier.folds)]

    def score(learner: Learner, label: str, progress: Progress) -> CrossValidated:
        grid = np.tile(learner.grid, (len(folds), 1))
        fits = learner.fit(features, labels, folds, grid, progress=progress)
        index, devacc = _best(fits.accuracy.mean(axis=0))
        everything, chosen = [Fold(train, None)], np.array([[learner.grid[index]]])
        refit = learner.fit(features, labels, everything, chosen, progress=progress)
        return _tested(labels[test], refit.predict(features, test, 0, 0), devacc, f"{label}{learner.grid[index]:g}")

    return _best_learner(classifier, score, folds=len(folds), refits=1, progress=progress)


def validation_split(
    features: Features,
    labels: Rows,
    train: Rows,
    dev: Rows,
    test: Rows,
    classifier: Classifier,
    *,
    progress: Progress = SILENT,
) -> CrossValidated:
    """Choose and stop by the development rows and score on the test rows.

    Raises:
        DataError: the development or test rows have a class that the training rows have not.
    """
    _require_classes(labels[train])
    for name, rows in (("development", dev), ("test", test)):
        _require_known(labels[train], labels[rows], name)

    def score(learner: Learner, label: str, progress: Progress) -> CrossValidated:
        grid = np.array(learner.grid)[None]
        fits = learner.fit(features, labels, [Fold(train, dev)], grid, progress=progress)
        index, devacc = _best(fits.accuracy[0])
        return _tested(labels[test], fits.predict(features, test, 0, index), devacc, f"{label}{learner.grid[index]:g}")

    return _best_learner(classifier, score, folds=1, refits=0, progress=progress)


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


def _best_learner(
    classifier: Classifier,
    score: Callable[[Learner, str, Progress], CrossValidated],
    *,
    folds: int,
    refits: int,
    progress: Progress,
) -> CrossValidated:
    """Score every learner and return the result with the best development accuracy, the first of equals."""
    fits = sum(folds * len(learner.grid) + refits for _, learner in classifier.learners)
    total = _Total(progress, fits)
    results = [score(learner, f"{label}, " if label else "", total) for label, learner in classifier.learners]
    return replace(max(results, key=lambda result: result.devacc), fits=fits)  # max() returns the first


def _best(accuracies: Float[np.ndarray, " R"]) -> tuple[int, float]:
    """Return the index of the best regulariser and its accuracy in points, rounded first; the first of equals."""
    points = [round(100 * float(value), 2) for value in accuracies]
    index = int(np.argmax(points))
    return index, points[index]


def _tested(labels: Rows, predictions: Rows, devacc: float, chosen: str) -> CrossValidated:
    accuracy, shares = _accuracy(predictions, labels), np.ones(len(labels))
    return CrossValidated(devacc=devacc, accuracy=accuracy, predictions=predictions, shares=shares, chosen=(chosen,))


def _accuracy(predictions: Rows, labels: Rows) -> float:
    return round(100 * float(np.mean(predictions == labels)), 2)


def _require_classes(labels: Rows) -> None:
    classes = len(np.unique(labels))
    if classes < 2:
        raise DataError(f"the training rows have {classes} class: a classifier needs at least 2")


def _require_known(train: Rows, rows: Rows, name: str) -> None:
    unknown = np.setdiff1d(rows, train)
    if not len(rows):
        raise DataError(f"there are no {name} rows: a score needs some")
    if len(unknown):
        raise DataError(
            f"the {name} rows have {len(unknown)} classes that no training row has: "
            "they cannot be learned; get the data again"
        )
