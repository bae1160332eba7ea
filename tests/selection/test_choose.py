"""What is kept is above the base with its whole interval, and the sentences say so."""

from types import SimpleNamespace

import numpy as np
import pytest

from selfsent.evaluation.label_free.scores import SCORE
from selfsent.evaluation.score import Results, measured
from selfsent.selection.candidates import Candidate
from selfsent.selection.choose import BM25, choose
from selfsent.selection.held_out_tests import MRR
from selfsent.selection.settings import FitConfig
from selfsent.selection.stages import WORDS, WORDS_BASE, Stages

SPREAD = np.random.default_rng(0).normal(size=1000)  # the same draws for every candidate: differences are paired


def results(score, mrr=None, noise=0.0, seed=0):
    """A score whose resamples spread by 3 in common with others', and by ``noise`` alone."""
    score, mrr = float(score), None if mrr is None else float(mrr)
    own = noise * np.random.default_rng(seed).normal(size=1000)
    made = [measured(SCORE, "structure", "mean", score, score + 3 * SPREAD + own, 100, {})]
    if mrr is not None:
        made.append(measured("retrieval", "held-out", MRR, mrr, mrr + SPREAD + own, 100, {}))
    return Results(scores=made)


def candidate(name, dev, test=None, general=80.0, base="", noise=0.0, mrr=None, **given):
    made = Candidate(name=name, how=f"how {name}", open=lambda: None, base=base, layered=True, **given)
    of = {
        "dev": results(dev, mrr),
        "test": results(dev if test is None else test, mrr, noise, seed=len(name)),
        "general dev": results(general, noise=noise, seed=2 + len(name)),
        "general test": results(general, noise=noise, seed=1 + len(name)),
    }
    made.scores = {part: of[part] for part in ("dev", "general dev")}
    return made, of


class Vectors:
    """Scores that were made up, and what was asked for."""

    def __init__(self, scores, bm25, hybrid):
        self.scores, self.asked = scores, []
        self.judges = {
            "test": SimpleNamespace(
                score_bm25=lambda: bm25, paired=hybrid is not None, score_hybrid=lambda vectors: hybrid[vectors]
            )
        }

    def of(self, one, part):
        return one.name

    def score(self, one, part):
        self.asked.append((one.name, part))
        return self.scores[one.name][part]


def stages(
    *made,
    bm25=None,
    hybrid=None,
    structured=True,
    bases=1,
    measure=SCORE,
    words=90.0,
    english=True,
    kind=None,
    **settings,
):
    self = object.__new__(Stages)
    self.candidates, self.bases = [one for one, _ in made], [one for one, _ in made[:bases]]
    self.config, self.structured, self.measure = FitConfig(**settings), structured, measure
    self.judged = structured or measure == MRR
    self.english, self.places = english, {}
    self.text = SimpleNamespace(facts=SimpleNamespace(kind=kind or ("documents" if structured else "lines"), cut=0))
    every = [*made, candidate(WORDS_BASE, 0, general=words)]
    self.vectors = Vectors({one.name: of for one, of in every}, bm25 or Results(scores=[]), hybrid)
    return self


def test_one_that_is_above_the_base_with_its_whole_interval_is_kept():
    base, better = candidate("base", 60), candidate("better", 63, base="base", noise=0.5)
    found = choose(stages(base, better))
    assert (found.kept.name, found.base.name) == ("better", "base")
    own = 0.5 * (np.random.default_rng(len("better")).normal(size=1000)) + 3
    low, high = np.quantile(own, (0.025, 0.975))
    assert found.sentences[0] == (
        "Kept: better (how better): 63.0 against 60.0 of base on held-out documents of this text, a difference of +3.0 "
        f"(95 % interval {low:+.1f} to {high:+.1f})."
    )
    assert low > 0


@pytest.mark.parametrize("noise", [2.0, 10.0])
def test_one_whose_interval_holds_zero_is_not_kept(noise):
    found = choose(stages(candidate("base", 60), candidate("better", 63, base="base", noise=noise)))
    assert found.kept is found.base
    assert found.kept.name == "base"
    assert found.sentences[0].startswith(
        "Keep base as it is: the best candidate, better, is not surely above it: 63.0 against 60.0 of base"
    )


