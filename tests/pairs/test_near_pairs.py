"""Paraphrases and negatives are those of slow loops over all pairs, however the products are blocked."""

import numpy as np
import pytest

from selfsent.pairs import near_pairs
from selfsent.pairs.near_pairs import MineConfig, find_paraphrases, nearest_negatives, nearest_others, word_overlap
from selfsent.searching import nearest


def unit(rows, width=6, seed=0):
    """Vectors of mixed nearness: clusters of two or three, and some far from all."""
    draw = np.random.default_rng(seed)
    centres = draw.standard_normal((rows // 3 + 1, width))
    vectors = centres[np.arange(rows) // 3] + 0.4 * draw.standard_normal((rows, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def slow_margins(vectors, k):
    """The margin of every pair, one at a time; -inf of a text with itself and beyond its k nearest."""
    cosines = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    rows = range(len(vectors))
    near = {i: sorted((j for j in rows if j != i), key=lambda j: -cosines[i, j])[:k] for i in rows}
    mean = {i: sum(cosines[i, j] for j in near[i]) / k for i in rows}
    margins = {(i, j): cosines[i, j] / ((mean[i] + mean[j]) / 2) for i in rows for j in near[i]}
    return cosines, near, margins


@pytest.mark.parametrize(("k", "margin", "min_cosine"), [(4, 1.05, 0.0), (1, 0.0, 0.0), (3, 0.9, 0.7)])
def test_paraphrases_are_each_others_best_by_margin(k, margin, min_cosine):
    vectors = unit(60)
    cosines, near, margins = slow_margins(vectors, k)

    def best(i):
        fits = [j for j in near[i] if cosines[i, j] >= max(min_cosine, 1e-9)]
        return max(fits, key=lambda j: margins[i, j], default=None)

    expected = [
        (i, best(i))
        for i in range(60)
        if best(i) is not None and best(best(i)) == i and i < best(i) and margins[i, best(i)] >= margin
    ]
    expected.sort(key=lambda pair: -margins[pair])
    found = find_paraphrases(vectors, MineConfig(neighbours=k, margin=margin, min_cosine=min_cosine))
    assert [(i, j) for i, j, _, _ in found] == expected
    assert len(expected) > 5
    np.testing.assert_allclose([one[2] for one in found], [cosines[pair] for pair in expected], atol=1e-6)
    np.testing.assert_allclose([one[3] for one in found], [margins[pair] for pair in expected], rtol=1e-5)
    limited = MineConfig(neighbours=k, margin=margin, min_cosine=min_cosine, max_pairs=3)
    assert find_paraphrases(vectors, limited) == found[:3]


def slow_negatives(anchors, passages, own, config):
    rows = []
    for anchor, positives in zip(anchors.astype(np.float64), own, strict=True):
        cosines = passages.astype(np.float64) @ anchor
        positive = min(cosines[p] for p in positives)
        order = [p for p in np.argsort(-cosines, kind="stable").tolist() if p not in positives]
        order = order[config.range_min : config.range_max]
        fits = [
            p
            for p in order
            if cosines[p] <= positive - config.absolute_margin
            and cosines[p] <= positive - abs(positive) * config.relative_margin
            and config.min_cosine <= cosines[p] <= config.max_cosine
        ]
        rows.append(fits[: config.negatives])
    return rows


@pytest.mark.parametrize(
    "settings",
    [
        {"negatives": 3, "min_cosine": -1.0},
        {"negatives": 2, "absolute_margin": 0.2, "relative_margin": 0.0, "max_cosine": 0.6},
        {"negatives": 1, "range_min": 2, "range_max": 9, "relative_margin": 0.3},
    ],
)
def test_negatives_are_the_nearest_passages_far_enough_below_the_least_similar_positive(settings):
    passages, draw = unit(50, seed=1), np.random.default_rng(2)
    anchors = passages[:30] + 0.3 * draw.standard_normal((30, 6)).astype(np.float32)
    anchors /= np.linalg.norm(anchors, axis=1, keepdims=True)
    own = [np.array([i]) if i % 4 else np.array([i, i + 1]) for i in range(30)]
    config = MineConfig(**settings)
    found = [*nearest_negatives(anchors, passages, own, config)]
    expected = slow_negatives(anchors, passages, own, config)
    assert [[number for number, _ in row] for row in found] == expected
    assert sum(map(len, expected)) > 0
    assert all(abs(cosine - passages[n] @ anchors[i]) < 1e-6 for i, row in enumerate(found) for n, cosine in row)


def test_what_is_not_accepted_is_no_negative_and_the_next_one_is():
    passages = unit(20)
    config = MineConfig(min_cosine=-1.0, relative_margin=0.0)
    own = [np.array([i]) for i in range(20)]
    first = [row[0][0] for row in nearest_negatives(passages, passages, own, config)]
    second = [row[0][0] for row in nearest_negatives(passages, passages, own, config, lambda a, p: p != first[a])]
    two = MineConfig(min_cosine=-1.0, relative_margin=0.0, negatives=2)
    assert second == [row[1][0] for row in nearest_negatives(passages, passages, own, two)]


def test_small_blocks_find_the_same(monkeypatch):
    vectors = unit(50)
    config = MineConfig(margin=0.5, min_cosine=-1.0, negatives=2)
    own = [np.array([i]) for i in range(50)]
    whole = find_paraphrases(vectors, config), [*nearest_negatives(vectors, vectors, own, config)]
    monkeypatch.setattr(near_pairs, "_QUERIES", 7)
    monkeypatch.setattr(nearest, "BLOCK", 9)
    small = find_paraphrases(vectors, config), [*nearest_negatives(vectors, vectors, own, config)]
    assert [(i, j) for i, j, *_ in small[0]] == [(i, j) for i, j, *_ in whole[0]]
    assert [[n for n, _ in row] for row in small[1]] == [[n for n, _ in row] for row in whole[1]]


def test_a_vector_is_not_its_own_neighbour_where_others_equal_it():
    vectors = np.tile(unit(1), (6, 1))
    numbers, cosines = nearest_others(vectors, 3)
    assert (numbers != np.arange(6)[:, None]).all()
    np.testing.assert_allclose(cosines, 1, atol=1e-6)


def test_texts_without_a_known_word_are_in_no_pair():
    vectors = np.concatenate([unit(6), np.zeros((3, 6), np.float32)])
    assert all(j < 6 for _, j, *_ in find_paraphrases(vectors, MineConfig(margin=0.0)))


@pytest.mark.parametrize(
    ("first", "second", "overlap"),
    [
        ("the cat sat", "The CAT, sat!", 1.0),
        ("the cat sat", "the cat ran", 1 / 3),  # the cat | cat sat | cat ran
        ("cat", "the cat", 0.5),  # cat | the
        ("", "the cat", 0.0),
    ],
)
def test_overlap_counts_shared_word_bigrams(first, second, overlap):
    assert word_overlap(first, second) == pytest.approx(overlap)


def test_equal_vectors_are_found_however_their_cosine_is_rounded():
    pairs = unit(100, width=37, seed=1)
    twice = np.repeat(pairs, 2, axis=0)
    assert (np.einsum("nd,nd->n", twice, twice) > 1).any()  # rounded up
    found = find_paraphrases(twice, MineConfig(neighbours=1, margin=0.0))
    assert [(i, j) for i, j, _, _ in sorted(found)] == [(2 * n, 2 * n + 1) for n in range(100)]
    assert max(cosine for _, _, cosine, _ in found) <= 1
