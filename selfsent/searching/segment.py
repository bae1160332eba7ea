"""A part of an index: a few thousand documents, their texts and vectors, written once and memory-mapped.

texts.jsonl, offsets.npy   title, passages and id of document i at bytes offsets[i] to offsets[i + 1]
keys.npy       (N, 16)     uint8, what tells whether a document is the same one
vectors.npy    (V, D)      float16, of length 1: of each document's first sentence, then of all passages, but for those
                           that are a first sentence without a title and nothing else
owners.npy     (V - N,)    int64, the documents of those passages, ascending
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from selfsent.encoder.base import require_finite
from selfsent.errors import ResumeError
from selfsent.evaluation.geometry import unit
from selfsent.searching.passages import SearchText, embedded_texts
from selfsent.storage import atomic

DOCUMENTS, PASSAGES = 8_192, 16_384  # of a segment, about, at most: what a kill loses, and what memory holds


class Segment:
    """A segment that is open.

    Raises:
        ResumeError: a file is missing or was changed.
    """

    def __init__(self, folder: Path) -> None:
        atomic.verify(folder, f"delete {folder.parent} and make the index again")
        self.name = folder.name
        self.vectors: NDArray[np.float16] = np.load(folder / "vectors.npy", mmap_mode="r")
        self._passages: NDArray[np.int64] = np.load(folder / "owners.npy")
        self.keys: NDArray[np.uint8] = np.load(folder / "keys.npy", mmap_mode="r")
        self._offsets: NDArray[np.int64] = np.load(folder / "offsets.npy", mmap_mode="r")
        self._texts = np.memmap(folder / "texts.jsonl", np.uint8, "r")

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return len(self.keys)

    def owners(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the documents of vectors."""
        behind = np.clip(rows - self.documents, 0, None)
        return np.where(rows < self.documents, rows, self._passages[behind] if len(self._passages) else rows)

    def text(self, document: int) -> tuple[str, list[str], str]:
        """Return title, passages and id of a document."""
        title, passages, name = json.loads(bytes(self._texts[self._offsets[document] : self._offsets[document + 1]]))
        return title, passages, name

    def nearest_passage(self, document: int, query: NDArray[np.float32]) -> tuple[int, float]:
        """Return the passage of a document that is nearest to a query (D,), and the largest cosine of its vectors.

        The first sentence stands for the first passage.
        """
        first, behind = np.searchsorted(self._passages, [document, document + 1])
        rows = [document, *range(self.documents + first, self.documents + behind)]
        cosines = self.vectors[rows].astype(np.float32) @ query
        best = int(cosines.argmax())
        return max(0, best - 1), float(cosines[best])


def holds_texts(folder: Path, texts: Sequence[SearchText]) -> bool:
    """Tell whether a segment is there, whole, of exactly these texts: a command that was killed wrote it."""
    try:
        return folder.is_dir() and Segment(folder).keys.tobytes() == b"".join(one.key for one in texts)
    except ResumeError:
        return False


def write_segment(folder: Path, texts: Sequence[SearchText], embed: Callable[[list[str]], NDArray[np.float32]]) -> None:
    """Encode the texts and write a segment, whole or not at all.

    Raises:
        EncoderError: a vector is not finite.
    """
    owners, embedded = embedded_texts(texts)
    vectors = embed(embedded)
    require_finite(vectors, embedded)
    lines = [json.dumps([one.title, one.passages, one.id], ensure_ascii=False).encode() + b"\n" for one in texts]
    with atomic.build_folder(folder) as scratch:
        np.save(scratch / "vectors.npy", unit(vectors).astype(np.float16))
        np.save(scratch / "owners.npy", owners[len(texts) :])
        np.save(scratch / "keys.npy", np.array([list(one.key) for one in texts], np.uint8))
        np.save(scratch / "offsets.npy", np.cumsum([0, *map(len, lines)], dtype=np.int64))
        (scratch / "texts.jsonl").write_bytes(b"".join(lines))
