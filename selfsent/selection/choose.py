"""Which candidate is kept, decided on documents that chose nothing, and said in words.

A candidate takes the place of the base only where the whole 95 % interval of its paired difference, over documents that
chose nothing, lies above zero; on single lines general text may withhold that decision (``Comparison.reason``).
"""

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from selfsent.evaluation.comparison import Comparison
from selfsent.evaluation.label_free.scores import SCORE
from selfsent.evaluation.score import Results
from selfsent.selection.candidates.static_vectors import UNTRAINED
from selfsent.selection.held_out_tests import MRR, difference, figure
from selfsent.selection.scoreboard import STATIC_BASE, Candidate, Scoreboard

BM25 = "BM25"
_ENOUGH = 0.75  # of the best gain on single lines


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What is kept, and the figures behind it."""

    kept: Candidate
    base: Candidate
    sentences: list[str]
    rows: list[dict[str, Any]]


def choose(board: Scoreboard) -> Choice:
    """Choose the best candidate on the development documents, and keep it if the test documents agree."""
    base, pair = board.reference, board.best(filter(attrgetter("is_pair"), board.candidates))
    chosen = best_on_dev(board) if board.judged else base
    shown = {id(each): each for each in (*board.bases, chosen, board.find(UNTRAINED), pair) if each is not None}
    for candidate in shown.values():
        candidate.scores |= {split: board.vectors.score(candidate, split) for split in ("test", "general test")}
    change = None if chosen is base else _guarded(board, chosen, base)
    kept = chosen if change is not None and change.decision == "better" else base
    bm25, hybrid = _word_matching(board, kept)
    sentences = [_no_change(board, base) if change is None else _first_sentence(board, change, kept, chosen, base)]
    if board.structured:
        sentences += _on_search(kept, base, bm25, hybrid)
        sentences += _on_pair(board, pair, kept)
    sentences += _on_general(kept, base)
    return Choice(kept=kept, base=base, sentences=sentences, rows=_rows(board, kept, base, bm25, hybrid))


def best_on_dev(board: Scoreboard) -> Candidate:
    """Return the candidate that is to be compared with its base.

    On single lines, whose test shows less than those of documents, that is one of those that gain nearly as much as
    the best: from a weak base the one that went furthest from it, otherwise the one that changed least.  Labels
    agree with the first from a masked language model, with the second from sentence encoders (decision 0018).
    """
    best = max(board.eligible, key=board.value)
    if board.structured:
        return best
    weak = board.general_counts and board.strength("general dev") is None
    level = board.value(board.reference)
    enough = level + _ENOUGH * (board.value(best) - level)
    near = [candidate for candidate in board.eligible if board.value(candidate) >= enough]
    return max(near, key=lambda each: (each.fraction if weak else -each.fraction, board.value(each)))


def _guarded(board: Scoreboard, chosen: Candidate, base: Candidate) -> Comparison:
    """Compare the chosen candidate with its base; what general text says of single lines is a reason not to decide."""
    change = difference(chosen.scores["test"], base.scores["test"], board.measure)
    if board.structured or change.decision != "better":
        return change
    if board.loses(chosen, "general test"):
        return change.undecided(f"the best candidate, {chosen.name}, loses on general text")
    strong = _too_strong(board, f"keep the best candidate, {chosen.name}")
    return change.undecided(strong) if strong else change


def _too_strong(board: Scoreboard, action: str) -> str:
    """Say why single lines may not replace the base, and what allows it; empty where they may."""
    strong = None if board.config.replace_strong_base else board.strength()
    if strong is None:
        return ""
    return (
        f"on general text it is no weak encoder ({strong.value:+.1f} against {STATIC_BASE}, {strong.interval}), and "
        f"single lines show too little to replace such a one; --set replace_strong_base=true lets them, to {action}"
    )


def _first_sentence(board: Scoreboard, change: Comparison, kept: Candidate, chosen: Candidate, base: Candidate) -> str:
    figures = change.figures("", f"of {base.name} on {_where(board)}")
    if kept is chosen:
        return f"Kept: {chosen.name} ({chosen.how}): {figures}."
    reason = change.reason or f"the best candidate, {chosen.name}, is not surely above it"
    return f"Keep {base.name} as it is: {reason}: {figures}."


def _no_change(board: Scoreboard, base: Candidate) -> str:
    """Say why no candidate was compared with the base."""
    others, where = [other for other in board.eligible if other is not base], _where(board)
    keep = f"Keep {base.name} as it is"
    if not others:
        if not board.structured and not any(base.is_transformer for base in board.bases):
            return f"{keep}: it has no layers, and on single lines only encoders with layers are trained."
        return f"{keep}: {_too_strong(board, 'train candidates on them') or 'no other candidate was made'}."
    figures = [(figure(other.scores["dev"], board.measure), other) for other in others]
    level, measured = figure(base.scores["dev"], board.measure), [pair for pair in figures if pair[0] is not None]
    value, best = max(measured, key=lambda pair: pair[0] or 0.0, default=(None, base))
    if value is None or level is None or value <= level:
        of = "the only other candidate is not" if len(others) == 1 else f"of {len(others)} other candidates none is"
        return f"{keep}: {of} above it on {where}."
    general = difference(best.scores["general dev"], base.scores["general dev"], SCORE)
    return (
        f"{keep}: the best candidate, {best.name}, has {value:.1f} against {level:.1f} on {where}, and changes by "
        f"{general.value:+.1f} on general text ({general.interval})."
    )


def _where(board: Scoreboard) -> str:
    """Name what the figures of this text are measured on."""
    facts = board.facts
    if facts.kind == "lines":
        return "held-out lines of this text, each to be found from a third of its words (MRR@10)"
    what = "pairs" if facts.kind == "pairs" else "sections of long documents" if facts.cut else "documents"
    task = " (MRR@10)" if facts.kind == "pairs" else ", each to be found from its first sentence (MRR@10)"
    return f"held-out {what} of this text{'' if board.measure == SCORE else task}"


def _word_matching(board: Scoreboard, kept: Candidate) -> tuple[Results | None, Results | None]:
    """Score BM25 alone, and together with what is kept."""
    if not board.structured:
        return None, None
    tests = board.vectors.tests["test"]
    return tests.score_bm25(), tests.score_hybrid(board.vectors.of(kept, "test")) if tests.paired else None


def _on_search(kept: Candidate, base: Candidate, bm25: Results | None, hybrid: Results | None) -> list[str]:
    """Compare in finding a document's passage from its first sentence, alone and with the ranks of word matching."""
    if bm25 is None or figure(kept.scores["test"], MRR) is None:
        return []
    sentences = []
    if kept is not base:
        change = difference(kept.scores["test"], base.scores["test"], MRR)
        sentences.append(f"For search: {_mrr(change)}.")
    change = difference(kept.scores["test"], bm25, MRR)
    sentences.append(
        {
            "better": f"It finds more than word matching (BM25): {_mrr(change)}.",
            "worse": f"Word matching (BM25) finds more: {_mrr(change)}: use it for search.",
            "cannot tell": f"It cannot be told apart from word matching (BM25): {_mrr(change)}.",
        }[change.decision]
    )
    if hybrid is not None:
        change = difference(hybrid, kept.scores["test"], MRR)
        more = {"better": "more", "worse": "less", "cannot tell": "about as much"}[change.decision]
        figures = f"MRR@10 {change.after:.1f} ({change.interval} against it alone)"
        sentences.append(f"Both together, their ranks fused, find {more}: {figures}.")
    return sentences


