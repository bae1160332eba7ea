"""Documents for tests: taken apart, without near-duplicates; perturbations do what their names say."""

import numpy as np
import pytest

from selfsent.corpus.sources import Document
from selfsent.evaluation.label_free.documents import (
    PERTURBATIONS,
    ParsedDocument,
    distinct_texts,
    dropped_words,
    parse_documents,
    typos,
)


def test_near_duplicates_are_removed_and_the_parts_of_a_document_kept():
    texts = [" ".join(f"Word{n}x{k} is the word {n}y{k} here." for k in range(6)) for n in range(50)]
    documents = [Document(text, f"Title {n}") for n, text in enumerate(texts)]
    copy = Document(texts[0] + " One more.", "Title of a copy")
    parsed = parse_documents([*documents, copy], "en", 100)
    assert [one.title for one in parsed] == [one.title for one in documents]
    assert [" ".join(one.sentences) for one in parsed] == texts
    assert parsed[0] == ParsedDocument("Title 0", "", [f"Word0x{k} is the word 0y{k} here." for k in range(6)])
    assert parse_documents([*documents, copy], "en", 7) == parsed[:7]


def test_texts_are_compared_without_case_and_punctuation():
    texts = ["a b c d", "e f g", "A b, c D!", "", "a b c d e f g h i j k", "a b c d e f g h i x k", "..."]
    assert distinct_texts(texts).tolist() == [True, True, False, False, True, False, False]
    assert distinct_texts(["", ".."]).tolist() == [False, False]


TEXT = "Several ancient villages stand along the river, and none of them has a bridge."
CHINESE = "我们今天去看看那条大河"


@pytest.fixture
def draw():
    return np.random.default_rng(0)


def test_a_typo_swaps_letters_inside_words(draw):
    changed = typos(TEXT, draw)
    assert changed != TEXT
    for old, new in zip(TEXT.split(), changed.split(), strict=True):
        assert sorted(old) == sorted(new)
        assert old[0] == new[0]
        if len(old) < 4:
            assert old == new


def test_no_word_is_long_enough_for_a_typo(draw):
    assert typos("it is as it was", draw) == "it is as it was"


def test_truncation_is_the_first_half(draw):
    truncation = PERTURBATIONS["truncation"]
    assert truncation("one two three four five six", draw) == "one two three"
    assert CHINESE.startswith(truncation(CHINESE, draw))


@pytest.mark.parametrize("text", [TEXT, CHINESE, "two words", "a b c d e"])
def test_words_are_dropped_in_order_and_never_all(text, draw):
    for _ in range(20):
        left = dropped_words(text, draw)
        assert 0 < len(left) < len(text)
        letters = iter(text)
        assert all(letter in letters for letter in left)  # a subsequence


def test_case_changes_case_alone(draw):
    changed = PERTURBATIONS["case"](TEXT, draw)
    assert changed.isupper()
    assert changed.casefold() == TEXT.casefold()
