"""Trainings of a selection's candidates: one from a base, and those of the text's word vectors."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from sentence_transformers import SentenceTransformer

from selfsent.config import SEEDS
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.progress import Prefixed, Progress, Quiet
from selfsent.selection.candidates import Candidate
from selfsent.selection.fit_plan import FitPlan
from selfsent.selection.material import Material
from selfsent.selection.settings import FitConfig
from selfsent.storage import atomic
from selfsent.training import train
from selfsent.word_vectors.joined import build_joined_vectors

WORDS_BASE = "builtin-static"  # the general half of the text's word vectors
PAIRS = ("objective.head=false", "objective.symmetric=true")
LINES = ("corpus.split=no", "train.warmup_steps=0")  # a method's own warm-up is for longer trainings
OF_METHODS = {  # what is published for BERT-base is too much for small encoders (scd.py), or for minutes
    "scd": ("objective.self_contrast_weight=0.01", "objective.projector_width=1024"),
    "denosent": ("objective.decoder_layers=4",),
}
AGAIN = "trained-again"
_LENGTH = 64  # tokens of a text
_SAMPLE, _LARGEST, _BATCH = 256, 16_384, 32  # rows; texts
_LONG = 0.5  # seconds: a shorter encoding is mostly its start, on a GPU above all
_FOR_TRAINING = 0.7  # of the minutes; the rest is for scoring
_COMMON = (
    "corpus.held_out=0",  # documents were held out before
    "corpus.deduplicate=exact",
    f"corpus.max_length={_LENGTH}",
    "train.select=last",
    "train.evaluate_every=0",
    "train.baselines=false",
    "train.checkpoint_every=50",
)


@dataclass
class BaseTraining:
    """A training from a base, and how far it is."""

    name: str
    base: Candidate
    method: str
    texts: Path
    keys: tuple[str, ...]
    steps: int = 0
    begun: Path | None = None  # the encoder that the last round left, and it as a candidate
    made: Candidate | None = None


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
    trained = train.train(
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


def time_encoding(encoder: SentenceTransformer, texts: Path, slug: str, plan: FitPlan) -> float:
    """Return how many texts a second an encoder encodes, of those that it would be trained on.

    The texts that candidates are scored on are no measure: passages are several times as long.
    """
    with texts.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in islice(file, _LARGEST)]
    encoder.max_seq_length = min(encoder.max_seq_length or _LENGTH, _LENGTH)
    encode(encoder, _texts(rows[:_BATCH])[:_BATCH])  # the first products are compiled
    count, took = _SAMPLE, 0.0
    with plan.timed(f"{slug}-sample"):
        while True:
            sample, began = _texts(rows[:count]), time.perf_counter()
            encode(encoder, sample)
            took = time.perf_counter() - began
            if took >= _LONG or count >= len(rows):
                break
            count *= 4
    return plan.once("rates", slug, round(len(sample) / max(took, 1e-3), 1))


def _texts(rows: Sequence[dict[str, str]]) -> list[str]:
    return [row[key] for row in rows for key in ("text", "positive") if row.get(key)]


def count_word_vectors(
    folder: Path, text: Material, config: FitConfig, plan: FitPlan, progress: Progress
) -> tuple[Path, float]:
    """Count word vectors in the text and join them with the general ones; return them with the seconds it took."""
    with plan.timed("word-vectors-counted") as seconds:
        if not atomic.cached(folder):
            general, told = load_encoder(WORDS_BASE), Prefixed(progress, "word vectors: ")
            with atomic.build_folder(folder) as scratch:
                build_joined_vectors(text.texts, general, scratch, seed=config.seed, progress=told)
    return folder, seconds()


def train_word_vectors(
    counted: Path, text: Material, folder: Path, config: FitConfig, batch: int, plan: FitPlan, progress: Progress
) -> tuple[Path, float]:
    """Train word vectors on the pairs of the text.

    Args:
        folder: ``trained-again`` has a seed of its own.

    Returns:
        The folder of the encoder, and the seconds that it took.
    """
    steps = plan.once("steps", "word vectors", config.words_steps)
    settings = (
        *PAIRS,
        f"train.steps={steps}",
        f"train.batch_size={batch}",
        f"train.learning_rate={config.words_learning_rate}",
    )
    seed = (config.seed + (folder.name == AGAIN)) % (SEEDS + 1)
    with plan.timed(f"word-vectors-{folder.name}") as seconds:
        model = train_candidate("simcse", counted, text.pairs, folder, seed, settings, progress)
    return model, seconds()