def test_an_interval_that_touches_zero_is_not_above_it():
    base, same = candidate("base", 60), candidate("same", 60.5, test=60, base="base")
    assert choose(stages(base, same)).kept.name == "base"  # a difference of exactly 0 in every resample


def test_documents_that_chose_decide_nothing():
    """On the development documents it is far above, on the others below."""
    found = choose(stages(candidate("base", 60), candidate("lucky", 90, test=55, base="base")))
    assert found.kept.name == "base"
    assert "55.0 against 60.0" in found.sentences[0]


def test_the_test_documents_choose_nothing():
    """The second best there would have been the best here; only the chosen one is looked at."""
    made = candidate("base", 60), candidate("first", 70, test=65), candidate("second", 69, test=90)
    given = stages(*made)
    assert choose(given).kept.name == "first"
    assert ("second", "test") not in given.vectors.asked


def test_one_that_may_not_be_kept_never_is():
    pair, _ = made = candidate("pair", 90, eligible=False, note="two folders")
    found = choose(stages(candidate("base", 60), made, candidate("better", 65)))
    assert found.kept.name == "better"
    assert {row["name"]: row["note"] for row in found.rows}["pair"] == "two folders"
    assert choose(stages(candidate("base", 60), made)).kept.name == "base"
    assert pair.eligible is False


def test_with_the_base_alone_nothing_is_compared():
    found = choose(stages(candidate("base", 60)))
    assert found.sentences == ["Keep base as it is: no other candidate was made."]


def test_the_best_base_has_to_be_beaten():
    weak, strong, better = candidate("weak", 50), candidate("strong", 60), candidate("better", 55, base="weak")
    found = choose(stages(weak, strong, better, bases=2))
    assert (found.kept.name, found.base.name) == ("strong", "strong")
    assert {"test_score", "general_test_score"} < next(row for row in found.rows if row["name"] == "weak").keys()


@pytest.mark.parametrize(("words", "asked"), [(79.0, False), (79.0, True), (80.0, False), (81.0, False)])
def test_single_lines_replace_no_base_that_is_not_surely_below_what_ships_on_general_text(words, asked):
    """The base has 80 there; of the same score it is not surely below."""
    made = candidate("base", 60, mrr=60), candidate("found", 70, mrr=70, base="base")
    given = stages(*made, structured=False, measure=MRR, words=words, replace_strong_base=asked)
    decision = choose(given)
    if words <= 80 and not asked:
        assert decision.kept.name == "base"
        assert decision.sentences[0].startswith(
            f"Keep base as it is: on general text it is no weak encoder ({80 - words:+.1f} against builtin-static, "
        )
        assert decision.sentences[0].endswith(
            "--set replace_strong_base=true lets them, to keep the best candidate, found, which has 70.0 against 60.0 "
            "of base on held-out lines of this text, each to be found from a third of its words (MRR@10), a difference "
            "of +10.0 (95 % interval +10.0 to +10.0)."
        )
        alone = choose(stages(made[0], structured=False, measure=MRR, words=words))
        assert alone.sentences[0].endswith("--set replace_strong_base=true lets them, to train candidates on them.")
    else:
        assert decision.kept.name == "found"
    assert choose(stages(*made, words=words, bm25=results(50, 50))).kept.name == "found"  # documents
    made[1][1]["general test"] = results(75)  # it loses there, which that setting does not excuse
    lost = choose(stages(*made, structured=False, measure=MRR, words=words, replace_strong_base=asked))
    assert lost.sentences[0].startswith("Keep base as it is: the best candidate, found, loses on general text")
    made[1][1]["general test"] = results(80)
    given.english = False  # general text says nothing of another language
    assert choose(given).kept.name == "found"


@pytest.mark.parametrize(
    ("weight", "kept"),
    [(0.0, "forgetful"), (0.5, "forgetful"), (0.7, "careful"), (2.0, "careful")],
)
def test_what_is_lost_on_general_text_counts_as_much_as_was_asked(weight, kept):
    """The forgetful one gains 4 more and loses 6 on general text: from 4 / 6 on it is behind."""
    made = candidate("base", 60), candidate("forgetful", 70, general=74.0), candidate("careful", 66, general=80.0)
    given = stages(*made, general_loss=weight)
    assert given.value(made[1][0]) == pytest.approx(70 - 6 * weight)
    assert choose(given).kept.name == kept


