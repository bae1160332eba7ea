"""The figures that the encoders give, against slow loops and another library."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from selfsent.evaluation.geometry import unit
from selfsent.report import inside


@pytest.mark.parametrize("half", [2, 3, 50])
def test_random_pairs_are_never_of_one_document(half):
    first, second = inside.random_pairs(half, 4000)
    assert (first % half != second % half).all()
    assert set(first) == set(second) == set(range(2 * half))


def test_the_map_is_that_of_scikit_learn_up_to_signs():
    rows = np.random.default_rng(0).normal(size=(40, 7)) * np.arange(1, 8)
    places, shares = inside.principal_components(rows)
    reference = PCA(2).fit(rows)
    expected = reference.transform(rows)
    assert np.abs(places) == pytest.approx(np.abs(expected))
    assert shares == pytest.approx(reference.explained_variance_ratio_)


def test_a_map_of_one_point_repeated_lies_at_the_origin():
    places, shares = inside.principal_components(np.ones((5, 3)))
    assert places == pytest.approx(np.zeros((5, 2)))
    assert shares == pytest.approx((0.0, 0.0))


def test_neighbours_are_the_nearest_others_and_the_own_passage_is_marked():
    rows = unit(np.random.default_rng(1).normal(size=(12, 4)))
    texts = [f"text {number}" for number in range(12)]
    found = inside._neighbours(rows, texts, 2, 6)
    slow = sorted(((float(rows[2] @ rows[i]), i) for i in range(12) if i != 2), reverse=True)[: inside.NEIGHBOURS]
    assert [one.cosine for one in found] == pytest.approx([cosine for cosine, _ in slow])
    assert [one.text for one in found] == [texts[i] for _, i in slow]
    assert [one.own for one in found] == [i == 8 for _, i in slow]


def test_groups_of_a_map_are_the_clusters_that_are_there():
    rows = unit(np.repeat(np.eye(8)[:3], [5, 9, 2], axis=0) + 0.01 * np.random.default_rng(0).normal(size=(16, 8)))
    marks, typical = inside._marks(rows, [f"text {number}" for number in range(16)])
    assert len(typical) == inside.MARKS
    assert len(set(marks[:5]) & set(marks[5:14])) == len(set(marks[5:14]) & set(marks[14:])) == 0
