"""What is kept is above the base with its whole interval, and the sentences say so.

Candidates have scores that were made up: on the documents that choose, on those that decide (``test``), in finding
passages (``mrr``), and on ``general`` text, where each has 80 unless something else is said.
"""

import numpy as np
import pytest
from scoreboards import candidate, results, scoreboard

from selfsent.selection.candidates.static_vectors import UNTRAINED
from selfsent.selection.choose import BM25, choose

LINES = {"kind": "lines"}
BASE, FINDS = ("base", 60), {"mrr": 58.0}
KEEP = "Keep base as it is: "


def scored(*made):
    """Candidates by name and scores."""
    return [candidate(name, dev, **given) for name, dev, given in ((*each, {})[:3] for each in made)]


def lines(*made):
    """Candidates by name, MRR@10 of single lines, and what else is given."""
    return [candidate(name, 0, mrr=mrr, **given) for name, mrr, given in ((*each, {})[:3] for each in made)]


WHOLE = ("whole", 60.0)
START = ("base", 50.0, {"fraction": 0.0})
PART = {"fraction": 0.75}
CASES = {
    "an interval that touches zero is not above it": (scored(BASE, ("same", 60.5, {"test": 60})), {}, "base"),
    "the documents that chose decide nothing": (scored(BASE, ("lucky", 90, {"test": 55})), {}, "base"),
    "an interval that holds zero is not above it": (scored(BASE, ("better", 63, {"noise": 2.0})), {}, "base"),
    "one that may not be kept is not": (scored(BASE, ("pair", 90, {"eligible": False})), {}, "base"),
    "and the next best is": (scored(BASE, ("pair", 90, {"eligible": False}), ("better", 65)), {}, "better"),
    "the best base has to be beaten": (scored(("weak", 50), ("strong", 60), ("better", 55)), {"bases": 2}, "strong"),
    "a gain on general text counts nothing": (
        scored(BASE, ("general", 65, {"general": 99.0}), ("own", 66)),
        {"general_loss": 5.0},
        "own",
    ),
    **{  # the forgetful one gains 4 more and loses 6 on general text: from 4 / 6 on it is behind
        f"{weight} points of this text for one lost on general text": (
            scored(BASE, ("forgetful", 70, {"general": 74.0}), ("careful", 66)),
            {"general_loss": weight},
            kept,
        )
        for weight, kept in ((0.0, "forgetful"), (0.5, "forgetful"), (0.7, "careful"), (2.0, "careful"))
    },
    **{
        f"lines with {given} on general text": (lines(("base", 50.0), ("found", 58.0, given)), LINES, kept)
        for given, kept in (
            ({"general": 79.0, "noise": 3.0}, "found"),  # nothing that is sure was lost
            ({"general": 79.0, "noise": 0.1}, "base"),
            ({"general": 84.0}, "found"),
            ({"general": 79.8}, "found"),  # a quarter of a point is tolerated
            ({"general": 79.7}, "base"),
        )
    },
    **{  # the base is surely above the static vectors that ship
        f"English general text decides nothing with {given}": (
            lines(("base", 50.0), ("found", 58.0, {"general": 70.0})),
            LINES | {"static": 50.0} | given,
            "found",
        )
        for given in ({"english": False}, {"general_loss": 0.0})
    },
    "the base of lines of another language is the one that finds more of them": (
        lines(("english", 40.0), ("own", 90.0, {"general": 50.0})),
        LINES | {"bases": 2, "english": False},
        "own",
    ),
    "lines that cannot be judged keep their base": (
        scored(("base", 0), ("found", 90, {"general": 99.0})),
        LINES | {"paired": False},
        "base",
    ),
    **{
        f"on lines of another language the least change that has 3/4 of the best gain is kept: {half}": (
            lines(START, WHOLE, ("half", half, {"fraction": 0.5}), ("quarter", 51.0, {"fraction": 0.25})),
            LINES | {"english": False},
            kept,
        )
        for half, kept in ((57.4, "whole"), (57.6, "half"), (61.0, "half"))
    },
    **{
        f"on documents the best is kept: {half}": (
            scored(START, WHOLE, ("half", half, {"fraction": 0.5})),
            {"english": False},
            kept,
        )
        for half, kept in ((57.6, "whole"), (61.0, "half"))
    },
    **{
        f"a weak base of lines goes as far as has 3/4 of the best gain: {gain}, {general}": (
            lines(START, ("part", 60.0, PART), ("whole", 50.0 + gain, {"general": general})),
            LINES,
            kept,
        )
        for gain, general, kept in ((7.4, 80.0, "part"), (7.6, 80.0, "whole"), (9.0, 79.0, "part"))
    },
    **{
        f"a base is as weak as it is whether or not a strong one may be replaced: {static}": (
            lines(START, ("part", 60.0, PART), ("whole", 58.0)),
            LINES | {"static": static, "replace_strong_base": True},
            kept,
        )
        for static, kept in ((90.0, "whole"), (79.0, "part"))
    },
}


