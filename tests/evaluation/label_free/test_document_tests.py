"""Tests from structure: right answers are right, copies are out, and what a corpus cannot support is named."""

import numpy as np
import pytest

from selfsent.evaluation.label_free import document_tests
from selfsent.evaluation.label_free.documents import ParsedDocument
from selfsent.text import clean

COMMON = ["the", "of", "and", "a", "to", "in", "it", "on", "was", "for"]


def sentence(draw, topic, length=10):
    words = [*draw.choice(topic, length - 4), *draw.choice(COMMON, 4)]
    draw.shuffle(words)
    return " ".join(map(str, words)) + "."


def make_documents(number=80, sentences=6, seed=0, title=True, pool=0):
    """Write documents about a topic each: of words of their own, or of ``pool`` words that all draw from."""
    draw = np.random.default_rng(seed)
    documents = []
    for n in range(number):
        topic = [f"w{n}x{k}" for k in range(25)]
        if pool:
            topic = [f"p{k}q" for k in draw.choice(pool, 25, replace=False)]
        name = " ".join(topic[:2]) if title else ""
        documents.append(ParsedDocument(name, "", [sentence(draw, topic) for _ in range(sentences)]))
    return documents


@pytest.fixture(scope="module")
def documents():
    return make_documents()


@pytest.fixture(scope="module")
def tests(documents):
    return document_tests.build_tests(documents, details=True)


def test_a_corpus_with_everything_leaves_nothing_out(tests):
    assert tests.left_out == {}
    names = ["title", "summary", "halves", "neighbours", "typos", "case", "truncation", "dropped words"]
    assert [test.name for test in tests.retrieval] == names
    assert tests.nearness is not None


def test_without_details_the_tests_of_the_score_are_the_same(documents, tests):
    scored = document_tests.build_tests(documents)
    assert [test.name for test in scored.every] == ["summary", "halves", "neighbours", "nearness"]
    detailed = {test.name: test for test in tests.every}
    assert all(test.texts == detailed[test.name].texts for test in scored.every)


def test_queries_and_answers_are_of_the_same_document(documents, tests):
    for test in tests.retrieval:
        for query, passage, row in zip(test.queries, test.passages, test.documents, strict=True):
            own = {word for text in (documents[row].title, *documents[row].sentences) for word in clean.words(text)}
            assert set(clean.words(passage)) <= own
            if test.name != "typos":
                assert set(clean.words(query)) <= own


def test_neighbours_follow_each_other_and_halves_have_nothing_in_common(documents, tests):
    by_name = {test.name: test for test in tests.retrieval}
    for query, passage, row in zip(*_columns(by_name["neighbours"]), strict=True):
        own = documents[row].sentences
        assert own.index(passage) == own.index(query) + 1
    for query, passage, row in zip(*_columns(by_name["halves"]), strict=True):
        whole = " ".join(documents[row].sentences)
        assert whole.startswith(query)
        assert passage in whole[len(query) :]


def _columns(test):
    return test.queries, test.passages, test.documents


def test_nearness_falls_from_the_sentence_itself_to_another_document(documents, tests):
    nearness = tests.nearness
    places = {text: row for row, one in enumerate(documents) for text in one.sentences}
    for start in range(0, len(nearness.queries), 6):
        left, right = nearness.queries[start], nearness.passages[start : start + 6]
        assert nearness.degrees[start : start + 6].tolist() == [5, 4, 3, 2, 1, 0]
        row = places[left]
        assert set(clean.words(right[0])) <= set(clean.words(left))
        assert left.startswith(right[1])
        own = documents[row].sentences
        assert own.index(right[2]) == own.index(left) + 1
        assert places[right[3]] == row
        assert abs(own.index(right[3]) - own.index(left)) >= 2
        assert places[right[4]] != row != places[right[5]]


def test_the_same_documents_make_the_same_tests(documents, tests):
    assert document_tests.build_tests(documents, details=True).fingerprint == tests.fingerprint
    assert document_tests.build_tests(documents, details=True, seed=1).fingerprint != tests.fingerprint


def test_near_duplicates_are_no_wrong_answers(documents):
    # One more document with the first sentence of another: finding that one's rest would be counted as wrong.
    copy = ParsedDocument("", documents[0].sentences[0], make_documents(1, seed=5)[0].sentences)
    (summary,) = [test for test in document_tests.build_tests([*documents, copy]).retrieval if test.name == "summary"]
    assert summary.queries.count(documents[0].sentences[0]) == 1
    assert len(summary.queries) == len(documents)


def test_a_heading_that_repeats_the_title_is_no_answer_to_it(documents, tests):
    headed = [ParsedDocument(each.title, "", [each.title, *each.sentences]) for each in documents]
    found, plain = (
        next(test for test in every.retrieval if test.name == "title")
        for every in (document_tests.build_tests(headed, details=True), tests)
    )
    assert (found.queries, found.passages) == (plain.queries, plain.passages)


def test_what_the_corpus_cannot_support_is_left_out_and_named():
    lines = document_tests.build_tests(make_documents(sentences=1, title=False), details=True)
    assert [test.name for test in lines.retrieval] == ["typos", "case", "truncation", "dropped words"]
    assert lines.left_out == {
        "title": "0 of 80 documents have a title and enough text, 50 are needed",
        "summary": "0 of 80 documents have a first sentence and enough after it, 50 are needed",
        "halves": "0 of 80 documents have two halves that are long enough, 50 are needed",
        "neighbours": "0 of 80 documents have two sentences in a row, 50 are needed",
        "nearness": "fewer than 50 documents have four sentences",
    }
    few = document_tests.build_tests(make_documents(30), details=True)
    assert not few.retrieval
    assert few.nearness is None
    assert len(few.left_out) == 9


def test_long_lines_have_halves():
    draw = np.random.default_rng(0)
    long = [ParsedDocument("", "", [sentence(draw, [f"w{n}x{k}" for k in range(25)], 30)]) for n in range(60)]
    (halves,) = [test for test in document_tests.build_tests(long).retrieval if test.name == "halves"]
    assert halves.queries[0] + " " + halves.passages[0] == long[0].sentences[0]


def test_scripts_without_spaces_have_tests_too():
    draw = np.random.default_rng(0)

    def chinese(n):
        letters = [chr(0x4E00 + 40 * n + k) for k in range(40)]
        return ["".join(draw.choice(letters, 14)) + "。" for _ in range(4)]

    tests = document_tests.build_tests([ParsedDocument("", "", chinese(n)) for n in range(60)])
    assert {"summary", "halves", "neighbours"} <= {test.name for test in tests.retrieval}
    (neighbours,) = [test for test in tests.retrieval if test.name == "neighbours"]
    assert (neighbours.bm25.argmax(axis=1) == np.arange(60)).mean() > 0.9
