"""Ranking: closed forms of nDCG, reciprocal rank and average precision, and ties that favour no document."""

import numpy as np
import pytest

from selfsent.errors import DataError
from selfsent.evaluation.own_files.retrieval import Ranking


def values(task, vectors, resamples=0):
    return {score.metric: score.value for score in task.score(vectors, resamples=resamples, seed=0)}


def on_a_circle(degrees):
    return np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], axis=1)


def test_ranks_by_hand():
    # From the query at 0 degrees the documents stand in their own order; the second and the fourth answer.
    task = Ranking(name="own", queries=["q"], documents=list("abcd"), grades=[{1: 1, 3: 1}])
    found = values(task, on_a_circle([0.0, 10.0, 20.0, 30.0, 40.0]))
    best = 1 + 1 / np.log2(3)
    assert found["ndcg@10"] == pytest.approx(100 * (1 / np.log2(3) + 1 / np.log2(5)) / best)
    assert found["mrr@10"] == pytest.approx(50)
    assert found["map"] == pytest.approx(100 * (1 / 2 + 2 / 4) / 2)
    assert found["recall@10"] == found["recall@100"] == pytest.approx(100)


def test_grades_are_gains():
    task = Ranking(name="own", queries=["q"], documents=list("ab"), grades=[{0: 1, 1: 3}])
    found = values(task, on_a_circle([0.0, 10.0, 20.0]))
    assert found["ndcg@10"] == pytest.approx(100 * (1 + 3 / np.log2(3)) / (3 + 1 / np.log2(3)))


def test_only_candidates_are_ranked():
    task = Ranking(name="own", queries=["q"], documents=list("abc"), grades=[{2: 1}], candidates=[[1, 2]])
    found = values(task, on_a_circle([0.0, 5.0, 10.0, 20.0]))
    assert found["mrr@10"] == pytest.approx(50)  # second of two, not third of three
    assert "recall@10" not in found


def test_beyond_the_tenth_rank_nothing_counts_for_mrr():
    task = Ranking(name="own", queries=["q"], documents=list("abcdefghijkl"), grades=[{10: 1}])
    found = values(task, on_a_circle(np.arange(13.0)))
    assert (found["mrr@10"], found["recall@10"]) == (0, 0)
    assert found["map"] == pytest.approx(100 / 11)


@pytest.mark.parametrize("place", [0, 19])
def test_where_all_documents_tie_the_answer_stands_anywhere(place):
    documents = [f"d{i}" for i in range(400)]
    graded = [{20 * query + place: 1} for query in range(20)]
    candidates = [list(range(20 * query, 20 * query + 20)) for query in range(20)]
    task = Ranking(
        name="own", queries=[f"q{i}" for i in range(20)], documents=documents, grades=graded, candidates=candidates
    )
    guess = 100 * np.sum(1 / np.arange(1, 11)) / 20  # 14.6
    assert values(task, np.ones((420, 3)))["mrr@10"] == pytest.approx(guess, abs=12)


def test_many_documents_are_ranked_in_blocks_with_the_same_result(monkeypatch):
    rng = np.random.default_rng(0)
    task = Ranking(
        name="own",
        queries=[f"q{i}" for i in range(9)],
        documents=[f"d{i}" for i in range(30)],
        grades=[{i: 1, i + 9: 2} for i in range(9)],
    )
    vectors = rng.normal(size=(39, 4))
    whole = values(task, vectors)
    monkeypatch.setattr("selfsent.evaluation.own_files.retrieval.BLOCK", 60)
    assert values(task, vectors) == whole
    monkeypatch.setattr("selfsent.evaluation.own_files.retrieval.DEPTH", 10)
    cut = values(task, vectors)
    assert cut["ndcg@10"] == whole["ndcg@10"]
    assert cut["map"] <= whole["map"]


def test_the_interval_resamples_queries():
    task = Ranking(name="own", queries=["q", "r"], documents=list("ab"), grades=[{0: 1}, {0: 1}])
    vectors = on_a_circle([0.0, 30.0, 10.0, 20.0])
    score = task.score(vectors, resamples=200, seed=0)[1]
    assert (score.metric, score.value, score.n) == ("mrr@10", 75, 2)
    assert (score.low, score.high) == (50, 100)


def test_a_query_without_a_relevant_document_is_refused():
    with pytest.raises(DataError, match="no relevant document for 1 of 2 queries, first for 'r'"):
        Ranking(name="own", queries=["q", "r"], documents=["a"], grades=[{0: 1}, {0: 0}])
