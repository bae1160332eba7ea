"""Which candidate is kept, decided on documents that chose nothing, and said in words.

A candidate takes the place of the base only where the whole 95 % interval of its paired difference, over documents that
chose nothing, lies above zero.
"""

from dataclasses import dataclass
from typing import Any

from selfsent.evaluation.comparison import Comparison
from selfsent.evaluation.label_free.scores import SCORE
from selfsent.evaluation.score import Results
from selfsent.selection.candidates import Candidate
from selfsent.selection.held_out_tests import MRR, difference, figure
from selfsent.selection.stages import WORDS, Stages
from selfsent.selection.training import WORDS_BASE

BM25 = "BM25"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What is kept, and the figures behind it."""

    kept: Candidate
    base: Candidate
    sentences: list[str]
    rows: list[dict[str, Any]]


def choose(stages: Stages) -> Decision:
    """Choose the best candidate on the development documents, and keep it if the test documents agree."""
    base = stages.reference()
    chosen = stages.choose() if stages.structured or stages.judged else base
    shown = [*stages.bases, chosen, *_named(stages, f"{WORDS}, untrained"), *_best_pair(stages)]
    for candidate in dict.fromkeys(map(id, shown)):
        one = next(one for one in shown if id(one) == candidate)
        one.scores |= {part: stages.vectors.score(one, part) for part in ("test", "general test")}
    change = difference(chosen.scores["test"], base.scores["test"], stages.measure) if chosen is not base else None
    loses = not stages.structured and stages.loses(chosen, "general test")
    strong = None if loses or stages.config.replace_strong_base else stages.strength()
    kept = chosen if change is not None and change.decision == "better" and not loses and strong is None else base
    bm25, hybrid = _word_matching(stages, kept)
    sentences = [_first_sentence(stages, kept, chosen, base, change, strong)]
    if stages.structured:
        sentences += _on_search(kept, base, bm25, hybrid)
        sentences += _on_pairs(stages, kept)
    sentences += _on_general(stages, kept, base)
    return Decision(kept=kept, base=base, sentences=sentences, rows=_rows(stages, kept, base, bm25, hybrid))


def _word_matching(stages: Stages, kept: Candidate) -> tuple[Results | None, Results | None]:
    """Score BM25 alone, and together with what is kept."""
    if not stages.structured:
        return None, None
    judge = stages.vectors.judges["test"]
    return judge.score_bm25(), judge.score_hybrid(stages.vectors.of(kept, "test")) if judge.paired else None


def _named(stages: Stages, name: str) -> list[Candidate]:
    return [one for one in stages.candidates if one.name == name]


def _best_pair(stages: Stages) -> list[Candidate]:
    pairs = [one for one in stages.candidates if one.parts is not None]
    return [max(pairs, key=stages.value)] if pairs else []


def _first_sentence(
    stages: Stages,
    kept: Candidate,
    chosen: Candidate,
    base: Candidate,
    change: Comparison | None,
    strong: Comparison | None,
) -> str:
    where = _where(stages)
    if change is None:
        others = [one for one in stages.candidates if one.eligible and one is not base]
        if not others:
            why = _no_weak_one(strong) + "train candidates on them" if strong else "no other candidate was made"
            if not stages.structured and not any(one.layered for one in stages.bases):
                why = "it has no layers, and on single lines only encoders with layers are trained"
            return f"Keep {base.name} as it is: {why}."
        best, level = _best_here(others, stages), figure(base.scores["dev"], stages.measure)
        if best is None or level is None or best[1] <= level:
            of = "the only other candidate is not" if len(others) == 1 else f"of {len(others)} other candidates none is"
            return f"Keep {base.name} as it is: {of} above it on {where}."
        general = difference(best[0].scores["general dev"], base.scores["general dev"], SCORE)
        return (
            f"Keep {base.name} as it is: the best candidate, {best[0].name}, has {best[1]:.1f} against {level:.1f} on "
            f"{where}, and changes by {general.value:+.1f} on general text ({general.low:+.1f} to {general.high:+.1f})."
        )
    mine, other = (figure(one.scores["test"], stages.measure) for one in (chosen, base))
    figures = (
        f"{mine:.1f} against {other:.1f} of {base.name} on {where}, a difference of {change.value:+.1f} "
        f"(95 % interval {change.low:+.1f} to {change.high:+.1f})"
    )
    if kept is chosen:
        return f"Kept: {chosen.name} ({chosen.how}): {figures}."
    if change.decision == "better" and strong is not None:
        why = _no_weak_one(strong) + "keep the best candidate"
        return f"Keep {base.name} as it is: {why}, {chosen.name}, which has {figures}."
    if change.decision == "better":
        return f"Keep {base.name} as it is: the best candidate, {chosen.name}, loses on general text: {figures}."
    return f"Keep {base.name} as it is: the best candidate, {chosen.name}, is not surely above it: {figures}."


def _no_weak_one(strong: Comparison) -> str:
    return (
        f"on general text it is no weak encoder ({strong.value:+.1f} against {WORDS_BASE}, {strong.low:+.1f} to "
        f"{strong.high:+.1f}), and single lines show too little to replace such a one; --set replace_strong_base=true "
        "lets them, to "
    )


def _where(stages: Stages) -> str:
    """Name what the figures of this text are measured on."""
    facts = stages.text.facts
    if facts.kind == "lines":
        return "held-out lines of this text, each to be found from a third of its words (MRR@10)"
    what = "pairs" if facts.kind == "pairs" else "sections of long documents" if facts.cut else "documents"
    found = " (MRR@10)" if facts.kind == "pairs" else ", each to be found from its first sentence (MRR@10)"
    return f"held-out {what} of this text{'' if stages.measure == SCORE else found}"


def _best_here(candidates: list[Candidate], stages: Stages) -> tuple[Candidate, float] | None:
    """Return the candidate that is best on this text alone, on the half that chooses."""
    figures = [(one, figure(one.scores["dev"], stages.measure)) for one in candidates]
    known = [(one, value) for one, value in figures if value is not None]
    return max(known, key=lambda pair: pair[1], default=None)


def _on_search(kept: Candidate, base: Candidate, bm25: Results | None, hybrid: Results | None) -> list[str]:
    """Compare in finding a document's passage from its first sentence, alone and with the ranks of word matching."""
    mine = figure(kept.scores["test"], MRR)
    if mine is None or bm25 is None:
        return []
    sentences = []
    if kept is not base:
        change = difference(kept.scores["test"], base.scores["test"], MRR)
        sentences.append(
            f"For search: MRR@10 {mine:.1f} against {figure(base.scores['test'], MRR):.1f} "
            f"({change.low:+.1f} to {change.high:+.1f})."
        )
    change = difference(kept.scores["test"], bm25, MRR)
    figures = f"{mine:.1f} against {figure(bm25, MRR):.1f} ({change.low:+.1f} to {change.high:+.1f})"
    if change.decision == "better":
        sentences.append(f"It finds more than word matching (BM25): MRR@10 {figures}.")
    elif change.decision == "worse":
        sentences.append(f"Word matching (BM25) finds more: MRR@10 {figures}: use it for search.")
    else:
        sentences.append(f"It cannot be told apart from word matching (BM25): MRR@10 {figures}.")
    if hybrid is not None:
        change = difference(hybrid, kept.scores["test"], MRR)
        figures = f"MRR@10 {figure(hybrid, MRR):.1f} ({change.low:+.1f} to {change.high:+.1f} against it alone)"
        more = "more" if change.decision == "better" else "less" if change.decision == "worse" else "about as much"
        sentences.append(f"Both together, their ranks fused, find {more}: {figures}.")
    return sentences


