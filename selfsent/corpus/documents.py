"""Whole documents of a prepared corpus, read from disk span by span."""

from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from selfsent.corpus.columns import Ragged
from selfsent.corpus.dataset import Corpus, Indices


class DocumentTokens(Sequence[int]):
    """The word pieces of one document, special tokens included; only what is sliced is read."""

    def __init__(self, ids: Ragged, row: int) -> None:
        self._ids = ids
        self._row = row
        self._length = ids.length(row)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> list[int]: ...
    def __getitem__(self, place: int | slice) -> int | list[int]:
        if isinstance(place, int):
            (one,) = self[slice(place, place + 1 or None)]
            return one
        start, stop, step = place.indices(self._length)
        return [int(piece) for piece in self._ids.part(self._row, start, max(start, stop))[::step]]


class DocumentRows:
    """Some rows of a corpus of documents, as the training loop asks for them."""

    paired = False

    def __init__(self, corpus: Corpus, chosen: NDArray[np.int64]) -> None:
        self._chosen = chosen
        self._ids = Ragged(corpus.folder, "ids")

    def __len__(self) -> int:
        return len(self._chosen)

    def rows(self, indices: Indices) -> list[DocumentTokens]:
        """Return documents that read themselves where they are sliced."""
        return [DocumentTokens(self._ids, int(self._chosen[index])) for index in indices]

    def positives(self, indices: Indices) -> list[list[int]]:
        """Documents come without positives: methods cut their own."""
        raise ValueError("documents have no positives: ask `paired` first")
