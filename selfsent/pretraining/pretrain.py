"""Pretrain an encoder from raw text: static word vectors, or a masked language model from scratch or from a base."""

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass as configuration
from transformers import PreTrainedTokenizerFast

from selfsent.config import FINITE, MANY, SEEDS, HardwareConfig, TrainConfig, apply_settings, build_config, setting
from selfsent.corpus.dataset import Corpus
from selfsent.corpus.in_memory import source_names
from selfsent.corpus.prepare import prepare_corpus
from selfsent.corpus.settings import CorpusConfig, with_column
from selfsent.corpus.sources import DEMO
from selfsent.encoder.dropout import set_dropout
from selfsent.encoder.folder import CLOSED
from selfsent.encoder.inspect import tokenizer_of
from selfsent.encoder.load import load_encoder
from selfsent.errors import ConfigurationError, CorpusError, UserError, unknown
from selfsent.evaluation.suite import Suite, read_suite
from selfsent.pretraining import masked_lm
from selfsent.pretraining.pretrained import Pretrained
from selfsent.progress import SILENT, Progress
from selfsent.runtime import distributed, hardware
from selfsent.runtime.launch import require_one
from selfsent.storage import atomic, locks, provenance
from selfsent.storage.run_folder import RESUMABLE, Run, first_difference
from selfsent.training import trainer
from selfsent.word_vectors import cooccurrences, factorization, static_vectors, vocabulary

T = TypeVar("T")
SIZE = "mini"
CLOZE = "the capital of france is [MASK]."
_TIMED = 8  # steps whose time is taken to fit a run to its hours
_FEWEST = 10  # steps that a run may be fitted to


@configuration(frozen=True, kw_only=True, config=FINITE)
class PretrainConfig:
    """What decides the pretraining of a masked language model, apart from its text."""

    size: Literal["nano", "micro", "mini", "small", "medium"] | None = setting(
        None, "None: mini, or the shape of the base"
    )
    base: str | None = setting(None, "masked LM to continue, with its vocabulary: a folder, a hub name or builtin-mlm")
    vocabulary: int | None = setting(None, "tokens; None: 16,384, or as many as the text gives", ge=1, le=1_000_000)
    tokens: float | None = setting(None, "tokens to train on; None: one epoch, or what hours allow", gt=0, le=1e15)
    hours: float | None = setting(None, "of training; the number of steps is fitted once", gt=0, le=100_000)
    length: int = setting(64, "tokens of a row", ge=16, le=256)
    batch_size: int = setting(64, "sequences of two rows", ge=2, le=1_000_000)
    learning_rate: float = setting(1e-3, "peak", gt=0, le=10)
    warmup: float = setting(0.05, "share of all steps in which the learning rate rises linearly from zero", ge=0, lt=1)
    dropout: float = setting(0.0, "rate while pretraining, in attention too", ge=0, lt=1)
    warm_start: bool = setting(True, "word embeddings start from the factorised co-occurrence counts of the text")
    static: str | None = setting(None, "folder of static vectors to start from, with their vocabulary and weights")
    cloze: str = setting(CLOZE, "sentence with a [MASK] whose predictions are shown at every evaluation")
    seed: int = setting(42, "of every random draw", ge=0, le=SEEDS)
    objective: masked_lm.MaskedLM.Config = Field(default_factory=lambda: masked_lm.MaskedLM.Config())
    factors: factorization.FactorConfig = Field(default_factory=lambda: factorization.FactorConfig())
    corpus: CorpusConfig = Field(default_factory=lambda: CorpusConfig())
    hardware: HardwareConfig = Field(default_factory=lambda: HardwareConfig())
    evaluate_every: int = setting(500, "steps", ge=1, le=MANY)

    def __post_init__(self) -> None:
        if self.base is not None and (self.size or self.vocabulary or self.static or not self.warm_start):
            raise ConfigurationError(
                "base brings its own shape, vocabulary and weights: leave size, vocabulary, static and warm_start out"
            )
        if self.tokens is not None and self.hours is not None:
            raise ConfigurationError("tokens and hours both set the length of training: give one of them")
        default = factorization.FactorConfig()
        if self.factors != default and (self.base is not None or not self.warm_start):
            why = "base brings its own vectors" if self.base else "without warm_start nothing is factorised"
            raise ConfigurationError(f"{why}: leave factors out")
        if (self.factors.width, self.factors.common) != (default.width, default.common):
            raise ConfigurationError("factors.width and .common are for size static: the size decides the width here")
        if self.static is not None and (self.vocabulary or not self.warm_start or self.factors != default):
            raise ConfigurationError(
                "static brings its own vocabulary and vectors: leave vocabulary, warm_start and factors out"
            )


