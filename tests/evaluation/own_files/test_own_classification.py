"""Few-shot classification: what is drawn, what is averaged, what is refused."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from selfsent.errors import DataError
from selfsent.evaluation.own_files.labelled import FewShot, few_shot_draws


def task(shots=2, classes=3, each=6, **others):
    labels = [f"c{i % classes}" for i in range(classes * each)]
    parts = {
        "train": [(f"text {i}", label) for i, label in enumerate(labels)],
        "test": [(f"new {i}", label) for i, label in enumerate(labels[:9])],
    }
    return FewShot(name="own", shots=shots, **(parts | others))


def vectors_of(given, noise=0.0):
    corners = {label: np.eye(3)[i] for i, label in enumerate(("c0", "c1", "c2"))}
    rng = np.random.default_rng(0)
    rows = np.stack([corners[label] for _, label in given.train + given.test])
    return rows + noise * rng.normal(size=rows.shape)


def test_classes_that_lie_apart_are_told_apart():
    accuracy, f1 = task().score(vectors_of(task(), noise=0.01), resamples=20, seed=0)
    assert (accuracy.value, accuracy.low, accuracy.high, f1.value) == (100, 100, 100, 100)
    assert accuracy.n == 9
    assert accuracy.protocol["classifier"] == "logistic regression, 2 texts a class, 10 draws"


def test_the_classifier_is_a_logistic_regression_of_c_1():
    """Its minimum, found by scipy: C times the summed log loss, and half the squared weights; the intercept is free."""
    draw = np.random.default_rng(3)
    labels = np.arange(24) % 2
    rows = draw.normal(size=(24 + 2000, 4)) * [1, 1, 0.2, 0.2]
    rows[:24] += 0.4 * labels[:, None]
    given = FewShot(
        name="own",
        train=[(f"text {i}", f"c{label}") for i, label in enumerate(labels)],
        test=[(f"new {i}", f"c{i % 2}") for i in range(2000)],
        shots=12,
        experiments=1,
    )

    def objective(weights, c):
        signs = 2 * labels - 1
        return (
            c * np.logaddexp(0, -signs * (rows[:24] @ weights[:4] + weights[4])).sum() + weights[:4] @ weights[:4] / 2
        )

    def accuracy(c):
        weights = minimize(objective, np.zeros(5), (c,), tol=1e-10).x
        return 100 * np.mean((rows[24:] @ weights[:4] + weights[4] > 0) == np.arange(2000) % 2)

    found = given.score(rows, resamples=0, seed=0)[0].value
    assert found == pytest.approx(accuracy(1.0), abs=0.051)  # a text on the border
    assert all(abs(found - accuracy(c)) > 0.2 for c in (0.1, 10.0))


def test_vectors_that_say_nothing_score_like_guessing():
    given = task(each=40)
    rows = np.random.default_rng(1).normal(size=(len(given.texts), 3))
    rows[:] = rows[0]
    accuracy = given.score(rows, resamples=0, seed=0)[0]
    assert accuracy.value == pytest.approx(100 / 3, abs=1)
    assert accuracy.low is None


def test_each_draw_takes_so_many_of_every_class_and_no_two_draws_are_alike():
    labels = np.array([0, 1, 1, 0, 2, 1, 0, 2, 2, 0, 1, 0])
    drawn = few_shot_draws(labels, 2, 10)
    assert len(drawn) == 10
    for rows in drawn:
        assert np.bincount(labels[rows]).tolist() == [2, 2, 2]
        assert len(set(rows)) == 6
    assert len({tuple(sorted(rows)) for rows in drawn}) > 5


def test_the_order_is_shuffled_further_with_the_generator_seeded_anew():
    labels = np.arange(50) % 2
    order = list(range(50))
    for rows in few_shot_draws(labels, 3, 4):
        np.random.RandomState(42).shuffle(order)
        expected = [i for i in order if labels[i] == 0][:3] + [i for i in order if labels[i] == 1][:3]
        assert sorted(rows) == sorted(expected)


def test_a_class_with_fewer_texts_gives_what_it_has():
    assert sorted(few_shot_draws(np.array([0, 0, 0, 1]), 2, 1)[0])[-1] == 3


def test_the_accuracies_of_the_draws_are_averaged():
    given = task(each=30)
    rows = vectors_of(given, noise=0.8)
    ten = given.score(rows, resamples=0, seed=0)[0].value
    labels = np.array([label for _, label in given.train])
    draws = few_shot_draws(labels, 2, 10)
    models = [LogisticRegression(random_state=42).fit(rows[:90][draw], labels[draw]) for draw in draws]
    each = [100 * model.score(rows[90:], [label for _, label in given.test]) for model in models]
    assert ten == pytest.approx(np.mean(each))
    assert len({round(value, 6) for value in each}) > 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": [("a", "x")] * 18}, r"the classes \['x'\] to learn: classification needs two or more"),
        ({"train": []}, r"the classes \[\] to learn"),
        ({"test": []}, "has no texts to test on"),
    ],
)
def test_what_cannot_be_learned_is_refused(changes, message):
    with pytest.raises(DataError, match=message):
        task(**changes)
