"""BM25 against its formula in slow loops, and hard negatives against what they are for."""

import math

import numpy as np
import pytest

from selfsent.text import bm25


@pytest.fixture
def texts():
    draw = np.random.default_rng(0)
    words = [f"word{number}" for number in range(60)]
    weights = 1 / np.arange(1, 61)
    weights /= weights.sum()

    def text(length):
        return draw.choice(words, length, p=weights).tolist()

    queries = [text(8) for _ in range(80)]
    passages = [text(int(draw.integers(5, 30))) + draw.choice(query, 3).tolist() for query in queries]
    return [" ".join(query) for query in queries], [" ".join(passage) for passage in passages]


def test_bm25_is_its_formula(texts):
    queries, passages = ([text.split() for text in side] for side in texts)
    k1, b = 1.5, 0.75
    mean = sum(map(len, passages)) / len(passages)
    expected = np.zeros((len(queries), len(passages)))
    for i, query in enumerate(queries):
        for j, passage in enumerate(passages):
            for word in query:
                holding = sum(word in other for other in passages)
                if word not in passage:
                    continue
                idf = math.log(1 + (len(passages) - holding + 0.5) / (holding + 0.5))
                tf = passage.count(word)
                # The published formula has a factor (k1 + 1), which is the same for all: Lucene leaves it out.
                expected[i, j] += idf * tf / (tf + k1 * (1 - b + b * len(passage) / mean))
    np.testing.assert_allclose(bm25.bm25_scores(*texts), expected, rtol=1e-5)


def test_a_query_of_no_words_or_unknown_ones_scores_nothing():
    scores = bm25.bm25_scores(["...", "unheard", "Sun!"], ["sun, rain", "rain"])
    assert not scores[:2].any()
    assert scores[2, 0] > 0 == scores[2, 1]


def test_word_matching_is_right_about_half_of_the_hard_negatives_by_construction(texts):
    scores = bm25.bm25_scores(*texts)
    found = bm25.hard_negatives(scores)
    assert sum(len(negatives) > 0 for negatives in found) > 20
    for answer, negatives in enumerate(found):
        assert answer not in negatives
        assert len(set(negatives)) == len(negatives) <= 2 * bm25.HARD
        right = scores[answer, negatives] < scores[answer, answer]
        assert right.sum() == (~right).sum()


def test_hard_negatives_are_the_nearest_to_the_answer_on_either_side():
    scores = np.zeros((6, 6))
    scores[0] = [5, 9, 8, 2, 5, 1]  # passage 4 ties with the answer
    assert sorted(bm25.hard_negatives(scores, each=1)[0]) == [2, 3]
    assert sorted(bm25.hard_negatives(scores, each=9)[0]) == [1, 2, 3, 5]
    scores[0] = [9, 1, 2, 3, 4, 5]  # matching words is enough
    assert not len(bm25.hard_negatives(scores)[0])
