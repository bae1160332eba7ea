"""The documents nearest to a query: by comparing it with each of their vectors, or with those of the nearest lists.

The lists are those of an inverted file (IVF): k-means on a sample, and every vector in the list of its nearest centre.
Every score is the cosine with the stored vector: the lists, whose vectors have 8 bits a dimension or 1, only propose.
Sources: Jegou et al. 2011, https://hal.science/inria-00514462; faiss, https://github.com/facebookresearch/faiss; for 1
bit RaBitQ, Gao & Long 2024, https://arxiv.org/abs/2405.12497.
"""

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from selfsent.errors import ConfigurationError
from selfsent.progress import SILENT, Progress

BLOCK = 8192  # vectors that are compared at a time: 8 MB in float32 at a width of 256
SAMPLE = 200  # vectors whose neighbours are looked for to measure recall
DEPTH = 10  # neighbours of each
_NPROBES = (8, 16, 32, 64, 128, 256, 512)  # lists that are searched, from fast to thorough
_OF_A_LIST = 64  # vectors that k-means sees; more place its centre hardly better
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
    queries = np.ascontiguousarray(queries, np.float32)
    best = np.empty((len(queries), 0), np.float32)
    numbers = np.empty((len(queries), 0), np.int64)
    for first, block in _blocks(vectors):
        wide = widen(block) if block.dtype == np.float16 else block.astype(np.float32, copy=False)
        cosines = np.ascontiguousarray((wide @ queries.T).T)
        if hidden is not None:
            cosines[:, hidden[first : first + len(block)]] = -np.inf
        columns = _largest(cosines, count)
        best = np.hstack([best, np.take_along_axis(cosines, columns, 1)])
        numbers = np.hstack([numbers, columns + first])
        if best.shape[1] > 4 * count:
            best, numbers = _pick(best, numbers, _largest(best, count))
    best, numbers = _pick(best, numbers, _largest(best, count))
    best, numbers = _pick(best, numbers, np.argsort(-best, axis=1, kind="stable"))
    return numbers, best


def _blocks(vectors: Vectors) -> Iterator[tuple[int, np.ndarray]]:
    """Yield some thousands of vectors at a time, each time with the number of the first."""
    first = 0
    for segment in vectors:
        for start in range(0, len(segment), BLOCK):
            yield first + start, segment[start : start + BLOCK]
        first += len(segment)


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
    best: Float[np.ndarray, "Q W"], numbers: Int[np.ndarray, "Q W"], columns: Int[np.ndarray, "Q K"]
) -> tuple[Float[np.ndarray, "Q K"], Int[np.ndarray, "Q K"]]:
    return np.take_along_axis(best, columns, 1), np.take_along_axis(numbers, columns, 1)


