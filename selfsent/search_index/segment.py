"""A part of an index: a few thousand documents, their texts and vectors, written once and memory-mapped.

texts.jsonl, offsets.npy   title, text and id of document i at bytes offsets[i] to offsets[i + 1]
keys.npy       (N, 16)     uint8, what tells whether a document is the same one
vectors.npy    (V, D)      float16, of length 1: of each document's first sentence, then of the beginnings that differ
longer.npy     (V - N,)    int64, the documents of those beginnings, ascending
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from selfsent import atomic
from selfsent.errors import EncoderError, ResumeError
from selfsent.evaluation.geometry import unit
from selfsent.search_index.texts import SearchText

DOCUMENTS = 8_192  # of a segment, at most: what a kill loses


class Segment:
    """A segment that is open.

    Raises:
        ResumeError: a file is missing or was changed.
    """

    def __init__(self, folder: Path) -> None:
        atomic.verify(folder, f"delete {folder.parent} and make the index again")
        self.name = folder.name
        self.vectors: NDArray[np.float16] = np.load(folder / "vectors.npy", mmap_mode="r")
        self.longer: NDArray[np.int64] = np.load(folder / "longer.npy")
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
        return np.where(rows < self.documents, rows, self.longer[behind] if len(self.longer) else rows)

    def text(self, document: int) -> tuple[str, str, str]:
        """Return title, text and id of a document."""
        title, text, *name = json.loads(bytes(self._texts[self._offsets[document] : self._offsets[document + 1]]))
        return title, text, name[0] if name else ""

    def best_cosines(self, document: int, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the larger cosine of a document's one or two vectors with each of the (Q, D) queries."""
        place = int(np.searchsorted(self.longer, document))
        rows = [document]
        if place < len(self.longer) and self.longer[place] == document:
            rows.append(self.documents + place)
        cosines: NDArray[np.float32] = (queries @ self.vectors[rows].astype(np.float32).T).max(axis=1)
        return cosines


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
    longer = [row for row, one in enumerate(texts) if one.opening != one.text]
    embedded = [*(one.opening for one in texts), *(texts[row].text for row in longer)]
    vectors = embed(embedded)
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise EncoderError(
            f"the encoder gives NaN or infinity for {int((~finite).sum())} texts, first for "
            f"{embedded[int(finite.argmin())][:60]!r}: its weights are broken or its precision is too low"
        )
    lines = [json.dumps([one.title, one.text, one.id], ensure_ascii=False).encode() + b"\n" for one in texts]
    with atomic.build_folder(folder) as scratch:
        np.save(scratch / "vectors.npy", unit(vectors).astype(np.float16))
        np.save(scratch / "longer.npy", np.array(longer, np.int64))
        np.save(scratch / "keys.npy", np.array([list(one.key) for one in texts], np.uint8))
        np.save(scratch / "offsets.npy", np.cumsum([0, *map(len, lines)], dtype=np.int64))
        (scratch / "texts.jsonl").write_bytes(b"".join(lines))
