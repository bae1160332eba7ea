"""Averaged weights: of two seeds of the static vectors, and between a base and the best that was trained from it.

    theta(a) = (1 - a) theta_base + a theta_trained

Part of the way often keeps most of what training gained and nearly all that the base could do before.  Source:
Wortsman et al. 2022, https://arxiv.org/abs/2109.01903.  The mean of several trainings from one base is often better
than each of them (decision 0015).  Source: Wortsman et al. 2022, https://arxiv.org/abs/2203.05482.
"""

from functools import partial

from sentence_transformers import SentenceTransformer

from selfsent.encoder.load import load_encoder
from selfsent.errors import EncoderError
from selfsent.selection.candidates.static_vectors import STATIC, UNTRAINED, train_static_vectors
from selfsent.selection.candidates.workspace import Workspace
from selfsent.selection.scoreboard import STATIC_BASE, TOLERATED, Candidate, Scoreboard

AVERAGED = f"{STATIC}, averaged"
FRACTIONS = (0.25, 0.5, 0.75)  # of the way from a base to what was trained from it
_AGAIN = "trained-again"


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


def add_average(work: Workspace) -> None:
    """Train the static vectors with a second seed, if the time is enough, and add the mean of both."""
    once = work.board.find(STATIC)
    enough = once is not None and work.config.static_twice and work.budget.seconds_left > once.seconds
    if once is None or not work.budget.once("trainings", _AGAIN, enough):
        return
    again, seconds = train_static_vectors(work, _AGAIN, work.config.seed + 1)
    average = Candidate(
        name=AVERAGED,
        how="the mean of two trainings",
        open=lambda: interpolate(once.open(), load_encoder(again), 0.5),
        base=STATIC_BASE,
        seconds=once.seconds + seconds,
        is_static=True,
        eligible=once.eligible,
    )
    work.board.add(average)


def add_interpolated(work: Workspace) -> None:
    """Add encoders between each base and the best trained from it; of static vectors, the untrained ones."""
    for start, goal in find_ways(work.board):
        for fraction in FRACTIONS:
            between = Candidate(
                name=f"{fraction:g} of the way to {goal.name}",
                how="interpolated weights",
                open=partial(_open_between, start, goal, fraction),
                base=goal.base,
                fraction=fraction,
                is_transformer=goal.is_transformer,
                is_static=goal.is_static,
                eligible=goal.eligible,
            )
            work.board.add(between)


def find_ways(board: Scoreboard) -> list[tuple[Candidate, Candidate]]:
    """Return between which encoders weights are interpolated."""
    untrained, static = board.find(UNTRAINED), board.find(AVERAGED) or board.find(STATIC)
    ways = [(untrained, static)] if untrained and static else []
    for base in board.bases:
        trained = [
            candidate
            for candidate in board.candidates
            if candidate.is_transformer and candidate.base == base.name and candidate is not base
        ]
        if not trained:
            continue
        # Where none may be kept, the one that loses least on general text is the nearest to it.
        goal = max(trained, key=lambda candidate: (board.value(candidate), board.figure(candidate, "general dev")))
        if not board.structured or _may_win(board, base, goal):
            ways.append((base, goal))
    return ways


def _may_win(board: Scoreboard, base: Candidate, goal: Candidate) -> bool:
    """Tell whether weights between the two are worth minutes of scoring."""
    lost = board.figure(base, "general dev") - board.figure(goal, "general dev")
    if lost <= TOLERATED and board.value(goal) > board.value(base):
        return False
    best = max(board.value(candidate) for candidate in board.eligible)
    return max(board.figure(candidate, "dev") for candidate in (base, goal)) >= best


def _open_between(start: Candidate, goal: Candidate, fraction: float) -> SentenceTransformer:
    return interpolate(start.open(), goal.open(), fraction)
