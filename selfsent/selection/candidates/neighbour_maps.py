"""Neighbour maps: the best base again, with texts of one topic closer together, for grouping."""

import json
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Float

from selfsent.encoder.encode import encode
from selfsent.encoder.neighbour_map import NEIGHBOURS, AffineMap, fit_neighbour_map, map_encoder
from selfsent.encoder.pair_module import parts_of
from selfsent.selection.budget import LENGTH
from selfsent.selection.candidates.workspace import Workspace
from selfsent.selection.gates import map_dose, neighbour_agreement
from selfsent.selection.scoreboard import Candidate
from selfsent.storage import atomic

_TEXTS = 20_000  # that a map is fitted to, at most
_COMPONENTS = 200  # of the texts' own TF-IDF
_NO_MAP = AffineMap(np.zeros((0, 0), np.float32), np.zeros(0, np.float32))


def add_neighbour_map(work: Workspace) -> None:
    """Add the map of the best base, where its neighbours and those by words agree."""
    board, base = work.board, work.board.reference
    name = f"{base.name}, neighbour map"
    candidate = Candidate(name=name, how="texts moved towards their neighbours", open=base.open, base=base.name)
    path = work.folder / f"{candidate.slug}.npz"
    with work.budget.timed(candidate.slug):
        if path.is_file():
            atomic.verify(path, f"delete {path} and add --resume to compute it again")
        else:
            _fit_map(work, base, path)
    with np.load(path) as file:
        board.agreement, dose = float(file["agreement"]), float(file["dose"])
        affine = AffineMap(file["matrix"], file["offset"])
    work.progress.say(
        f"neighbours by {base.name} and by words: {board.agreement:.0%} in common; dose of the neighbour map: {dose:g}"
    )
    if not dose:
        return
    candidate.how += f", dose {dose:g}"
    candidate.seconds = work.budget.seconds(candidate.slug)
    candidate.open = lambda: map_encoder(base.open(), affine)
    candidate.parts, candidate.derive, candidate.groups = [base], affine, True
    board.add(candidate)


def _fit_map(work: Workspace, base: Candidate, path: Path) -> None:
    with work.text.texts.open(encoding="utf-8") as file:
        texts = list(dict.fromkeys(json.loads(line)["text"] for line in islice(file, _TEXTS)))
    encoder = base.open()
    dose, agreement, affine = 0.0, 0.0, _NO_MAP
    if not parts_of(encoder) and encoder.truncate_dim is None and len(texts) >= 2 * NEIGHBOURS:
        if base.is_transformer:
            encoder.max_seq_length = min(encoder.max_seq_length or LENGTH, LENGTH)
        dose, agreement, affine = fit_map(encode(encoder, texts, progress=work.progress), texts)
    with atomic.sealed_file(path) as file:
        np.savez(file, agreement=agreement, dose=dose, matrix=affine.matrix, offset=affine.offset)


def fit_map(vectors: Float[np.ndarray, "N D"], texts: list[str]) -> tuple[float, float, AffineMap]:
    """Return the dose of the map that the vectors of texts ask for, the agreement behind it, and the map."""
    words = _word_vectors(texts)
    agreement = neighbour_agreement(vectors, words)
    dose = map_dose(agreement, len(texts))
    return dose, agreement, fit_neighbour_map(vectors, words, dose=dose) if dose else _NO_MAP


def _word_vectors(texts: list[str]) -> Float[np.ndarray, "N E"]:
    """Return the texts' own TF-IDF in fewer dimensions (latent semantic analysis)."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    try:
        counts = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform(texts)
    except ValueError:  # no word is in two texts
        return np.zeros((len(texts), 1))
    components = min(_COMPONENTS, counts.shape[1] - 1)
    if components < 1:
        return np.zeros((len(texts), 1))
    reduced: np.ndarray = TruncatedSVD(components, random_state=0).fit_transform(counts)
    return reduced
