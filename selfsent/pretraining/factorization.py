"""Static word vectors from co-occurrence counts: PPMI, truncated SVD, smooth inverse frequency.

    counts    C_ij = how often word j occurs within ``window`` words of word i, on either side
    PPMI      M_ij = max(0, log( C_ij sum(C) / (sum_j C_ij sum_i C_ij) ))
    vectors   rows of U_D S_D^p from the truncated SVD of M, at length 1
    weights   a / (a + p_i), p_i the frequency of word i (smooth inverse frequency)
    common    the first principal components of averaged texts are removed from every vector

D the width, p the ``power``, a ``sif_coefficient``.
Sources: Levy & Goldberg 2014 (PPMI and its factors); Arora, Liang & Ma
2017, https://openreview.net/forum?id=SyK00v5xx (weights and common component).
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass
from scipy import sparse
from torch import Tensor

from selfsent.config import FINITE, setting
from selfsent.corpus.dataset import Corpus
from selfsent.errors import ConfigurationError
from selfsent.progress import SILENT, Progress

_TOKENS = 1 << 20  # read at a time
_PAIRS = 1 << 23  # sorted at a time
_DENSE = 16  # a share of entries above 1 / 16 is a dense matrix
_ROWS = 512  # documents read at a time
_TEXT = 24  # words of the segments of text whose common components are removed
_TEXTS = 50_000  # of these, at most


@dataclass(frozen=True, kw_only=True, config=FINITE)
class FactorConfig:
    """How words are counted, factorised and weighted."""

    width: int = setting(256, "D: of the vectors", ge=1, le=65_536)
    window: int = setting(5, "words on either side that count as neighbours", ge=1, le=1_000)
    power: float = setting(0.5, "p: exponent of the singular values", ge=0, le=10)
    sif_coefficient: float = setting(
        1e-3, "a in a / (a + p(w)); smaller: frequent words weigh less", gt=0, le=1_000_000_000
    )
    common: int = setting(1, "principal components of averaged texts that are removed", ge=0, le=1_000)


def count_cooccurrences(
    text: Corpus, vocabulary: int, window: int, skip: NDArray[np.integer], progress: Progress
) -> tuple[sparse.csr_array, Int[np.ndarray, " V"]]:
    """Count co-occurrences within documents, and words.

    Memory grows with the different pairs that occur, not with the square of the vocabulary.

    Args:
        skip: token ids that are no words, such as [CLS]; they are removed first.

    Returns:
        The upper triangle of C, (V, V), with half of its diagonal, so that C is its sum with its transpose.

    Raises:
        ConfigurationError: the counts may not fit into memory.
    """
    _require_memory(vocabulary, window * text.tokens)
    kind = np.uint32 if vocabulary**2 <= 1 << 32 else np.uint64  # the narrower sorts twice as fast
    size, words = kind(vocabulary), np.zeros(vocabulary, np.int64)
    sums = [sparse.csr_array((vocabulary, vocabulary), dtype=np.int64)]
    waiting: list[NDArray[np.unsignedinteger]] = []

    def add() -> None:
        sums.append(_count_pairs(np.concatenate(waiting), vocabulary))
        waiting.clear()
        while len(sums) > 1 and sums[-2].nnz <= 2 * sums[-1].nnz:  # each pair is added a few times, not once a chunk
            sums.append(sums.pop() + sums.pop())

    for ids, owners in _chunks(text, skip, progress):
        words += np.bincount(ids, minlength=vocabulary)
        ids = ids.astype(kind)
        for distance in range(1, window + 1):
            near = owners[distance:] == owners[:-distance]
            one, other = ids[:-distance][near], ids[distance:][near]
            waiting.append(np.minimum(one, other) * size + np.maximum(one, other))
            if sum(map(len, waiting)) >= _PAIRS:
                add()
    waiting.append(np.empty(0, kind))
    add()
    return sum(sums[1:], sums[0]), words


def _count_pairs(pairs: NDArray[np.unsignedinteger], vocabulary: int) -> sparse.csr_array:
    """Count pairs i <= j, each given as i V + j, by sorting them: ten times as fast as adding one by one to a table."""
    pairs.sort()
    first = np.flatnonzero(np.concatenate([[True], pairs[1:] != pairs[:-1]])) if len(pairs) else np.empty(0, np.int64)
    counts, pairs = np.diff(np.append(first, len(pairs))), pairs[first]
    starts = np.searchsorted(pairs, np.arange(vocabulary + 1, dtype=np.uint64) * np.uint64(vocabulary))
    columns = (pairs % pairs.dtype.type(vocabulary)).astype(np.int32)
    return sparse.csr_array((counts, columns, starts.astype(np.int32)), shape=(vocabulary, vocabulary))


def _require_memory(vocabulary: int, pairs: int) -> None:
    different = min(pairs, vocabulary * (vocabulary + 1) // 2)
    needed = 2 * (8 + 4) * different  # counts and columns, and once more while they are added
    if _is_dense(different, vocabulary):
        needed += 4 * vocabulary**2
    if needed > (free := _free_memory()):
        raise ConfigurationError(
            f"the co-occurrences of {vocabulary:,} word pieces may take {needed / 2**30:.1f} GiB, and "
            f"{free / 2**30:.1f} are free: ask for a vocabulary of {int((free / 16) ** 0.5):,} word pieces or fewer"
        )


def frequencies(text: Corpus, vocabulary: int, skip: NDArray[np.integer]) -> Int[np.ndarray, " V"]:
    """Count words alone."""
    return np.sum([np.bincount(ids, minlength=vocabulary) for ids, _ in _chunks(text, skip, SILENT)], axis=0)


def _chunks(
    text: Corpus, skip: NDArray[np.integer], progress: Progress
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the words of many documents end to end, and the document of each word."""
    chunk: list[NDArray[np.int64]] = []
    held = 0
    for start in range(0, len(text), _ROWS):
        stop = min(start + _ROWS, len(text))
        values, lengths = text.span(start, stop)
        pairs = np.stack([values.astype(np.int64), np.repeat(np.arange(start, stop), lengths)])
        chunk.append(pairs[:, ~np.isin(values, skip)])
        held += chunk[-1].shape[1]
        if held >= _TOKENS or stop == len(text):
            ids, owners = np.concatenate(chunk, axis=1)
            yield ids, owners
            chunk, held = [], 0
            progress.report("count", stop, len(text))


