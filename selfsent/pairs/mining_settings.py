"""MineConfig: which pairs and negatives are mined."""

from pydantic.dataclasses import dataclass

from selfsent.config import FINITE, MANY, setting


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
