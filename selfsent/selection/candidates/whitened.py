"""Partial whitening: the best static vectors again, partly whitened on the text.

Nothing is trained, and the texts of the tests are not encoded again: their vectors are multiplied.
"""

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import numpy as np

from selfsent.encoder.encode import encode
from selfsent.encoder.open import as_encoder
from selfsent.encoder.pair_module import parts_of
from selfsent.encoder.partial_whitening import fit_partial_whitening, whiten_encoder
from selfsent.selection.candidates.workspace import Workspace
from selfsent.selection.scoreboard import Candidate
from selfsent.storage import atomic


def add_partly_whitened(work: Workspace) -> None:
    """Whiten the best static vectors: of transformers people see that it costs (decision 0032)."""
    source = work.board.best(attrgetter("is_static"))
    if source is None:
        return
    how = "embeddings partly whitened on this text"
    candidate = replace(source, name=f"{source.name}, partly whitened", how=how, source="", scores={})
    path = work.folder / f"{candidate.slug}.npy"
    with work.budget.timed(candidate.slug):
        if path.is_file():
            atomic.verify(path, f"delete {path} and add --resume to compute it again")
        elif not _fit_matrix(source, work.sample(), path):
            return
    candidate.seconds = source.seconds + work.budget.seconds(candidate.slug)
    matrix = np.load(path)
    candidate.open = lambda: whiten_encoder(source.open(), matrix)
    candidate.parts, candidate.derive = [source], lambda vectors: vectors @ matrix
    work.board.add(candidate)


def _fit_matrix(source: Candidate, sample: Sequence[str], path: Path) -> bool:
    """Write the matrix that an encoder's vectors are to be multiplied by; return whether there can be one."""
    encoder = source.open()
    if encoder.truncate_dim or parts_of(encoder):  # no test has seen all dimensions; no map fits behind two
        return False
    vectors = encode(as_encoder(encoder).before_unit(), sample)
    if len(vectors) < 2 * vectors.shape[1]:
        return False
    with atomic.sealed_file(path) as file:
        np.save(file, fit_partial_whitening(vectors))
    return True
