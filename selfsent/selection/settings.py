"""The settings of a selection."""

from typing import Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from selfsent.config import FINITE, MANY, SEEDS, setting
from selfsent.corpus.settings import CorpusConfig


@dataclass(frozen=True, kw_only=True, config=FINITE)
class FitConfig:
    """What decides a selection, apart from its text and bases."""

    minutes: float = setting(10.0, "of this machine's time, about", gt=0, le=10_000)
    steps: int = setting(300, "of a training from a base, at most", ge=50, le=MANY)
    batch_size: int = setting(64, "texts in a batch of a training from a base", ge=2, le=1_000_000)
    learning_rate: float | None = setting(
        None, "peak rate of a training from a base; None: 5e-4 for the encoder that ships, otherwise 5e-5", gt=0, le=10
    )
    static_steps: int = setting(1000, "of the training of static vectors", ge=25, le=MANY)
    static_batch_size: int = setting(256, "texts in a batch of the training of static vectors", ge=2, le=1_000_000)
    static_learning_rate: float = setting(3e-3, "peak rate of static vectors", gt=0, le=10)
    general_loss: float = setting(
        0.5,
        "points of the score that a point lost on general text counts against the gain on this text",
        ge=0,
        le=1_000,
    )
    methods: tuple[str, ...] = setting(("scd",), "tried on single lines, which give no pairs; others: simcse, denosent")
    purpose: Literal["search", "grouping", "both"] = setting(
        "both", "what the encoder is for; grouping: clusters, topics, intents, classes"
    )
    line_axes: bool = setting(
        True, "latent axes of single lines stand beside their base, for grouping; no: stock modules alone are kept"
    )
    dimensions: int | None = setting(
        None, "of what is kept, on the principal axes of the text; None: all that it has", ge=1, le=MANY
    )
    bootstrap: int = setting(1000, "resamples behind each interval", ge=100, le=1_000_000)
    seed: int = setting(42, "of all that is trained; the tests are drawn alike for every seed", ge=0, le=SEEDS)
    corpus: CorpusConfig = Field(default_factory=lambda: CorpusConfig())
