"""Pair classification against scikit-learn and against every threshold tried one by one."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from selfsent.errors import DataError
from selfsent.evaluation.own_files.labelled import PairClassification, measures


def test_every_resample_scores_as_its_rows_do():
    rng = np.random.default_rng(0)
    similarity = np.round(rng.normal(size=50), 1)  # rounded: some tie
    same = rng.random(50) < 0.3 + 0.4 * (similarity > 0)
    counts = rng.multinomial(50, np.full(50, 1 / 50), size=6).T.astype(float)
    found = measures(similarity, same, counts)
    for column in range(6):
        rows = np.repeat(np.arange(50), counts[:, column].astype(int))
        x, y = similarity[rows], same[rows]
        assert found[0, column] == pytest.approx(average_precision_score(y, x), abs=1e-12)
        accuracies, f1s = [], []
        for threshold in [*np.unique(x), np.inf]:
            guess = x >= threshold
            accuracies.append((guess == y).mean())
            f1s.append(2 * (guess & y).sum() / (guess.sum() + y.sum()))
        assert found[1, column] == pytest.approx(max(accuracies))
        assert found[2, column] == pytest.approx(max(f1s))


def test_a_perfect_order_scores_100_and_one_point_for_all_scores_the_share():
    task = PairClassification(name="own", left=list("abcd"), right=list("efgh"), same=[True, False, True, False])
    left = np.eye(4)
    right = np.where(np.array(task.same)[:, None], left, np.roll(left, 1, axis=1))
    assert [s.value for s in task.score(np.vstack([left, right]), resamples=0, seed=0)] == [100, 100, 100]
    collapsed = task.score(np.ones((8, 3)), resamples=10, seed=0)
    assert [s.value for s in collapsed] == pytest.approx([50, 50, 200 / 3])
    assert collapsed[0].low is not None


def test_resamples_without_a_positive_pair_have_an_f1_of_0():
    with np.errstate(all="raise"):
        found = measures(np.array([0.9, 0.1, 0.2]), np.array([True, False, False]), np.array([[0.0], [2.0], [1.0]]))
    assert found[:, 0].tolist() == [0, 1, 0]


def test_pairs_of_one_kind_are_refused():
    with pytest.raises(DataError, match="pairs of one kind only"):
        PairClassification(name="own", left=["a"], right=["b"], same=[True])
