"""The map of a selection: neighbours stay neighbours, and a group is named by its own words."""

import math

import numpy as np

from selfsent.selection.groups import LEAST, map_groups, name_groups

TEXTS = [f"the card number {n} was refused" for n in range(20)] + [f"the parcel number {n} is late" for n in range(20)]


def directions(rng, sides):
    """Return a row near the direction of each side."""
    return np.eye(8)[sides] + 0.05 * rng.standard_normal((len(sides), 8))


def test_places_keep_the_neighbours_and_groups_are_those_of_the_last_encoder():
    rng = np.random.default_rng(0)
    halves, turns = [0] * 20 + [1] * 20, [0, 1] * 20
    found = map_groups(TEXTS, {"base": directions(rng, turns), "kept": directions(rng, halves)})
    assert sorted({tuple(sorted({*found["clusters"][:20]})), tuple(sorted({*found["clusters"][20:]}))}) != [(0,)]
    assert not {*found["clusters"][:20]} & {*found["clusters"][20:]}
    for name, sides in (("base", turns), ("kept", halves)):
        places = np.array(found["points"][name])
        distances = np.linalg.norm(places[:, None] - places, axis=2) + np.diag([np.inf] * 40)
        assert (np.array(sides)[distances.argmin(axis=1)] == sides).all()


def test_few_texts_have_no_map():
    rng = np.random.default_rng(0)
    assert map_groups(TEXTS[: LEAST - 1], {"base": rng.standard_normal((LEAST - 1, 8))}) is None


def test_a_group_is_named_by_the_words_that_set_it_apart():
    names = name_groups(TEXTS, [0] * 20 + [1] * 20)
    assert names == [["card", "refused", "number"], ["late", "parcel", "number"]]
    german = [f"ich habe die karte {n} nicht" for n in "abcd"] + [f"das paket {n} ist da" for n in "abcd"]
    assert name_groups(german, [0] * 4 + [1] * 4) == [["karte"], ["paket"]]
    assert name_groups(["who was it"] * 3 + ["the card"] * 3, [0] * 3 + [1] * 3) == [["it", "was", "who"], ["card"]]
    hindi = ["\u092a\u093e\u0938\u0935\u0930\u094d\u0921"] * 3 + ["\u092c\u093f\u0932"] * 3  # with vowel signs
    assert name_groups(hindi, [0] * 3 + [1] * 3) == [[hindi[0]], [hindi[3]]]
    thai = ["\u0e2b\u0e21\u0e32 \u0e43\u0e2b\u0e0d\u0e48"] * 3 + ["\u0e41\u0e21\u0e27"] * 3  # as words
    assert name_groups(thai, [0] * 3 + [1] * 3)[1] == [thai[3]]
    assert name_groups(["\u72ac \u8f66"] * 3 + ["\u732b"] * 3, [0] * 3 + [1] * 3)[1] == ["\u732b"]


def test_a_word_of_one_text_does_not_name_a_group():
    texts = ["alpha odd", "alpha", "alpha", "alpha", "beta", "beta", "beta", "beta alpha"]
    name, *others = name_groups(texts, [0] * 4 + [1] * 4)[0]
    share, odd = 4.5 / 5, 1.5 / 5
    weights = {"alpha": share * math.log(share * 5 / 1.5), "odd": odd * math.log(odd * 5 / 0.5)}
    assert weights["alpha"] > weights["odd"]
    assert name == "alpha"
    assert others == ["odd"]
