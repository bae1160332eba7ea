"""Co-occurrence counts in memory that does not grow with the text, and their positive pointwise mutual information.

    counts    C_ij = how often word j occurs within ``window`` words of word i, on either side
    PPMI      M_ij = max(0, log( C_ij sum(C) / (sum_j C_ij sum_i C_ij) ))

Pairs are sorted and counted a few million at a time.  Once more than ``_HELD`` different ones have been met, their
counts are written to a file, sorted by word, and the next are begun with none; at the end the files are added up, a
band of rows at a time.  The files have no names, so that nothing is left of them however the process ends.
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy import sparse

from selfsent.corpus.dataset import Corpus
from selfsent.errors import ConfigurationError, DataError
from selfsent.progress import SILENT, Progress

_TOKENS = 1 << 20  # read at a time, and the rest of their document
_PAIRS = 1 << 23  # sorted at a time
_HELD = 1 << 27  # different pairs whose counts are in memory, at 12 bytes each and as much again while they are added


def count_cooccurrences(
    text: Corpus, vocabulary: int, window: int, skip: NDArray[np.integer], progress: Progress
) -> tuple[list[sparse.csr_array], Int[np.ndarray, " V"]]:
    """Count co-occurrences within documents, and words.

    Args:
        skip: token ids that are no words, such as [CLS]; they are removed first.

    Returns:
        Matrices, (V, V), whose sum is the upper triangle of C with half of its diagonal, so that C is that sum with its
        transpose: one in memory, or several in files beside the corpus.

    Raises:
        ConfigurationError: the counts may not fit into memory.
        DataError: they do not fit on the disk.
    """
    _require_memory(vocabulary, window * text.tokens)
    kind = np.uint32 if vocabulary**2 <= 1 << 32 else np.uint64  # the narrower sorts twice as fast
    size, words = kind(vocabulary), np.zeros(vocabulary, np.int64)
    sums, spilled = [sparse.csr_array((vocabulary, vocabulary), dtype=np.int64)], []
    waiting: list[NDArray[np.unsignedinteger]] = []

    def add() -> None:
        sums.append(_count_pairs(np.concatenate(waiting), vocabulary))
        waiting.clear()
        while len(sums) > 1 and sums[-2].nnz <= 2 * sums[-1].nnz:  # each pair is added a few times, not once a chunk
            sums.append(sums.pop() + sums.pop())
        if sum(table.nnz for table in sums) > _HELD:
            spilled.append(_on_disk(sum(sums[1:], sums[0]), text.folder.parent))
            sums[:] = [sparse.csr_array((vocabulary, vocabulary), dtype=np.int64)]

    for ids, owners in read_words(text, skip, progress):
        words += np.bincount(ids, minlength=vocabulary)
        ids = ids.astype(kind)
        for distance in range(1, window + 1):
            near = owners[distance:] == owners[:-distance]
            left, right = ids[:-distance][near], ids[distance:][near]
            waiting.append(np.minimum(left, right) * size + np.maximum(left, right))
            if sum(map(len, waiting)) >= _PAIRS:
                add()
    waiting.append(np.empty(0, kind))
    add()
    return [*spilled, sum(sums[1:], sums[0])], words


def _count_pairs(pairs: NDArray[np.unsignedinteger], vocabulary: int) -> sparse.csr_array:
    """Count pairs i <= j, each given as i V + j, by sorting them: ten times as fast as adding one by one to a table."""
    pairs.sort()
    first = np.flatnonzero(np.concatenate([[True], pairs[1:] != pairs[:-1]])) if len(pairs) else np.empty(0, np.int64)
    counts, pairs = np.diff(np.append(first, len(pairs))), pairs[first]
    starts = np.searchsorted(pairs, np.arange(vocabulary + 1, dtype=np.uint64) * np.uint64(vocabulary))
    columns = (pairs % pairs.dtype.type(vocabulary)).astype(np.int32)
    return sparse.csr_array((counts, columns, starts.astype(np.int32)), shape=(vocabulary, vocabulary))


def _on_disk(table: sparse.csr_array, folder: Path) -> sparse.csr_array:
    """Return the same matrix with its entries in files without names."""
    try:
        entries = [_mapped(array, folder) for array in (table.data, table.indices.astype(np.int32, copy=False))]
    except OSError as error:
        needed = table.nnz * (table.data.itemsize + 4) / 2**30
        raise DataError(
            f"co-occurrence counts of {needed:.1f} GiB do not fit on the disk of {folder} ({error.strerror or error}): "
            "free some space, or ask for a smaller vocabulary"
        ) from error
    return sparse.csr_array((*entries, table.indptr), shape=table.shape, copy=False)


def _mapped(array: NDArray[Any], folder: Path) -> NDArray[Any]:
    if not array.size:
        return array
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(array.data)
        file.flush()
        return np.memmap(file, array.dtype, "r+", shape=array.shape)


def _require_memory(vocabulary: int, pairs: int) -> None:
    different = min(pairs, vocabulary * (vocabulary + 1) // 2, _HELD)
    needed = 2 * (8 + 4) * different  # counts and columns, and once more while they are added
    if needed > (free := free_memory()):
        raise ConfigurationError(
            f"the co-occurrences of {vocabulary:,} tokens may take {needed / 2**30:.1f} GiB, and "
            f"{free / 2**30:.1f} are free: ask for a vocabulary of {int((free / 16) ** 0.5):,} tokens or fewer"
        )


def frequencies(text: Corpus, vocabulary: int, skip: NDArray[np.integer]) -> Int[np.ndarray, " V"]:
    """Count words alone."""
    counts = np.zeros(vocabulary, np.int64)
    for ids, _ in read_words(text, skip, SILENT):
        counts += np.bincount(ids, minlength=vocabulary)
    return counts


def read_words(
    text: Corpus, skip: NDArray[np.integer], progress: Progress
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the words of many documents end to end, and the document of each word."""
    ends = np.cumsum(text.lengths, dtype=np.int64)
    start = read = 0
    while start < len(text):
        stop = min(int(np.searchsorted(ends, read + _TOKENS)) + 1, len(text))
        values, lengths = text.span(start, stop)
        kept = ~np.isin(values, skip)
        yield values[kept].astype(np.int64), np.repeat(np.arange(start, stop), lengths)[kept]
        start, read = stop, int(ends[stop - 1])
        progress.report("count", stop, len(text))


