"""The ways of making candidates, in the order of their promise: all share one time.

A new way is a file here with one function, and a line in ``make_candidates``.
"""

from collections.abc import Sequence

from selfsent.selection.candidates.averaged_weights import add_average, add_interpolated
from selfsent.selection.candidates.bases import add_bases, bases_promise_more, train_bases
from selfsent.selection.candidates.pairs import add_pairs
from selfsent.selection.candidates.static_vectors import add_static_vectors
from selfsent.selection.candidates.whitened import add_partly_whitened
from selfsent.selection.candidates.workspace import Workspace
from selfsent.selection.scoreboard import STATIC_BASE

DEFAULT_BASES = ("builtin", STATIC_BASE)


def make_candidates(work: Workspace, bases: Sequence[str]) -> None:
    """Make every candidate, from some bases or those that ship, and score it on the documents that choose."""
    if not work.board.structured:
        _make_from_lines(work, bases or DEFAULT_BASES[:1])
        return
    add_bases(work, bases or DEFAULT_BASES)
    named = work.board.static_named  # static vectors can be kept alone only where they descend from a base
    if not named:
        train_bases(work)
    add_static_vectors(work)
    bases_first = bases_promise_more(work)
    if named and bases_first:
        train_bases(work)
    add_average(work)
    if named and not bases_first:
        train_bases(work)
    add_interpolated(work)
    add_partly_whitened(work)
    add_pairs(work)


def _make_from_lines(work: Workspace, bases: Sequence[str]) -> None:
    """Make the candidates of a text without structure, from which no pairs can be made."""
    lines = work.text.facts.kind == "lines"
    task = "lines from a third of their words" if lines else "documents from their first sentences"
    why = "single lines, or of too few documents to judge by" if lines else "documents that no test can be made of"
    work.progress.say(
        f"this text is made of {why}: a candidate has to find {task} more often than its base does, and must not "
        "lose on general text; static vectors are no candidates"
    )
    add_bases(work, bases)
    if work.config.replace_strong_base or work.board.strength() is None:  # otherwise no candidate would be kept
        train_bases(work)
        add_interpolated(work)
