"""What all evaluation tasks share: texts, a fingerprint of the data, and scores computed from the texts' vectors."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from selfsent.evaluation.score import Score
from selfsent.progress import SILENT, Progress

Vectors = Float[np.ndarray, "N D"]
Row = tuple[str, str | None, Any]  # a text, the other one of a pair, the label
FORM = "SentEval tokens"  # how the files of SentEval hold their texts


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
    def score(self, vectors: Vectors, *, resamples: int, seed: int, progress: Progress = SILENT) -> list[Score]:
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


@dataclass(frozen=True, kw_only=True)
class LabelledExamples:
    """Texts, or pairs of them, with labels: a split of a task, or one of its files."""

    left: list[str]
    right: list[str] | None = None
    labels: Sequence[float]  # classes from 0, or scores

    @property
    def texts(self) -> list[str]:
        """All left sides, then all right sides if there are any."""
        return self.left + (self.right or [])


def join_tokens(rows: Sequence[Row]) -> LabelledExamples:
    """Make examples of rows; the tokens of each text are joined by single spaces."""
    return LabelledExamples(
        left=[" ".join(left.split()) for left, _, _ in rows],
        right=None if rows[0][1] is None else [" ".join((right or "").split()) for _, right, _ in rows],
        labels=[label for _, _, label in rows],
    )


def sorted_examples(rows: Sequence[Row], *, words: Sequence[str] | None = None) -> LabelledExamples:
    """Make examples, sorted by the numbers of tokens of the left and the right text and by the label.

    Args:
        words: of the labels; the right text then goes before the left one, and the word stands for the label.
    """

    def key(row: Row) -> tuple[int, int, Any]:
        left, right, label = len(row[0].split()), len((row[1] or "").split()), row[2]
        return (left, right, label) if words is None else (right, left, words[label])

    return join_tokens(sorted(rows, key=key))
