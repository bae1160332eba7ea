"""A prepared corpus, read from its folder row by row, or document by document and span by span."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from selfsent.corpus.columns import Ragged
from selfsent.corpus.held_out import HeldOut
from selfsent.corpus.sources import Document
from selfsent.corpus.statistics import CorpusStatistics

HELD_OUT_DOCUMENTS = "held_out_documents.jsonl"  # the file of the documents held out, whole
_STATISTICS, _HELD_OUT = TypeAdapter(CorpusStatistics), TypeAdapter(HeldOut)

Indices = Sequence[int] | NDArray[np.integer]


class Corpus:
    """Tokenised texts on disk; memory does not grow with their number.

    Attributes:
        paired: whether every row has a positive beside its text.
        lengths: tokens of every row, special tokens included, as int32; of a pair, of its longer side.
        keys: a 64-bit hash of every token row; rows of equal key must never share a batch.  Pairs that have a side in
            common, directly or through other pairs, have equal keys.
        held_out: queries and passages of documents that are not among the rows.
        account: statistics of what was read, kept and dropped, and why.
        fingerprint: hash of sources, settings and tokenizer.
        reused: whether it was in the cache.
        sources: what tells each source from others; nothing where the corpus was opened by its folder.
    """

    def __init__(self, folder: Path, *, reused: bool = True, sources: Sequence[Sequence[object]] = ()) -> None:
        self.folder = folder
        self.reused = reused
        self.sources = sources
        self.fingerprint = folder.name
        self.lengths: NDArray[np.int32] = np.load(folder / "lengths.npy", mmap_mode="r")
        self.keys: NDArray[np.uint64] = np.load(folder / "keys.npy", mmap_mode="r")
        self._ids = Ragged(folder, "ids")
        self._texts = Ragged(folder, "texts")
        self.paired = (folder / "positives.npy").exists()
        self._positives = Ragged(folder, "positives") if self.paired else None
        self.account = _STATISTICS.validate_json((folder / "account.json").read_bytes())
        self.held_out = _HELD_OUT.validate_json((folder / "held_out.json").read_bytes())

    def __len__(self) -> int:
        return len(self.lengths)

    def __reduce__(self) -> tuple[Any, ...]:
        return Corpus, (self.folder,)

    def rows(self, indices: Indices) -> list[list[int]]:
        """Return the tokens of some rows, special tokens included."""
        return [row.tolist() for row in self._ids.rows(indices)]

    def span(self, start: int, stop: int) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
        """Return the tokens of the rows from ``start`` to ``stop`` end to end, and the length of each row."""
        return self._ids.span(start, stop)

    @property
    def tokens(self) -> int:
        """Count the tokens of all rows."""
        return self._ids.values.rows

    def token_range(self, start: int, stop: int) -> NDArray[np.integer]:
        """Return the tokens from ``start`` to ``stop`` of all rows end to end."""
        return self._ids.values.read(start, stop)

    def positives(self, indices: Indices) -> list[list[int]]:
        """Return the tokens of the positives of some rows, special tokens included."""
        if self._positives is None:
            raise ValueError("this corpus has no positives: check `paired` first")
        return [row.tolist() for row in self._positives.rows(indices)]

    def texts(self, indices: Indices) -> list[str]:
        """Return the cleaned texts of some rows, not truncated."""
        return [row.tobytes().decode() for row in self._texts.rows(indices)]

    def held_out_documents(self, part: Literal["dev", "test"]) -> list[Document]:
        """Return the documents behind one part of ``held_out``, whole and as they were read."""
        with (self.folder / HELD_OUT_DOCUMENTS).open(encoding="ascii") as lines:
            return [Document(*fields) for stored, *fields in map(json.loads, lines) if stored == part]


def write_facts(folder: Path, account: CorpusStatistics, held_out: HeldOut) -> None:
    """Write what is not a column: the statistics and the held-out documents."""
    (folder / "account.json").write_bytes(_STATISTICS.dump_json(account, indent=1))
    (folder / "held_out.json").write_bytes(_HELD_OUT.dump_json(held_out, indent=1))


class DocumentTokens(Sequence[int]):
    """The tokens of one document, special tokens included; only the slices asked for are read from disk."""

    def __init__(self, ids: Ragged, row: int) -> None:
        self._values = ids.values
        self._positions = range(*ids.offsets.read(row, row + 2).tolist())

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - an int for an int, a list for a slice
        positions = self._positions[index]
        if isinstance(positions, int):
            return self._values.read(positions, positions + 1).item()
        assert positions.step == 1, "documents are read span by span"
        return self._values.read(positions.start, max(positions.start, positions.stop)).tolist()


class DocumentRows:
    """Some rows of a corpus of documents, in the form that the training loop reads."""

    paired = False

    def __init__(self, corpus: Corpus, chosen: NDArray[np.int64]) -> None:
        self._chosen = chosen
        self._ids = Ragged(corpus.folder, "ids")

    def __len__(self) -> int:
        return len(self._chosen)

    def rows(self, indices: Indices) -> list[DocumentTokens]:
        """Return documents that are read when they are sliced."""
        return [DocumentTokens(self._ids, int(self._chosen[index])) for index in indices]

    def positives(self, indices: Indices) -> list[list[int]]:
        """Refuse: documents have no positives."""
        raise ValueError("documents have no positives: check `paired` first")
