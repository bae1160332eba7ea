"""Candidates of a selection: each has a name, a way to open it, and its vectors of the held-out texts, kept on disk."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xxhash
from jaxtyping import Float
from sentence_transformers import SentenceTransformer

from selfsent.encoder.encode import encode
from selfsent.evaluation.score import Results
from selfsent.progress import Progress
from selfsent.selection.held_out_tests import HeldOutTests
from selfsent.storage import atomic

_SLUG = 60  # letters of a folder's name, at most


@dataclass(kw_only=True)
class Candidate:
    """One encoder that may be kept."""

    name: str
    how: str  # it was made, in a few words
    open: Callable[[], SentenceTransformer] = field(repr=False)
    parts: tuple["Candidate", "Candidate"] | None = None  # of two side by side
    weights: tuple[float, float] = (0.5, 0.5)  # of the two
    whitened: tuple["Candidate", Path] | None = None  # another one, and the matrix that its vectors are multiplied by
    layered: bool = False  # not static vectors, nor two encoders
    seconds: float = 0.0  # that making it took
    eligible: bool = True  # may be kept: one folder of stock modules that descends from a base
    base: str = ""  # the base that it descends from
    share: float = 1.0  # of the way from there to trained weights
    scores: dict[str, Results] = field(default_factory=dict)  # by the judge's name
    note: str = ""  # why it is out, for the table

    @property
    def slug(self) -> str:
        """A folder's name: of the candidate's own, and of no other's."""
        plain = "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in self.name)
        if plain == self.name and len(plain) <= _SLUG:
            return plain
        return f"{plain[-_SLUG:]}-{xxhash.xxh3_64_hexdigest(self.name.encode(errors='replace'))[:8]}".lstrip("-.")


def short_name(place: str) -> str:
    """Return what a base is called in tables: a folder by its own name, or that of the folder around ``model``."""
    folder = Path(place)
    if not folder.is_dir():
        return place
    folder = folder.resolve()
    return folder.parent.name if folder.name == "model" else folder.name


class Vectors:
    """The vectors of candidates for the texts of judges: computed once, read from disk after that."""

    def __init__(self, folder: Path, judges: dict[str, HeldOutTests], progress: Progress) -> None:
        self.folder, self.judges, self._progress = folder, judges, progress

    def of(self, candidate: Candidate, part: str) -> Float[np.ndarray, "N D"]:
        """Return the vectors of a candidate for the texts of one judge."""
        if candidate.parts is not None:
            sides = [_unit(self.of(one, part)) for one in candidate.parts]
            return np.hstack([w**0.5 * side for w, side in zip(candidate.weights, sides, strict=True)])
        if candidate.whitened is not None:
            source, matrix = candidate.whitened
            product: Float[np.ndarray, "N D"] = self.of(source, part) @ np.load(matrix)
            return product
        if not self.judges[part].texts:
            return np.zeros((0, 1), np.float32)
        path = self.folder / f"{candidate.slug}.{part}.npy"
        if path.is_file():
            atomic.verify(path, f"delete {path} and add --resume to compute it again")
        else:
            vectors = encode(candidate.open(), self.judges[part].texts, progress=self._progress)
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic.sealed_file(path) as file:
                np.save(file, vectors)
        return np.load(path)

    def score(self, candidate: Candidate, part: str) -> Results:
        """Score a candidate."""
        return self.judges[part].score(self.of(candidate, part), candidate.name)


def _unit(vectors: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