def test_a_gain_on_general_text_counts_nothing():
    made = candidate("base", 60), candidate("general", 65, general=99.0), candidate("own", 66)
    given = stages(*made, general_loss=5.0)
    assert given.value(made[1][0]) == 65
    assert choose(given).kept.name == "own"


@pytest.mark.parametrize(
    ("general", "noise", "kept"),
    [(80.0, 0.0, "lines"), (79.0, 3.0, "lines"), (79.0, 0.1, "base"), (84.0, 0.0, "lines")],
)
def test_on_single_lines_nothing_may_be_lost_on_general_text(general, noise, kept):
    """The best by finding lines is kept unless general text shows with its whole interval that it lost something."""
    made = [candidate("base", 0, mrr=50.0), candidate("lines", 0, mrr=58.0, general=general, noise=noise)]
    given = stages(*made, structured=False, measure=MRR)
    found = choose(given)
    assert found.kept.name == kept
    assert BM25 not in [row["name"] for row in found.rows]
    if kept == "lines":
        assert "58.0 against 50.0 of base on held-out lines of this text" in found.sentences[0]
    else:
        assert found.sentences[0].startswith(
            "Keep base as it is: the best candidate, lines, has 58.0 against 50.0 on held-out lines of this text, each "
            "to be found from a third of its words (MRR@10), and changes by -1.0 on general text ("
        )


def test_where_none_is_above_the_base_only_others_that_could_be_kept_are_counted():
    made = [
        candidate("base", 60),
        candidate("second", 55),
        candidate("lower", 50),
        candidate("out", 70, eligible=False),
    ]
    sentence = choose(stages(*made, bases=2)).sentences[0]
    assert sentence == "Keep base as it is: of 2 other candidates none is above it on held-out documents of this text."


def test_what_general_text_costs_is_said_where_it_decides():
    found = choose(stages(candidate("base", 60), candidate("own", 70, general=50.0), general_loss=1.0))
    assert found.sentences[0] == (
        "Keep base as it is: the best candidate, own, has 70.0 against 60.0 on held-out documents of this text, and "
        "changes by -30.0 on general text (-30.0 to -30.0)."
    )


@pytest.mark.parametrize("given", [{"english": False}, {"general_loss": 0.0}])
def test_english_general_text_decides_nothing_on_lines_of_another_language_or_where_it_counts_nothing(given):
    made = [candidate("base", 0, mrr=50.0), candidate("lines", 0, mrr=58.0, general=70.0)]
    strong = {"words": 50.0} | given  # the base is surely above these
    assert choose(stages(*made, structured=False, measure=MRR, **strong)).kept.name == "lines"


def test_the_base_of_lines_of_another_language_is_the_one_that_finds_more_of_them():
    made = [candidate("english", 0, mrr=40.0, general=80.0), candidate("own", 0, mrr=90.0, general=50.0)]
    found = choose(stages(*made, structured=False, measure=MRR, bases=2, english=False))
    assert (found.base.name, found.kept.name) == ("own", "own")


@pytest.mark.parametrize(
    ("kind", "structured", "where"),
    [
        ("pairs", True, "held-out pairs of this text (MRR@10), a"),
        ("documents", False, "held-out documents of this text, each to be found from its first sentence (MRR@10), a"),
    ],
)
def test_a_sentence_names_the_test_that_was_made(kind, structured, where):
    made = [candidate("base", 0, mrr=50.0), candidate("better", 0, mrr=58.0)]
    other = results(0, mrr=40.0)
    given = stages(*made, structured=structured, measure=MRR, kind=kind, bm25=other, hybrid={"better": other})
    found = choose(given)
    assert f"58.0 against 50.0 of base on {where} difference" in found.sentences[0]


def test_on_single_lines_what_loses_on_the_deciding_half_of_general_text_is_not_kept():
    one, of = candidate("lines", 0, mrr=58.0, noise=0.1)
    of["general test"] = results(70.0, noise=0.1)
    given = stages(candidate("base", 0, mrr=50.0), (one, of), structured=False, measure=MRR)
    found = choose(given)
    assert found.kept.name == "base"
    assert "the best candidate, lines, loses on general text: 58.0 against 50.0 of base" in found.sentences[0]