class IVFIndex:
    """Vectors of few bits, in the lists of k-means; in a file that is memory-mapped while it is searched.

    Args:
        vectors: a sample of which the lists are learned; none is added.
        lists: how many there are.
        bits: of a dimension, 8 or 1.
    """

    def __init__(self, vectors: Vectors, lists: int, bits: int = 8) -> None:
        faiss, total, width = _faiss(), sum(map(len, vectors)), vectors[0].shape[1]
        centres = faiss.IndexFlatIP(width)
        kind, metric = faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
        if bits == 1:
            self._file = faiss.IndexIVFRaBitQ(centres, width, lists, metric)
        else:
            self._file = faiss.IndexIVFScalarQuantizer(centres, width, lists, kind, metric)
        self._centres = centres  # which the file refers to
        self._file.cp.niter, self._file.cp.min_points_per_centroid = _ROUNDS, 1
        rows = np.random.default_rng(0).choice(total, min(total, _OF_A_LIST * lists), replace=False)
        self._file.train(take_rows(vectors, np.sort(rows)))

    @classmethod
    def open_file(cls, path: Path, *, grow: bool = False) -> "IVFIndex":
        """Map a file for searching, or read it to ``grow`` it."""
        faiss, opened = _faiss(), cls.__new__(cls)
        # Mapped as it is; IO_FLAG_MMAP alone locks every list that a search looks into, and takes three times as long.
        opened._file = faiss.read_index(str(path), 0 if grow else faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_READ_ONLY)
        return opened

    def __len__(self) -> int:
        return int(self._file.ntotal)

    @property
    def lists(self) -> int:
        """How many there are."""
        return int(self._file.nlist)

    def add_vectors(self, vectors: Vectors, waiting: Int[np.ndarray, " R"], progress: Progress = SILENT) -> None:
        """Add the vectors behind those that it has, but for those ``waiting``, sorted numbers."""
        had, total = len(self), sum(map(len, vectors))
        for first, block in _blocks(vectors):
            numbers = np.arange(max(first, had), first + len(block))
            numbers = numbers[~np.isin(numbers, waiting)]
            if len(numbers):
                self._file.add_with_ids(block[numbers - first].astype(np.float32), numbers)
                progress.report("lists", first + len(block), total)

    def add_rows(self, vectors: Vectors, rows: Int[np.ndarray, " R"]) -> None:
        """Add a few vectors by number."""
        if len(rows):
            self._file.add_with_ids(take_rows(vectors, rows), rows)

    def save_file(self, path: Path) -> None:
        """Write the file."""
        _faiss().write_index(self._file, str(path))

    def probe(self, nprobe: int) -> None:
        """Set how many lists a search looks into."""
        self._file.nprobe = min(nprobe, self.lists)

    def propose(self, queries: Float[np.ndarray, "Q D"], count: int) -> list[Int[np.ndarray, " K"]]:
        """Return the numbers of about the ``count`` nearest vectors of each query, or all of the lists searched.

        Of vectors of 1 bit, which say less, there are four times as many.
        """
        if isinstance(self._file, _faiss().IndexIVFRaBitQ):
            count *= 4
        _, rows = self._file.search(np.ascontiguousarray(queries, np.float32), min(count, len(self)))
        return [numbers[numbers >= 0] for numbers in rows]


def _faiss() -> Any:  # noqa: ANN401 - the module
    try:
        import faiss
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "an inverted file needs faiss: install it with pip install '.[search]' in the checkout, or raise "
            "exact_vectors"
        ) from error
    return faiss


def faiss_available() -> bool:
    """Tell whether inverted files can be made and searched here."""
    return importlib.util.find_spec("faiss") is not None


