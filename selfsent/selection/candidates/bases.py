"""Bases: as they are, and trained: by SimCSE on the pairs of the text, or by the asked methods on single lines."""

from collections.abc import Sequence
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
    ways: list[tuple[str, Path, tuple[str, ...]]] = [("simcse", work.text.pairs, PAIRS)]
    if not work.board.structured:
        methods = work.config.methods
        ways = [(method, work.text.texts, (*LINES, *OF_METHODS.get(method, ()))) for method in methods]
    waiting = [(base, *way) for base in work.board.bases if base.is_transformer for way in ways]
    # Of the time left: a slow base may have more of it where that is enough for all.
    needed = sum(work.config.steps / max(1e-9, _affordable(work, base)) for base, *_ in waiting)
    fit = work.budget.once("trainings", "all fit", needed <= 1)
    for number, (base, method, texts, settings) in enumerate(waiting):
        name = f"{base.name}, trained{'' if work.board.structured else f' by {method}'}"
        affordable = _affordable(work, base)
        possible = affordable / (1 if fit else len(waiting) - number)
        if possible < fewest <= affordable:
            possible = fewest  # the first in order, rather than none but the last
        steps = work.budget.once("steps", name, min(work.config.steps, max(0, 25 * int(possible / 25))))
        if steps < min(fewest, work.config.steps):
            work.progress.say(f"left out: {name}: {work.config.minutes:g} minutes are too few; give more --minutes")
        else:
            _train(work, base, method, texts, settings, name=name, steps=steps)


def _affordable(work: Workspace, base: Candidate) -> float:
    """Return the steps from a base that the time left is enough for, were there nothing else to train."""
    return work.budget.steps_left(base.slug, work.batch(work.config.batch_size))


def _train(
    work: Workspace, base: Candidate, method: str, texts: Path, settings: Sequence[str], *, name: str, steps: int
) -> None:
    """Add what a training gives, or leave it out with the reason."""
    config, batch = work.config, work.batch(work.config.batch_size)
    rate = config.learning_rate or _RATES[base.source not in SHIPPED] * (1 if work.board.structured else _SLOWER)
    made = Candidate(name=name, how=f"{method}, {steps} steps", open=base.open, base=base.name, is_transformer=True)
    work.progress.say(f"training: {name}, {steps} steps of {batch} texts")
    try:
        with work.budget.timed(made.slug):
            model = work.train(
                method,
                texts,
                work.folder / made.slug,
                base=base.source,
                settings=settings,
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
        return
    made.open = partial(load_encoder, model)
    made.seconds = work.budget.seconds(made.slug)
    work.board.add(made)
