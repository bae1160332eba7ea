"""Static word vectors from counts: which words stand near which, made informative, made short.

    counts    C_ij = how often j stands within ``window`` words of i, each side alike
    PPMI      M_ij = max(0, log( C_ij sum(C) / (sum_j C_ij sum_i C_ij) ))
    vectors   rows of U_D S_D^p from the truncated SVD of M, at length 1
    weights   a / (a + p_i), p_i the frequency of word i (smooth inverse frequency)
    common    the first principal component of averaged texts is taken out of every vector

D the width, p the ``power``, a ``rarity``.  Sources: Levy & Goldberg 2014 (PPMI and its factors); Arora, Liang & Ma
2017, https://openreview.net/forum?id=SyK00v5xx (weights and common component).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from selfsent.corpus.dataset import Corpus
from selfsent.errors import UserError
from selfsent.progress import SILENT, Progress

_TOKENS = 1 << 22  # counted at a time
_ROWS = 512  # documents read at a time
_TEXT = 24  # words of the pieces of text whose common component is taken out
_TEXTS = 50_000  # of these, at most


@dataclass(frozen=True, kw_only=True)
class FactorConfig:
    """What the counts and their factors leave open."""

    width: int = 256  # D
    window: int = 5  # words to either side
    power: float = 0.5  # p: of the singular values
    rarity: float = 1e-3  # a: the smaller, the less frequent words count
    common: int = 1  # principal components taken out

    def __post_init__(self) -> None:
        """Refuse what cannot mean anything."""
        for name in ("width", "window"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it should be at least 1")
        if self.rarity <= 0:
            raise ValueError(f"rarity is {self.rarity}: it should be above 0")
        if self.common < 0:
            raise ValueError(f"common is {self.common}: it should be 0 or more")


def count_cooccurrences(
    text: Corpus, vocabulary: int, window: int, skip: NDArray[np.integer], progress: Progress
) -> tuple[Float[Tensor, "V V"], Int[np.ndarray, " V"]]:
    """Count neighbours within documents, and words.

    Args:
        skip: token ids that are no words, such as [CLS]; they are taken out first.

    Raises:
        UserError: the table of neighbours does not fit into memory.
    """
    needed = 3 * 4 * vocabulary**2  # the table, and twice as much while it is factorised
    if needed > (free := _free_memory()):
        raise UserError(
            f"a table of {vocabulary:,} x {vocabulary:,} neighbours takes {needed / 2**30:.1f} GiB with its factors, "
            f"and {free / 2**30:.1f} are free: ask for a vocabulary of {int((free / 12) ** 0.5):,} word pieces or fewer"
        )
    table = np.zeros(vocabulary * vocabulary, np.int32)  # fp32 could not count beyond 16 million
    words = np.zeros(vocabulary, np.int64)
    for ids, rows in _chunks(text, skip, progress):
        words += np.bincount(ids, minlength=vocabulary)
        for distance in range(1, window + 1):
            near = rows[distance:] == rows[:-distance]
            # np.add.at on a flat table is the fastest way that needs no sorting: 10 ns a pair.
            np.add.at(table, ids[:-distance][near] * vocabulary + ids[distance:][near], np.int32(1))
    square = torch.from_numpy(table).view(vocabulary, vocabulary).float()
    return square.add_(square.T.clone()), words


def frequencies(text: Corpus, vocabulary: int, skip: NDArray[np.integer]) -> Int[np.ndarray, " V"]:
    """Count words alone."""
    words = np.zeros(vocabulary, np.int64)
    for ids, _ in _chunks(text, skip, SILENT):
        words += np.bincount(ids, minlength=vocabulary)
    return words


def _chunks(
    text: Corpus, skip: NDArray[np.integer], progress: Progress
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the words of many documents end to end, and the document of each."""
    ids: list[NDArray[np.int64]] = []
    rows: list[NDArray[np.int64]] = []
    held = 0
    for start in range(0, len(text), _ROWS):
        values, lengths = text.span(start, min(start + _ROWS, len(text)))
        owner = np.repeat(np.arange(start, start + len(lengths)), lengths)
        word = ~np.isin(values, skip)
        ids.append(values[word].astype(np.int64))
        rows.append(owner[word])
        held += len(ids[-1])
        if held >= _TOKENS:
            yield np.concatenate(ids), np.concatenate(rows)
            ids, rows, held = [], [], 0
            progress.report("count", start, len(text))
    if held:
        yield np.concatenate(ids), np.concatenate(rows)
    progress.report("count", len(text), len(text))


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
        UserError: there are fewer words than the vectors are wide.
    """
    if len(table) <= config.width:
        raise UserError(
            f"{len(table):,} word pieces cannot have vectors {config.width} wide: "
            "give more text, or choose narrower ones"
        )
    torch.manual_seed(seed)
    # Ten more columns and four iterations: the error of a randomised SVD is then far below what the power does.
    left, values, _ = torch.svd_lowrank(table, q=min(config.width + 10, len(table)), niter=4)
    factors = left[:, : config.width] * values[: config.width] ** config.power
    factors[table.sum(dim=1) == 0] = 0  # not the noise of the arithmetic, which would be scaled to length 1
    return torch.nn.functional.normalize(factors, dim=1)


def word_weights(words: Int[np.ndarray, " V"], rarity: float) -> Float[np.ndarray, " V"]:
    """Return a / (a + p) of every word: near 1 for rare ones, near 0 for the most frequent."""
    return rarity / (rarity + words / max(1, words.sum()))


def without_common(
    vectors: Float[Tensor, "V D"], text: Corpus, skip: NDArray[np.integer], components: int
) -> Float[Tensor, "V D"]:
    """Take the first principal components of averaged texts out of every vector, and so out of every average."""
    if not components:
        return vectors
    ids, _ = next(_chunks(text, skip, SILENT))
    pieces = torch.from_numpy(ids[: len(ids) // _TEXT * _TEXT]).view(-1, _TEXT)[:_TEXTS]
    averages = torch.nn.functional.embedding_bag(pieces, vectors, mode="mean")
    _, _, axes = torch.linalg.svd(averages, full_matrices=False)
    first = axes[:components]  # (components, D)
    return vectors - vectors @ first.T @ first


def _free_memory() -> int:
    """Return the bytes that can be had without swapping; where the system does not say, no limit."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123
            return 1024 * next(int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 1 << 62