def pretrain(
    corpus: Sequence[str | Path] | str | Path = (),
    out: str | Path | None = None,
    *,
    size: str | None = None,
    base: str | None = None,
    vocabulary: int | None = None,
    hours: float | None = None,
    tokens: float | None = None,
    vectors: Path | None = None,
    seed: int = 42,
    data: Path | None = None,
    column: str | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    progress: Progress = SILENT,
) -> Pretrained:
    """Make an encoder from raw text: static word vectors, or a masked language model.

    Args:
        corpus: files, folders, hub names of datasets, or ``pydocs``, the default.
        out: the run's folder; default: runs/pretrain-SIZE.
        size: ``static``, or the size of a masked LM: nano, micro, mini, small, medium.  Default: mini.
        base: a masked LM to continue: a folder, a name on the hub, or ``builtin-mlm``.
        vocabulary: tokens; default: 16,384, or as many as the text gives.
        hours: of training, of a masked LM; the number of steps is fitted to it.
        tokens: tokens to train a masked LM on; default: one epoch.
        vectors: with size ``static``, a text file of word vectors to read instead of ``corpus``.
        data: evaluation data in SentEval's layout, or ``hub``, to follow STS-B dev with.
        column: of a table, that holds the text.  Default: "text", or where there is none the one that reads like prose.
        settings: ``key=value`` changes to ``PretrainConfig`` or ``StaticConfig``.
        resume: resume the masked LM's run in ``out``, return its result if it is finished, start it if there is none.

    Raises:
        UserError: something given cannot work; the message says what would.
        Interrupted: Ctrl-C or SIGTERM; the state is saved.

    Examples:
        >>> result = selfsent.pretrain("articles", "runs/vectors", size="static")
    """
    out = Path(out) if out is not None else Path("runs") / f"pretrain-{size or ('base' if base else SIZE)}"
    sources, settings = source_names(corpus) or [DEMO], with_column(settings, column)
    options: dict[str, object] = {"base": base, "hours": hours, "tokens": tokens}
    kept = {"vocabulary": vocabulary, "seed": seed}
    if size == "static":
        for name, value in (options | {"data": data, "resume": resume or None}).items():
            if value is not None:
                raise ConfigurationError(f"--{name} does not fit --size static, which takes one pass: leave it out")
        if vectors is not None and (corpus or vocabulary or settings):
            raise ConfigurationError("--vectors brings its own words: leave CORPUS, --vocabulary and --set out")
        require_one("pretrain --size static")
        static = _config(static_vectors.StaticConfig, kept, settings)
        with locks.exclusive(out):
            if vectors is None:
                model = static_vectors.build_static_vectors(sources, out, static, progress=progress)
            else:
                model = static_vectors.read_word_vectors(vectors, out, progress=progress)
        return Pretrained(folder=out, model=model)
    if vectors is not None:
        raise ConfigurationError("--vectors is for --size static: add it, or leave --vectors out")
    if size is not None and size not in masked_lm.SIZES:
        raise unknown("size", size, ("static", *masked_lm.SIZES))
    config = _config(PretrainConfig, options | kept | {"size": size}, settings)
    with distributed.joined(config.hardware.device) as group, locks.exclusive(out) if group.first else nullcontext():
        return pretrain_masked_lm(sources, out, config, data=data, resume=resume, progress=progress)


def _config(kind: type[T], options: Mapping[str, object], settings: Sequence[str]) -> T:
    return build_config(kind, apply_settings({k: v for k, v in options.items() if v is not None}, settings), "")


