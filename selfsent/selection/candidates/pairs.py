"""Pairs of encoders: the best transformer and static vectors of the text, whose cosines are added."""

from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from selfsent.encoder.pair_module import join_encoders
from selfsent.encoder.quantize import unit
from selfsent.selection.candidates.static_vectors import STATIC, make_latent_vectors
from selfsent.selection.candidates.workspace import Workspace
from selfsent.selection.gates import line_weights
from selfsent.selection.scoreboard import Candidate


def add_pair(work: Workspace) -> None:
    """Add the pair, with the weights that the gate of search says; none where it says that the base is at home."""
    board = work.board
    first, second = board.best(attrgetter("is_transformer")), board.best(attrgetter("is_static"))
    if first is None or second is None:
        return
    gate = board.search_gate
    work.progress.say(
        f"a sentence from inside: MRR@10 {gate.words:.1f} by words, {gate.base:.1f} by {first.base}, "
        f"{gate.meaning:.1f} without its rarer words; dose of the pair: {gate.dose:g}"
    )
    if gate.dose:
        board.add(_joined(first, second, STATIC, gate.pair))


def pair_of_lines(work: Workspace) -> Candidate | None:
    """Return the best transformer beside latent axes of the text, for grouping single lines; None if there is none."""
    base = work.board.reference
    latent = make_latent_vectors(work) if base.is_transformer and work.config.line_axes else None
    return latent and _joined(base, latent, latent.name, line_weights(work.board.weak))


def _joined(first: Candidate, second: Candidate, name: str, weights: Sequence[float]) -> Candidate:
    return Candidate(
        name=f"{first.name} beside {name}",
        how=f"a pair of encoders, {weights[0]:.2g} : {weights[1]:.2g}: {first.name} and {second.name}",
        open=lambda: join_encoders([candidate.open() for candidate in (first, second)], weights),
        parts=(first, second),
        derive=lambda left, right: np.hstack([weights[0] ** 0.5 * unit(left), weights[1] ** 0.5 * unit(right)]),
        is_pair=True,
        base=first.base,
    )