@pytest.mark.parametrize(("made", "given", "kept"), CASES.values(), ids=CASES.keys())
def test_what_is_kept(made, given, kept):
    assert choose(scoreboard(*made, **given)).kept.name == kept


OTHERS = scored(BASE, ("second", 55), ("lower", 50), ("out", 70, {"eligible": False}))
FOUND = lines(("base", 50.0), ("better", 58.0))
LOST = lines(("base", 50.0), ("found", 58.0, {"general": 79.0, "noise": 0.1}))
SEARCH = scored(("base", 60, {"mrr": 45.0}), ("better", 65, {"mrr": 50.0}))


@pytest.mark.parametrize(
    ("made", "given", "place", "said"),
    [
        (scored(BASE), {}, 0, f"{KEEP}no other candidate was made."),
        (
            scored(BASE, ("better", 63, {"noise": 10.0})),
            {},
            0,
            f"{KEEP}the best candidate, better, is not surely above it: 63.0 against 60.0 of base",
        ),
        (scored(BASE, ("lucky", 90, {"test": 55})), {}, 0, "55.0 against 60.0"),
        (OTHERS, {"bases": 2}, 0, f"{KEEP}of 2 other candidates none is above it on held-out documents of this text."),
        (
            scored(BASE, ("own", 70, {"general": 50.0})),
            {"general_loss": 1.0},
            0,
            f"{KEEP}the best candidate, own, has 70.0 against 60.0 on held-out documents of this text, and changes by "
            "-30.0 on general text (-30.0 to -30.0).",
        ),
        (FOUND, LINES, 0, "58.0 against 50.0 of base on held-out lines of this text"),
        (
            LOST,
            LINES,
            0,
            f"{KEEP}the best candidate, found, has 58.0 against 50.0 on held-out lines of this text, each to be found "
            "from a third of its words (MRR@10), and changes by -1.0 on general text (",
        ),
        (
            FOUND,
            {"kind": "pairs", "structured": False, "hybrid": {"better": results(0, 40.0)}, "bm25": results(0, 40.0)},
            0,
            "58.0 against 50.0 of base on held-out pairs of this text (MRR@10), a difference",
        ),
        (
            FOUND,
            {"structured": False, "hybrid": {"better": results(0, 40.0)}, "bm25": results(0, 40.0)},
            0,
            "58.0 against 50.0 of base on held-out documents of this text, each to be found from its first sentence "
            "(MRR@10), a difference",
        ),
        (
            [candidate("vectors", 60, mrr=60, is_transformer=False)],
            LINES | {"static": 80.0},
            0,
            "Keep vectors as it is: it has no layers, and on single lines only encoders with layers are trained.",
        ),
        (SEARCH, {"bm25": results(0, 60.0)}, 1, "For search: MRR@10 50.0 against 45.0 (+5.0 to +5.0)."),
        *(
            (SEARCH, {"bm25": results(0, bm25)}, 2, said)
            for bm25, said in (
                (60, "Word matching (BM25) finds more: MRR@10 50.0 against 60.0 (-10.0 to -10.0): use it for search."),
                (40, "It finds more than word matching (BM25): MRR@10 50.0 against 40.0 (+10.0 to +10.0)."),
                (50, "It cannot be told apart from word matching (BM25): MRR@10 50.0 against 50.0 (+0.0 to +0.0)."),
            )
        ),
        *(
            (SEARCH, {"bm25": results(0, 40.0), "hybrid": {"better": results(0, fused)}}, 3, f"fused, find {said}")
            for fused, said in (
                (53.0, "more: MRR@10 53.0 (+3.0 to +3.0 against it alone)."),
                (48.0, "less: MRR@10 48.0 (-2.0 to -2.0 against it alone)."),
                (50.0, "about as much: MRR@10 50.0 (+0.0 to +0.0 against it alone)."),
            )
        ),
        (
            scored(BASE, ("better", 70, {"general": 78.0})),
            {},
            -2,
            "On general text its score changes by -2.0 (-2.0 to -2.0).",
        ),
        (
            scored(BASE, ("better", 70)),
            {},
            -1,
            "Classifiers are not judged by this: compare them with labels (selfsent evaluate) where they matter.",
        ),
    ],
)
def test_what_is_said(made, given, place, said):
    assert said in choose(scoreboard(*made, **given)).sentences[place]


def test_one_that_is_above_the_base_with_its_whole_interval_is_kept():
    choice = choose(scoreboard(*scored(BASE, ("better", 63, {"noise": 0.5}))))
    assert (choice.kept.name, choice.base.name) == ("better", "base")
    low, high = np.quantile(0.5 * np.random.default_rng(len("better")).normal(size=1000) + 3, (0.025, 0.975))
    assert low > 0
    assert choice.sentences[0] == (
        "Kept: better (how better): 63.0 against 60.0 of base on held-out documents of this text, a difference of +3.0 "
        f"(95 % interval {low:+.1f} to {high:+.1f})."
    )


