"""SentEval's three procedures: against the authors' scores, against slow loops, and what they refuse."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.model_selection import StratifiedKFold
from test_batched_classifier import one_at_a_time, problem

from selfsent.errors import DataError
from selfsent.evaluation.senteval import cross_validation
from selfsent.evaluation.senteval.batched_classifier import Features, Fold, SentEval
from selfsent.evaluation.senteval.cross_validation import (
    CLASSIFIERS,
    Classifier,
    Sklearn,
    linear_classifier,
)

NAMES = {"full": "senteval_full", "fast": "senteval_fast"}


def small(grid=(1e-4, 1.0), folds=3, **changes):
    """A classifier that is done in a moment."""
    learner = SentEval(batch_size=16, tenacity=1, max_passes=12, grid=grid, **changes)
    return Classifier(name="small", learners=(("", learner),), folds=folds)


def cut(train, test, dev=None):
    """The rows of the splits of a task."""
    return {"train": train, "test": test} | ({} if dev is None else {"dev": dev})


def whole(labels):
    """The rows of nested cross-validation."""
    return {"all": np.arange(len(labels))}


def both(values, case):
    """Golden training rows, then test rows."""
    x = np.concatenate([values[f"{case}_X_train"], values[f"{case}_X_test"]])
    y = np.concatenate([values[f"{case}_y_train"], values[f"{case}_y_test"]])
    train = len(values[f"{case}_y_train"])
    return Features.of(torch.from_numpy(x)), y, np.arange(train), np.arange(train, len(y))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", ["c2", "c6"])
@pytest.mark.parametrize("way", ["kfold", "split"])
def test_cross_validation_and_the_fixed_split_give_the_authors_scores(golden, way, case, name):
    values, start = golden("senteval_classifier"), f"{case}_{name}_{way}_"
    features, labels, train, test = both(values, case)
    size = len(train) - int(values[f"{case}_n_valid_tail"])
    splits = cut(train, test) if way == "kfold" else cut(train[:size], test, dev=train[size:])
    found = cross_validation.cross_validate(features, labels, splits, CLASSIFIERS[NAMES[name]])
    assert found.devacc == pytest.approx(float(values[f"{start}devacc"]), abs=1e-9)
    assert found.accuracy == pytest.approx(float(values[f"{start}testacc"]), abs=1e-9)
    assert found.chosen == (f"{float(values[f'{start}chosen_reg']):g}",)
    if way == "kfold":
        np.testing.assert_array_equal(found.predictions, values[f"{start}test_pred"])


@pytest.mark.parametrize("name", NAMES)
def test_nested_cross_validation_gives_the_authors_scores(golden, name):
    values = golden("senteval_classifier")
    features, labels = Features.of(torch.from_numpy(values["nested_X"])), values["nested_y"]
    known = replace(CLASSIFIERS[NAMES[name]], folds=int(values["nested_k"]))
    found = cross_validation.cross_validate(features, labels, whole(labels), known)
    assert found.devacc == pytest.approx(float(values[f"nested_{name}_devacc"]), abs=1e-9)
    assert found.accuracy == pytest.approx(float(values[f"nested_{name}_testacc"]), abs=1e-9)
    assert found.chosen == tuple(f"{reg:g}" for reg in values[f"nested_{name}_chosen_reg"])
    correct = found.predictions == labels
    accuracies = [round(100 * correct[test].mean(), 2) for _, test in cross_validation.stratified_folds(labels, 5)]
    assert accuracies == pytest.approx(values[f"nested_{name}_outer_test"], abs=1e-9)
    assert found.fits == 5 * 5 * 4 + 5


@pytest.mark.parametrize("case", ["c2", "c6"])
def test_the_scikit_learn_mode_is_near_the_authors(golden, case):
    values = golden("senteval_classifier")
    features, labels, train, test = both(values, case)
    known = Classifier(
        name="sklearn", learners=(("", Sklearn(tuple(map(float, values[f"{case}_sklearn_C_grid"])))),), folds=10
    )
    found = cross_validation.cross_validate(features, labels, cut(train, test), known)
    assert found.devacc == pytest.approx(float(values[f"{case}_sklearn_devacc"]), abs=0.5)
    assert found.accuracy == pytest.approx(float(values[f"{case}_sklearn_testacc"]), abs=0.5)


def test_folds_are_the_authors(golden):
    values = golden("senteval_classifier")
    for index, (train, test) in enumerate(cross_validation.stratified_folds(values["nested_y"], 5)):
        np.testing.assert_array_equal(test, np.flatnonzero(values["nested_outer_fold"] == index))
        inner = values["nested_inner_fold"][index]
        for place, (_, part) in enumerate(cross_validation.stratified_folds(values["nested_y"][train], 5)):
            np.testing.assert_array_equal(train[part], np.flatnonzero(inner == place))


def test_nested_cross_validation_equals_slow_loops():
    features, labels = problem(rows=72, seed=4)
    known = small()
    settings = known.learners[0][1]
    values = features.take(torch.arange(len(labels)))
    found = cross_validation.cross_validate(features, labels, whole(labels), known)
    folds = StratifiedKFold(n_splits=3, shuffle=True, random_state=1111)
    devs, tests, predictions = [], [], np.empty(len(labels), dtype=np.int64)
    for train, test in folds.split(values, labels):
        means = []
        for penalty in settings.grid:
            scores = []
            for learn, stop in folds.split(values[train], labels[train]):
                fold = Fold(train[learn], train[stop])
                scores.append(one_at_a_time(features, labels, fold, penalty, settings, 3)[0])
            means.append(round(100 * np.mean(scores), 2))
        devs.append(max(means))
        best = settings.grid[means.index(max(means))]
        weight, bias = one_at_a_time(features, labels, Fold(train, None), best, settings, 3)[3]
        predictions[test] = (values[test] @ weight.T + bias).argmax(dim=1)
        tests.append(round(100 * np.mean(predictions[test] == labels[test]), 2))
    np.testing.assert_array_equal(found.predictions, predictions)
    assert found.devacc == round(np.mean(devs), 2)
    assert found.accuracy == round(np.mean(tests), 2)
    # The rows' shares turn a mean over rows into the mean over folds.
    assert 100 * np.mean((predictions == labels) * found.shares) == pytest.approx(found.accuracy, abs=0.011)


def test_ties_go_to_the_smallest_regulariser_after_rounding():
    assert cross_validation._best(np.array([0.70001, 0.70004, 0.70003])) == (0, 70.0)
    assert cross_validation._best(np.array([0.7, 0.70006, 0.70008])) == (1, 70.01)


def test_the_hidden_layer_is_chosen_by_the_development_accuracy():
    features, labels = problem(rows=90)
    rows = np.arange(90)
    learners = tuple(
        (f"{width} units", SentEval(batch_size=16, tenacity=1, max_passes=40, hidden=width, grid=(1e-5,)))
        for width in (1, 30)
    )
    splits = cut(rows[:50], rows[70:], dev=rows[50:70])
    alone = [
        cross_validation.cross_validate(features, labels, splits, Classifier(name="one", learners=(learner,), folds=2))
        for learner in learners
    ]
    assert alone[0].devacc != alone[1].devacc
    found = cross_validation.cross_validate(
        features, labels, splits, Classifier(name="mlp", learners=learners, folds=2)
    )
    best = max(alone, key=lambda outcome: outcome.devacc)
    assert (found.devacc, found.accuracy, found.chosen) == (best.devacc, best.accuracy, best.chosen)
    assert found.fits == 2


def test_the_recommended_grid_has_nine_networks_and_a_linear_stand_in():
    mlp = CLASSIFIERS["senteval_mlp"]
    shapes = {(learner.hidden, learner.dropout) for _, learner in mlp.learners}
    assert shapes == {(hidden, dropout) for hidden in (50, 100, 200) for dropout in (0.0, 0.1, 0.2)}
    ((_, linear),) = linear_classifier(mlp).learners
    assert linear.hidden == 0
    assert linear_classifier(CLASSIFIERS["sklearn"]) == CLASSIFIERS["sklearn"]


def test_scikit_learn_s_grid_is_of_the_powers_of_ten_from_a_thousandth_to_ten():
    ((_, learner),) = CLASSIFIERS["sklearn"].learners
    assert learner.grid == pytest.approx([10.0**power for power in range(-3, 2)])


@pytest.mark.parametrize("learner", [small().learners[0][1], Sklearn((0.1, 1.0))])
@pytest.mark.parametrize("splits", [("all",), ("train", "test"), ("train", "dev", "test")])
def test_progress_ends_at_the_number_of_fits(learner, splits, reports):
    features, labels = problem(rows=72)
    rows = dict(zip(splits, np.array_split(np.arange(72), len(splits)), strict=True))
    classifier = Classifier(name="two learners", learners=(("a", learner), ("b", learner)), folds=3)
    found = cross_validation.cross_validate(features, labels, rows, classifier, progress=reports)
    counts = [done for _, done, _ in reports]
    assert reports[-1] == ("classifiers trained", found.fits, found.fits)
    assert counts == sorted(set(counts))


def test_a_class_too_rare_for_the_folds_is_refused():
    features, labels = problem(rows=60)
    labels = np.where(np.arange(60) < 2, 2, labels % 2)
    with pytest.raises(DataError, match="a class has 2 training rows where 3 folds need at least 3"):
        cross_validation.cross_validate(features, labels, whole(labels), small())
    # Three rows are enough for the outer folds and too few for the folds within them.
    labels = np.where(np.arange(60) < 3, 2, labels % 2)
    with pytest.raises(DataError, match="a class has 2 training rows"):
        cross_validation.cross_validate(features, labels, whole(labels), small())


def test_one_class_alone_is_refused():
    features, labels = problem(rows=60)
    rows = np.arange(60)
    with pytest.raises(DataError, match="have 1 class: a classifier needs at least 2"):
        cross_validation.cross_validate(features, np.zeros_like(labels), whole(labels), small())
    with pytest.raises(DataError, match="have 1 class"):
        cross_validation.cross_validate(features, np.where(rows < 40, 1, 0), cut(rows[:40], rows[40:]), small())


def test_a_class_that_training_never_saw_is_refused():
    features, labels = problem(rows=60, classes=2)
    rows = np.arange(60)
    strange = np.where(rows == 59, 2, labels)
    with pytest.raises(DataError, match="the test rows have 1 classes that no training row has"):
        cross_validation.cross_validate(features, strange, cut(rows[:40], rows[40:]), small())
    strange = np.where(rows == 41, 2, labels)
    with pytest.raises(DataError, match="the development rows have 1 classes"):
        cross_validation.cross_validate(features, strange, cut(rows[:40], rows[50:], dev=rows[40:50]), small())
