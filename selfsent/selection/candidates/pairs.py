"""Pairs of encoders: the best transformer and the best static vectors, whose cosines are added."""

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Float
from sentence_transformers import SentenceTransformer

from selfsent.encoder.pair_module import join_encoders
from selfsent.selection.candidates.workspace import Workspace
from selfsent.selection.held_out_tests import unit_vectors
from selfsent.selection.scoreboard import Candidate

WEIGHTS = (0.3, 0.5, 0.7)  # of the first of the two


def add_pairs(work: Workspace) -> None:
    """Add the pair with every weight."""
    board, asked = work.board, work.config.pair_of_encoders
    first = board.best(candidate for candidate in board.candidates if candidate.is_transformer)
    second = board.best(candidate for candidate in board.candidates if not candidate.is_transformer)
    if first is None or second is None:
        return
    for weight in WEIGHTS:
        pair, weights = (first, second), (weight, 1 - weight)
        candidate = Candidate(
            name=f"pair of {first.name} and {second.name}, {weight:g} : {1 - weight:g}",
            how="pair of encoders",
            open=partial(_join, pair, weights),
            derive=partial(_concatenate, pair, weights),
            is_pair=True,
            base=first.base,
            eligible=asked,
            note="" if asked else "two folders in one: --set pair_of_encoders=true allows it",
        )
        board.add(candidate)


def _join(pair: tuple[Candidate, Candidate], weights: tuple[float, float]) -> SentenceTransformer:
    return join_encoders([candidate.open() for candidate in pair], weights)


def _concatenate(
    pair: tuple[Candidate, Candidate],
    weights: tuple[float, float],
    vectors_of: Callable[[Candidate], Float[np.ndarray, "N D"]],
) -> Float[np.ndarray, "N D"]:
    sides = [unit_vectors(vectors_of(candidate)) for candidate in pair]
    return np.hstack([weight**0.5 * side for weight, side in zip(weights, sides, strict=True)])
