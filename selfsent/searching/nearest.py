"""The vectors nearest to a query: by comparing it with each of them, or with those of the cells nearest to it.

The cells are those of an inverted file (IVF): k-means on a sample, and every vector in the cell of its nearest centre.
Every score is the cosine with the stored float16 vector: the cells, whose vectors are int8, only propose.
Sources: Jegou et al. 2011, https://hal.science/inria-00514462; faiss, https://github.com/facebookresearch/faiss.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from selfsent.errors import ConfigurationError
from selfsent.progress import SILENT, Progress

BLOCK = 8192  # vectors that are compared at a time: 8 MB in float32 at a width of 256
SAMPLE = 200  # vectors whose neighbours are looked for to measure recall
DEPTH = 10  # neighbours of each
_PROBES = (8, 16, 32, 64, 128, 256, 512)  # cells that are searched, from fast to thorough
_OF_A_CELL = 64  # vectors that k-means sees; more place its centre hardly better
_ROUNDS = 10  # of k-means

# float16, as an index stores them, or float32 (V_k, D), one array a segment; a vector's number counts through all
Vectors = Sequence[np.ndarray]


def exact_nearest(
    queries: Float[np.ndarray, "Q D"], vectors: Vectors, hidden: Bool[np.ndarray, " V"] | None, count: int
) -> tuple[Int[np.ndarray, "Q K"], Float[np.ndarray, "Q K"]]:
    """Return the numbers and cosines of the ``count`` nearest vectors, nearest first, by comparing with each.

    Args:
        hidden: vectors that are left out.
    """
    asked = np.ascontiguousarray(queries, np.float32)
    best = np.empty((len(asked), 0), np.float32)
    numbers = np.empty((len(asked), 0), np.int64)
    first = 0
    for segment in vectors:
        for start in range(0, len(segment), BLOCK):
            block = segment[start : start + BLOCK]
            block = widen(block) if block.dtype == np.float16 else block.astype(np.float32, copy=False)
            cosines = np.ascontiguousarray((block @ asked.T).T)
            if hidden is not None:
                cosines[:, hidden[first : first + len(block)]] = -np.inf
            places = _largest(cosines, count)
            best = np.hstack([best, np.take_along_axis(cosines, places, 1)])
            numbers = np.hstack([numbers, places + first])
            first += len(block)
            if best.shape[1] > 4 * count:
                best, numbers = _pick(best, numbers, _largest(best, count))
    best, numbers = _pick(best, numbers, _largest(best, count))
    best, numbers = _pick(best, numbers, np.argsort(-best, axis=1, kind="stable"))
    return numbers, best


def best_by_owner(
    queries: Float[np.ndarray, "Q D"], vectors: Vectors, owners: Int[np.ndarray, " V"], count: int
) -> Float[np.ndarray, "Q N"]:
    """Return the largest cosine of each query with the vectors of each of ``count`` owners, in one pass over them."""
    best = np.full((len(queries), count), -np.inf, np.float32)
    first = 0
    for segment in vectors:
        for start in range(0, len(segment), BLOCK):
            block = segment[start : start + BLOCK]
            cosines = queries @ block.astype(np.float32).T
            for row in range(len(queries)):
                np.maximum.at(best[row], owners[first : first + len(block)], cosines[row])
            first += len(block)
    return best


def widen(half: Float[np.ndarray, "V D"]) -> Float[np.ndarray, "V D"]:
    """Return finite float16 values as float32, exactly as ``astype`` does and in less than half of its time.

    numpy converts one value after the other.  Here sign, exponent and mantissa are moved to their places in whole
    arrays; the product corrects the exponent's bias, 127 where it was 15.
    """
    bits = half.view(np.int16).astype(np.int32)
    sign = bits & np.int32(-(2**31))
    bits &= np.int32(0x7FFF)
    bits <<= 13
    bits |= sign
    wide = bits.view(np.float32)
    wide *= np.float32(2.0**112)
    return wide


def _largest(values: Float[np.ndarray, "Q W"], count: int) -> Int[np.ndarray, "Q K"]:
    """Return where the ``count`` largest values of each row are, in the order of the row."""
    if count >= values.shape[1]:
        return np.broadcast_to(np.arange(values.shape[1]), values.shape)
    return np.sort(np.argpartition(values, values.shape[1] - count, axis=1)[:, -count:], axis=1)


def _pick(
    best: Float[np.ndarray, "Q W"], numbers: Int[np.ndarray, "Q W"], places: Int[np.ndarray, "Q K"]
) -> tuple[Float[np.ndarray, "Q K"], Int[np.ndarray, "Q K"]]:
    return np.take_along_axis(best, places, 1), np.take_along_axis(numbers, places, 1)


class InvertedFile:
    """Vectors in int8, in the cells of k-means; in a file that is memory-mapped while it is searched.

    Args:
        vectors: a sample of which the cells are learned; none is added.
        cells: how many there are.
    """

    def __init__(self, vectors: Vectors, cells: int) -> None:
        faiss, total, width = _faiss(), sum(map(len, vectors)), vectors[0].shape[1]
        centres = faiss.IndexFlatIP(width)
        kind = faiss.ScalarQuantizer.QT_8bit
        self._file = faiss.IndexIVFScalarQuantizer(centres, width, cells, kind, faiss.METRIC_INNER_PRODUCT)
        self._centres = centres  # which the file refers to
        self._file.cp.niter, self._file.cp.min_points_per_centroid = _ROUNDS, 1
        rows = np.random.default_rng(0).choice(total, min(total, _OF_A_CELL * cells), replace=False)
        self._file.train(take_rows(vectors, np.sort(rows)))

    @classmethod
    def open_file(cls, path: Path, *, grow: bool = False) -> "InvertedFile":
        """Map a file for searching, or read it to ``grow`` it."""
        faiss, opened = _faiss(), cls.__new__(cls)
        # Mapped as it is; IO_FLAG_MMAP alone locks every cell that a search looks into, and takes three times as long.
        opened._file = faiss.read_index(str(path), 0 if grow else faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_READ_ONLY)
        return opened

    def __len__(self) -> int:
        return int(self._file.ntotal)

    @property
    def cells(self) -> int:
        """How many there are."""
        return int(self._file.nlist)

    def add_vectors(self, vectors: Vectors, waiting: Int[np.ndarray, " R"], progress: Progress = SILENT) -> None:
        """Add the vectors behind those that it has, but for those ``waiting``, sorted numbers."""
        first, had, total = 0, len(self), sum(map(len, vectors))
        for segment in vectors:
            for start in range(0, len(segment), BLOCK):
                stop = min(start + BLOCK, len(segment))
                numbers = np.arange(max(first + start, had), first + stop)
                numbers = numbers[~np.isin(numbers, waiting)]
                if len(numbers):
                    self._file.add_with_ids(segment[numbers - first].astype(np.float32), numbers)
                    progress.report("cells", first + stop, total)
            first += len(segment)

    def add_rows(self, vectors: Vectors, rows: Int[np.ndarray, " R"]) -> None:
        """Add a few vectors by number."""
        if len(rows):
            self._file.add_with_ids(take_rows(vectors, rows), rows)

    def save_file(self, path: Path) -> None:
        """Write the file."""
        _faiss().write_index(self._file, str(path))

    def probe(self, cells: int) -> None:
        """Set how many cells a search looks into."""
        self._file.nprobe = min(cells, self.cells)

    def propose(self, queries: Float[np.ndarray, "Q D"], count: int) -> list[Int[np.ndarray, " K"]]:
        """Return the numbers of about the ``count`` nearest vectors of each query, or all of the cells searched."""
        _, found = self._file.search(np.ascontiguousarray(queries, np.float32), min(count, len(self)))
        return [numbers[numbers >= 0] for numbers in found]


def _faiss() -> Any:  # noqa: ANN401 - the module
    try:
        import faiss
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "an inverted file needs faiss: install it with pip install '.[search]' in the checkout, or raise "
            "exact_vectors"
        ) from error
    return faiss


def cells_available() -> bool:
    """Tell whether inverted files can be made and searched here."""
    try:
        _faiss()
    except ConfigurationError:
        return False
    return True


def cells_for(vectors: int) -> int:
    """Return how many cells so many vectors are put into.

    Twice the square root: to assign them to centres then costs a few minutes of ten million, and a search looks through
    some per cent of them.
    """
    return max(1, min(round(2 * vectors**0.5), vectors // 8))


def choose_sample(had: int, total: int) -> Int[np.ndarray, " R"]:
    """Choose the vectors, by number, that join ``had`` others in their cells last; none of a handful that is added."""
    count = min(SAMPLE, total // 2) if had == 0 else SAMPLE if total - had >= SAMPLE else 0
    return np.sort(had + np.random.default_rng(0).choice(total - had, count, replace=False))


def measure_recall(
    file: InvertedFile, vectors: Vectors, sample: Int[np.ndarray, " R"], wanted: float
) -> tuple[int, float]:
    """Set the cells that a search looks into to the fewest that reach the recall, and return them and the recall.

    Recall@10 is of the neighbours of a sample that the file does not have yet, against exact search.
    """
    hidden = np.zeros(sum(map(len, vectors)), bool)
    hidden[sample] = True
    queries, count = take_rows(vectors, sample), min(DEPTH, len(file))
    truth, _ = exact_nearest(queries, vectors, hidden, count)
    recall = 0.0
    for probes in _PROBES:
        file.probe(probes)
        shares = []
        for query, right, proposed in zip(queries, truth, file.propose(queries, 4 * DEPTH), strict=True):
            nearest = proposed[np.argsort(-(take_rows(vectors, proposed) @ query), kind="stable")][:count]
            shares.append(len({*right.tolist()} & {*nearest.tolist()}) / count)
        recall = float(np.mean(shares)) if shares else 1.0  # of one vector
        if recall >= wanted or probes >= file.cells:
            break
    return probes, recall


def take_rows(vectors: Vectors, rows: Int[np.ndarray, " R"]) -> Float[np.ndarray, "R D"]:
    """Return vectors by number, in float32."""
    found = np.empty((len(rows), vectors[0].shape[1]), np.float32)
    first = 0
    for segment in vectors:
        inside = (rows >= first) & (rows < first + len(segment))
        found[inside] = segment[rows[inside] - first]
        first += len(segment)
    return found
