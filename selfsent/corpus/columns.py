"""Columns on disk that grow while they are written and take no memory while they are read.

A column is an ordinary ``.npy`` file, so ``numpy.load`` opens it without us.  Rows are read where they stand,
not through a map: mapped pages count as memory of the process once they were touched, and after an epoch of random
access that is the whole corpus.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import IO, Any
from weakref import finalize

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

from selfsent.storage.windows import read_at

CHUNK = 1 << 17  # rows of a column that a sequential pass reads at a time


class Column:
    """A one-dimensional ``.npy`` file, opened for appending if ``dtype`` is given, otherwise for reading.

    One that was appended to is complete on disk after ``close``.  Reading is safe in threads and forked workers.
    """

    def __init__(self, path: Path, dtype: DTypeLike | None = None) -> None:
        self._file: IO[bytes] = path.open("rb" if dtype is None else "w+b")
        finalize(self, self._file.close)
        self.rows = 0
        if dtype is None:
            npy.read_magic(self._file)
            (self.rows,), _, self._dtype = npy.read_array_header_1_0(self._file)
        else:
            self._dtype = np.dtype(dtype)
            self._write_header()
        self._start = self._file.tell()

    def _write_header(self) -> None:
        self._file.seek(0)
        # NumPy pads this header so that a growing first axis never changes its length.
        shape = {"descr": npy.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (self.rows,)}
        npy.write_array_header_1_0(self._file, shape)

    def append(self, values: NDArray[Any]) -> None:
        """Add ``values`` at the end, converted to the dtype of the column."""
        self._file.write(np.ascontiguousarray(values, dtype=self._dtype).data)
        self.rows += len(values)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``start`` to ``stop``; more may be appended afterwards."""
        if not 0 <= start <= stop <= self.rows:
            raise IndexError(f"rows {start} to {stop} of a column of {self.rows}")
        self._file.flush()
        size = self._dtype.itemsize
        data = read_at(self._file, (stop - start) * size, self._start + start * size)
        return np.frombuffer(data, dtype=self._dtype)

    def chunks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield (first row, values) in order."""
        for start in range(0, self.rows, CHUNK):
            yield start, self.read(start, min(start + CHUNK, self.rows))

    def close(self) -> None:
        """Write the final number of rows into the header of a column that was appended to."""
        if not self._file.closed:
            if self._file.writable():
                self._write_header()
            self._file.close()


class Ragged:
    """Rows of differing length, end to end in ``<name>.npy``; row i is between ``<name>_offsets.npy`` i and i + 1.

    Opened for appending if ``dtype`` is given, otherwise for reading.
    """

    def __init__(self, folder: Path, name: str, dtype: DTypeLike | None = None) -> None:
        self.values = Column(folder / f"{name}.npy", dtype)
        self.offsets = Column(folder / f"{name}_offsets.npy", None if dtype is None else np.int64)
        if dtype is not None:
            self.offsets.append(np.zeros(1, np.int64))

    def __len__(self) -> int:
        return self.offsets.rows - 1

    def append(self, values: NDArray[Any], lengths: NDArray[Any]) -> None:
        """Add ``len(lengths)`` rows that stand end to end in ``values``."""
        self.offsets.append(self.values.rows + np.cumsum(lengths, dtype=np.int64))
        self.values.append(values)

    def span(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the values of rows ``start`` to ``stop`` end to end, and their lengths."""
        offsets = self.offsets.read(start, stop + 1)
        return self.values.read(int(offsets[0]), int(offsets[-1])), np.diff(offsets)

    def rows(self, indices: Sequence[int] | NDArray[Any]) -> list[NDArray[Any]]:
        """Return the rows at ``indices``, in that order."""
        return [self.span(int(index), int(index) + 1)[0] for index in indices]

    def close(self) -> None:
        """Close both columns."""
        self.values.close()
        self.offsets.close()


class Table(ExitStack):
    """Columns and ragged columns of one folder, open for appending; all are closed on leaving the block."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def column(self, name: str, dtype: DTypeLike) -> Column:
        """Open ``<name>.npy``."""
        return self.enter_context(closing(Column(self.folder / f"{name}.npy", dtype)))

    def ragged(self, name: str, dtype: DTypeLike) -> Ragged:
        """Open ``<name>.npy`` and ``<name>_offsets.npy``."""
        return self.enter_context(closing(Ragged(self.folder, name, dtype)))