def pretrain_masked_lm(
    sources: Sequence[str],
    out: Path,
    settings: PretrainConfig,
    *,
    data: Path | None = None,
    resume: bool = False,
    progress: Progress = SILENT,
) -> Pretrained:
    """Learn a vocabulary and train a compact masked language model; arguments and errors as for ``pretrain``.

    The folder ``out/model`` opens in ``AutoModelForMaskedLM`` and ``SentenceTransformer``.
    """
    with distributed.joined(settings.hardware.device) as group:
        progress = progress if group.first else SILENT
        group.require_equal({"recipe": asdict(settings), "versions": provenance.versions()}, first_difference)
        group.require_even(settings.batch_size, "batch_size")
        suite = read_suite(["stsb-dev"], data) if data and group.first else None
        machine = hardware.choose_hardware(**asdict(settings.hardware))
        progress.say(f"machine: {machine.line()}")
        resuming = group.on_first(lambda: resume and (out / "config.json").is_file())
        run, text = group.rank_zero_first(
            lambda: _begin(sources, out, settings, machine, group, resume=resume or not group.first, progress=progress)
        )
        build = partial(_trainer, run, text, settings, machine, suite)
        try:
            steps = _steps(run, text, settings, build, group)
        except UserError:
            if not resuming and group.first:
                atomic.remove(out)  # it was empty before, and nothing in it took long
            raise
        tokens = steps * settings.batch_size * 2 * settings.length
        progress.say(f"{steps:,} steps: {tokens / 1e6:,.1f} M tokens of {text.tokens / 1e6:,.1f} M")
        scores = group.on_first(run.finished)
        if scores is None:
            training = build(steps, progress)
            outcome = training.train()
            scores = group.on_first(lambda: _finish(training, outcome))
        else:
            progress.say(f"the run in {out} is finished: nothing is left to do")
            group.on_first(run.release)
    speed = scores.pop("tokens_per_second", 0.0)
    return Pretrained(folder=out, model=run.model, steps=steps, tokens=tokens, tokens_per_second=speed, scores=scores)


def _begin(
    sources: Sequence[str],
    out: Path,
    settings: PretrainConfig,
    machine: hardware.Hardware,
    group: distributed.Ranks,
    *,
    resume: bool,
    progress: Progress,
) -> tuple[Run, Corpus]:
    """Learn the vocabulary, prepare the text, and write the model that the run starts from; or find them."""
    resuming = resume and (out / "config.json").is_file()
    if not resuming:
        Run.require_free(out, RESUMABLE if not resume else "it has no config.json to resume by; choose another --out")
    start = out / "start"
    started = resuming and start.is_dir()  # a run that was killed before that starts from the vocabulary again
    if started:
        atomic.verify(start, f"delete {out} to train it again")
    tokenizer = _tokenizer(sources, settings, start if started else None, progress)
    text = prepare_corpus(sources, settings.corpus, tokenizer, unit="documents", progress=progress)
    for line in text.account.lines():
        progress.say(f"  {line}")
    if text.tokens < 2 * settings.length * settings.batch_size:
        raise CorpusError(
            f"the text has {text.tokens:,} tokens, fewer than one batch of {settings.batch_size} x "
            f"{2 * settings.length}: give more text, or a smaller batch"
        )
    config = {
        "recipe": {"texts": [str(source) for source in sources], **json.loads(json.dumps(asdict(settings)))},
        "corpus": {"fingerprint": text.fingerprint, "texts": len(text)},
        "hardware": asdict(machine),
        "versions": provenance.versions(),
        **group.table(),
    }
    run = Run.open(out, config, resume=resume, progress=progress)
    try:
        if not started:
            run.publish(_start(text, tokenizer, settings, progress), start.name)
    except UserError:
        if not resuming:
            atomic.remove(out)
        raise
    return run, text


def _finish(training: trainer.Trainer, outcome: trainer.TrainingOutcome) -> dict[str, float]:
    """Save and score the trained model, and finish its run."""
    run, encoder, objective = training.run, training.encoder, training.objective
    assert isinstance(objective, masked_lm.MaskedLM)
    head, start = objective.head, run.folder / "start"
    run.publish(lambda folder: masked_lm.export_masked_lm(encoder, head, start, folder, torch.float16))
    scores = training.validate(encoder) | {"tokens_per_second": outcome.texts_per_second}
    run.finish(scores)
    return scores


def _trainer(
    run: Run,
    text: Corpus,
    settings: PretrainConfig,
    machine: hardware.Hardware,
    suite: Suite | None,
    steps: int,
    progress: Progress,
) -> trainer.Trainer:
    """Open the model that the run starts from, and join it with what it is trained on."""
    encoder = load_encoder(run.folder / "start").to(machine.device)
    set_dropout(encoder, settings.dropout)
    torch.manual_seed(settings.seed)
    objective = masked_lm.MaskedLM(settings.objective, encoder).to(machine.device)
    sequences = masked_lm.PackedSequences(text, 2 * settings.length)
    return trainer.Trainer(
        encoder,
        objective,
        sequences,
        masked_lm.SequentialOrder(len(sequences), settings.batch_size, settings.seed),
        run,
        config=TrainConfig(
            steps=steps,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            warmup_steps=round(settings.warmup * steps),
            weight_decay=0.01,
            adam_betas=(0.9, 0.98),
            adam_epsilon=1e-6,
            evaluate_every=min(settings.evaluate_every, steps),
            allow_accumulation=True,
        ),
        hardware=machine,
        seed=settings.seed,
        validate=masked_lm.validator(
            encoder, objective, text.held_out, settings.length, settings.cloze, suite, progress
        ),
        select="last",
        progress=progress,
        weight=sequences.length,
        unit="tokens",
    )