def _mrr(change: Comparison) -> str:
    return f"MRR@10 {change.after:.1f} against {change.before:.1f} ({change.interval})"


def _on_pair(board: Scoreboard, pair: Candidate | None, kept: Candidate) -> list[str]:
    """Say whether a pair of encoders would have been kept, and be better than what is."""
    if pair is None or pair.eligible or board.value(pair) <= max(map(board.value, board.eligible)):
        return []
    over_base, change = (
        difference(pair.scores["test"], other.scores["test"], board.measure) for other in (board.reference, kept)
    )
    if not over_base.decision == change.decision == "better":
        return []
    return [
        f"{pair.name[:1].upper()}{pair.name[1:]} would be {change.value:+.1f} above it ({change.interval}): "
        "--set pair_of_encoders=true keeps such a pair."
    ]


def _on_general(kept: Candidate, base: Candidate) -> list[str]:
    """Say what was lost or gained on general text, and what no test here measures."""
    if kept is base:
        return []
    change = difference(kept.scores["general test"], base.scores["general test"], SCORE)
    said = f"On general text its score changes by {change.value:+.1f} ({change.interval})."
    return [said, "Classifiers are not judged by this: compare them with labels (selfsent evaluate) where they matter."]


def _rows(
    board: Scoreboard, kept: Candidate, base: Candidate, bm25: Results | None, hybrid: Results | None
) -> list[dict[str, Any]]:
    """Return the table: candidates in the order of what they are chosen by, then word matching."""
    rows: list[dict[str, Any]] = []
    for row in sorted(board.candidates, key=board.value, reverse=True):
        note = "kept" if row is kept else "base" if row is base else row.note
        figures = _figures(row.scores, board.measure)
        rows.append({"name": row.name, "how": row.how, "seconds": row.seconds, "note": note, **figures})
    matching = ((BM25, "word matching", bm25), (f"{kept.name} with {BM25}", "ranks of both fused, for search", hybrid))
    for name, how, results in matching:
        if results is not None:
            figures = _figures({"test": results}, MRR)  # of its own tests one is missing, and others cannot be passed
            rows.append({"name": name, "how": how, "seconds": 0.0, "note": "", **figures})
    return rows


def _figures(scores: dict[str, Results], measure: str) -> dict[str, float | None]:
    """Return the figures of the table; where MRR@10 is what counts, tests made of lines or pairs are not shown."""
    splits = {split.replace(" ", "_"): results for split, results in scores.items()}
    shown = {split: results for split, results in splits.items() if measure == SCORE or "general" in split}
    table = {f"{split}_score": figure(results, SCORE) for split, results in shown.items()}
    return table | {f"{split}_mrr": figure(results, MRR) for split, results in splits.items() if "general" not in split}
