"""Which candidate is kept for which job, and said in words.

For search of documents a gate decides by signals that agree with people (``gates``), and held-out documents that
chose nothing may only veto it.  For grouping a gate decides on the neighbour map.  Static vectors by themselves, and a
weak base trained on single lines, are kept only where the whole 95 % interval of the paired difference, over documents
that chose nothing, lies above zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from selfsent.encoder.search_settings import SearchSettings
from selfsent.evaluation.comparison import Comparison
from selfsent.evaluation.label_free.scores import SCORE
from selfsent.evaluation.score import Results
from selfsent.selection.gates import STATIC_SEARCH
from selfsent.selection.held_out_tests import difference, figure
from selfsent.selection.judging import BM25
from selfsent.selection.scoreboard import Candidate, Scoreboard
from selfsent.selection.search_scores import MEANING, MRR

_ENOUGH = 0.75  # of the best gain on single lines
_MOST_ROWS = 12
_COLUMNS = {  # of the table, and what a reader calls them
    "dev_mrr": "finds its document",
    "dev_meaning": "without rare words",
    "general_dev_score": "general text",
    "test_mrr": "test: finds its document",
    "test_meaning": "test: without rare words",
}
_FOR_GROUPING = "For grouping"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What is kept, and the figures behind it."""

    kept: Candidate
    base: Candidate
    sentences: list[str]
    rows: list[dict[str, Any]]
    search: SearchSettings | None = None  # that are kept with the encoder
    jobs: dict[str, Candidate] = field(default_factory=dict)  # what is best for "search" and for "grouping"


def choose(board: Scoreboard) -> Choice:
    """Choose what is kept for search and for grouping, and which of the two is the one encoder."""
    base = board.reference
    for_search, said = _for_search(board, base) if board.structured else _for_lines(board, base)
    grouped = board.best(attrgetter("groups")) or (for_search if board.structured else base)
    jobs = {"search": for_search, "grouping": grouped}
    purpose = board.config.purpose
    if purpose == "both":
        purpose = "search" if board.structured or grouped is base else "grouping"
    kept = jobs[purpose]
    for candidate in {id(each): each for each in (*board.bases, *jobs.values())}.values():
        board.score_on_test(candidate)
    settings = _search_settings(board, for_search) if board.structured else None
    sentences = [] if board.config.purpose == "grouping" else [said]
    if board.structured and sentences:
        sentences += _on_held_out(board, for_search, base, settings)
    if board.config.purpose != "search":
        sentences.insert(0 if purpose == "grouping" else len(sentences), _on_grouping(board, grouped, base))
    sentences += _on_general(kept, base)
    search = settings if kept is for_search else None
    rows = _rows(board, kept, base, search)
    return Choice(kept=kept, base=base, sentences=sentences, rows=rows, search=search, jobs=jobs)


def keep_base(choice: Choice, said: str) -> Choice:
    """Keep the base for search, because a person who judged says so: what was said of the other one goes."""
    notes = {choice.kept.name: "", choice.base.name: "kept"}
    rows = [{**row, "note": notes.get(row["name"], row["note"])} for row in choice.rows]
    sentences = [said, *(each for each in choice.sentences if each.startswith(_FOR_GROUPING))]
    jobs = choice.jobs | {"search": choice.base}
    return replace(choice, kept=choice.base, jobs=jobs, search=None, sentences=sentences, rows=rows)


def _for_search(board: Scoreboard, base: Candidate) -> tuple[Candidate, str]:
    """Return what is kept for search, and a sentence on it."""
    if board.transformer is None:
        return _compared(board, base)
    pair, gate = board.best(lambda each: each.is_pair and not each.groups), board.search_gate
    at = (
        f"words find the documents of sentences with MRR@10 {gate.words:.1f}, {board.transformer.name} with "
        f"{gate.base:.1f}, and with {gate.meaning:.1f} where their rarer words are left out"
    )
    if pair is None:
        return base, f"For search, keep {base.name} as it is: it is at home in this text: {at}."
    change = _difference(board, pair, base)
    if change.decision == "worse":
        figures = change.figures("", f"of {base.name} on {_where(board)}")
        return base, f"For search, keep {base.name} as it is: {pair.name} finds less: {figures}."
    return pair, f"For search, keep {pair.name}, with words at {gate.search.words:.2g}: {at}."


