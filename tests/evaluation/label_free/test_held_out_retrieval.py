"""Held-out retrieval against ranks counted by hand and against ties broken by chance."""

import math

import numpy as np
import pytest
from suite_scores import score_tasks

from selfsent.errors import UserError
from selfsent.evaluation.comparison import compare_results
from selfsent.evaluation.label_free import held_out_retrieval
from selfsent.evaluation.suite import read_suite


def scores(queries, passages):
    return held_out_retrieval.expected_scores(*held_out_retrieval.expected_ranks(queries, passages)).mean(axis=0)


def test_every_answer_first_is_perfect():
    points = np.random.default_rng(0).normal(size=(20, 6))
    np.testing.assert_allclose(scores(points, 2 * points), 1)


def test_ranks_count_the_nearer_passages():
    queries = np.tile([1.0, 0.0], (12, 1))
    angles = np.linspace(0, 1, 12)  # passage k is the (k + 1)-th nearest to every query
    passages = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    nearer, tied = held_out_retrieval.expected_ranks(queries, passages)
    assert nearer.tolist() == list(range(12))
    assert not tied.any()
    reciprocal = sum(1 / rank for rank in range(1, 11)) / 12  # ranks 11 and 12 lie beyond the depth
    np.testing.assert_allclose(scores(queries, passages), [reciprocal, 1 / 12, 10 / 12])


def test_one_point_for_everything_scores_what_guessing_scores():
    # One direction at many lengths: after normalisation equal but for the last bit.
    same = np.random.default_rng(0).normal(size=7) * np.linspace(0.1, 9, 25)[:, None]
    harmonic = sum(1 / rank for rank in range(1, 11))
    np.testing.assert_allclose(scores(same, same), [harmonic / 25, 1 / 25, 10 / 25])


def test_ties_score_the_mean_over_their_random_orders():
    rng = np.random.default_rng(0)
    corners = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1]], dtype=np.float64)
    queries, passages = rng.choice(corners, size=30), rng.choice(corners, size=30)
    unit = passages / np.linalg.norm(passages, axis=1, keepdims=True)
    similarity = np.round(queries @ unit.T, 9)
    total = np.zeros(3)
    for _ in range(4000):
        order = np.lexsort((rng.random((30, 30)), -similarity))
        ranks = 1 + np.argmax(order == np.arange(30)[:, None], axis=1)
        total += np.mean([np.where(ranks <= 10, 1 / ranks, 0), ranks == 1, ranks <= 10], axis=1)
    np.testing.assert_allclose(scores(queries, passages), total / 4000, atol=0.004)


def test_blocks_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    queries, passages = rng.normal(size=(50, 4)), rng.normal(size=(50, 4))
    whole = held_out_retrieval.expected_ranks(queries, passages)
    monkeypatch.setattr(held_out_retrieval, "BLOCK", 150)
    np.testing.assert_array_equal(held_out_retrieval.expected_ranks(queries, passages), whole)


def test_the_task_needs_no_data_folder_and_reports_points_with_intervals(encode):
    words = ["sun", "rain", "cat", "dog", "tree", "house", "boat", "music", "bread", "stone"]
    queries = [f"{a} {b}" for a in words for b in words]
    passages = [f"{a} {b} {a}" for a in words for b in words]
    results = score_tasks(encode, ["retrieval"], None, held_out=(queries, passages), bootstrap=200)
    metrics = ["mrr@10", "recall@1", "recall@10", "alignment", "uniformity"]
    assert [score.metric for score in results.scores] == metrics
    expected = 100 * scores(encode(queries), encode(passages))
    np.testing.assert_allclose([score.value for score in results.scores[:3]], expected)
    recall = results.get("retrieval", "recall@1")
    assert recall.n == 100
    # Of a share p of 100 queries: p +- 1.96 sqrt(p (1 - p) / 100).
    half = 196 * np.sqrt(recall.value / 100 * (1 - recall.value / 100) / 100)
    assert (recall.high - recall.low) / 2 == pytest.approx(half, rel=0.3)
    assert results.get("retrieval", "uniformity").low is None  # of all texts at once


