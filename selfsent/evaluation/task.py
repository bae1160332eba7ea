"""What all evaluation tasks share: texts, a fingerprint of the data, and scores computed from the texts' vectors."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from selfsent.evaluation.score import Score
from selfsent.progress import SILENT, Progress


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """An evaluation task; subclasses are frozen dataclasses that hold its data."""

    name: str
    notes: Sequence[str] = ()  # what a reader of the scores should know about the data

    @property
    @abstractmethod
    def texts(self) -> list[str]:
        """The texts to encode, in the order in which ``score`` takes their vectors; texts may repeat."""

    @abstractmethod
    def score(
        self, vectors: Float[np.ndarray, "N D"], *, resamples: int, seed: int, progress: Progress = SILENT
    ) -> list[Score]:
        """Score vectors given in the order of ``texts``.

        Args:
            resamples: bootstrap resamples behind each interval; 0 leaves the intervals out.  ``bootstrap.means`` then
                returns rows of length 0, which ``score.measured`` takes for no interval.
        """

    def content(self) -> Iterable[str | bytes]:
        """Yield the data that the fingerprint depends on: one text a line, unless a subclass adds to it."""
        return (text + "\n" for text in self.texts)

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that identify the data."""
        return fingerprint(self.content())


def fingerprint(content: Iterable[str | bytes]) -> str:
    """Return the first sixteen hexadecimal digits of the SHA-256 digest of all parts, one after the other."""
    digest = hashlib.sha256()
    for part in content:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()[:16]