def _compared(board: Scoreboard, base: Candidate) -> tuple[Candidate, str]:
    """Keep the best candidate on the development documents if the test documents say that it is surely better."""
    chosen = best_on_dev(board) if board.judged else base
    if chosen is base:
        return base, _no_change(board, base)
    change = _guarded(board, chosen, base)
    figures = change.figures("", f"of {base.name} on {_where(board)}")
    if change.decision == "better":
        return chosen, f"For search, keep {chosen.name} ({chosen.how}): {figures}."
    reason = change.reason or f"the best candidate, {chosen.name}, is not surely above it"
    return base, f"For search, keep {base.name} as it is: {reason}: {figures}."


def _for_lines(board: Scoreboard, base: Candidate) -> tuple[Candidate, str]:
    """Keep a weak base trained on single lines where they say so; a strong one as it is."""
    strong = board.strength()
    if strong is None:
        return _compared(board, base)
    by = f" ({strong.value:+.1f} against builtin-static, {strong.interval})" * (base.name != "builtin-static")
    return base, (
        f"For search, keep {base.name} as it is: on general text it is no weak encoder{by}, and single lines show too "
        "little to train such a one."
    )


def best_on_dev(board: Scoreboard) -> Candidate:
    """Return the candidate that is to be compared with its base.

    On single lines, whose test shows less than those of documents, that is one of those that gain nearly as much as
    the best: from a weak base the one that went furthest from it, otherwise the one that changed least.  Labels
    agree with the first from a masked language model, with the second from sentence encoders (decision 0018).
    """
    eligible = [candidate for candidate in board.eligible if not candidate.groups]
    best = max(eligible, key=board.value)
    if board.structured:
        return best
    weak = board.general_counts and board.strength("general dev") is None
    level = board.value(board.reference)
    enough = level + _ENOUGH * (board.value(best) - level)
    near = [candidate for candidate in eligible if board.value(candidate) >= enough]
    return max(near, key=lambda each: (each.fraction if weak else -each.fraction, board.value(each)))


def _difference(board: Scoreboard, chosen: Candidate, base: Candidate) -> Comparison:
    board.score_on_test(chosen)
    board.score_on_test(base)
    return difference(chosen.scores["test"], base.scores["test"], board.measure)


def _guarded(board: Scoreboard, chosen: Candidate, base: Candidate) -> Comparison:
    """Compare the chosen candidate with its base; what general text says of single lines is a reason not to decide."""
    change = _difference(board, chosen, base)
    if not board.structured and change.decision == "better" and board.loses(chosen, "general test"):
        return change.undecided(f"the best candidate, {chosen.name}, loses on general text")
    return change


def _search_settings(board: Scoreboard, kept: Candidate) -> SearchSettings:
    settings = SearchSettings()
    if kept.is_static:
        settings = STATIC_SEARCH
    elif kept.is_pair or board.transformer:
        settings = board.search_gate.search
    return replace(settings, language=board.config.corpus.language)


def _no_change(board: Scoreboard, base: Candidate) -> str:
    """Say why no candidate was compared with the base."""
    others, where = [other for other in board.eligible if other is not base], _where(board)
    keep = f"For search, keep {base.name} as it is"
    if not others:
        if not board.structured and not any(base.is_transformer for base in board.bases):
            return f"{keep}: it has no layers, and on single lines only encoders with layers are trained."
        return f"{keep}: no other candidate was made."
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
    return f"held-out {what} of this text, each to be found from a sentence, with and without its rarer words"