def test_unequal_and_too_short_lists_are_refused():
    with pytest.raises(UserError, match="retrieval got 2 queries and 1 passages"):
        read_suite(["retrieval"], None, held_out=(["a", "b"], ["c"]))
    with pytest.raises(UserError, match="it needs at least 2"):
        read_suite(["retrieval"], None, held_out=(["a"], ["b"]))


def test_alignment_and_uniformity_of_the_held_out_texts_are_their_definitions():
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(12, 5))
    task = held_out_retrieval.read_heldout_retrieval(
        ([f"query {i}" for i in range(6)], [f"passage {i}" for i in range(6)])
    )
    scores = {score.metric: score.value for score in task.score(vectors, resamples=0, seed=0)}
    rows = [row / np.sqrt((row**2).sum()) for row in vectors]
    gaps = [((rows[i] - rows[6 + i]) ** 2).sum() for i in range(6)]
    pairs = [np.exp(-2 * ((rows[i] - rows[j]) ** 2).sum()) for i in range(12) for j in range(i)]
    assert scores["alignment"] == pytest.approx(sum(gaps) / 6)
    assert scores["uniformity"] == pytest.approx(np.log(sum(pairs) / len(pairs)))


def test_bm25_is_scored_by_its_formula_and_ranks_counted_by_hand():
    draw = np.random.default_rng(3)
    words = [f"word{number}" for number in range(40)]
    queries = [draw.choice(words, 5).tolist() for _ in range(30)]
    passages = [[*draw.choice(words, int(draw.integers(6, 15))).tolist(), *query[:1]] for query in queries]
    passages[4] = passages[5]  # a tie
    mean = sum(map(len, passages)) / 30
    expected = np.zeros(3)
    for answer, query in enumerate(queries):
        row = []
        for passage in passages:
            total = 0.0
            for word in query:
                holding = sum(word in other for other in passages)
                tf = passage.count(word)
                idf = math.log(1 + (30 - holding + 0.5) / (holding + 0.5))
                total += idf * tf / (tf + 1.5 * (1 - 0.75 + 0.75 * len(passage) / mean))
            row.append(round(total, 4))
        first = 1 + sum(score > row[answer] for score in row)
        ranks = range(first, first + sum(score == row[answer] for score in row))
        expected += np.mean([[(rank <= 10) / rank, rank == 1, rank <= 10] for rank in ranks], axis=0)
    found = held_out_retrieval.score_bm25_retrieval(([" ".join(q) for q in queries], [" ".join(p) for p in passages]))
    assert [score.metric for score in found.scores] == ["mrr@10", "recall@1", "recall@10"]
    np.testing.assert_allclose([score.value for score in found.scores], 100 * expected / 30, atol=1e-6)
    assert 5 < found.scores[0].value < 95


def test_bm25_and_an_encoder_that_finds_the_same_differ_by_nothing_in_any_resample():
    """The differences are paired: both are scored on the same resamples of the queries."""
    names = [f"name{number}" for number in range(40)]
    asked = [name if row % 3 else names[(row + 1) % 40] for row, name in enumerate(names)]  # every third one is wrong
    held_out = [f"who is {name}" for name in asked], [f"{name} and nobody else" for name in names]

    def encode(texts):
        return np.array([[float(name in text.split()) for name in names] for text in texts])

    encoder = score_tasks(encode, ["retrieval"], None, held_out=held_out, bootstrap=1000)
    differences = compare_results(held_out_retrieval.score_bm25_retrieval(held_out), encoder)
    assert [one.metric for one in differences] == ["mrr@10", "recall@1", "recall@10"]
    for one in differences[:2]:
        assert encoder.get("retrieval", one.metric).low < encoder.get("retrieval", one.metric).high
    assert all((one.value, one.low, one.high) == pytest.approx((0, 0, 0)) for one in differences[1:2])
