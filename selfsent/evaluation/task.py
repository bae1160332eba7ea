"""What all evaluation tasks share: texts, a fingerprint of the data, and scores computed from the texts' vectors.

Texts that are ranked are queries and documents, each encoded behind the encoder's prompt for it, as ``encode_query``
and ``encode_document`` of sentence-transformers do; all others behind the prompt that the folder names as default.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from selfsent.encoder.base import Role, TextEncoder
from selfsent.encoder.open import as_encoder
from selfsent.evaluation.score import Score
from selfsent.progress import SILENT, Progress

Vectors = Float[np.ndarray, "N D"]
Prompted = tuple[Role, str]  # a text, and what it is to the encoder
Row = tuple[str, str | None, Any]  # a text, the other one of a pair, the label
FORM = "SentEval tokens"  # how the files of SentEval hold their texts


def queries_and_documents(queries: Iterable[str], documents: Iterable[str]) -> list[Prompted]:
    """Return texts that find, and texts that are found."""
    return [*(("query", text) for text in queries), *(("document", text) for text in documents)]


class PromptedTexts:
    """Different texts, each behind the prompt for what it is.

    Attributes:
        parts: the texts by what they are.
        texts: all of them, in the order of their vectors; one that is a query and a document is there twice.
    """

    def __init__(self, texts: Iterable[Prompted]) -> None:
        self.parts: dict[Role, list[str]] = {}
        for role, text in dict.fromkeys(texts):
            self.parts.setdefault(role, []).append(text)
        keys = [(role, text) for role, part in self.parts.items() for text in part]
        self.texts = [text for _, text in keys]
        self._row = {key: row for row, key in enumerate(keys)}

    def rows(self, texts: Iterable[Prompted]) -> list[int]:
        """Return the places of texts among ``texts``."""
        return [self._row[text] for text in texts]

    def embed(self, encoder: TextEncoder, **options: Any) -> Vectors:  # noqa: ANN401  what Encoder.embed takes
        """Return the vectors that an encoder gives ``texts``, of the length that training gave them.

        No cosine depends on it, and a classifier does.
        """
        reads = as_encoder(encoder).before_unit()
        return self.encode(partial(reads.embed, **options), reads.task_prompt)

    def encode(self, embed: Callable[..., Vectors], prompt_for: Callable[[Role], str]) -> Vectors:
        """Return the vectors of ``texts`` by a function of different texts and their ``prompt``."""
        prompts = {role: prompt_for(role) for role in self.parts}
        found: dict[tuple[str, str], Vectors] = {}
        for prompt in {*prompts.values()}:
            same = list(dict.fromkeys(text for role in prompts if prompts[role] == prompt for text in self.parts[role]))
            found |= zip(((prompt, text) for text in same), embed(same, prompt=prompt), strict=True)
        return np.stack([found[prompts[role], text] for role, text in self._row])


def used_prompts(encoder: TextEncoder, roles: Iterable[Role]) -> dict[str, object]:
    """Return an entry for a protocol that says which prompts texts are encoded behind; none where there is none."""
    prompts = {role: as_encoder(encoder).task_prompt(role) for role in sorted({*roles})}
    return {"prompts": {role: prompt for role, prompt in prompts.items() if prompt}} if any(prompts.values()) else {}


def said_prompts(protocols: Iterable[Mapping[str, Any]]) -> str:
    """Say in words which prompts the protocols of scores name; nothing where they name none."""
    found = {role: prompt for protocol in protocols for role, prompt in protocol.get("prompts", {}).items()}
    said = [f"{_SAID[role]} are encoded behind {found[role]!r}" for role in _SAID if role in found]
    return ", ".join(said)


_SAID: dict[Role, str] = {"query": "queries", "document": "documents", "default": "other texts"}


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """An evaluation task; subclasses are frozen dataclasses that hold its data."""

    name: str
    notes: Sequence[str] = ()  # what a reader of the scores should know about the data

    @property
    @abstractmethod
    def texts(self) -> list[str]:
        """The texts to encode, in the order in which ``score`` takes their vectors; texts may repeat."""

    @property
    def prompted(self) -> list[Prompted]:
        """Each of ``texts`` with what it is: a query, a document, or neither."""
        return [("default", text) for text in self.texts]

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