def test_lines_that_cannot_be_judged_keep_their_base():
    made = candidate("base", 0), candidate("lines", 90, general=99.0)
    given = stages(*made, structured=False)
    assert choose(given).kept.name == "base"


@pytest.mark.parametrize(
    ("bm25", "said"),
    [
        (60.0, "Word matching (BM25) finds more: MRR@10 50.0 against 60.0 (-10.0 to -10.0): use it for search."),
        (40.0, "It finds more than word matching (BM25): MRR@10 50.0 against 40.0 (+10.0 to +10.0)."),
        (50.0, "It cannot be told apart from word matching (BM25): MRR@10 50.0 against 50.0 (+0.0 to +0.0)."),
    ],
)
def test_word_matching_is_compared_with_what_is_kept(bm25, said):
    base, better = candidate("base", 60, mrr=45.0), candidate("better", 65, mrr=50.0)
    found = choose(stages(base, better, bm25=results(0, bm25)))
    assert found.sentences[1] == "For search: MRR@10 50.0 against 45.0 (+5.0 to +5.0)."
    assert found.sentences[2] == said
    row = next(row for row in found.rows if row["name"] == BM25)
    assert row["test_mrr"] == bm25


@pytest.mark.parametrize(
    ("fused", "said"),
    [
        (53.0, "find more: MRR@10 53.0 (+3.0 to +3.0 against it alone)."),
        (48.0, "find less: MRR@10 48.0 (-2.0 to -2.0 against it alone)."),
        (50.0, "find about as much: MRR@10 50.0 (+0.0 to +0.0 against it alone)."),
    ],
)
def test_what_is_kept_is_compared_with_itself_and_word_matching_together(fused, said):
    base, better = candidate("base", 60, mrr=45.0), candidate("better", 65, mrr=50.0)
    found = choose(stages(base, better, bm25=results(0, 40.0), hybrid={"better": results(0, fused)}))
    assert found.sentences[3] == f"Both together, their ranks fused, {said}"
    row = next(row for row in found.rows if row["name"] == f"better with {BM25}")
    assert row["test_mrr"] == fused


def test_a_pair_that_would_be_better_is_offered():
    parts = candidate("base", 60), candidate("words", 50)
    pair = candidate("base beside words", 70, parts=(parts[0][0], parts[1][0]), eligible=False, note="two")
    found = choose(stages(*parts, pair))
    assert "Base beside words would be +10.0 above it (+10.0 to +10.0): --set side_by_side=true" in found.sentences[-1]
    worse = candidate("base beside words", 55, parts=(parts[0][0], parts[1][0]), eligible=False, note="two")
    assert not any("would be" in sentence for sentence in choose(stages(*parts, worse)).sentences)


@pytest.mark.parametrize(
    ("dev", "test", "noise", "asked"),
    [(58, 70, 0.0, False), (70, 61, 2.0, False), (58, 70, 0.0, True)],  # not chosen; not surely above the base; offered
)
def test_a_pair_that_would_not_be_kept_is_not_offered(dev, test, noise, asked):
    parts = candidate("base", 60, noise=0.0), candidate("words", 50)
    given = {"parts": (parts[0][0], parts[1][0]), "eligible": asked, "noise": noise}
    pair = candidate("base beside words", dev, test=test, **given)
    assert not any("would be" in one for one in choose(stages(*parts, pair, side_by_side=asked)).sentences)


def test_a_change_on_general_text_is_said_and_that_classifiers_are_not_judged():
    found = choose(stages(candidate("base", 60), candidate("better", 70, general=78.0)))
    assert found.sentences[-2:] == [
        "On general text its score changes by -2.0 (-2.0 to -2.0).",
        "Classifiers are not judged by this: compare them with labels (selfsent evaluate) where they matter.",
    ]


def test_the_rows_are_in_the_order_of_what_is_chosen_by():
    made = candidate("base", 60), candidate("third", 58), candidate("first", 70), candidate(f"{WORDS}, untrained", 65)
    found = choose(stages(*made))
    assert [row["name"] for row in found.rows] == ["first", f"{WORDS}, untrained", "base", "third", BM25]
    assert [row["note"] for row in found.rows] == ["kept", "", "base", "", ""]
    assert found.rows[1]["test_score"] == 65  # untrained word vectors are shown on the test documents, too
    assert "test_score" not in found.rows[3]


