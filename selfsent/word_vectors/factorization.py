"""Static word vectors from co-occurrence counts: PPMI, truncated SVD, smooth inverse frequency.

    PPMI      M, positive pointwise mutual information of the words of a text (``cooccurrences``)
    vectors   rows of U_D S_D^p from the truncated SVD of M, at length 1
    weights   a / (a + p_i), p_i the frequency of word i (smooth inverse frequency)
    common    the first principal components of averaged texts are removed from every vector

D the width, p the ``power``, a ``sif_coefficient``.
Sources: Levy & Goldberg 2014 (PPMI and its factors); Arora, Liang & Ma
2017, https://openreview.net/forum?id=SyK00v5xx (weights and common component).
"""

from collections.abc import Callable, Sequence

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
from selfsent.word_vectors import cooccurrences

_DENSE = 16  # a share of entries above 1 / 16 is a dense matrix
_ROWS = 512  # of a dense matrix, mirrored at a time
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


def factorise(upper: Sequence[sparse.csr_array], config: FactorConfig, seed: int) -> Float[Tensor, "V D"]:
    """Return the rows of U_D S_D^p at length 1; a word without neighbours has the zero vector.

    The SVD is a randomised one (Halko, Martinsson & Tropp 2011, algorithm 4.4, https://arxiv.org/abs/0909.4061).

    Args:
        upper: the upper triangle of a symmetric matrix, with its diagonal, as bands of its rows.

    Raises:
        ConfigurationError: there are fewer words than the vectors are wide.
    """
    size = upper[0].shape[1]
    if size <= config.width:
        raise ConfigurationError(
            f"{size:,} tokens cannot have vectors {config.width} wide: give more text, or choose narrower"
        )
    times = _product(upper)
    torch.manual_seed(seed)
    # With ten more columns and four iterations its error is far below the effect of the power.
    basis, _ = torch.linalg.qr(times(torch.randn(size, min(config.width + 10, size))))
    for _ in range(2 * 4):  # an iteration multiplies by M and by its transpose
        basis, _ = torch.linalg.qr(times(basis))
    _, values, right = torch.linalg.svd(times(basis), full_matrices=False)  # of M Q, whose transpose is Q^T M
    factors = (basis @ right.T)[:, : config.width] * values[: config.width] ** config.power
    alone = sum(band.sum(axis=0) for band in upper) + np.concatenate([band.sum(axis=1) for band in upper]) == 0
    factors[torch.from_numpy(alone)] = 0  # otherwise rounding errors would be scaled to length 1
    return torch.nn.functional.normalize(factors, dim=1)


def _product(upper: Sequence[sparse.csr_array]) -> Callable[[Float[Tensor, "V K"]], Float[Tensor, "V K"]]:
    """Return what multiplies by the symmetric matrix: as a table where many of its entries are not zero."""
    size = upper[0].shape[1]
    starts = np.cumsum([0, *(band.shape[0] for band in upper)])
    if _is_dense(sum(band.nnz for band in upper), size):
        table = torch.empty(size, size)
        for start, band in zip(starts, upper, strict=False):
            for row in range(0, band.shape[0], _ROWS):
                block = torch.from_numpy(band[row : row + _ROWS].toarray())
                table[start + row : start + row + len(block)] = block
        for start in range(0, size, _ROWS):  # the lower triangle, without a second table
            rows, below = slice(start, start + _ROWS), slice(start + _ROWS, None)
            table[rows, rows] += table[rows, rows].triu(1).T
            table[below, rows] = table[rows, below].T
        return table.matmul
    diagonal = np.concatenate([band.diagonal(start) for start, band in zip(starts, upper, strict=False)])[:, None]

    def times(columns: Float[Tensor, "V K"]) -> Float[Tensor, "V K"]:
        block = columns.numpy()
        product = -diagonal * block  # which is in the triangle and in its transpose
        for start, band in zip(starts, upper, strict=False):
            rows = slice(start, start + band.shape[0])
            product[rows] += band @ block
            product += band.T @ block[rows]
        return torch.from_numpy(product)

    return times


def _is_dense(entries: int, vocabulary: int) -> bool:
    """Tell whether a table of V x V is multiplied faster than the entries of a triangle, one by one, and fits."""
    return _DENSE * 2 * entries > vocabulary**2 and 4 * vocabulary**2 <= cooccurrences.free_memory()


def word_vectors(
    text: Corpus, vocabulary: int, skip: NDArray[np.integer], config: FactorConfig, seed: int, progress: Progress
) -> tuple[Float[Tensor, "V D"], Int[np.ndarray, " V"]]:
    """Count co-occurrences and factorise their PPMI; return vectors at length 1, and the counts of words."""
    counts, words = cooccurrences.count_cooccurrences(text, vocabulary, config.window, skip, progress)
    progress.say(f"{int(words.sum()):,} words counted; their co-occurrences are being factorised")
    return factorise(cooccurrences.ppmi(counts, text.folder.parent), config, seed), words


def sif_weights(words: Int[np.ndarray, " V"], sif_coefficient: float) -> Float[np.ndarray, " V"]:
    """Return a / (a + p) of every word: near 1 for rare ones, near 0 for the most frequent."""
    return sif_coefficient / (sif_coefficient + words / max(1, words.sum()))


def without_common(
    vectors: Float[Tensor, "V D"], text: Corpus, skip: NDArray[np.integer], components: int
) -> Float[Tensor, "V D"]:
    """Remove the first principal components of averaged texts from every vector, and so from every average."""
    if not components:
        return vectors
    ids, _ = next(cooccurrences.read_words(text, skip, SILENT))
    pieces = torch.from_numpy(ids[: len(ids) // _TEXT * _TEXT]).view(-1, _TEXT)[:_TEXTS]
    averages = torch.nn.functional.embedding_bag(pieces, vectors, mode="mean")
    first = torch.linalg.svd(averages, full_matrices=False)[2][:components]  # (components, D)
    return vectors - vectors @ first.T @ first