def lists_for(vectors: int) -> int:
    """Return how many lists so many vectors are put into.

    Twice the square root: to assign them to centres then costs a few minutes of ten million, and a search looks through
    some per cent of them.
    """
    return max(1, min(round(2 * vectors**0.5), vectors // 8))


def choose_sample(had: int, total: int) -> Int[np.ndarray, " R"]:
    """Choose the vectors, by number, that join ``had`` others in their lists last; none of a handful that is added."""
    count = min(SAMPLE, total // 2) if had == 0 else SAMPLE if total - had >= SAMPLE else 0
    return np.sort(had + np.random.default_rng(0).choice(total - had, count, replace=False))


def measure_recall(file: IVFIndex, vectors: Vectors, sample: Int[np.ndarray, " R"], least: float) -> tuple[int, float]:
    """Set the lists that a search looks into to the fewest that reach the recall, and return them and the recall.

    Recall@10 is of the neighbours of a sample that the file does not have yet, against exact search.
    """
    hidden = np.zeros(sum(map(len, vectors)), bool)
    hidden[sample] = True
    queries, count = take_rows(vectors, sample), min(DEPTH, len(file))
    truth, _ = exact_nearest(queries, vectors, hidden, count)
    recall = 0.0
    for nprobe in _NPROBES:
        file.probe(nprobe)
        recalls = []
        for query, right, proposed in zip(queries, truth, file.propose(queries, 4 * DEPTH), strict=True):
            nearest = proposed[np.argsort(-(take_rows(vectors, proposed) @ query), kind="stable")][:count]
            recalls.append(len({*right.tolist()} & {*nearest.tolist()}) / count)
        recall = float(np.mean(recalls)) if recalls else 1.0  # of one vector
        if recall >= least or nprobe >= file.lists:
            break
    return nprobe, recall


def take_rows(vectors: Vectors, rows: Int[np.ndarray, " R"]) -> Float[np.ndarray, "R D"]:
    """Return vectors by number, in float32."""
    taken = np.empty((len(rows), vectors[0].shape[1]), np.float32)
    first = 0
    for segment in vectors:
        inside = (rows >= first) & (rows < first + len(segment))
        taken[inside] = segment[rows[inside] - first]
        first += len(segment)
    return taken


Ranking = tuple[Int[np.ndarray, " T"], Float[np.ndarray, " T"]]  # documents and their cosines, the nearest first


@dataclass
class DenseRanking:
    """The documents of an index ranked by the largest cosine of their vectors with a query of length 1.

    Attributes:
        owners: the document of every vector.
        deleted: the documents that are never found.
        lists: what proposes vectors; None where every vector is compared.
        most_proposed: vectors that the lists are asked for; beyond, comparing with every one is faster.
    """

    vectors: Vectors
    owners: Int[np.ndarray, " V"]
    deleted: Bool[np.ndarray, " N"]
    lists: IVFIndex | None = None
    most_proposed: int = 4_000

    def __post_init__(self) -> None:
        self._hidden = self.deleted[self.owners] if self.deleted.any() else None
        self._live = len(self.deleted) - int(self.deleted.sum())

    def rank(self, queries: Float[np.ndarray, "Q D"], top: int) -> list[Ranking]:
        """Return the nearest documents of each query."""
        top = min(top, self._live)
        return (
            self._rank_exactly(queries, top) if self.lists is None else [self._propose(query, top) for query in queries]
        )

    def _propose(self, query: Float[np.ndarray, " D"], top: int) -> Ranking:
        """Rank what the lists propose."""
        assert self.lists is not None
        ask = 4 * top
        while ask <= max(4 * top, self.most_proposed):
            (proposed,) = self.lists.propose(query[None], ask)
            if self._hidden is not None:
                proposed = proposed[~self._hidden[proposed]]
            cosines = take_rows(self.vectors, proposed) @ query
            order = np.argsort(-cosines, kind="stable")
            ranked = self._documents(proposed[order], cosines[order], top)
            if len(ranked[0]) >= top:
                return ranked
            ask *= 4  # most of what was proposed is deleted, or passages of few documents
        return self._rank_all(query[None], top)[0]

    def _rank_exactly(self, queries: Float[np.ndarray, "Q D"], top: int) -> list[Ranking]:
        """Rank by comparing with every vector."""
        numbers, cosines = exact_nearest(queries, self.vectors, self._hidden, 2 * top)
        rankings = [self._documents(*nearest, top) for nearest in zip(numbers, cosines, strict=True)]
        few = [row for row, (documents, _) in enumerate(rankings) if len(documents) < top]
        for row, ranking in zip(few, self._rank_all(queries[few], top) if few else [], strict=True):
            rankings[row] = ranking
        return rankings

    def _rank_all(self, queries: Float[np.ndarray, "Q D"], top: int) -> list[Ranking]:
        """Rank every document, where the nearest vectors are passages of too few."""
        best = np.full((len(queries), len(self.deleted)), -np.inf, np.float32)
        for first, block in _blocks(self.vectors):
            owners, cosines = self.owners[first : first + len(block)], queries @ block.astype(np.float32).T
            for row in range(len(queries)):
                np.maximum.at(best[row], owners, cosines[row])
        best[:, self.deleted] = -np.inf
        orders = np.argsort(-best, axis=1, kind="stable")[:, :top]
        return [(order, values[order]) for order, values in zip(orders, best, strict=True)]

    def _documents(self, numbers: Int[np.ndarray, " K"], cosines: Float[np.ndarray, " K"], top: int) -> Ranking:
        """Return the documents of vectors, nearest first, each with the largest of its cosines."""
        numbers, cosines = numbers[np.isfinite(cosines)], cosines[np.isfinite(cosines)]
        owners = self.owners[numbers]
        _, first = np.unique(owners, return_index=True)
        first = np.sort(first)[:top]
        return owners[first], cosines[first]
