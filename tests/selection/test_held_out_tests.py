"""Scores on held-out documents: documents are resampled whole, and retrieval is that of slow loops."""

import numpy as np
import pytest

from selfsent.corpus.held_out import HeldOutPairs
from selfsent.corpus.sources import Document
from selfsent.evaluation.label_free.scores import SCORE
from selfsent.selection.held_out_tests import HeldOutTests, difference, figure
from selfsent.selection.search_scores import MRR
from selfsent.text.clean import words

NOUNS = [f"noun{number}" for number in range(80)]


def prose(draw, sentences, topic):
    return "\n".join(" ".join(draw.choice([*topic, *topic, *NOUNS], 9)).capitalize() + "." for _ in range(sentences))


def made(count=90, sentences=6, seed=0):
    draw = np.random.default_rng(seed)
    return [Document(prose(draw, sentences, draw.choice(NOUNS, 20))) for _ in range(count)]


def queries(documents):
    """The first sentence finds the others."""
    cut = [one.text.split("\n") for one in documents]
    return HeldOutPairs([one[0] for one in cut], [" ".join(one[1:]) for one in cut], [""] * len(cut))


def reciprocal_ranks(rows):
    """Of the diagonal's place in each row of similarities, within ten; ties share their ranks."""
    for own, row in enumerate(rows):
        first = 1 + sum(value > row[own] + 1e-9 for value in row)
        ranks = range(first, first + sum(abs(value - row[own]) < 1e-9 for value in row))
        yield np.mean([1 / rank if rank <= 10 else 0 for rank in ranks])


def cosines_of(made_of, vectors, pairs):
    """The cosine of each query and passage."""
    row = dict(zip(made_of.texts, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), strict=True))
    return [[row[query] @ row[passage] for passage in pairs.passages] for query in pairs.queries]


def make(documents, owners=None, pairs=None, resamples=200):
    owners = np.arange(len(documents)) if owners is None else np.array(owners, np.int64)
    return HeldOutTests(documents, owners, pairs or HeldOutPairs(), language="en", resamples=resamples)


@pytest.fixture(scope="module")
def retrieval():
    """Queries and passages of 55 documents, and their tests."""
    documents = made(55)
    return queries(documents), make(documents, pairs=queries(documents))


def bags(texts, width=32, seed=0):
    """Sums of random vectors of words."""
    table = {}
    draw = np.random.default_rng(seed)
    rows = [[table.setdefault(word, draw.normal(size=width)) for word in words(text)] for text in texts]
    return np.array([np.sum(row, axis=0) for row in rows])


def test_every_text_of_every_test_is_encoded_once():
    documents = made()
    made_of = make(documents, pairs=queries(documents))
    encoded = []
    made_of.encode(lambda texts, prompt: encoded.extend(texts) or np.zeros((len(texts), 2)), lambda role: "")
    assert sorted(encoded) == sorted({*made_of.texts})
    assert {*queries(documents).queries, *queries(documents).passages, *made_of.tests.texts} == set(made_of.texts)


def width_of(results, task, metric):
    score = results.get(task, metric)
    return score.high - score.low


def test_sections_of_one_document_are_resampled_together():
    """Ten documents in nine sections each are ten draws, not ninety: the interval is about three times as wide.

    The vectors of a document's sections are either all right or all noise, so that sections tell nothing more.
    """
    documents = made(90)
    alone, owned = make(documents), make(documents, np.repeat(np.arange(10), 9))
    assert (alone.tests.documents, owned.tests.documents) == (90, 10)
    assert alone.texts == owned.texts
    vectors = bags(alone.texts)
    test = next(one for one in alone.tests.retrieval if one.name == "summary")
    draw = np.random.default_rng(1)
    for query, passage, document in zip(test.queries, test.passages, test.documents, strict=True):
        if document // 9 % 2:
            row, goal = alone.texts.index(query), alone.texts.index(passage)
            vectors[row] = draw.normal(size=32)
            vectors[goal] = draw.normal(size=32)
        else:
            vectors[alone.texts.index(query)] = vectors[alone.texts.index(passage)]
    one, ten = alone.score(vectors, "one"), owned.score(vectors, "ten")
    assert one.get("summary", MRR).value == ten.get("summary", MRR).value
    ratio = width_of(ten, "summary", MRR) / width_of(one, "summary", MRR)
    assert 2 < ratio < 4.5  # the root of nine is three


def test_numbers_of_owners_may_have_gaps():
    documents = made(60)
    vectors = bags(make(documents).texts)
    plain = make(documents).score(vectors, "plain")
    gaps = make(documents, np.arange(60) * 7 + 3).score(vectors, "gaps")
    assert gaps.get(SCORE, "mean") == plain.get(SCORE, "mean")


def test_the_retrieval_of_vectors_is_that_of_slow_loops(retrieval):
    pairs, made_of = retrieval
    vectors = bags(made_of.texts)
    expected = 100 * np.mean([*reciprocal_ranks(cosines_of(made_of, vectors, pairs))])
    assert figure(made_of.score(vectors, "bags"), MRR) == pytest.approx(expected)


def test_an_encoder_does_not_differ_from_itself():
    made_of = make(made(60))
    results = made_of.score(bags(made_of.texts), "bags")
    change = difference(results, results, SCORE)
    assert (change.value, change.low, change.high) == (0, 0, 0)


def test_tests_without_texts_gives_nothing():
    none = make([])
    assert none.texts == []
    results = none.score(np.zeros((0, 1), np.float32), "anything")
    assert results.scores == []
    assert figure(results, SCORE) is figure(results, MRR) is None


def test_what_is_not_tested_has_no_figure():
    documents = made(60)
    made_of = make(documents)  # no queries
    results = made_of.score(bags(made_of.texts), "bags")
    assert figure(results, SCORE) is not None
    assert figure(results, MRR) is None
    few = make(made(60), pairs=queries(documents[:49]))
    assert figure(few.score(bags(few.texts), "bags"), MRR) is None


def test_without_resamples_there_are_scores_and_no_intervals():
    documents = made()
    one = make(documents, pairs=queries(documents), resamples=0)
    scores = one.score(bags(one.texts), "bags").scores
    assert {score.low for score in scores} == {score.replicates for score in scores} == {None}
    assert SCORE in {score.task for score in scores}
