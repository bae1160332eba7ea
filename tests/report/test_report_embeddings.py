"""Cosines, map and neighbours of a sample, against slow loops and scikit-learn."""

import numpy as np
import pytest

from selfsent.encoder.quantize import unit
from selfsent.report import embeddings


@pytest.mark.parametrize("half", [2, 3, 50])
def test_random_pairs_are_never_of_one_document(half):
    first, second = embeddings.random_pairs(half, 4000)
    assert (first % half != second % half).all()
    assert set(first) == set(second) == set(range(2 * half))


def test_a_map_of_one_point_repeated_lies_at_the_origin():
    points, variances = embeddings.principal_components(np.ones((5, 3)))
    assert points == pytest.approx(np.zeros((5, 2)))
    assert variances == pytest.approx((0.0, 0.0))


def test_neighbours_are_the_nearest_others():
    rows = unit(np.random.default_rng(1).normal(size=(12, 4)))
    found = embeddings.nearest_texts(rows, 2)
    slow = sorted(((float(rows[2] @ rows[i]), i) for i in range(12) if i != 2), reverse=True)[: embeddings.NEIGHBOURS]
    assert [cosine for _, cosine in found] == pytest.approx([cosine for cosine, _ in slow])
    assert [place for place, _ in found] == [i for _, i in slow]


def test_clusters_of_a_map_are_those_of_the_data():
    rows = unit(np.repeat(np.eye(8)[:3], [5, 9, 2], axis=0) + 0.01 * np.random.default_rng(0).normal(size=(16, 8)))
    clusters, centres = embeddings.cluster_texts(rows)
    assert len(centres) == embeddings.CLUSTERS
    assert len(set(clusters[:5]) & set(clusters[5:14])) == len(set(clusters[5:14]) & set(clusters[14:])) == 0
    sizes = np.bincount(clusters)
    assert sizes.tolist() == sorted(sizes, reverse=True)