def test_the_test_documents_choose_nothing():
    """The second best there would have been the best here; only the chosen one is looked at."""
    board = scoreboard(*scored(BASE, ("first", 70, {"test": 65}), ("second", 69, {"test": 90})))
    assert choose(board).kept.name == "first"
    assert ("second", "test") not in board.vectors.asked


@pytest.mark.parametrize(("static", "asked"), [(79.0, False), (79.0, True), (80.0, False), (81.0, False)])
def test_single_lines_replace_no_base_that_is_not_surely_below_what_ships_on_general_text(static, asked):
    """The base has 80 there; of the same score it is not surely below."""
    made = lines(("base", 60), ("found", 70))
    board = scoreboard(*made, kind="lines", static=static, replace_strong_base=asked)
    if static <= 80 and not asked:
        (sentence, *_) = choose(board).sentences
        assert sentence.startswith(
            f"{KEEP}on general text it is no weak encoder ({80 - static:+.1f} against builtin-static, "
        )
        assert sentence.endswith(
            "--set replace_strong_base=true lets them, to keep the best candidate, found: 70.0 against 60.0 "
            "of base on held-out lines of this text, each to be found from a third of its words (MRR@10), a difference "
            "of +10.0 (95 % interval +10.0 to +10.0)."
        )
        alone = choose(scoreboard(made[0], kind="lines", static=static))
        assert alone.sentences[0].endswith("--set replace_strong_base=true lets them, to train candidates on them.")
    else:
        assert choose(board).kept.name == "found"
    documents = scored(("base", 60, {"mrr": 60}), ("found", 70, {"mrr": 70}))
    assert choose(scoreboard(*documents, static=static, bm25=results(50, 50))).kept.name == "found"
    made[1][1]["general test"] = results(75)  # it loses there, which that setting does not excuse
    lost = choose(scoreboard(*made, kind="lines", static=static, replace_strong_base=asked))
    assert lost.sentences[0].startswith(
        f"{KEEP}the best candidate, found, loses on general text: 70.0 against 60.0 of base"
    )
    made[1][1]["general test"] = results(80)
    board.english = False  # general text says nothing of another language
    assert choose(board).kept.name == "found"


@pytest.mark.parametrize(
    ("dev", "test", "noise", "asked", "offered"),
    [
        (70, 70, 0.0, False, True),
        (55, 70, 0.0, False, False),  # would not be chosen
        (70, 61, 2.0, False, False),  # is not surely above the base
        (58, 70, 0.0, True, False),  # may be kept
    ],
)
def test_a_pair_that_would_be_kept_is_offered(dev, test, noise, asked, offered):
    pair = ("pair of base and static", dev, {"test": test, "noise": noise, "eligible": asked, "is_pair": True})
    choice = choose(scoreboard(*scored(BASE, ("static", 50), pair), pair_of_encoders=asked))
    said = "Pair of base and static would be +10.0 above it (+10.0 to +10.0): --set pair_of_encoders=true"
    assert (said in choice.sentences[-1]) is offered
    assert any("would be" in sentence for sentence in choice.sentences) is offered


def test_the_rows_are_in_the_order_of_what_is_chosen_by():
    made = scored(BASE, ("third", 58), ("first", 70), (UNTRAINED, 65), ("pair", 90, {"eligible": False, "note": "two"}))
    rows = choose(scoreboard(*made)).rows
    assert [row["name"] for row in rows] == ["pair", "first", UNTRAINED, "base", "third", BM25]
    assert [row["note"] for row in rows] == ["two", "kept", "", "base", "", ""]
    assert rows[2]["test_score"] == 65  # untrained static vectors are shown on the test documents, too
    assert "test_score" not in rows[4]


def test_the_rows_of_search_are_those_of_word_matching_and_of_every_base():
    made = scored(("weak", 50, {"mrr": 40.0}), ("strong", 60, {"mrr": 45.0}), ("better", 65, {"mrr": 50.0}))
    choice = choose(scoreboard(*made, bases=2, bm25=results(0, 44.0), hybrid={"better": results(0, 53.0)}))
    rows = {row["name"]: row for row in choice.rows}
    assert choice.base.name == "strong"
    assert {"test_score", "general_test_score"} < rows["weak"].keys()
    assert (rows[BM25]["test_mrr"], rows[f"better with {BM25}"]["test_mrr"]) == (44.0, 53.0)
    found = choose(scoreboard(*FOUND, kind="lines"))
    assert BM25 not in [row["name"] for row in found.rows]


def test_pairs_are_judged_by_finding_the_other_side_and_general_text_by_its_score():
    made = scored(("base", 60, {"mrr": 50}), ("finds", 55, {"mrr": 70, "general": 78}))
    assert choose(scoreboard(*made, bm25=results(40, 55))).kept.name == "base"  # by the score it is worse
    both = {"finds": results(0, 71.0)}
    board = scoreboard(*made, kind="pairs", structured=False, bm25=results(40, 55), hybrid=both)
    assert board.value(made[1][0]) == 70 - 0.5 * (80 - 78)
    choice = choose(board)
    assert choice.kept.name == "finds"
    assert "70.0 against 50.0 of base" in choice.sentences[0]
