"""Static vectors: counted in the text, joined with the general ones that ship, and trained on the pairs of the text."""

from functools import partial
from pathlib import Path

from selfsent.config import SEEDS
from selfsent.encoder.load import load_encoder
from selfsent.progress import Prefixed
from selfsent.selection.candidates.workspace import PAIRS, Workspace
from selfsent.selection.scoreboard import STATIC_BASE, Candidate
from selfsent.storage import atomic
from selfsent.word_vectors.joined import build_joined_vectors

STATIC = "static vectors of your text"
UNTRAINED = f"{STATIC}, untrained"
FOLDER, _COUNTED = "static-vectors", "counted"


def add_static_vectors(work: Workspace) -> None:
    """Add the vectors as they are counted and joined, where training starts, and as they are trained."""
    counted, seconds = _count(work)
    trained, took = train_static_vectors(work, "trained", work.config.seed)
    # Whether the vectors that ship are among the bases, and not a folder of their name.
    named = any(base.name == base.source == STATIC_BASE for base in work.board.bases)
    for name, how, folder, needed in (
        (UNTRAINED, "of this text, joined with general ones", counted, seconds),
        (STATIC, "the same, trained on pairs of this text", trained, took),
    ):
        candidate = Candidate(name=name, how=how, open=partial(load_encoder, folder), base=STATIC_BASE, seconds=needed)
        candidate.is_static, candidate.eligible = True, named and name == STATIC
        work.board.add(candidate)


def _count(work: Workspace) -> tuple[Path, float]:
    """Count vectors in the text and join them with the general ones; return their folder and the seconds it took."""
    folder, slug = work.folder / FOLDER / _COUNTED, f"{FOLDER}-{_COUNTED}"
    with work.budget.timed(slug):
        if not atomic.cached(folder):
            general, told = load_encoder(STATIC_BASE), Prefixed(work.progress, f"{STATIC}: ")
            with atomic.build_folder(folder) as scratch:
                build_joined_vectors(work.text.texts, general, scratch, seed=work.config.seed, progress=told)
    return folder, work.budget.seconds(slug)


def train_static_vectors(work: Workspace, name: str, seed: int) -> tuple[Path, float]:
    """Train the joined vectors on the pairs of the text; return the folder of the encoder, and the seconds it took."""
    config, folder, slug = work.config, work.folder / FOLDER, f"{FOLDER}-{name}"
    steps = work.budget.once("steps", STATIC, config.static_steps)
    batch, rate = work.batch(config.static_batch_size), config.static_learning_rate
    with work.budget.timed(slug):
        trained = work.train(
            "simcse",
            work.text.pairs,
            folder / name,
            base=folder / _COUNTED,
            settings=PAIRS,
            steps=steps,
            batch=batch,
            rate=rate,
            seed=seed % (SEEDS + 1),  # behind the largest one it begins again at 0
        )
    return trained, work.budget.seconds(slug)
