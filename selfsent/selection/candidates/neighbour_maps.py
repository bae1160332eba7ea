"""Neighbour maps: the best encoder again, with texts of one topic closer together, for grouping.

Of documents that is the pair, where there is one, or without a transformer the best static vectors, of single lines
the base beside latent axes of them: behind these texts of one topic lie closer together than behind the base
(decision 0033).
"""

import json
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

import numpy as np
from jaxtyping import Float

from selfsent.encoder.affine import AffineMap
from selfsent.encoder.encode import encode
from selfsent.encoder.neighbour_map import NEIGHBOURS, fit_neighbour_map, map_encoder
from selfsent.encoder.pair_module import map_of
from selfsent.selection.budget import LENGTH
from selfsent.selection.candidates.pairs import pair_of_lines
from selfsent.selection.candidates.workspace import Workspace
from selfsent.selection.gates import map_dose, neighbour_agreement
from selfsent.selection.scoreboard import Candidate
from selfsent.storage import atomic

_TEXTS = 20_000  # that a map is fitted to, at most
_COMPONENTS = 200  # of the texts' own TF-IDF
_NO_MAP = AffineMap(np.zeros((0, 0), np.float32), np.zeros(0, np.float32))


def add_neighbour_map(work: Workspace) -> None:
    """Add the map of the encoder to group by, where neighbours by it (of a pair, by its base) and by words agree."""
    board = work.board
    source = board.best(attrgetter("is_pair")) or (None if board.structured else pair_of_lines(work))
    if source is None and board.structured and board.transformer is None:
        source = board.best(attrgetter("is_static"))
    source = source or board.reference
    name, base = f"{source.name}, neighbour map", source.base or source.name
    candidate = Candidate(name=name, how="", open=source.open, base=base, is_pair=source.is_pair)
    path = work.folder / f"{candidate.slug}.npz"
    with work.budget.timed(candidate.slug):
        if path.is_file():
            atomic.verify(path, f"delete {path} and add --resume to compute it again")
        else:
            _fit_map(work, source, path)
    with np.load(path) as file:
        board.agreement, dose = float(file["agreement"]), float(file["dose"])
        affine = AffineMap(file["matrix"], file["offset"])
    work.progress.say(
        f"neighbours by {_parts(source)[0].name} and by words: {board.agreement:.0%} in common; dose of the neighbour "
        f"map: {dose:g}"
    )
    if not dose:
        return
    made = "" if source in board.bases else f"{source.how}; "
    candidate.how = f"{made}texts moved towards their neighbours, dose {dose:g}"
    candidate.seconds = work.budget.seconds(candidate.slug)
    candidate.open = lambda: map_encoder(source.open(), affine)
    candidate.parts, candidate.derive, candidate.groups = [source], affine, True
    board.add(candidate)


def _parts(source: Candidate) -> Sequence[Candidate]:
    """Return the encoders of a pair, or the only one."""
    return source.parts if source.is_pair else [source]


def _fit_map(work: Workspace, source: Candidate, path: Path) -> None:
    with work.text.texts.open(encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    texts = list(dict.fromkeys(texts[:: -(-len(texts) // _TEXTS) or 1]))
    encoders = [part.open() for part in _parts(source)]
    dose, agreement, affine = 0.0, 0.0, _NO_MAP
    whole = all(map_of(encoder) is None and encoder.truncate_dim is None for encoder in encoders)
    if whole and len(texts) >= 2 * NEIGHBOURS:
        if _parts(source)[0].is_transformer:
            encoders[0].max_seq_length = min(encoders[0].max_seq_length or LENGTH, LENGTH)
        found = [encode(encoder, texts, progress=work.progress) for encoder in encoders]
        joined = source.derive(*found) if source.is_pair and source.derive else found[0]
        dose, agreement, affine = fit_map(joined, texts, base=found[0])
    with atomic.sealed_file(path) as file:
        np.savez(file, agreement=agreement, dose=dose, matrix=affine.matrix, offset=affine.offset)


def fit_map(
    vectors: Float[np.ndarray, "N D"], texts: list[str], base: Float[np.ndarray, "N E"] | None = None
) -> tuple[float, float, AffineMap]:
    """Return the dose of the map that texts ask for, the agreement behind it, and the map of their vectors.

    Args:
        base: the vectors whose neighbours have to be those by words, too.  Default: the same.
    """
    words = _word_vectors(texts)
    agreement = neighbour_agreement(vectors if base is None else base, words)
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
