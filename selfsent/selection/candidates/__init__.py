"""The ways of making candidates, in the order of their promise: all share one time.

A new way is a file here with one function, and a line in ``make_candidates``.
"""

from collections.abc import Sequence

from selfsent.selection.candidates.bases import add_bases, train_bases
from selfsent.selection.candidates.interpolated_weights import add_interpolated
from selfsent.selection.candidates.neighbour_maps import add_neighbour_map
from selfsent.selection.candidates.pairs import add_pair
from selfsent.selection.candidates.static_vectors import add_latent_vectors, add_static_vectors
from selfsent.selection.candidates.workspace import Workspace
from selfsent.selection.scoreboard import STATIC_BASE

DEFAULT_BASES = ("builtin", STATIC_BASE)


def make_candidates(work: Workspace, bases: Sequence[str]) -> None:
    """Make every candidate, from some bases or those that ship, and score it on the documents that choose."""
    board, purpose = work.board, work.config.purpose
    if not board.structured:
        work.progress.say(
            "this text is made of single lines, or of too few documents to judge by: only a weak base is trained on "
            "them, and static vectors are no candidates"
        )
    add_bases(work, bases or DEFAULT_BASES[: 2 if board.structured else 1])
    if board.structured:  # texts are grouped behind what is best for search, too
        _make_for_search(work)
    # Of lines a weak base alone is trained: what they call better of a strong one is often worse (decision 0018).
    elif not board.structured and purpose != "grouping" and board.strength() is None:
        if work.wants(", trained by"):
            train_bases(work)
        if work.wants("of the way"):
            add_interpolated(work)
    if purpose != "search":
        add_neighbour_map(work)


def _make_for_search(work: Workspace) -> None:
    """Make static vectors of the text, train a weak base, and join the best of both."""
    board = work.board
    weak = board.transformer is None or board.search_gate.weak
    if not weak and not board.search_gate.dose:
        return  # a base at home in the text: nothing beside it would help
    add_static_vectors(work)
    if weak and work.wants(", trained"):  # training costs a strong base what people see in it (decision 0032)
        train_bases(work)
    add_latent_vectors(work)
    add_pair(work)