def _on_held_out(board: Scoreboard, kept: Candidate, base: Candidate, settings: SearchSettings | None) -> list[str]:
    """Say what the kept setting and word matching find on the documents that chose nothing."""
    tests = board.vectors.tests["test"]
    at = f"MRR@10 {figure(base.scores['test'], MRR):.1f}"
    if kept is not base:
        change = difference(kept.scores["test"], base.scores["test"], MRR)
        at = f"MRR@10 {change.after:.1f} against {change.before:.1f} ({change.interval})"
    at += f"; words (BM25) alone {figure(tests.score_words(), MRR):.1f}"
    if settings is not None and settings.words:
        both = figure(tests.score_with_words(board.vectors.of(kept, "test"), settings.words), MRR)
        at += f", with words {both:.1f}"
    return [
        f"On held-out documents, from a sentence inside: {at}.",
        "These tests are made of the text itself: where it matters, judge it yourself (--judge 20).",
    ]


def _on_grouping(board: Scoreboard, grouped: Candidate, base: Candidate) -> str:
    """Say what is best for clusters, topics and intents."""
    agree = f"{board.agreement:.0%} of the nearest neighbours by {grouped.base} are so by words, too"
    if not grouped.groups:
        kept = f"{grouped.name}{' as it is' * (grouped is base)}"
        return f"{_FOR_GROUPING}, keep {kept}: {agree}, which is too little for a neighbour map."
    return f"{_FOR_GROUPING}, keep {grouped.name} ({grouped.how}): {agree}."


def _on_general(kept: Candidate, base: Candidate) -> list[str]:
    """Say what was lost or gained on general text."""
    if kept is base:
        return []
    change = difference(kept.scores["general test"], base.scores["general test"], SCORE)
    return [f"On general text its score changes by {change.value:+.1f} ({change.interval})."]


def _rows(board: Scoreboard, kept: Candidate, base: Candidate, settings: SearchSettings | None) -> list[dict[str, Any]]:
    """Return the table: candidates in the order of what they are chosen by, then word matching."""
    ordered = sorted(board.candidates, key=board.value, reverse=True)
    static = board.best(attrgetter("is_static"))  # of many it is shown alone
    shown = [each for each in ordered if "test" in each.scores or not each.is_static or each is static]
    notes = {base.name: "base"} | {kept.name: "kept"}
    rows = [
        _row(each.name, each.how, _figures(each.scores, board.measure), notes.get(each.name, each.note), each.seconds)
        for each in shown
        if each in (*shown[: _MOST_ROWS - 2], kept, base)
    ]
    rows += [_row(each.name, each.how, {}, each.note) for each in board.left_out]
    if not board.structured:
        return rows
    tests = {split: board.vectors.tests[split] for split in ("dev", "test")}
    words = {split: test.score_words() for split, test in tests.items()}
    rows.append(_row(BM25, "word matching", _figures(words, SCORE)))
    if weight := settings and settings.words:
        both = {split: test.score_with_words(board.vectors.of(kept, split), weight) for split, test in tests.items()}
        name = f"{kept.name}, with words (BM25) at {weight:.2g}"
        rows.append(_row(name, "cosines and BM25 added", _figures(both, SCORE)))
    return rows


def _row(
    name: str, how: str, figures: Mapping[str, float | None], note: str = "", seconds: float = 0.0
) -> dict[str, Any]:
    return {"name": name, "how": how, "seconds": seconds, "note": note, **figures}


def _figures(scores: dict[str, Results], measure: str) -> dict[str, float | None]:
    """Return the figures of the table; where MRR@10 is what counts, the tests of lines are not shown."""
    splits = {split.replace(" ", "_"): results for split, results in scores.items()}
    shown = {split: results for split, results in splits.items() if measure == SCORE or "general" in split}
    table = {f"{split}_score": figure(results, SCORE) for split, results in shown.items()}
    own = {split: results for split, results in splits.items() if "general" not in split}
    table |= {f"{split}_mrr": figure(results, MRR) for split, results in own.items()}
    return table | {f"{split}_meaning": figure(results, MEANING) for split, results in own.items()}


def candidate_rows(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows for people: figures in points, 0 to 100; what was not measured is a dash."""
    cells = [["-" if row.get(key) is None else f"{row[key]:.1f}" for key in _COLUMNS] for row in rows]
    head = ["candidate", *_COLUMNS.values(), ""]
    return head, [[row["name"], *figures, row["note"]] for row, figures in zip(rows, cells, strict=True)]
