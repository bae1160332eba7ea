"""A segment of an index: a few thousand documents, their texts and vectors, written once and memory-mapped.

texts.jsonl, offsets.npy   title, passages and id of document i at bytes offsets[i] to offsets[i + 1]
keys.npy       (N, 16)     uint8, what tells whether a document is the same one
vectors.npy    (V, D)      float16 (float32 in a cache), of length 1: of each document's first sentence, then of all
                           passages, but for those that are a first sentence without a title and nothing else
owners.npy     (V - N,)    int64, the documents of those passages, ascending
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from selfsent.encoder.base import Encoder, require_finite
from selfsent.encoder.quantize import unit
from selfsent.searching.passages import SearchText, embedded_texts
from selfsent.storage import atomic

MAPPED = ("vectors.npy", "keys.npy", "offsets.npy", "texts.jsonl")
DOCUMENTS, PASSAGES = 8_192, 16_384  # of a segment, about, at most: what a kill loses, and what memory holds


@dataclass(frozen=True, eq=False)
class Segment:
    """N documents and their V vectors."""

    vectors: NDArray[np.floating]  # (V, D)
    passages: NDArray[np.int64]  # (V - N,)
    keys: NDArray[np.uint8]  # (N, 16)
    offsets: NDArray[np.int64]  # (N + 1,)
    texts: NDArray[np.uint8]

    @classmethod
    def make(
        cls, texts: Sequence[SearchText], encoder: Encoder, prompt: str, kind: type[np.floating] = np.float16
    ) -> "Segment":
        """Encode texts, each behind the prompt for documents.

        Raises:
            EncoderError: a vector is not finite.
        """
        owners, embedded = embedded_texts(texts)
        vectors = encoder.embed(embedded, prompt=prompt)
        require_finite(vectors, embedded)
        lines = [
            json.dumps([text.title, text.passages, text.id], ensure_ascii=False).encode() + b"\n" for text in texts
        ]
        return cls(
            vectors=unit(vectors).astype(kind),
            passages=owners[len(texts) :],
            keys=np.array([list(text.key) for text in texts], np.uint8),
            offsets=np.cumsum([0, *map(len, lines)], dtype=np.int64),
            texts=np.frombuffer(b"".join(lines), np.uint8),
        )

    @classmethod
    def open(cls, folder: Path, advice: str) -> "Segment":
        """Map what ``save`` wrote.

        Raises:
            ResumeError: a file is missing or was changed.
        """
        atomic.verify(folder, advice)
        return cls(
            vectors=np.load(folder / "vectors.npy", mmap_mode="r"),
            passages=np.load(folder / "owners.npy"),
            keys=np.load(folder / "keys.npy", mmap_mode="r"),
            offsets=np.load(folder / "offsets.npy", mmap_mode="r"),
            texts=np.memmap(folder / "texts.jsonl", np.uint8, "r"),
        )

    def save(self, folder: Path) -> None:
        """Write the segment, whole or not at all."""
        with atomic.build_folder(folder) as scratch:
            np.save(scratch / "vectors.npy", self.vectors)
            np.save(scratch / "owners.npy", self.passages)
            np.save(scratch / "keys.npy", self.keys)
            np.save(scratch / "offsets.npy", self.offsets)
            (scratch / "texts.jsonl").write_bytes(self.texts.tobytes())

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def owners(self) -> NDArray[np.int64]:
        """The documents of all vectors (V,)."""
        return np.concatenate([np.arange(len(self)), self.passages])

    def text(self, document: int) -> tuple[str, list[str], str]:
        """Return title, passages and id of a document."""
        title, passages, name = json.loads(bytes(self.texts[self.offsets[document] : self.offsets[document + 1]]))
        return title, passages, name

    def nearest_passage(self, document: int, query: NDArray[np.float32]) -> tuple[int, float]:
        """Return the passage of a document that is nearest to a query (D,), and the largest cosine of its vectors.

        The first sentence stands for the first passage.
        """
        cosines = self._of(document) @ query
        best = int(cosines.argmax())
        return max(0, best - 1), float(cosines[best])

    def nearest_vector(self, document: int, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the vector of a document that is nearest to a query, (D,)."""
        vectors = self._of(document)
        return vectors[int((vectors @ query).argmax())]

    def _of(self, document: int) -> NDArray[np.float32]:
        first, behind = np.searchsorted(self.passages, [document, document + 1])
        return self.vectors[[document, *range(len(self) + first, len(self) + behind)]].astype(np.float32)

    def holds(self, texts: Sequence[SearchText]) -> bool:
        """Tell whether it is of exactly these texts."""
        return self.keys.tobytes() == b"".join(text.key for text in texts)


def split_into_segments(texts: Iterable[SearchText], documents: int = DOCUMENTS) -> Iterator[list[SearchText]]:
    """Yield the texts of one segment after the other, each of so many documents at most."""
    segment: list[SearchText] = []
    passages = 0
    for text in texts:
        segment.append(text)
        passages += len(text.passages)
        if len(segment) >= documents or passages >= PASSAGES:
            yield segment
            segment, passages = [], 0
    if segment:
        yield segment


def missing_and_new(
    segments: Sequence[Segment], deleted: NDArray[np.bool_], texts: Iterable[SearchText]
) -> tuple[list[int], list[SearchText], int]:
    """Compare the documents of segments with those of a corpus.

    Returns:
        the numbers of the documents that the corpus no longer has, those that the segments do not have yet, and how
        many are in both.
    """
    left: dict[bytes, list[int]] = {}
    for number, key in enumerate(key for segment in segments for key in segment.keys):
        if not deleted[number]:
            left.setdefault(key.tobytes(), []).append(number)
    kept, new = 0, []
    for text in texts:
        numbers = left.get(text.key)
        if numbers:
            numbers.pop()
            kept += 1
        else:
            new.append(text)
    return sorted(number for numbers in left.values() for number in numbers), new, kept
