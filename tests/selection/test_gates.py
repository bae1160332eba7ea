"""Gates: how much is done follows the signals, from nothing to all."""

import numpy as np
import pytest
from scoreboards import candidate, results, scoreboard

from selfsent.encoder.search_settings import SearchSettings
from selfsent.selection.gates import SearchGate, line_weights, map_dose, neighbour_agreement


@pytest.mark.parametrize(
    ("words", "kept", "weak", "dose"),
    [
        (5.0, 0.1, False, 1.0),  # words ahead, and little is found without rarer words
        (0.0, 0.2, False, 1.0),
        (-4.0, 0.1, False, 0.5),
        (5.0, 0.3, False, 0.5),
        (-4.0, 0.32, False, 0.4),  # the less of the two
        (5.0, 0.37, False, 0.0),  # 0.15 is too little to be done
        (-8.0, 0.1, False, 0.0),
        (5.0, 0.5, False, 0.0),
        (-9.0, 0.9, True, 1.0),  # whatever stands beside a weak base helps
    ],
)
def test_the_dose_falls_where_words_are_behind_and_where_meaning_finds(words, kept, weak, dose):
    assert SearchGate(words=50 + words, base=50.0, meaning=50 * kept, weak=weak).dose == pytest.approx(dose)


@pytest.mark.parametrize(
    ("meaning", "weak", "pair", "search"),
    [  # base, static vectors and words have .6, .2 and .2 of the score at the whole dose, .8, .1 and .1 at half of it
        (5.0, False, (0.6, 0.4), SearchSettings(0.2, 5, (0.75, 0.25))),
        (15.0, False, (0.8, 0.2), SearchSettings(0.1, 5, (0.8889, 0.1111))),
        (40.0, True, (0.3, 0.7), SearchSettings(0.25, 5, (0.6, 0.4))),
        (40.0, False, (1.0, 0.0), SearchSettings(0.0, 10)),
    ],
)
def test_weights_of_the_pair_and_of_the_search_follow_the_dose(meaning, weak, pair, search):
    gate = SearchGate(words=60.0, base=50.0, meaning=meaning, weak=weak)
    assert gate.pair == pytest.approx(pair)
    assert gate.search == search


def test_latent_axes_of_single_lines_have_a_tenth_of_the_cosine_beside_a_strong_base_and_a_fifth_beside_a_weak_one():
    assert (line_weights(weak=False), line_weights(weak=True)) == ((0.9, 0.1), (0.8, 0.2))


@pytest.mark.parametrize(
    ("agreement", "lines", "dose"),
    [(0.3, 5000, 1.0), (0.125, 5000, 0.5), (0.05, 5000, 0.0), (0.3, 600, 0.5), (0.3, 200, 0.0), (0.125, 300, 0.12)],
)
def test_the_neighbour_map_needs_neighbours_that_agree_and_lines_enough(agreement, lines, dose):
    assert map_dose(agreement, lines) == pytest.approx(dose, abs=0.006)


def test_agreement_is_the_part_of_ten_neighbours_that_a_loop_finds_in_both():
    draw = np.random.default_rng(0)
    one = draw.normal(size=(60, 5))
    other = one + draw.normal(size=(60, 5))
    sides = []
    for side in (one, other):
        side = side / np.linalg.norm(side, axis=1, keepdims=True)
        sides.append(
            [{*sorted((j for j in range(60) if j != i), key=lambda j: -(side[i] @ side[j]))[:10]} for i in range(60)]
        )
    expected = np.mean([len(a & b) / 10 for a, b in zip(*sides, strict=True)])
    assert 0.2 < expected < 0.9
    assert neighbour_agreement(one, other) == pytest.approx(expected)
    assert neighbour_agreement(one, one) == 1


def test_agreement_does_not_depend_on_the_number_of_texts():
    """Neighbours of 16 times as many texts are nearer, and fewer of them are shared, unless a sample is looked at."""
    draw = np.random.default_rng(0)
    one = draw.normal(size=(6400, 8))
    other = one + draw.normal(size=one.shape)
    assert neighbour_agreement(one[:400], other[:400]) == pytest.approx(neighbour_agreement(one, other), abs=0.03)


@pytest.mark.parametrize(
    ("static", "english", "weak"), [(70.0, True, False), (79.99, True, True), (70.0, False, False)]
)
def test_the_signals_are_those_of_the_best_base_with_layers(static, english, weak):
    """Bases have 80 on general text, and half of their MRR@10 without rarer words."""
    made = [
        candidate("low", 40.0, mrr=30.0, noise=0.1),
        candidate("best", 50.0, mrr=36.0, noise=0.1),
        candidate("static", 99.0, mrr=90.0, is_transformer=False),
    ]
    board = scoreboard(*made, bases=3, static=static, english=english, words=results(0, 44.0))
    board.vectors.tests["gate"].score_words = lambda: results(0, 47.0)  # on documents of its own
    assert board.search_gate == SearchGate(words=47.0, base=42.0, meaning=21.0, weak=weak)