def ppmi(counts: Sequence[sparse.csr_array], folder: Path | None = None) -> list[sparse.csr_array]:
    """Turn counts, as ``count_cooccurrences`` returns them, into positive pointwise mutual information.

    Args:
        folder: for files, where the counts are in files.

    Returns:
        The upper triangle of M with its whole diagonal in float32, as bands of its rows from the first to the last,
        (rows, V) each; what is zero is not stored.
    """
    sums = sum(table.sum(axis=0) + table.sum(axis=1) for table in counts)
    offset = np.log(np.maximum(sums, 1)) - 0.5 * np.log(max(int(sums.sum()), 1))  # of one word
    offset = offset.astype(np.float32)
    if len(counts) == 1:
        return [_ppmi_band(counts[0], offset, 0)]
    if folder is None:
        raise ValueError("counts in files need a folder for what is made of them")
    return [_on_disk(_ppmi_band(band, offset, start), folder) for start, band in _added_up(counts)]


def _added_up(counts: Sequence[sparse.csr_array]) -> Iterator[tuple[int, sparse.csr_array]]:
    """Yield bands of rows of the sum of sorted matrices, each with its first row."""
    entries = np.sum([table.indptr.astype(np.int64) for table in counts], axis=0)
    start, size = 0, counts[0].shape[0]
    while start < size:
        stop = max(start + 1, int(np.searchsorted(entries, entries[start] + _HELD, side="right")) - 1)
        band = sparse.csr_array((stop - start, size), dtype=np.int64)
        for table in counts:
            first, last = table.indptr[start], table.indptr[stop]
            inside = table.data[first:last], table.indices[first:last], table.indptr[start : stop + 1] - first
            band = band + sparse.csr_array(inside, shape=band.shape)
        yield start, band
        start = stop


def _ppmi_band(counts: sparse.csr_array, offset: Float[np.ndarray, " V"], start: int) -> sparse.csr_array:
    rows = np.repeat(np.arange(start, start + counts.shape[0], dtype=np.int32), np.diff(counts.indptr))
    values = np.log(counts.data.astype(np.float32))
    values[rows == counts.indices] += np.float32(np.log(2))
    values -= offset[rows]
    values -= offset[counts.indices]
    counts.data = np.maximum(values, 0, out=values)
    counts.eliminate_zeros()
    return counts


def free_memory() -> int:
    """Return the bytes available without swapping; unlimited where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123
            return 1024 * next(int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 1 << 62
