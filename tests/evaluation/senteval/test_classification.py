"""Labelled tasks: features, what a score says, its interval, its errors."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from selfsent.errors import DataError
from selfsent.evaluation import bootstrap
from selfsent.evaluation.senteval import cross_validation
from selfsent.evaluation.senteval.batched_classifier import SentEval
from selfsent.evaluation.senteval.classification import Classification, entailment_features, pair_features
from selfsent.evaluation.senteval.cross_validation import Classifier
from selfsent.evaluation.task import LabelledExamples, sorted_examples

LEARNER = SentEval(optimizer="rmsprop", batch_size=16, passes=1, tenacity=2, max_passes=20, grid=(1e-4, 1e-2))
SMALL = Classifier(name="small", learners=(("", LEARNER),), folds=3)


def task(procedure="nested", kind="text", sizes=None, **changes):
    sizes = sizes or {"nested": {"all": 90}, "cross": {"train": 80, "test": 40}}.get(
        procedure, {"train": 80, "dev": 30, "test": 40}
    )
    splits = {
        name: LabelledExamples(
            left=[f"{name} {row}" for row in range(rows)],
            right=None if kind == "text" else [f"{name} other {row}" for row in range(rows)],
            labels=[row % 2 for row in range(rows)],
        )
        for name, rows in sizes.items()
    }
    return Classification(name="made", splits=splits, classifier=SMALL, kind=kind, **changes)


def vectors(given, seed=0, signal=0.8):
    """Vectors that know their labels a little."""
    rng = np.random.default_rng(seed)
    found = rng.normal(size=(len(given.texts), 6)).astype(np.float32)
    labels = [label for part in given.splits.values() for label in part.labels * (1 if part.right is None else 2)]
    found[:, 0] += signal * (2 * np.array(labels) - 1)
    return found


def test_pair_features_are_the_distance_and_the_product():
    u, v = torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, 0.5]])
    assert pair_features(u, v).tolist() == [[2.0, 2.5, 3.0, -1.0]]


def test_entailment_features_are_made_of_the_right_rows():
    values = torch.arange(8.0).view(4, 2)
    features = entailment_features(values, torch.tensor([0, 1]), torch.tensor([2, 3]))
    assert features.width == 8
    assert features.take(torch.tensor([1])).tolist() == [[2, 3, 6, 7, 12, 21, 4, 4]]


@pytest.mark.parametrize("kind", ["pair", "entailment"])
def test_left_and_right_of_every_split_meet(kind):
    given = task("split", kind)
    values = vectors(given)
    place = {text: row for row, text in enumerate(given.texts)}
    features, rows = given._features(values)
    for name, examples in given.splits.items():
        taken = features.take(torch.from_numpy(rows[name])).numpy()
        for index, (left, right) in enumerate(zip(examples.left, examples.right, strict=True)):
            u, v = values[place[left]], values[place[right]]
            parts = [abs(u - v), u * v] if kind == "pair" else [u, v, u * v, abs(u - v)]
            np.testing.assert_allclose(taken[index], np.concatenate(parts), rtol=1e-6)


def test_sorting_keeps_texts_and_labels_together():
    found = sorted_examples([("c c", "x", 0), ("a", "y y", 1), ("b", "z", 1)])
    assert (found.left, found.right, found.labels) == (["b", "a", "c c"], ["z", "y y", "x"], [1, 1, 0])


@pytest.mark.parametrize(("procedure", "n", "chosen_by"), [("nested", 90, 90), ("cross", 40, 80), ("split", 40, 30)])
def test_a_score_says_how_it_came_about(procedure, n, chosen_by):
    given = task(procedure)
    test, dev = given.score(vectors(given), resamples=50, seed=3)
    assert (test.split, test.metric, test.n) == ("test", "accuracy", n)
    assert (dev.split, dev.metric, dev.n) == ("dev", "accuracy", chosen_by)
    assert (dev.low, dev.high, dev.replicates) == (None, None, None)
    assert test.protocol["classifier"] == "small"
    assert test.protocol["folds"] == (None if procedure == "split" else 3)
    assert test.protocol["classifier_seed"] == 1111
    assert test.protocol["fits"] == {"nested": 21, "cross": 7, "split": 2}[procedure]
    assert 60 < test.value < 100
    assert test.low < test.value < test.high


def test_the_interval_resamples_the_correctness_of_the_test_rows():
    given = task("nested", sizes={"all": 91})  # folds of 31, 30 and 30 rows weigh the same
    test, _ = given.score(vectors(given), resamples=40, seed=3)
    features, _ = given._features(vectors(given))
    labels = np.array(given.splits["all"].labels)
    found = cross_validation.cross_validate(features, labels, {"all": np.arange(91)}, SMALL)
    tests = [test for _, test in cross_validation.stratified_folds(labels, 3)]
    replicates = []
    for counts in bootstrap.bootstrap_draws(91, 40, seed=3, name="made"):
        for column in counts.T:
            value = 0.0
            for rows in tests:
                right = found.predictions[rows] == labels[rows]
                value += sum(count * ok / len(rows) for count, ok in zip(column[rows], right, strict=True)) / 3
            replicates.append(100 * value)
    np.testing.assert_allclose(test.replicates, replicates, rtol=1e-9)
    assert test.low == pytest.approx(np.quantile(replicates, 0.025))


def test_f1_is_that_of_class_1_and_its_interval_that_of_resampled_rows():
    given = task("cross", with_f1=True)
    accuracy, f1, _ = given.score(vectors(given), resamples=30, seed=0)
    features, rows = given._features(vectors(given))
    labels = np.concatenate([part.labels for part in given.splits.values()])
    found = cross_validation.cross_validate(features, labels, rows, SMALL)
    truth = labels[rows["test"]]
    assert f1.value == round(100 * f1_score(truth, found.predictions), 2)
    replicates = [
        100 * f1_score(np.repeat(truth, column.astype(int)), np.repeat(found.predictions, column.astype(int)))
        for counts in bootstrap.bootstrap_draws(40, 30, seed=0, name="made")
        for column in counts.T
    ]
    np.testing.assert_allclose(f1.replicates, replicates, rtol=1e-9)
    assert accuracy.metric == "accuracy"


def test_the_fingerprint_knows_texts_and_labels():
    given = task()
    examples = given.splits["all"]
    other = [1 - examples.labels[0], *examples.labels[1:]]
    assert replace(given, splits={"all": replace(examples, labels=other)}).fingerprint != given.fingerprint
    assert task().fingerprint == given.fingerprint


def test_labels_that_cannot_be_learned_are_refused_with_the_task():
    given = task()
    alike = replace(given, splits={"all": replace(given.splits["all"], labels=[0] * 90)})
    with pytest.raises(DataError, match="made cannot be scored: the training rows have 1 class"):
        alike.score(vectors(given), resamples=0, seed=0)
    rare = replace(given, splits={"all": replace(given.splits["all"], labels=[1, 1, *[0] * 88])})
    with pytest.raises(DataError, match="made cannot be scored: a class has 2 training rows where 3 folds"):
        rare.score(vectors(given), resamples=0, seed=0)


def test_progress_names_the_task(reports):
    given = task("split")
    given.score(vectors(given), resamples=0, seed=0, progress=reports)
    assert reports[-1] == ("made: classifiers trained", 2, 2)
