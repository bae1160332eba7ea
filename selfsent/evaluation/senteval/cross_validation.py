"""From features and labels to an accuracy: SentEval's three procedures, with any of its classifiers.

    nested       nested cross-validation: per outer fold the regulariser with the best mean inner accuracy
                 (MR, CR, SUBJ, MPQA)
    cross        the regulariser by cross-validation on the training rows, the accuracy on the test rows (TREC, MRPC)
    split        the regulariser by the accuracy on the development rows (SST, SICK-E, probing); ``unregularised`` tries
                 none (SNLI)

Accuracies are rounded to two decimals before the best is taken, and ties go to the smallest value of the grid.  After
``nested`` and ``cross`` the chosen classifier is trained again on all training rows, 5 % of them, drawn at random,
saying when to stop; after ``split`` it would be trained again on the same rows from the same seed, so it is kept.

Source: the behaviour of facebookresearch/SentEval @ 5d6dc11, senteval/tools/validation.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from selfsent.errors import UserError
from selfsent.evaluation.senteval import batched_classifier
from selfsent.evaluation.senteval.batched_classifier import Features, Fold, Rows
from selfsent.evaluation.senteval.classifiers import SEED, Classifier, LabelLearner, SentEval

Tick = Callable[[int, int], None]  # fits done, fits in all


@dataclass(frozen=True, kw_only=True)
class CrossValidated:
    """What a procedure found; accuracies in points."""

    devacc: float  # of what was chosen, on the rows it was chosen by
    accuracy: float
    predictions: Rows  # of each test row, in order; in nested cross-validation of every row
    shares: Float[np.ndarray, " N"]  # weight of each test row in the accuracy; mean 1
    chosen: tuple[str, ...]  # regulariser of each (outer) fold, as it is named in a protocol
    fold_accuracies: tuple[float, ...]  # in nested cross-validation, of the outer folds
    fits: int


def nested_cross_validation(
    features: Features, labels: Rows, known: Classifier, *, tick: Tick | None = None
) -> CrossValidated:
    """Score by nested cross-validation; every row is a test row once.

    Raises:
        UserError: a class has too few rows to be in every fold.
    """
    classes = _classes(labels)
    outer = stratified_folds(labels, known.folds)
    inner: list[Fold] = []
    for fold in outer:
        assert fold.stop is not None
        parts = stratified_folds(labels[fold.train], known.folds)
        inner += [Fold(fold.train[part.train], fold.train[part.stop]) for part in parts]
    count = _Count(tick, known, [(len(inner), True), (len(outer), False)])

    def attempt(label: str, learner: LabelLearner) -> CrossValidated:
        found = learner.accuracies(features, labels, inner, classes, count)
        means = found.reshape(len(outer), len(inner) // len(outer), -1).mean(axis=1)  # (outer, R)
        best = [_best(row) for row in means]
        chosen = [index for index, _ in best]
        tests = [fold.stop for fold in outer if fold.stop is not None]
        refits = [Fold(fold.train, None) for fold in outer]
        predicted = learner.predictions(features, labels, refits, chosen, tests, classes, count)
        predictions, shares = np.empty_like(labels), np.empty(len(labels))
        for rows, answers in zip(tests, predicted, strict=True):
            predictions[rows] = answers
            shares[rows] = len(labels) / (len(outer) * len(rows))
        each = [round(_points(answers == labels[rows]), 2) for rows, answers in zip(tests, predicted, strict=True)]
        return CrossValidated(
            devacc=round(float(np.mean([value for _, value in best])), 2),
            accuracy=round(float(np.mean(each)), 2),
            predictions=predictions,
            shares=shares,
            chosen=tuple(_named(label, learner, index) for index in chosen),
            fold_accuracies=tuple(each),
            fits=len(inner) * len(learner.grid) + len(outer),
        )

    return _best_of(known, attempt)


def cross_validation(
    features: Features, labels: Rows, train: Rows, test: Rows, known: Classifier, *, tick: Tick | None = None
) -> CrossValidated:
    """Choose by cross-validation on the training rows and score on the test rows.

    Raises:
        UserError: a class has too few rows to be in every fold, or the test has one that training never saw.
    """
    classes = _classes(labels[train])
    _require_known(labels[train], labels[test], "test")
    folds = [Fold(train[part.train], train[part.stop]) for part in stratified_folds(labels[train], known.folds)]
    count = _Count(tick, known, [(len(folds), True), (1, False)])

    def attempt(label: str, learner: LabelLearner) -> CrossValidated:
        means = learner.accuracies(features, labels, folds, classes, count).mean(axis=0)
        index, devacc = _best(means)
        (predicted,) = learner.predictions(features, labels, [Fold(train, None)], [index], [test], classes, count)
        return _tested(
            labels[test], predicted, devacc, _named(label, learner, index), len(folds) * len(learner.grid) + 1
        )

    return _best_of(known, attempt)


def validation_split(
    features: Features,
    labels: Rows,
    train: Rows,
    dev: Rows,
    test: Rows,
    known: Classifier,
    *,
    tick: Tick | None = None,
) -> CrossValidated:
    """Choose and stop by the development rows and score on the test rows.

    Raises:
        UserError: the development or test rows have a class that training never saw.
    """
    classes = _classes(labels[train])
    for name, rows in (("development", dev), ("test", test)):
        _require_known(labels[train], labels[rows], name)
    count = _Count(tick, known, [(1, True)])

    def attempt(label: str, learner: LabelLearner) -> CrossValidated:
        fold = Fold(train, dev)
        if isinstance(learner, SentEval):
            penalties = np.array(learner.grid)[None]
            fits = batched_classifier.fit_classifiers(
                features, labels, [fold], penalties, learner.settings, classes=classes, tick=count
            )
            index, devacc = _best(fits.accuracy[0])
            predicted = fits.predict(features, test, 0, index)
        else:
            index, devacc = _best(learner.accuracies(features, labels, [fold], classes, count)[0])
            (predicted,) = learner.predictions(features, labels, [fold], [index], [test], classes, lambda _: None)
        return _tested(labels[test], predicted, devacc, _named(label, learner, index), len(learner.grid))

    return _best_of(known, attempt)


def stratified_folds(labels: Rows, folds: int) -> list[Fold]:
    """Cut rows into folds that hold the classes in their proportions: scikit-learn's, shuffled with ``SEED``.

    Raises:
        UserError: a class has fewer rows than there are folds.
    """
    from sklearn.model_selection import StratifiedKFold

    counts = np.bincount(labels)
    rarest = int(counts[counts > 0].min()) if len(labels) else 0
    if rarest < folds:
        raise UserError(
            f"a class has {rarest} rows to learn from where {folds} folds need at least {folds}: "
            "give more rows of it, or leave the class out"
        )
    cut = StratifiedKFold(n_splits=folds, shuffle=True, random_state=SEED)
    return [Fold(train, test) for train, test in cut.split(np.zeros(len(labels)), labels)]


class _Count:
    """Adds up the fits that have ended and passes the sum on."""

    def __init__(self, tick: Tick | None, known: Classifier, stages: Sequence[tuple[int, bool]]) -> None:
        self._tick, self._done = tick, 0
        self._total = sum(
            folds * (len(learner.grid) if whole_grid else 1)
            for _, learner in known.learners
            for folds, whole_grid in stages
        )

    def __call__(self, count: int) -> None:
        self._done += count
        if self._tick is not None:
            self._tick(self._done, self._total)


def _best_of(known: Classifier, attempt: Callable[[str, LabelLearner], CrossValidated]) -> CrossValidated:
    """Run the procedure with every learner and keep the one with the best development accuracy, the first of equals."""
    outcomes = [attempt(label, learner) for label, learner in known.learners]
    best = max(outcomes, key=lambda outcome: outcome.devacc)  # max() keeps the first
    return replace(best, fits=sum(outcome.fits for outcome in outcomes))


def _best(accuracies: Float[np.ndarray, " R"]) -> tuple[int, float]:
    """Return which regulariser is best and its accuracy in points, rounded first, the first of equals."""
    points = [round(100 * float(value), 2) for value in accuracies]
    index = int(np.argmax(points))
    return index, points[index]


def _tested(labels: Rows, predicted: Rows, devacc: float, chosen: str, fits: int) -> CrossValidated:
    return CrossValidated(
        devacc=devacc,
        accuracy=round(_points(predicted == labels), 2),
        predictions=predicted,
        shares=np.ones(len(labels)),
        chosen=(chosen,),
        fold_accuracies=(),
        fits=fits,
    )


def _points(correct: np.ndarray) -> float:
    return 100 * float(np.mean(correct))


def _named(label: str, learner: LabelLearner, index: int) -> str:
    value = f"{learner.grid[index]:g}"
    return f"{label}, {value}" if label else value


def _classes(labels: Rows) -> int:
    present = np.unique(labels)
    if len(present) < 2:
        raise UserError(f"the rows to learn from have {len(present)} class: a classifier needs at least 2")
    return int(present.max()) + 1


def _require_known(train: Int[np.ndarray, " N"], rows: Int[np.ndarray, " M"], name: str) -> None:
    strange = np.setdiff1d(rows, train)
    if not len(rows):
        raise UserError(f"there are no {name} rows: a score needs some")
    if len(strange):
        raise UserError(
            f"the {name} rows have {len(strange)} classes that no row to learn from has: "
            "nothing can be learned about them; get the data again"
        )
