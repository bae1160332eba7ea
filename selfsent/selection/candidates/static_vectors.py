"""Static vectors: counted in the text, joined with the general ones that ship, and trained on the pairs of the text.

The best of them are tried again with axes of latent semantic analysis beside them (decision 0034).
"""

import json
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path

from selfsent.encoder.load import load_encoder
from selfsent.encoder.save import save_encoder
from selfsent.progress import Prefixed
from selfsent.selection.candidates.workspace import PAIRS, Workspace
from selfsent.selection.scoreboard import STATIC_BASE, Candidate
from selfsent.storage import atomic
from selfsent.word_vectors.joined import build_joined_vectors
from selfsent.word_vectors.latent_axes import add_latent_axes, latent_vectors

STATIC = "static vectors of your text"
UNTRAINED = f"{STATIC}, untrained"
LATENT = "latent axes of your text"
FOLDER, _COUNTED, _LATENT = "static-vectors", "counted", "latent"
_READ = 50_000  # texts behind the latent axes, at most


def add_static_vectors(work: Workspace) -> None:
    """Add the vectors as they are counted and joined, where training starts, and as they are trained."""
    counted, seconds = _count(work)
    trained, took = _train(work)
    # Whether the vectors that ship are among the bases, and not a folder of their name.
    named = any(base.name == base.source == STATIC_BASE for base in work.board.bases)
    for name, how, folder, needed in (
        (UNTRAINED, "of this text, joined with general ones", counted, seconds),
        (STATIC, "the same, trained on pairs of this text", trained, took),
    ):
        candidate = Candidate(name=name, how=how, open=partial(load_encoder, folder), base=STATIC_BASE, seconds=needed)
        candidate.is_static, candidate.eligible = True, named
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


def _train(work: Workspace) -> tuple[Path, float]:
    """Train the joined vectors on the pairs of the text; return the folder of the encoder, and the seconds it took."""
    config, folder, slug = work.config, work.folder / FOLDER, f"{FOLDER}-trained"
    steps = work.budget.once("steps", STATIC, config.static_steps)
    batch, rate = work.batch(config.static_batch_size), config.static_learning_rate
    with work.budget.timed(slug):
        trained = work.train(
            "simcse",
            work.text.pairs,
            folder / "trained",
            base=folder / _COUNTED,
            settings=PAIRS,
            steps=steps,
            batch=batch,
            rate=rate,
            seed=config.seed,
        )
    return trained, work.budget.seconds(slug)


def add_latent_vectors(work: Workspace) -> None:
    """Add the best static vectors with latent semantic axes of the text."""
    source = work.board.best(attrgetter("is_static"))
    if source is None:
        return
    folder, slug = work.folder / FOLDER / _LATENT, f"{FOLDER}-{_LATENT}"
    with work.budget.timed(slug):
        if not atomic.cached(folder):
            work.progress.say(f"{source.name}: latent semantic analysis of the text")
            language, seed = work.config.corpus.language, work.config.seed
            wider = add_latent_axes(source.open(), _read_texts(work), language, seed=seed)
            with atomic.build_folder(folder) as scratch:
                save_encoder(wider, scratch)
    name, how = f"{source.name}, with latent axes", f"{source.how}, with latent semantic analysis of this text"
    seconds = source.seconds + work.budget.seconds(slug)
    opened = partial(load_encoder, folder)
    work.board.add(replace(source, name=name, how=how, open=opened, seconds=seconds, parts=(), derive=None, scores={}))


def make_latent_vectors(work: Workspace) -> Candidate | None:
    """Make static vectors of the latent axes of the text alone; None where its texts share no word."""
    folder = work.folder / _LATENT
    if not atomic.cached(folder):
        general, language = load_encoder(STATIC_BASE), work.config.corpus.language
        encoder = latent_vectors(general, _read_texts(work), language, seed=work.config.seed)
        if encoder is None:
            return None
        with atomic.build_folder(folder) as scratch:
            save_encoder(encoder, scratch)
    return Candidate(name=LATENT, how="latent semantic analysis of this text", open=partial(load_encoder, folder))


def _read_texts(work: Workspace) -> list[str]:
    with work.text.texts.open(encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    return texts[:: -(-len(texts) // _READ)]
