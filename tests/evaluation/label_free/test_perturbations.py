"""Perturbations of a sentence: each changes what its name says, and nothing else."""

import numpy as np
import pytest

from selfsent.evaluation.label_free import perturbations

TEXT = "Several ancient villages stand along the river, and none of them has a bridge."
CHINESE = "我们今天去看看那条大河"


@pytest.fixture
def draw():
    return np.random.default_rng(0)


def test_a_typo_swaps_letters_inside_words(draw):
    changed = perturbations.typos(TEXT, draw)
    assert changed != TEXT
    for old, new in zip(TEXT.split(), changed.split(), strict=True):
        assert sorted(old) == sorted(new)
        assert old[0] == new[0]
        if len(old) < 4:
            assert old == new


def test_no_word_is_long_enough_for_a_typo(draw):
    assert perturbations.typos("it is as it was", draw) == "it is as it was"


def test_truncation_is_the_first_half(draw):
    truncation = perturbations.PERTURBATIONS["truncation"]
    assert truncation("one two three four five six", draw) == "one two three"
    assert CHINESE.startswith(truncation(CHINESE, draw))


@pytest.mark.parametrize("text", [TEXT, CHINESE, "two words", "a b c d e"])
def test_words_are_dropped_in_order_and_never_all(text, draw):
    for _ in range(20):
        left = perturbations.dropped_words(text, draw)
        assert 0 < len(left) < len(text)
        letters = iter(text)
        assert all(letter in letters for letter in left)  # a subsequence


def test_case_changes_case_alone(draw):
    changed = perturbations.PERTURBATIONS["case"](TEXT, draw)
    assert changed.isupper()
    assert changed.casefold() == TEXT.casefold()