def _on_pairs(stages: Stages, kept: Candidate) -> list[str]:
    """Say whether two encoders side by side would have been kept, and be better than the one that is."""
    pairs = _best_pair(stages)
    if (
        not pairs
        or pairs[0].eligible
        or stages.value(pairs[0]) <= max(stages.value(one) for one in stages.candidates if one.eligible)
    ):
        return []
    over_base = difference(pairs[0].scores["test"], stages.reference().scores["test"], stages.measure)
    if over_base.decision != "better":
        return []
    change = difference(pairs[0].scores["test"], kept.scores["test"], stages.measure)
    if change.decision != "better":
        return []
    return [
        f"{pairs[0].name[:1].upper()}{pairs[0].name[1:]} would be {change.value:+.1f} above it ({change.low:+.1f} to "
        f"{change.high:+.1f}): --set side_by_side=true keeps such a pair."
    ]


def _on_general(stages: Stages, kept: Candidate, base: Candidate) -> list[str]:
    """Say what was lost or gained on general text, and what no test here measures."""
    if kept is base:
        return []
    change = difference(kept.scores["general test"], base.scores["general test"], SCORE)
    said = f"On general text its score changes by {change.value:+.1f} ({change.low:+.1f} to {change.high:+.1f})."
    return [said, "Classifiers are not judged by this: compare them with labels (selfsent evaluate) where they matter."]


def _rows(
    stages: Stages, kept: Candidate, base: Candidate, bm25: Results | None, hybrid: Results | None
) -> list[dict[str, Any]]:
    """Return the table: candidates in the order of what they are chosen by, then word matching."""
    rows: list[dict[str, Any]] = []
    for one in sorted(stages.candidates, key=stages.value, reverse=True):
        state = "kept" if one is kept else "base" if one is base else one.note
        figures = _figures(one.scores, stages.measure)
        rows.append({"name": one.name, "how": one.how, "seconds": one.seconds, "note": state, **figures})
    matching = ((BM25, "word matching", bm25), (f"{kept.name} with {BM25}", "ranks of both fused, for search", hybrid))
    for name, how, results in matching:
        if results is not None:
            figures = _figures({"test": results}, MRR)  # of its own tests one is missing, and others cannot be passed
            rows.append({"name": name, "how": how, "seconds": 0.0, "note": "", **figures})
    return rows


def _figures(scores: dict[str, Results], measure: str) -> dict[str, float | None]:
    """Return the figures of the table; where MRR@10 is what counts, tests made of lines or pairs are not shown."""
    parts = {part.replace(" ", "_"): results for part, results in scores.items()}
    shown = {part: results for part, results in parts.items() if measure == SCORE or "general" in part}
    table = {f"{part}_score": figure(results, SCORE) for part, results in shown.items()}
    return table | {f"{part}_mrr": figure(results, MRR) for part, results in parts.items() if "general" not in part}