def _steps(
    run: Run,
    text: Corpus,
    settings: PretrainConfig,
    build: Callable[[int, Progress], trainer.Trainer],
    group: distributed.Ranks,
) -> int:
    """Return the number of steps; one that is fitted to a time is measured once and stored in plan.json."""
    if settings.tokens is not None:
        return max(1, round(settings.tokens / (settings.batch_size * 2 * settings.length)))
    if settings.hours is None:
        return text.tokens // (2 * settings.length) // settings.batch_size
    path = run.folder / "plan.json"
    advice = f"delete {run.folder} to train it again"
    planned = group.on_first(lambda: int(atomic.read_sealed(path, advice)["steps"]) if path.is_file() else None)
    if planned is not None:
        return planned
    seconds = group.means([seconds_per_step(build(_TIMED, SILENT))])[0]
    steps = int(0.95 * 3600 * settings.hours / seconds)  # the rest is for evaluations and checkpoints
    if steps < _FEWEST:
        raise ConfigurationError(
            f"{settings.hours:g} hours are {steps} steps of {seconds:.1f} s, too few to learn from: give "
            f"{_FEWEST * seconds / 0.95 / 3600:.2g} hours at least, or a smaller size"
        )
    if group.first:
        run.write("plan.json", {"steps": steps, "seconds_a_step": seconds})
    return steps


def seconds_per_step(trial: trainer.Trainer) -> float:
    """Time some training steps; the model of ``trial`` is not used again."""
    trial.restore()
    trial.learner.train()
    seconds = []
    for _ in range(trial.steps):
        start = time.perf_counter()
        trial.train_step()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[3:])  # the first steps warm up


def _tokenizer(
    sources: Sequence[str], settings: PretrainConfig, start: Path | None, progress: Progress
) -> PreTrainedTokenizerFast:
    """Return the tokenizer of a run that has started, of what it starts from, or a new one."""
    if start is not None:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(str(start), **CLOSED)
    elif settings.base is not None:
        tokenizer = tokenizer_of(load_encoder(settings.base))
    elif settings.static is not None:
        tokenizer = static_vectors.load_framed(settings.static)[0]
    else:
        tokenizer = vocabulary.learn_vocabulary(sources, settings.corpus, settings.vocabulary, progress)
    progress.say(f"vocabulary: {len(tokenizer):,} tokens")
    return tokenizer


def _start(
    text: Corpus, tokenizer: PreTrainedTokenizerFast, settings: PretrainConfig, progress: Progress
) -> Callable[[Path], None]:
    """Return what writes the model that the run starts from into a folder."""
    if settings.base is not None:
        return partial(masked_lm.save_base, encoder=load_encoder(settings.base), seed=settings.seed)
    size = masked_lm.SIZES[settings.size or SIZE]
    vectors = None
    if settings.static is not None:
        scaled = static_vectors.load_framed(settings.static)[1]  # their lengths are the weights of the words
        if scaled.shape[1] != size.width:
            raise ConfigurationError(
                f"the vectors of {settings.static} are {scaled.shape[1]} wide and size {settings.size or SIZE!r} is "
                f"{size.width}: choose a size of their width, or make vectors of another"
            )
        lengths = scaled.norm(dim=1)
        vectors, weights = torch.nn.functional.normalize(scaled, dim=1), (lengths / lengths.max()).numpy()
    else:
        skip, factors = np.array(tokenizer.all_special_ids), replace(settings.factors, width=size.width)
        if settings.warm_start:
            vectors, words = factorization.word_vectors(text, len(tokenizer), skip, factors, settings.seed, progress)
        else:
            words = cooccurrences.frequencies(text, len(tokenizer), skip)
        weights = factorization.sif_weights(words, factors.sif_coefficient)
    return partial(
        masked_lm.start_encoder, tokenizer=tokenizer, size=size, vectors=vectors, weights=weights, seed=settings.seed
    )
