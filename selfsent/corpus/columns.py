"""Columns on disk that grow while they are written and take no memory while they are read.

A column is an ordinary ``.npy`` file, so ``numpy.load`` opens it without us.  Rows are read with ``pread`` rather than
through a memory map: mapped pages count as memory of the process once they were touched, and after an epoch of random
access that is the whole corpus.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, BinaryIO
from weakref import finalize

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

CHUNK = 1 << 17  # rows of a column that a sequential pass reads at a time


def _read(descriptor: int, dtype: np.dtype[Any], origin: int, start: int, stop: int) -> NDArray[Any]:
    size = dtype.itemsize
    return np.frombuffer(os.pread(descriptor, (stop - start) * size, origin + start * size), dtype=dtype)


class ColumnFile:
    """A one-dimensional ``.npy`` file that is appended to; complete on disk after ``close``."""

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self.rows = 0
        self._file: BinaryIO = path.open("w+b")
        self._write_header()
        self._start = self._file.tell()

    def _write_header(self) -> None:
        self._file.seek(0)
        # NumPy pads this header so that a growing first axis never changes its length.
        shape = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.rows,)}
        npy.write_array_header_1_0(self._file, shape)

    def append(self, values: NDArray[Any]) -> None:
        """Add ``values`` at the end, converted to the dtype of the column."""
        self._file.write(np.ascontiguousarray(values, dtype=self.dtype).data)
        self.rows += len(values)

    def flush(self) -> None:
        """Make everything appended so far visible to ``read``."""
        self._file.flush()

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``start`` to ``stop``; more may be appended meanwhile."""
        return _read(self._file.fileno(), self.dtype, self._start, start, stop)

    def chunks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield (first row, values) in order."""
        self.flush()
        for start in range(0, self.rows, CHUNK):
            yield start, self.read(start, min(start + CHUNK, self.rows))

    def close(self) -> None:
        """Write the final number of rows into the header."""
        if not self._file.closed:
            self._write_header()
            self._file.close()


class Table(ExitStack):
    """Columns and ragged columns of one folder, open for writing; all are closed on leaving the block."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self._columns: list[ColumnFile] = []

    def column(self, name: str, dtype: DTypeLike) -> ColumnFile:
        """Open ``<name>.npy`` for appending."""
        self._columns.append(self.enter_context(closing(ColumnFile(self.folder / f"{name}.npy", dtype))))
        return self._columns[-1]

    def ragged(self, name: str, dtype: DTypeLike) -> "RaggedColumn":
        """Open ``<name>.npy`` and ``<name>_offsets.npy``: rows of differing length, end to end."""
        return RaggedColumn(self.column(name, dtype), self.column(f"{name}_offsets", np.int64))

    def flush(self) -> None:
        """Make everything appended so far visible to readers."""
        for column in self._columns:
            column.flush()


class _Reader:
    """Random access to a one-dimensional ``.npy`` file."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            major, _ = npy.read_magic(file)
            assert major == 1, "columns are written with header version 1"
            (self.rows,), _, self._dtype = npy.read_array_header_1_0(file)
            self._start = file.tell()
        self._descriptor = os.open(path, os.O_RDONLY)
        finalize(self, os.close, self._descriptor)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        if not 0 <= start <= stop <= self.rows:
            raise IndexError(f"rows {start} to {stop} of a column of {self.rows}")
        return _read(self._descriptor, self._dtype, self._start, start, stop)


class _RaggedRows:
    """Rows of differing length; row i is the values between offsets i and i + 1."""

    def __init__(self, values: ColumnFile | _Reader, offsets: ColumnFile | _Reader) -> None:
        self._values, self._offsets = values, offsets

    def __len__(self) -> int:
        return self._offsets.rows - 1

    @property
    def total(self) -> int:
        """Count the values of all rows."""
        return self._values.rows

    def span(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the values of rows ``start`` to ``stop`` end to end, and their lengths."""
        offsets = self._offsets.read(start, stop + 1)
        return self._values.read(int(offsets[0]), int(offsets[-1])), np.diff(offsets)


class RaggedColumn(_RaggedRows):
    """Rows of differing length that are appended to."""

    def __init__(self, values: ColumnFile, offsets: ColumnFile) -> None:
        super().__init__(values, offsets)
        self.values, self.offsets = values, offsets
        self._end = 0
        offsets.append(np.zeros(1, np.int64))

    def append(self, values: NDArray[Any], lengths: NDArray[Any]) -> None:
        """Add ``len(lengths)`` rows that stand end to end in ``values``."""
        ends = self._end + np.cumsum(lengths, dtype=np.int64)
        self.values.append(values)
        self.offsets.append(ends)
        if len(ends):
            self._end = int(ends[-1])


class Ragged(_RaggedRows):
    """Rows of differing length, opened for reading in any order; safe in threads and forked workers."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(_Reader(folder / f"{name}.npy"), _Reader(folder / f"{name}_offsets.npy"))

    def rows(self, indices: Sequence[int] | NDArray[Any]) -> list[NDArray[Any]]:
        """Return the rows at ``indices``, in that order."""
        return [self.span(int(index), int(index) + 1)[0] for index in indices]

    def values(self, start: int, stop: int) -> NDArray[Any]:
        """Return the values from ``start`` to ``stop``, across row boundaries."""
        return self._values.read(start, stop)

    def length(self, index: int) -> int:
        """Count the values of one row."""
        start, stop = self._offsets.read(index, index + 2)
        return int(stop - start)

    def part(self, index: int, start: int, stop: int) -> NDArray[Any]:
        """Return the values ``start`` to ``stop`` of one row."""
        first, end = (int(offset) for offset in self._offsets.read(index, index + 2))
        return self._values.read(min(first + start, end), min(first + stop, end))
