"""Searching held-out documents by a sentence from inside: by vectors, by words and by both, as slow loops do it."""

import numpy as np
import pytest
from test_held_out_tests import NOUNS, prose, reciprocal_ranks
from tiny import TEXTS

from selfsent.corpus.sources import Document
from selfsent.encoder.load import load_encoder
from selfsent.evaluation.label_free.scores import SCORE
from selfsent.progress import SILENT
from selfsent.selection.held_out_tests import difference, figure
from selfsent.selection.scoreboard import Candidate, Vectors
from selfsent.selection.search_scores import (
    MEANING,
    MRR,
    QueriesAndPassages,
    SearchTest,
    inside_pairs,
    without_rarer_words,
)
from selfsent.text.bm25 import bm25_scores


def documents(count=60, sentences=6):
    draw = np.random.default_rng(0)
    return [Document(prose(draw, sentences, draw.choice(NOUNS, 20)), title=f"title {n}") for n in range(count)]


@pytest.fixture(scope="module")
def made():
    pairs, _ = inside_pairs(documents())
    return SearchTest(pairs.queries, pairs.passages, language="en", resamples=200)


@pytest.fixture(scope="module")
def vectors(made):
    return np.random.default_rng(0).normal(size=(len(made.texts), 24)).astype(np.float32)


def cosines(made, vectors, queries):
    row = dict(zip(made.texts, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), strict=True))
    return [[float(row[query] @ row[passage]) for passage in made.passages] for query in queries]


def mrr(rows):
    return 100 * np.mean([*reciprocal_ranks(rows)])


def figures(results):
    return [figure(results, name) for name in (MRR, MEANING, SCORE)]


def expected(inside, meaning):
    return pytest.approx([mrr(inside), mrr(meaning), (mrr(inside) + mrr(meaning)) / 2], abs=1e-3)


def test_vectors_words_and_both_find_what_slow_loops_find(made, vectors):
    near = [cosines(made, vectors, queries) for queries in (made.queries, made.without_words)]
    words = [bm25_scores(queries, made.passages, "en") for queries in (made.queries, made.without_words)]
    assert figures(made.score(vectors, "any")) == expected(*near)
    assert figures(made.score_words()) == expected(*words)
    both = [
        [
            [0.8 * c + 0.2 * w / max(row) for c, w in zip(cosine, row, strict=True)]
            for cosine, row in zip(*side, strict=True)
        ]
        for side in zip(near, words, strict=True)
    ]
    assert figures(made.score_with_words(vectors, 0.2)) == expected(*both)


def test_queries_and_passages_are_encoded_behind_their_prompts(bert, tmp_path):
    """As ``encode_query`` and ``encode_document`` do it, also a text that is both."""
    encoder = load_encoder(bert)
    encoder.prompts |= {"query": "she reads ", "document": "the book "}
    both = QueriesAndPassages(TEXTS[:4], TEXTS[2:])
    candidate = Candidate(name="any", how="", open=lambda: encoder)
    vectors = Vectors(tmp_path, {"dev": both}, SILENT).of(candidate, "dev")
    sides = [encoder.encode_query(TEXTS[:4]), encoder.encode_document(TEXTS[2:])]
    np.testing.assert_allclose(vectors, np.vstack(sides), atol=2e-2)  # bf16 where the machine has it
    first, second = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides)
    np.testing.assert_allclose(both.cosines(np.vstack(sides), TEXTS[:4], TEXTS[2:]), first @ second.T, atol=1e-6)


def test_an_encoder_is_compared_with_words_query_by_query(made, vectors):
    """Equal vectors for a query and its answer find all: the difference is what words lack."""
    perfect = vectors.copy()
    for query, passage in zip(made.queries, made.passages, strict=True):
        perfect[made.texts.index(query)] = vectors[made.texts.index(passage)]
    words = made.score_words()
    change = difference(made.score(perfect, "perfect"), words, MRR)
    own = words.get("retrieval", MRR)
    assert (change.low, change.high) == pytest.approx((100 - own.high, 100 - own.low))


def test_a_sentence_from_inside_is_taken_out_of_its_document():
    given = [*documents(30), Document("one sentence that stands alone here."), Document("first of them.\ntoo short.")]
    pairs, places = inside_pairs(given)
    assert places == [*range(30)]
    for query, passage, place in zip(pairs.queries, pairs.passages, places, strict=True):
        first, *others = given[place].text.split("\n")
        assert query in others
        left = [first, *others]
        left.remove(query)
        assert passage == " ".join([given[place].title, *left])
    quoted = "this sentence is a reply and quoted once more."
    others = [f"line {number} of it." for number in range(9)]
    pairs, _ = inside_pairs([Document("\n".join([others[0], quoted, *others[1:], quoted]))])
    assert (pairs.queries, pairs.passages) == ([quoted], [" ".join(others)])


def test_of_many_documents_some_that_are_spread_over_them_are_searched(monkeypatch):
    monkeypatch.setattr("selfsent.selection.search_scores.MOST", 20)
    given = documents(60)
    assert inside_pairs(given)[1] == [*range(0, 60, 3)]
    for place in (0, 9, 30):  # whose place others take
        given[place] = Document("one sentence that stands alone here.")
    taken = inside_pairs(given)[1]
    assert len(taken) == 20
    assert {*range(0, 60, 3)} - {0, 9, 30} < {*taken}


def test_a_query_loses_the_rarer_half_of_the_words_that_it_shares():
    passages = ["the tested valve leaks", "the cat leaks", "the cat and the dog", "nothing"]
    queries = ["Testing the valve, it leaks!", "the cat leaks", "a bird", "nothing"]
    # test and valve are each in one passage, leak in two, the in three; bird is shared with none, one word has no half
    assert without_rarer_words(queries, passages, "en") == ["the it leaks!", "the leaks", "a bird", "nothing"]


def test_sections_of_one_document_are_resampled_together(made, vectors):
    alone = made.score(vectors, "any").get("retrieval", MRR)
    tens = np.arange(len(made.queries)) // 15 * 7  # whose numbers have gaps
    few = SearchTest(made.queries, made.passages, language="en", resamples=200, clusters=tens)
    owned = few.score(vectors, "any").get("retrieval", MRR)
    assert owned.value == alone.value
    assert (owned.low, owned.high) != (alone.low, alone.high)


def test_too_few_queries_give_no_figure(made, vectors):
    few = SearchTest(made.queries[:9], made.passages[:9], language="en", resamples=0)
    assert not few.paired
    assert few.score(vectors, "any").scores == few.score_words().scores == []
