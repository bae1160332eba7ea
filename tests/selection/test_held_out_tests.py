"""Scores on held-out documents: retrieval is that of slow loops, and what is not tested has no figure."""

import numpy as np
import pytest

from selfsent.corpus.held_out import HeldOutPairs
from selfsent.corpus.sources import Document
from selfsent.evaluation.label_free.scores import SCORE
from selfsent.selection.held_out_tests import GeneralTest, LineTest, difference, figure
from selfsent.selection.search_scores import MRR
from selfsent.text.clean import words

NOUNS = [f"noun{number}" for number in range(80)]


def prose(draw, sentences, topic):
    return "\n".join(" ".join(draw.choice([*topic, *topic, *NOUNS], 9)).capitalize() + "." for _ in range(sentences))


@pytest.fixture(scope="module")
def documents():
    draw = np.random.default_rng(0)
    return [Document(prose(draw, 6, draw.choice(NOUNS, 20))) for _ in range(90)]


@pytest.fixture(scope="module")
def pairs(documents):
    """The first sentence finds the others."""
    cut = [document.text.split("\n") for document in documents[:55]]
    return HeldOutPairs([lines[0] for lines in cut], [" ".join(lines[1:]) for lines in cut], [""] * len(cut))


def reciprocal_ranks(rows):
    """Of the diagonal's place in each row of similarities, within ten; ties share their ranks."""
    for own, row in enumerate(rows):
        first = 1 + sum(value > row[own] + 1e-9 for value in row)
        ranks = range(first, first + sum(abs(value - row[own]) < 1e-9 for value in row))
        yield np.mean([1 / rank if rank <= 10 else 0 for rank in ranks])


def bags(texts, width=32, seed=0):
    """Sums of random vectors of words."""
    table = {}
    draw = np.random.default_rng(seed)
    rows = [[table.setdefault(word, draw.normal(size=width)) for word in words(text)] for text in texts]
    return np.array([np.sum(row, axis=0) for row in rows])


def test_every_text_of_a_test_is_encoded_once(documents, pairs):
    for test in (LineTest(pairs, resamples=0), GeneralTest(documents, resamples=0)):
        encoded = []
        test.encode(
            lambda texts, prompt, into=encoded: into.extend(texts) or np.zeros((len(texts), 2)), lambda role: ""
        )
        assert sorted(encoded) == sorted({*test.texts})
    assert {*pairs.queries, *pairs.passages} == {*LineTest(pairs, resamples=0).texts}


@pytest.mark.parametrize("clusters", [None, np.arange(55) // 11 * 7 + 3])
def test_the_retrieval_of_vectors_is_that_of_slow_loops_and_texts_of_one_document_are_drawn_together(pairs, clusters):
    test = LineTest(pairs, resamples=400, clusters=clusters)
    vectors = bags(test.texts)
    row = dict(zip(test.texts, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), strict=True))
    ranks = [*reciprocal_ranks([[row[query] @ row[passage] for passage in pairs.passages] for query in pairs.queries])]
    score = test.score(vectors, "bags").get("retrieval", MRR)
    assert score.value == pytest.approx(100 * np.mean(ranks))
    drawn = ranks if clusters is None else [np.mean(ranks[start : start + 11]) for start in range(0, 55, 11)]
    assert np.std(score.replicates) == pytest.approx(100 * np.std(drawn) / len(drawn) ** 0.5, rel=0.15)


def test_an_encoder_does_not_differ_from_itself_and_what_is_not_tested_has_no_figure(documents):
    test = GeneralTest(documents, resamples=200)
    results = test.score(bags(test.texts), "bags")
    change = difference(results, results, SCORE)
    assert (change.value, change.low, change.high) == (0, 0, 0)
    assert figure(results, SCORE) is not None
    assert figure(results, MRR) is None


def test_without_resamples_there_are_scores_and_no_intervals(documents, pairs):
    for test, task in ((GeneralTest(documents, resamples=0), SCORE), (LineTest(pairs, resamples=0), "retrieval")):
        scores = test.score(bags(test.texts), "bags").scores
        assert {score.low for score in scores} == {score.replicates for score in scores} == {None}
        assert task in {score.task for score in scores}
