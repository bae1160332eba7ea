"""Near-paraphrases and hard negatives among vectors, by blocked exact products.

    margin(x, y) = cos(x, y) / (sum_{z in NN_k(x)} cos(x, z) / 2k  +  sum_{z in NN_k(y)} cos(y, z) / 2k)

Sources: the margin, Artetxe & Schwenk 2019, https://arxiv.org/abs/1811.01136; margins of negatives below their
positive, Moreira et al. 2024 (NV-Retriever), https://arxiv.org/abs/2407.15831.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int
from pydantic.dataclasses import dataclass

from selfsent.config import FINITE, MANY, setting
from selfsent.progress import SILENT, Progress
from selfsent.searching.nearest import exact_nearest
from selfsent.text import clean

_QUERIES = 1024  # whose cosines with a block of vectors are in memory together: 32 MB


@dataclass(frozen=True, kw_only=True, config=FINITE)
class MineConfig:
    """What decides which pairs, or which negatives, are found."""

    max_texts: int = setting(
        100_000, "texts, or documents, that are compared, from the beginning of the corpus", ge=2, le=MANY
    )
    near_threshold: float = setting(
        0.5,
        "Jaccard similarity of word bigrams from which on two texts are copies, and no pair and no negative",
        gt=0,
        le=1,
    )
    min_cosine: float = setting(0.0, "of a pair, or of a negative", ge=-1, le=1)
    max_cosine: float = setting(1.0, "likewise", ge=-1, le=1)
    neighbours: int = setting(
        4, "of each text, whose mean cosine the margin of paraphrases compares with", ge=1, le=1000
    )
    margin: float = setting(
        1.2, "of paraphrases: their cosine divided by the mean cosine of both with their neighbours", ge=0, le=1000
    )
    max_pairs: int | None = setting(None, "paraphrases, those of the highest margin; None: all", ge=1, le=MANY)
    negatives: int = setting(1, "of each text, the nearest that are left", ge=1, le=1000)
    absolute_margin: float = setting(0.0, "by which a negative's cosine is below its positive's", ge=0, le=2)
    relative_margin: float = setting(0.05, "the same, as a share of the positive's cosine", ge=0, le=1)
    range_min: int = setting(0, "nearest passages of other documents that are left out", ge=0, le=100_000)
    range_max: int = setting(100, "nearest passages of other documents that are looked at", ge=1, le=100_000)

    def __post_init__(self) -> None:
        if self.min_cosine > self.max_cosine:
            raise ValueError(f"min_cosine must not exceed max_cosine, got {self.min_cosine} and {self.max_cosine}")
        if self.range_min + self.negatives > self.range_max:
            raise ValueError(
                f"range_max must leave {self.negatives} negatives behind the {self.range_min} of range_min, "
                f"got {self.range_max}"
            )


def nearest_others(
    vectors: Float[np.ndarray, "N D"], count: int, progress: Progress = SILENT
) -> tuple[Int[np.ndarray, "N K"], Float[np.ndarray, "N K"]]:
    """Return the numbers and cosines of the ``count`` nearest other vectors of each, nearest first.

    Args:
        vectors: of length 1, or zeros.
    """
    count = min(count, len(vectors) - 1)
    numbers, cosines = np.empty((len(vectors), count), np.int64), np.empty((len(vectors), count), np.float32)
    for start in range(0, len(vectors), _QUERIES):
        block = slice(start, min(start + _QUERIES, len(vectors)))
        found, near = exact_nearest(vectors[block], [vectors], None, count + 1)
        others = found != np.arange(block.start, block.stop)[:, None]
        others[:, -1] &= ~others.all(1)  # so many are equal to it that it is not among its own nearest
        numbers[block], cosines[block] = (part[others].reshape(-1, count) for part in (found, near))
        progress.report("neighbours", block.stop, len(vectors))
    return numbers, cosines


def find_paraphrases(
    vectors: Float[np.ndarray, "N D"], config: MineConfig, progress: Progress = SILENT
) -> list[tuple[int, int, float, float]]:
    """Return (i, j, cosine, margin) of the pairs of which each is the other's best by margin, the highest first.

    Args:
        vectors: of length 1, or zeros, of texts that differ.
    """
    numbers, cosines = nearest_others(vectors, config.neighbours, progress)
    cosines = np.minimum(cosines, 1)  # rounding may take equal texts above it
    means = cosines.mean(1)
    around = (means[:, None] + means[numbers]) / 2
    fits = (around > 0) & (cosines > 0) & (cosines >= config.min_cosine) & (cosines <= config.max_cosine)
    margins = np.where(fits, cosines / np.where(around > 0, around, 1), -np.inf)
    rows, best = np.arange(len(vectors)), margins.argmax(1)
    partners, highest = numbers[rows, best], margins[rows, best]
    mutual = (partners[partners] == rows) & (rows < partners) & (highest >= config.margin) & np.isfinite(highest)
    chosen = np.flatnonzero(mutual)
    chosen = chosen[np.argsort(-highest[chosen], kind="stable")][: config.max_pairs]
    return [(int(i), int(partners[i]), float(cosines[i, best[i]]), float(highest[i])) for i in chosen]


def nearest_negatives(
    anchors: Float[np.ndarray, "A D"],
    passages: Float[np.ndarray, "P D"],
    positives: Sequence[Int[np.ndarray, " _"]],
    config: MineConfig,
    accept: Callable[[int, int], bool] = lambda anchor, passage: True,
    progress: Progress = SILENT,
) -> Iterator[list[tuple[int, float]]]:
    """Yield (passage, cosine) of the nearest passages of each anchor that are far enough below its positive.

    Args:
        anchors: of length 1, as the passages.
        positives: the passages that belong to each anchor; the least similar sets the limit.
        accept: told an anchor and a passage, whether that may be its negative.
    """
    depth = config.range_max + max(map(len, positives))
    for start in range(0, len(anchors), _QUERIES):
        block = anchors[start : start + _QUERIES]
        found, near = exact_nearest(block, [passages], None, depth)
        for anchor, numbers, cosines in zip(range(start, start + len(block)), found, near, strict=True):
            own = positives[anchor]
            positive = float((passages[own] @ anchors[anchor]).min())
            limit = positive - max(config.absolute_margin, config.relative_margin * abs(positive))
            others = np.isin(numbers, own, invert=True)
            kept: list[tuple[int, float]] = []
            window = slice(config.range_min, config.range_max)
            for number, cosine in zip(
                numbers[others][window].tolist(), np.minimum(cosines[others][window], 1).tolist(), strict=True
            ):
                low, high = config.min_cosine, min(limit, config.max_cosine)
                if len(kept) < config.negatives and low <= cosine <= high and accept(anchor, number):
                    kept.append((number, cosine))
            yield kept
        progress.report("negatives", start + len(block), len(anchors))


def word_overlap(first: str, second: str) -> float:
    """Return the Jaccard similarity of the word bigrams of two texts; of their words, where one has a single word."""
    one, other = clean.words(first), clean.words(second)
    size = min(2, len(one), len(other))
    sets = [{tuple(words[i : i + size]) for i in range(len(words) - size + 1)} for words in (one, other)]
    return len(sets[0] & sets[1]) / max(1, len(sets[0] | sets[1])) if size else 0.0
