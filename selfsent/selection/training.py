"""Trainings of a selection's candidates: one from a base, and those of the text's word vectors."""

from collections.abc import Sequence
from pathlib import Path

from selfsent import api, atomic
from selfsent.config import SEEDS
from selfsent.encoder.load import load_encoder
from selfsent.pretraining.joined_vectors import build_joined_vectors
from selfsent.progress import Prefixed, Progress, Quiet
from selfsent.selection.fit_plan import FitPlan
from selfsent.selection.material import Material
from selfsent.selection.settings import FitConfig

WORDS_BASE = "builtin-static"  # the general half of the text's word vectors
PAIRS = ("objective.head=false", "objective.symmetric=true")
_FOR_TRAINING = 0.7  # of the minutes; the rest is for scoring
_COMMON = (
    "corpus.held_out=0",  # documents were held out before
    "corpus.deduplicate=exact",
    "corpus.max_length=64",
    "train.select=last",
    "train.evaluate_every=0",
    "train.baselines=false",
    "train.checkpoint_every=50",
)


def seconds_left(config: FitConfig, plan: FitPlan) -> float:
    """Return the seconds that trainings may still take."""
    return 60 * config.minutes * _FOR_TRAINING - plan.spent


def train_candidate(
    method: str,
    base: str | Path,
    texts: Path,
    folder: Path,
    seed: int,
    settings: Sequence[str],
    progress: Progress,
) -> Path:
    """Train from a base, or read what was trained before, and return the encoder's folder."""
    trained = api.train(
        method,
        corpus=[texts],
        base=str(base),
        out=folder,
        seed=seed,
        settings=[*_COMMON, *settings],
        resume=True,
        progress=Quiet(progress),
    )
    return trained.model


def train_word_vectors(
    folder: Path, text: Material, config: FitConfig, batch: int, plan: FitPlan, progress: Progress
) -> tuple[Path, list[Path], float]:
    """Count word vectors in the text, join them with the general ones, and train them on its pairs.

    They are trained with a second seed, too, if the time is enough: the mean of both weights is better than either, on
    this text and on general text (LOG.md).

    Returns:
        The folder of the untrained ones, those of the trained ones, and the seconds that all took.
    """
    steps = plan.once("steps", "word vectors", config.words_steps)
    settings = (
        *PAIRS,
        f"train.steps={steps}",
        f"train.batch_size={batch}",
        f"train.learning_rate={config.words_learning_rate}",
    )
    counted, models = folder / "counted", []
    with plan.timed("word-vectors-counted") as seconds:
        if not atomic.cached(counted):
            general, told = load_encoder(WORDS_BASE), Prefixed(progress, "word vectors: ")
            with atomic.build_folder(counted) as scratch:
                build_joined_vectors(text.texts, general, scratch, seed=config.seed, progress=told)
    took = seconds()
    for number, name in enumerate(("trained", "trained-again")):
        if number and not plan.once("trainings", name, config.words_twice and seconds_left(config, plan) > seconds()):
            break
        with plan.timed(f"word-vectors-{name}") as seconds:
            seed = (config.seed + number) % (SEEDS + 1)
            models.append(train_candidate("simcse", counted, text.pairs, folder / name, seed, settings, progress))
        took += seconds()
    return counted, models, took