def test_pairs_are_judged_by_finding_the_other_side_and_general_text_by_its_score():
    base, finds = candidate("base", 60, mrr=50), candidate("finds", 55, base="base", mrr=70, general=78)
    chooser = stages(base, finds, bm25=results(40, 55))
    assert choose(chooser).kept.name == "base"  # by the score of documents it is worse
    chooser.measure = MRR
    assert chooser.value(finds[0]) == 70 - 0.5 * (80 - 78)
    found = choose(chooser)
    assert found.kept.name == "finds"
    assert "70.0 against 50.0 of base" in found.sentences[0]


@pytest.mark.parametrize(("halfway", "kept"), [(57.4, "whole"), (57.6, "half"), (61.0, "half")])
def test_on_lines_of_another_language_the_least_change_is_kept_that_has_three_quarters_of_the_best_gain(halfway, kept):
    made = (
        candidate("base", 0, mrr=50.0, share=0.0),
        candidate("whole", 0, mrr=60.0),
        candidate("half", 0, mrr=halfway, share=0.5),
        candidate("quarter", 0, mrr=51.0, share=0.25),
    )
    assert choose(stages(*made, structured=False, measure=MRR, english=False)).kept.name == kept
    documents = [(one, of | {"dev": results(of["dev"].get("retrieval", MRR).value)}) for one, of in made]
    for one, of in documents:
        one.scores["dev"] = of["test"] = of["dev"]
    assert choose(stages(*documents)).kept.name == ("half" if halfway > 60 else "whole")


@pytest.mark.parametrize(("gain", "general", "kept"), [(7.4, 80.0, "part"), (7.6, 80.0, "whole"), (9.0, 79.0, "part")])
def test_a_weak_base_of_single_lines_goes_as_far_as_has_three_quarters_of_the_best_gain(gain, general, kept):
    made = (
        candidate("base", 0, mrr=50.0, share=0.0),
        candidate("part", 0, mrr=60.0, share=0.75),
        candidate("whole", 0, mrr=50.0 + gain, general=general),  # and loses nothing on general text
    )
    assert choose(stages(*made, structured=False, measure=MRR)).kept.name == kept


@pytest.mark.parametrize(("words", "kept"), [(90.0, "whole"), (79.0, "part")])
def test_a_base_is_as_weak_as_it_is_whether_or_not_a_strong_one_may_be_replaced(words, kept):
    """The base has 80 on general text."""
    made = (
        candidate("base", 0, mrr=50.0, share=0.0),
        candidate("part", 0, mrr=60.0, share=0.75),
        candidate("whole", 0, mrr=58.0),
    )
    given = {"structured": False, "measure": MRR, "words": words, "replace_strong_base": True}
    assert choose(stages(*made, **given)).kept.name == kept


def test_a_base_without_layers_is_not_told_to_be_trained_on_single_lines():
    made = candidate("vectors", 60, mrr=60)
    made[0].layered = False
    (sentence,) = choose(stages(made, structured=False, measure=MRR, words=80.0)).sentences
    assert sentence == (
        "Keep vectors as it is: it has no layers, and on single lines only encoders with layers are trained."
    )


@pytest.mark.parametrize(("lost", "kept"), [(0.2, "lines"), (0.3, "base")])
def test_a_quarter_of_a_point_of_general_text_may_be_lost(lost, kept):
    made = candidate("base", 0, mrr=50.0, share=0.0), candidate("lines", 0, mrr=58.0, general=80.0 - lost)
    assert choose(stages(*made, structured=False, measure=MRR)).kept.name == kept


def test_where_all_that_was_trained_on_lines_loses_the_way_leads_to_the_one_that_loses_least(monkeypatch):
    made = (
        candidate("base", 0, mrr=50.0, base="base"),
        candidate("far", 0, mrr=90.0, general=60.0, base="base"),
        candidate("near", 0, mrr=58.0, general=78.0, base="base"),
    )
    chooser = stages(*made, structured=False, measure=MRR)
    added = []
    monkeypatch.setattr(chooser, "add", added.append, raising=False)
    chooser.add_weights_between()
    assert {one.name.split(" to ")[1] for one in added} == {"near"}