def ppmi(counts: sparse.csr_array) -> sparse.csr_array:
    """Turn counts, as ``count_cooccurrences`` returns them, in place into positive pointwise mutual information.

    Returns:
        The upper triangle of M, (V, V), float32, with its whole diagonal; what is zero is not stored.
    """
    sums = counts.sum(axis=0) + counts.sum(axis=1)
    offset = np.log(np.maximum(sums, 1)) - 0.5 * np.log(max(int(sums.sum()), 1))  # of one word
    offset = offset.astype(np.float32)
    rows = np.repeat(np.arange(len(sums), dtype=np.int32), np.diff(counts.indptr))
    values = np.log(counts.data.astype(np.float32))
    values[rows == counts.indices] += np.float32(np.log(2))
    values -= offset[rows]
    values -= offset[counts.indices]
    counts.data = np.maximum(values, 0, out=values)
    counts.eliminate_zeros()
    return counts


def factorise(upper: sparse.csr_array, config: FactorConfig, seed: int) -> Float[Tensor, "V D"]:
    """Return the rows of U_D S_D^p at length 1; a word without neighbours has the zero vector.

    The SVD is a randomised one (Halko, Martinsson & Tropp 2011, algorithm 4.4, https://arxiv.org/abs/0909.4061).

    Args:
        upper: the upper triangle of a symmetric matrix, with its diagonal.

    Raises:
        ConfigurationError: there are fewer words than the vectors are wide.
    """
    size = upper.shape[0]
    if size <= config.width:
        raise ConfigurationError(
            f"{size:,} word pieces cannot have vectors {config.width} wide: give more text, or choose narrower"
        )
    times = _product(upper)
    torch.manual_seed(seed)
    # With ten more columns and four iterations its error is far below the effect of the power.
    basis, _ = torch.linalg.qr(times(torch.randn(size, min(config.width + 10, size))))
    for _ in range(2 * 4):  # an iteration multiplies by M and by its transpose
        basis, _ = torch.linalg.qr(times(basis))
    _, values, right = torch.linalg.svd(times(basis), full_matrices=False)  # of M Q, whose transpose is Q^T M
    factors = (basis @ right.T)[:, : config.width] * values[: config.width] ** config.power
    alone = upper.sum(axis=0) + upper.sum(axis=1) == 0
    factors[torch.from_numpy(alone)] = 0  # otherwise rounding errors would be scaled to length 1
    return torch.nn.functional.normalize(factors, dim=1)


def _product(upper: sparse.csr_array) -> Callable[[Float[Tensor, "V K"]], Float[Tensor, "V K"]]:
    """Return what multiplies by the symmetric matrix: as a table where many of its entries are not zero."""
    size = upper.shape[0]
    if _is_dense(upper.nnz, size):
        table = torch.from_numpy(upper.toarray())
        for start in range(0, size, _ROWS):  # the lower triangle, without a second table
            rows, below = slice(start, start + _ROWS), slice(start + _ROWS, None)
            table[rows, rows] += table[rows, rows].triu(1).T
            table[below, rows] = table[rows, below].T
        return table.matmul
    full = upper + sparse.triu(upper, 1).T.tocsr()
    return lambda columns: torch.from_numpy(full @ columns.numpy())


def _is_dense(entries: int, vocabulary: int) -> bool:
    """Tell whether a table of V x V is multiplied faster than the entries of a triangle, one by one."""
    return _DENSE * 2 * entries > vocabulary**2


def word_vectors(
    text: Corpus, vocabulary: int, skip: NDArray[np.integer], config: FactorConfig, seed: int, progress: Progress
) -> tuple[Float[Tensor, "V D"], Int[np.ndarray, " V"]]:
    """Count co-occurrences and factorise their PPMI; return vectors at length 1, and the counts of words."""
    counts, words = count_cooccurrences(text, vocabulary, config.window, skip, progress)
    progress.say(f"{int(words.sum()):,} words counted; their co-occurrences are being factorised")
    return factorise(ppmi(counts), config, seed), words


def sif_weights(words: Int[np.ndarray, " V"], sif_coefficient: float) -> Float[np.ndarray, " V"]:
    """Return a / (a + p) of every word: near 1 for rare ones, near 0 for the most frequent."""
    return sif_coefficient / (sif_coefficient + words / max(1, words.sum()))


def without_common(
    vectors: Float[Tensor, "V D"], text: Corpus, skip: NDArray[np.integer], components: int
) -> Float[Tensor, "V D"]:
    """Remove the first principal components of averaged texts from every vector, and so from every average."""
    if not components:
        return vectors
    ids, _ = next(_chunks(text, skip, SILENT))
    pieces = torch.from_numpy(ids[: len(ids) // _TEXT * _TEXT]).view(-1, _TEXT)[:_TEXTS]
    averages = torch.nn.functional.embedding_bag(pieces, vectors, mode="mean")
    first = torch.linalg.svd(averages, full_matrices=False)[2][:components]  # (components, D)
    return vectors - vectors @ first.T @ first


def _free_memory() -> int:
    """Return the bytes available without swapping; unlimited where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123
            return 1024 * next(int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 1 << 62
