"""What queries find by two encoders, and what a person's judgements of it decide."""

import numpy as np
import pytest

from selfsent.errors import CorpusError
from selfsent.selection.judging import BM25, Searches, judge, read_queries, weigh
from selfsent.selection.search_scores import QueriesAndPassages
from selfsent.text.bm25 import bm25_scores

PASSAGES = ["the valve leaks", "the cat sleeps", "a dog and a cat", "rain in the town", "the pump and the valve"]
QUERIES = ["a cat", "the valve", "old rain"]


@pytest.mark.parametrize("words", [0.0, 0.4])
@pytest.mark.parametrize("own", [None, [1, 4, 3]])
def test_a_search_ranks_all_passages_as_a_loop_does(own, words):
    encoded = QueriesAndPassages([*QUERIES, "another"], [*PASSAGES, "another"])
    vectors = np.random.default_rng(0).normal(size=(len(encoded.texts), 8)).astype(np.float32)
    of = dict(zip(encoded.texts, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), strict=True))
    matches = bm25_scores(QUERIES, PASSAGES, "en")
    examples = Searches(QUERIES, PASSAGES, "en", own=own).find(encoded, {"any": (vectors, words)})
    assert {example["query"] for example in examples} == {*QUERIES}
    for example in examples:
        place = QUERIES.index(example["query"])
        near = [float(of[example["query"]] @ of[passage]) for passage in PASSAGES]
        parts = matches[place] / max(matches[place])
        both = [(1 - words) * cosine + words * part for cosine, part in zip(near, parts, strict=True)]
        assert list(example["systems"]) == [BM25, "any"]
        for system, values in zip(example["systems"].values(), (matches[place], both), strict=True):
            order = sorted(range(len(PASSAGES)), key=lambda row, values=values: -values[row])
            assert [found["text"] for found in system["first"]] == [PASSAGES[row] for row in order[:3]]
            assert [found["own"] for found in system["first"]] == [bool(own) and row == own[place] for row in order[:3]]
            assert system["place"] == (order.index(own[place]) + 1 if own else None)


def example(query, base, kept):
    found = {"base": base, "kept": kept, BM25: "xyz"}
    return {
        "query": query,
        "systems": {name: {"first": [{"text": each} for each in row]} for name, row in found.items()},
    }


EXAMPLES = [
    example("second", "abc", "abd"),  # two in common
    example("never", "abc", "abc"),  # there is nothing to tell apart
    example("first", "abc", "def"),
    *(example(f"q{number}", "abc", "axc") for number in range(6)),
]


def test_the_answers_that_differ_most_are_judged_first_and_the_names_are_hidden():
    asked = []

    def ask(query, first, second):
        asked.append((query, first, second))
        return None if len(asked) == 7 else 0 if query == "second" else 1

    judged = [*judge(EXAMPLES, "base", "kept", ask)]
    assert [row["query"] for row in judged] == ["first", "second", "q0", "q1", "q2", "q3"]
    shown = {query: {first, second} for query, first, second in asked}
    assert (shown["first"], shown["second"], shown["q0"]) == ({*"ad"}, {*"cd"}, {*"bx"})
    who = {"a": "base", "d": "kept", "b": "base", "x": "kept"}
    assert [row["preferred"] for row in judged] == [
        "" if query == "second" else who[first] for query, first, _ in asked[:6]
    ]
    assert len({first in "ab" for query, first, _ in asked if query != "second"}) == 2  # neither is always the first


@pytest.mark.parametrize(
    ("kept", "base", "neither", "overruled", "said"),
    [
        # Wilson's interval by hand, z = 1.96: (p + z²/2n -+ z sqrt(p(1 - p)/n + z²/4n²)) / (1 + z²/n)
        (3, 12, 5, True, "7% to 45%): base is kept."),
        (12, 3, 0, False, "55% to 93%): this agrees with the tests."),
        (5, 10, 5, False, "15% to 58%): that decides nothing."),
        (0, 0, 4, False, "Of 4 judged pairs of answers none was better than the other."),
    ],
)
def test_a_person_overrules_the_tests_where_the_interval_says_so(kept, base, neither, overruled, said):
    judged = [{"preferred": who} for who in ["kept"] * kept + ["base"] * base + [""] * neither]
    decided, sentence = weigh(judged, "base", "kept")
    assert decided is overruled
    assert sentence.endswith(said)


def test_queries_are_the_different_lines_of_a_file(tmp_path):
    path = tmp_path / "queries.txt"
    path.write_text("where is  it?\n\nwho\nwhere is it?\n", encoding="utf-8")
    assert read_queries(str(path)) == ["where is it?", "who"]
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="give a file with a query on each line"):
        read_queries(str(path))
