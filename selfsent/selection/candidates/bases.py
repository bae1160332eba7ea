"""Bases: as they are, and trained: by SimCSE on the pairs of the text, or by the asked methods on single lines.

Where the time is too short for all trainings, by successive halving: each round has an equal share of it, and the
better half goes on to the next, until one is left.  Source: Jamieson & Talwalkar 2016, https://arxiv.org/abs/1502.07943.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from selfsent.encoder.coverage import check_coverage
from selfsent.encoder.folder import SHIPPED
from selfsent.encoder.inspect import transformer_of
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import encoder_digest
from selfsent.errors import EncoderError, ResumeError, StorageError, UserError, first_line, machine_failure
from selfsent.evaluation.label_free.material import find_trained
from selfsent.selection.candidates.workspace import PAIRS, Workspace
from selfsent.selection.scoreboard import Candidate, short_name

LINES = ("corpus.split=no", "train.warmup_steps=0")  # a method's own warm-up is for longer trainings
OF_METHODS = {  # what is published for BERT-base is too much for small encoders (scd.py), or for minutes
    "scd": ("objective.self_contrast_weight=0.01", "objective.projector_width=1024"),
    "denosent": ("objective.decoder_layers=4",),
}
FEWEST = 50  # steps: a shorter training is left out
_RATES = (5e-4, 5e-5)  # peak rates of the encoder that ships and of others
_SLOWER = 0.2  # of these rates where texts are their own positives


@dataclass
class BaseTraining:
    """A training from a base, and how far it is."""

    name: str
    base: Candidate
    method: str
    texts: Path
    settings: tuple[str, ...]  # of the method
    steps: int = 0
    begun: Path | None = None  # the encoder that the last round left, and it as a candidate
    made: Candidate | None = None


def add_bases(work: Workspace, sources: Sequence[str]) -> None:
    """Score every base, measure how fast it encodes, and notice a text in a language that it does not know.

    A base that cannot be used is left out, with a row that says why.

    Raises:
        UserError: no base can be used.
    """
    board = work.board
    failed: list[UserError] = []
    for source in sources:
        name, opened = short_name(source), partial(open_base, source)
        base = Candidate(name=name, how="as it is", open=opened, base=name, source=source, fraction=0.0)
        try:
            _add_base(work, base)
        except (ResumeError, StorageError):  # which no other base would mend
            raise
        except (UserError, RuntimeError) as error:  # the latter of torch: too little memory, an unsupported operation
            if isinstance(error, UserError) and machine_failure(error):
                raise
            used = f"{name} cannot be used: {first_line(error)}"
            failed.append(error if isinstance(error, UserError) else EncoderError(used))
            board.leave_out(base, str(failed[-1]))
    if not board.bases:
        raise no_base(failed)


def open_base(source: str) -> SentenceTransformer:
    """Open a base; of a run that has none yet, the error says so."""
    return load_encoder(find_trained(source))


def no_base(failed: Sequence[UserError]) -> UserError:
    """Return the error that says why no base can be used."""
    if len(failed) == 1:
        return failed[0]
    return EncoderError(f"none of {len(failed)} bases can be used: {'; '.join(map(str, failed))}")


def _add_base(work: Workspace, base: Candidate) -> None:
    board, budget = work.board, work.budget
    with budget.timed(base.slug):
        encoder = base.open()
        budget.require_same_base(base.name, encoder_digest(encoder), base.source)
        base.is_transformer = transformer_of(encoder) is not None
        base.is_static = isinstance(encoder[0], StaticEmbedding)
        foreign = check_coverage(encoder, board.vectors.tests["dev"].texts, base.name, work.progress).foreign
        board.add(base)
    # What is lost on general text, which is English, counts nothing for text of another language.
    board.english = board.english and not foreign
    if base.is_transformer:
        budget.measure_rate(encoder, work.text.pairs if board.structured else work.text.texts, base.slug)
    board.bases.append(base)


def train_bases(work: Workspace, fewest: int = FEWEST) -> None:
    """Train every transformer as many steps as the time allows, decided once; leave out what has below ``fewest``."""
    waiting = _trainings(work)
    needed = sum(work.config.steps / max(1e-9, _affordable(work, training)) for training in waiting)  # of the time
    fit = work.budget.once("trainings", "all fit", needed <= 1)
    rounds = work.budget.once("trainings", "rounds", 1 if fit else _rounds(work, waiting, fewest))
    if rounds > 1:
        work.progress.say(
            f"{len(waiting)} trainings, and too little time for {work.config.steps} steps of each: {rounds} "
            "rounds, the better half goes on to the next"
        )
    for number in range(1, rounds + 1):
        made = []
        for number_before, training in enumerate(waiting):
            name = training.name if number == rounds else f"{training.name}, round {number}"
            shares = 1 if fit else (rounds - number + 1) * len(waiting) - number_before
            if candidate := _train(work, training, name, shares, fewest):
                made.append((work.board.value(candidate), training))
        made.sort(key=lambda scored: -scored[0])  # of equal ones the first named
        waiting = [training for _, training in made[: math.ceil(len(made) / 2)]]


def _trainings(work: Workspace) -> list[BaseTraining]:
    text, structured = work.text, work.board.structured
    ways: list[tuple[str, Path, tuple[str, ...]]] = [("simcse", text.pairs, PAIRS)]
    if not structured:
        ways = [(method, text.texts, (*LINES, *OF_METHODS.get(method, ()))) for method in work.config.methods]
    return [
        BaseTraining(f"{base.name}, trained{'' if structured else f' by {way[0]}'}", base, *way)
        for base in work.board.bases
        if base.is_transformer
        for way in ways
    ]


def _rounds(work: Workspace, trainings: Sequence[BaseTraining], fewest: int) -> int:
    """Return how many rounds there are: until one is left, or as many as leave enough time for the first."""
    if not trainings:
        return 1
    each = min(_affordable(work, training) for training in trainings) / len(trainings)
    return max(1, min(math.ceil(math.log2(len(trainings))) + 1, int(each / fewest)))


def _affordable(work: Workspace, training: BaseTraining) -> float:
    """Return the steps that the time left is enough for, were there nothing else to train."""
    return work.budget.steps_left(training.base.slug, work.batch(work.config.batch_size))


def _train(work: Workspace, training: BaseTraining, name: str, shares: int, fewest: int) -> Candidate | None:
    """Train in one round, for one of ``shares`` of the time left, from where the round before left it, if it can be."""
    config, base = work.config, training.base
    if training.steps >= config.steps:
        return training.made
    affordable = _affordable(work, training)
    possible = affordable / shares
    if possible < fewest <= affordable:
        possible = fewest  # the first in order, rather than none but the last
    possible = min(config.steps - training.steps, max(0, 25 * int(possible / 25)))
    steps = work.budget.once("steps", name, possible)
    if steps < min(fewest, config.steps - training.steps):
        out = f"not trained further: {training.made.name}" if training.made else f"left out: {name}"
        work.progress.say(f"{out}: {config.minutes:g} minutes are too few; give more --minutes")
        return None
    batch = work.batch(config.batch_size)
    rate = config.learning_rate or _RATES[base.source not in SHIPPED] * (1 if work.board.structured else _SLOWER)
    training.steps += steps
    how = f"{training.method}, {training.steps} steps"
    made = Candidate(name=name, how=how, open=base.open, base=base.name, is_transformer=True)
    work.progress.say(f"training: {name}, {steps} steps of {batch} texts")
    try:
        with work.budget.timed(made.slug):
            model = work.train(
                training.method,
                training.texts,
                work.folder / made.slug,
                base=training.begun or base.source,
                settings=training.settings,
                steps=steps,
                batch=batch,
                rate=rate,
                seed=config.seed,
            )
    except (ResumeError, StorageError):
        raise
    except (UserError, RuntimeError) as error:
        if isinstance(error, UserError) and machine_failure(error):
            raise
        work.board.leave_out(made, first_line(error))
        return None
    made.open = partial(load_encoder, model)
    made.seconds = work.budget.seconds(made.slug) + (training.made.seconds if training.made else 0.0)
    training.begun, training.made = model, made
    work.board.add(made)
    return made
