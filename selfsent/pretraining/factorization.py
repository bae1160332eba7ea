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

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass
from torch import Tensor

from selfsent.config import FINITE, setting
from selfsent.corpus.dataset import Corpus
from selfsent.errors import ConfigurationError
from selfsent.progress import SILENT, Progress

_TOKENS = 1 << 22  # counted at a time
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
) -> tuple[Float[Tensor, "V V"], Int[np.ndarray, " V"]]:
    """Count co-occurrences within documents, and words.

    Args:
        skip: token ids that are no words, such as [CLS]; they are removed first.

    Raises:
        ConfigurationError: the table of co-occurrences does not fit into memory.
    """
    needed = 3 * 4 * vocabulary**2  # the table, and twice as much while it is factorised
    if needed > (free := _free_memory()):
        raise ConfigurationError(
            f"a table of {vocabulary:,} x {vocabulary:,} co-occurrences takes {needed / 2**30:.1f} GiB with its "
            f"factors, and {free / 2**30:.1f} are free: ask for a vocabulary of {int((free / 12) ** 0.5):,} word "
            "pieces or fewer"
        )
    table = np.zeros(vocabulary * vocabulary, np.int32)  # fp32 could not count beyond 16 million
    words = np.zeros(vocabulary, np.int64)
    for ids, owners in _chunks(text, skip, progress):
        words += np.bincount(ids, minlength=vocabulary)
        for distance in range(1, window + 1):
            near = owners[distance:] == owners[:-distance]
            # np.add.at on a flat table is the fastest way without sorting: 10 ns a pair.
            np.add.at(table, ids[:-distance][near] * vocabulary + ids[distance:][near], np.int32(1))
    square = torch.from_numpy(table).view(vocabulary, vocabulary).float()
    return square.add_(square.T.clone()), words


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


def ppmi(table: Float[Tensor, "V V"]) -> Float[Tensor, "V V"]:
    """Turn symmetric counts into positive pointwise mutual information, in place."""
    total, sums = table.sum(dtype=torch.float64), table.sum(dim=1, dtype=torch.float64)
    offset = (sums.clamp(min=1).log() - 0.5 * total.clamp(min=1).log()).float()  # of one word
    for row, own in zip(table, offset, strict=True):  # row by row: a second table would take as much memory again
        row.log_().sub_(offset).sub_(own).clamp_(min=0)
    return table


def factorise(table: Float[Tensor, "V V"], config: FactorConfig, seed: int) -> Float[Tensor, "V D"]:
    """Return the rows of U_D S_D^p at length 1; a word without neighbours has the zero vector.

    Raises:
        ConfigurationError: there are fewer words than the vectors are wide.
    """
    if len(table) <= config.width:
        raise ConfigurationError(
            f"{len(table):,} word pieces cannot have vectors {config.width} wide: give more text, or choose narrower"
        )
    torch.manual_seed(seed)
    # With ten more columns and four iterations the error of the randomised SVD is far below the effect of the power.
    left, values, _ = torch.svd_lowrank(table, q=min(config.width + 10, len(table)), niter=4)
    factors = left[:, : config.width] * values[: config.width] ** config.power
    factors[table.sum(dim=1) == 0] = 0  # otherwise rounding errors would be scaled to length 1
    return torch.nn.functional.normalize(factors, dim=1)


def word_vectors(
    text: Corpus, vocabulary: int, skip: NDArray[np.integer], config: FactorConfig, seed: int, progress: Progress
) -> tuple[Float[Tensor, "V D"], Int[np.ndarray, " V"]]:
    """Count co-occurrences and factorise their PPMI; return vectors at length 1, and the counts of words."""
    table, words = count_cooccurrences(text, vocabulary, config.window, skip, progress)
    progress.say(f"{int(words.sum()):,} words counted; their co-occurrences are being factorised")
    return factorise(ppmi(table), config, seed), words


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
