"""Interpolated weights, of single lines: between a base and the best encoder that was trained from it.

    theta(a) = (1 - a) theta_base + a theta_trained

Part of the way often keeps most of what training gained and nearly all that the base could do before.  Source:
Wortsman et al. 2022, https://arxiv.org/abs/2109.01903.
"""

from functools import partial

from sentence_transformers import SentenceTransformer

from selfsent.errors import EncoderError
from selfsent.selection.candidates.workspace import Workspace
from selfsent.selection.scoreboard import Candidate, Scoreboard

FRACTIONS = (0.25, 0.5, 0.75)  # of the way from a base to what was trained from it


def interpolate(base: SentenceTransformer, trained: SentenceTransformer, fraction: float) -> SentenceTransformer:
    """Move the weights of ``base``, in place, by ``fraction`` of the way to ``trained``, and return it.

    Raises:
        EncoderError: the two are not of one shape.
    """
    start, goal = base.state_dict(), trained.state_dict()
    if start.keys() != goal.keys() or any(start[name].shape != goal[name].shape for name in start):
        raise EncoderError("weights can be interpolated between encoders of one shape only: one has other layers")
    floating = [name for name in start if start[name].is_floating_point()]
    base.load_state_dict(start | {name: start[name].lerp(goal[name], fraction) for name in floating})
    return base


def add_interpolated(work: Workspace) -> None:
    """Add encoders between each base and the best trained from it."""
    for start, goal in find_ways(work.board):
        for fraction in FRACTIONS:
            between = Candidate(
                name=f"{fraction:g} of the way to {goal.name}",
                how="interpolated weights",
                open=partial(_open_between, start, goal, fraction),
                base=goal.base,
                fraction=fraction,
                is_transformer=True,
            )
            work.board.add(between)


def find_ways(board: Scoreboard) -> list[tuple[Candidate, Candidate]]:
    """Return between which encoders weights are interpolated."""
    ways = []
    for base in board.bases:
        made = [each for each in board.candidates if each.base == base.name and each is not base]
        trained = [each for each in made if each.is_transformer]
        if trained:  # where none may be kept, the one that loses least on general text is the nearest to it
            ways.append((base, max(trained, key=lambda each: (board.value(each), board.figure(each, "general dev")))))
    return ways


def _open_between(start: Candidate, goal: Candidate, fraction: float) -> SentenceTransformer:
    return interpolate(start.open(), goal.open(), fraction)
