"""Held-out documents are fit for the test, chosen by their content, unlike each other, and stored whole."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import make_tokenizer

from selfsent.corpus.held_out import Selection
from selfsent.corpus.prepare import prepare_corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import Document

BODY = ["It was founded by two brothers in the old town.", "They sold bread and later also cakes and coffee."]


@pytest.fixture
def select(tmp_path):
    return lambda size=5, kind="summary-body": Selection(kind, size, 0.05, tmp_path / "held_out.jsonl")


def taken(selection):
    """The half of which a document was taken."""
    return selection.found.dev if selection.found.dev.queries else selection.found.test


def first_taken(selection, sentences, summary=""):
    """Offer one document under growing keys until it is taken, or for so long that it never will be."""
    return any(selection.take(Document("", "T"), summary, sentences, [key]) for key in range(2000))


def offer_towns(selection, number):
    """Offer so many different documents; return how many are taken."""
    towns = ([f"Town {n} is small.", *BODY, f"Number {n}."] for n in range(number))
    return sum(selection.take(Document(""), "", sentences, [n]) for n, sentences in enumerate(towns))


def test_the_share_of_documents_chosen_is_the_one_declared(select):
    selection = select(10**6)
    taken = offer_towns(selection, 20_000)
    assert abs(taken / 20_000 - 0.05) < 0.005
    assert abs(len(selection.found.dev) - len(selection.found.test)) < 100
    assert taken == selection.documents == len(selection.found.dev) + len(selection.found.test)


def test_no_more_are_taken_than_asked_for(select):
    selection = select(7)
    offer_towns(selection, 5000)
    assert (len(selection.found.dev), len(selection.found.test)) == (7, 7)


def test_the_query_is_the_first_sentence_and_the_passage_the_next_ones(select):
    selection = select()
    assert first_taken(selection, ["The bakery is a shop.", *BODY])
    pairs = taken(selection)
    assert (pairs.queries, pairs.passages, pairs.titles) == (["The bakery is a shop."], [" ".join(BODY)], ["T"])


def test_a_summary_is_the_query_and_does_not_help_to_find_itself(select):
    selection = select()
    assert first_taken(selection, ["About a bakery.", *BODY], summary="About a bakery.")
    pairs = taken(selection)
    assert pairs.queries == ["About a bakery."]
    assert pairs.passages == [" ".join(BODY)]


def test_a_passage_stops_at_about_sixty_words(select):
    selection = select()
    assert first_taken(selection, ["A short one here."] + [f"{n} " + "word " * 19 for n in range(10)])
    pairs = taken(selection)
    assert len(pairs.passages[0].split()) == 60


def test_documents_without_a_body_or_taken_before_are_not_taken(select):
    selection = select()
    assert not first_taken(selection, ["The bakery is a shop.", "It is old."])
    assert not first_taken(selection, [])
    assert first_taken(selection, ["The bakery is a shop.", *BODY])
    assert not first_taken(
        selection, ["The bakery is a shop.", "Another body, as long as it has to be to be one of them."]
    )
    assert not first_taken(selection, ["A wholly different summary.", *BODY])


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(["a", "bb", "ccc", "dd", "e"]), min_size=1, max_size=20))
def test_lines_are_cut_in_the_middle_if_they_are_long_enough(words):
    with TemporaryDirectory() as folder:
        selection = Selection("halves", 5, 0.05, Path(folder) / "held_out.jsonl")
        assert first_taken(selection, [" ".join(words)]) == (
            len(words) >= 12 and words[: -(-len(words) // 2)] != words[-(-len(words) // 2) :]
        )
    for pairs in (selection.found.dev, selection.found.test):
        for query, passage in zip(pairs.queries, pairs.passages, strict=True):
            assert f"{query} {passage}" == " ".join(words)
            assert len(query.split()) - len(passage.split()) in (0, 1)


def documents(number):
    draw = np.random.default_rng(0)
    words = np.array([f"word{number}" for number in range(3000)])
    texts = (
        " ".join(" ".join(draw.choice(words, 12)).capitalize() + "." for _ in range(int(draw.integers(1, 6))))
        for _ in range(number)
    )
    return [{"title": f"Title {n}", "text": f"{text} \ud800"} for n, text in enumerate(texts)]


def prepare(folder, rows, unit="sentences", **changes):
    source = folder / "text.jsonl"
    source.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    config = CorpusConfig(held_out_share=0.2, deduplicate="none", **changes)
    return prepare_corpus([str(source)], config, make_tokenizer(), unit=unit, cache=folder / "cache")


@pytest.mark.parametrize("unit", ["sentences", "documents"])
@pytest.mark.parametrize("size", [6, 1000])
def test_held_out_documents_are_stored_whole_in_the_order_of_their_queries(tmp_path, unit, size):
    rows = documents(400)
    corpus = prepare(tmp_path, rows, unit, held_out=size)
    for part, pairs in (("dev", corpus.held_out.dev), ("test", corpus.held_out.test)):
        found = corpus.held_out_documents(part)
        assert 4 < len(found) == len(pairs) <= size
        assert all({"title": one.title, "text": one.text} in rows for one in found)
        assert [one.title for one in found] == pairs.titles
        assert all(one.text.startswith(query) for one, query in zip(found, pairs.queries, strict=True))


def test_of_a_corpus_of_pairs_the_held_out_pairs_are_stored(tmp_path):
    rows = [{**one, "positive": f"{one['title']} said otherwise and elsewhere"} for one in documents(400)]
    corpus = prepare(tmp_path, [*documents(40), *rows])
    found = corpus.held_out_documents("test")
    assert len(found) > 10
    assert [one.text.removesuffix(" \ud800") for one in found] == corpus.held_out.test.queries
    assert [one.positive for one in found] == corpus.held_out.test.passages
