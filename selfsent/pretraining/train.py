"""selfsent pretrain: raw text in, an encoder out that was never anybody else's."""

import json
import math
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar, get_type_hints

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch.optim import AdamW
from transformers import PreTrainedTokenizerFast

from selfsent import hardware, trainer
from selfsent.config import HardwareConfig, TrainConfig, apply_settings, build_config
from selfsent.corpus.dataset import Corpus
from selfsent.corpus.heldout import HeldOut
from selfsent.corpus.prepare import CorpusConfig, prepare_corpus
from selfsent.encoder.dropout import set_dropout
from selfsent.encoder.embed import collate
from selfsent.encoder.encode import encode
from selfsent.encoder.inspect import tokenizer_of
from selfsent.encoder.load import load_encoder
from selfsent.errors import UserError, unknown
from selfsent.evaluation.suite import Suite, read_suite
from selfsent.optimizer import MasterWeights
from selfsent.pretraining import factorization, masked_lm, vocabulary
from selfsent.progress import SILENT, Progress
from selfsent.run import Run, versions

T = TypeVar("T")

SIZE = "mini"
CLOZE = "the capital of france is [MASK]."
_HELD_OUT_ROWS = 512  # of the evaluation


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """What decides a pretraining beside its text."""

    size: str | None = None  # "mini", or the shape of the base
    base: str | None = None  # a masked LM to go on with, in its own vocabulary: a folder, a hub name or "builtin"
    vocabulary: int | None = None  # word pieces; None: vocabulary.SIZE, or as many as the text gives
    tokens: float | None = None  # word pieces to train on; None: one pass over the text, or what hours allow
    hours: float | None = None  # of training; the number of steps is fitted to it, once, before the first
    length: int = 64  # word pieces of a row
    batch_size: int = 64  # stretches of two rows
    learning_rate: float = 1e-3  # peak
    warmup: float = 0.05  # of all steps
    dropout: float = 0.0  # while pretraining, in attention, too
    warm_start: bool = True  # word embeddings from the factorised counts of the same text
    static: str | None = None  # instead: a folder of static vectors, with its vocabulary and its weights of words
    cloze: str = CLOZE  # a sentence with a [MASK], guessed now and then for a person to look at
    seed: int = 42
    objective: masked_lm.MaskedLM.Config = field(default_factory=masked_lm.MaskedLM.Config)
    factors: factorization.FactorConfig = field(default_factory=factorization.FactorConfig)
    corpus: CorpusConfig = field(default_factory=CorpusConfig)
    hardware: HardwareConfig = field(default_factory=HardwareConfig)
    evaluate_every: int = 500  # steps

    def __post_init__(self) -> None:
        """Refuse what cannot mean anything."""
        if self.size is not None and self.size not in masked_lm.SIZES:
            raise unknown("size", self.size, ("static", *masked_lm.SIZES))
        if self.base is not None and (self.size or self.vocabulary or self.static or not self.warm_start):
            raise UserError(
                "base brings its own shape, vocabulary and weights: leave size, vocabulary, static and warm_start out"
            )
        if self.tokens is not None and self.hours is not None:
            raise UserError("tokens and hours both say how long to train: give one of them")
        if not 16 <= self.length <= 256:
            raise UserError(f"rows of {self.length} word pieces do not fit: give 16 to 256")
        for name in ("tokens", "hours", "learning_rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise UserError(f"{name} = {value} does not fit: it must be above 0")
        for name, least in (("batch_size", 2), ("evaluate_every", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise UserError(f"{name} = {getattr(self, name)} does not fit: it must be at least {least}")
        if not 0 <= self.dropout < 1:
            raise UserError(f"dropout = {self.dropout} does not fit: it is a rate, from 0 to below 1")
        if not 0 <= self.warmup < 1:
            raise UserError(f"warmup = {self.warmup} does not fit: it is a share of the steps, from 0 to below 1")
        usual = factorization.FactorConfig()
        if (self.factors.width, self.factors.common) != (usual.width, usual.common):
            raise UserError("factors.width and factors.common are for size static: the size decides the width here")
        if self.static is not None and (self.vocabulary or not self.warm_start or self.factors != usual):
            raise UserError(
                "static brings its own vocabulary and vectors: leave vocabulary, warm_start and factors out"
            )


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """What a pretraining gave."""

    folder: Path
    model: Path
    steps: int
    tokens: int
    tokens_per_second: float
    share: float  # of what a large product reaches on this machine in the same precision
    scores: dict[str, float]


def pretrain_masked_lm(
    sources: Sequence[str],
    out: Path,
    settings: PretrainConfig,
    *,
    data: Path | None = None,
    resume: bool = False,
    progress: Progress = SILENT,
) -> Pretrained:
    """Learn a vocabulary and train a compact masked language model from raw text.

    Args:
        sources: files, folders, hub names of data sets, or "pydocs".
        out: the folder of the run; its ``model`` opens in ``AutoModelForMaskedLM`` and ``SentenceTransformer``.
        data: evaluation data in SentEval's layout, or ``hub``, to follow STS-B dev with.
        resume: go on with the run in ``out``, or return what it gave if it is finished; start it where there is none.

    Raises:
        UserError: something given cannot work; the message says what would.
        Interrupted: Ctrl-C or SIGTERM; the state is saved.
    """
    if not sources:
        raise UserError("there is no text to learn from: name a file, a folder, a hub dataset (owner/name) or pydocs")
    going_on = resume and (out / "config.json").is_file()
    if not going_on:
        Run.require_free(out, "choose another --out, or add --resume to go on with the run in it")
    suite = read_suite(["stsb-dev"], data) if data else None
    machine = hardware.choose_hardware(**asdict(settings.hardware))
    progress.say(f"machine: {machine.line()}")
    begin = out / "start"
    started = going_on and begin.is_dir()  # killed before that, it begins anew

    if started:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(str(begin))
    elif settings.base is not None:
        tokenizer = tokenizer_of(load_encoder(settings.base))
    elif settings.static is not None:
        tokenizer = _opened(settings.static)[0]
    else:
        tokenizer = vocabulary.learn_vocabulary(sources, settings.corpus, settings.vocabulary, progress=progress)
    progress.say(f"vocabulary: {len(tokenizer):,} word pieces")
    text = prepare_corpus(sources, settings.corpus, tokenizer, unit="documents", progress=progress)
    for line in text.account.lines():
        progress.say(f"  {line}")
    stretches = masked_lm.PackedSequences(text, 2 * settings.length)
    if len(stretches) < settings.batch_size:
        raise UserError(
            f"the text has {text.tokens:,} word pieces, fewer than one batch of {settings.batch_size} x "
            f"{2 * settings.length}: give more text, or a smaller batch"
        )
    config = {
        "recipe": {"texts": [str(source) for source in sources], **_table(settings)},
        "corpus": {"fingerprint": text.fingerprint, "texts": len(text)},
        "hardware": asdict(machine),
        "versions": versions(),
    }
    run = Run.reopen(out, config) if going_on else Run.create(out, config)
    if not started:
        try:
            run.publish(_start(text, tokenizer, settings, progress), begin.name)
        except UserError:
            if not going_on:
                shutil.rmtree(out)  # it was free before, and nothing in it took long
            raise

    encoder = load_encoder(begin).to(machine.device)
    set_dropout(encoder, settings.dropout)
    torch.manual_seed(settings.seed)
    objective = masked_lm.MaskedLM(settings.objective, encoder).to(machine.device)
    plan = masked_lm.SequentialOrder(len(stretches), settings.batch_size, settings.seed)
    per_step = settings.batch_size * stretches.length
    try:
        steps = _steps(run, settings, encoder, objective, stretches, plan, machine, per_step)
    except UserError:
        if not going_on:
            shutil.rmtree(out)
        raise
    progress.say(
        f"{steps:,} steps of {per_step:,} word pieces: {steps * per_step / 1e6:,.1f} M of {text.tokens / 1e6:,.1f} M"
    )
    done = run.finished()
    if done is not None:
        progress.say(f"the run in {out} is finished: nothing is left to do")
        run.release()
        return _outcome(run, steps, steps * per_step, done)
    validate = PretrainingValidator(text.held_out, objective, settings, suite, progress)
    progress.unit = "tokens"
    outcome = trainer.Trainer(
        encoder,
        objective,
        stretches,
        plan,
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
        validate=validate,
        select="last",
        progress=progress,
        weight=stretches.length,
    ).train()
    run.publish(lambda folder: masked_lm.export_masked_lm(encoder, objective.head, begin, folder, torch.float16))
    scores = validate(encoder)
    speed = {"tokens_per_second": outcome.texts_per_second, "share_of_ceiling": 0.0}
    if machine.device == "cpu" and outcome.texts_per_second:  # none if it was stopped after its last step
        work = masked_lm.training_operations(
            masked_lm.model_size(encoder), len(tokenizer), settings.length, settings.objective.share
        )
        speed["share_of_ceiling"] = work * outcome.texts_per_second / hardware.measure_ceiling(machine.precision)
    run.finish({**scores, **speed})
    return _outcome(run, steps, steps * per_step, {**scores, **speed})


def _outcome(run: Run, steps: int, tokens: int, figures: Mapping[str, float]) -> Pretrained:
    """Say what a pretraining gave, from the figures of its scores.json."""
    speed = ("tokens_per_second", "share_of_ceiling")
    return Pretrained(
        folder=run.folder,
        model=run.model,
        steps=steps,
        tokens=tokens,
        tokens_per_second=figures.get(speed[0], 0.0),
        share=figures.get(speed[1], 0.0),
        scores={name: value for name, value in figures.items() if name not in speed},
    )


class PretrainingValidator:
    """What a pretraining is followed by: guessing words of held-out text, and STS-B dev where there is data."""

    def __init__(
        self,
        held_out: HeldOut,
        objective: masked_lm.MaskedLM,
        settings: PretrainConfig,
        suite: Suite | None,
        progress: Progress,
    ) -> None:
        pairs = held_out.dev
        self._texts = [f"{query} {passage}" for query, passage in zip(pairs.queries, pairs.passages, strict=True)]
        self._objective = objective
        self._settings = settings
        self._suite = suite
        self._watcher = progress
        self._rows: list[list[int]] = []

    def __call__(self, encoder: SentenceTransformer) -> trainer.Scores:
        """Score the encoder as it is, and show what it makes of the cloze."""
        head, length = self._objective.head, self._settings.length
        scores: trainer.Scores = {}
        if not self._rows and self._texts:
            ids = [token for row in encoder.tokenizer(self._texts, verbose=False)["input_ids"] for token in row]
            count = min(len(ids) // length, _HELD_OUT_ROWS)
            self._rows = [ids[start : start + length] for start in range(0, count * length, length)]
        if self._rows:
            found = masked_lm.guess_words(encoder, head, self._rows, self._settings.objective.share)
            scores |= {f"held_out_{name}": value for name, value in found.items()}
        if self._suite is not None:
            vectors = encode(encoder, self._suite.sentences)
            scores["stsb-dev"] = self._suite.score(vectors, bootstrap=0).get("stsb-dev").value
        if encoder.tokenizer.mask_token in self._settings.cloze:
            words = masked_lm.cloze(encoder, head, self._settings.cloze)
            self._watcher.say(f"{self._settings.cloze}  {', '.join(words)}")
        return scores


def _start(
    text: Corpus, tokenizer: PreTrainedTokenizerFast, settings: PretrainConfig, progress: Progress
) -> Callable[[Path], None]:
    """Return what writes the model that the run begins with into a folder."""
    if settings.base is not None:
        return partial(masked_lm.adopt, encoder=load_encoder(settings.base))
    size = masked_lm.SIZES[settings.size or SIZE]
    vectors, weights = _vectors(text, tokenizer, size.width, settings, progress)
    return partial(
        masked_lm.start_encoder, tokenizer=tokenizer, size=size, vectors=vectors, weights=weights, seed=settings.seed
    )


def _vectors(
    text: Corpus, tokenizer: PreTrainedTokenizerFast, width: int, settings: PretrainConfig, progress: Progress
) -> tuple[torch.Tensor | None, np.ndarray]:
    """Return what the word embeddings start from, and how much each word counts in a text."""
    skip = np.array(tokenizer.all_special_ids)
    config = replace(settings.factors, width=width)
    if settings.static is not None:
        found = _opened(settings.static)[1]
        lengths = found.norm(dim=1)
        if found.shape[1] != width:
            raise UserError(
                f"the vectors of {settings.static} are {found.shape[1]} wide and size {settings.size or SIZE!r} is "
                f"{width}: choose a size of their width, or make vectors of another"
            )
        return torch.nn.functional.normalize(found, dim=1), (lengths / lengths.max()).numpy()
    if not settings.warm_start:
        words = factorization.frequencies(text, len(tokenizer), skip)
        return None, factorization.word_weights(words, config.rarity)
    table, words = factorization.count_cooccurrences(text, len(tokenizer), config.window, skip, progress)
    progress.say(f"{int(words.sum()):,} words counted; the table of their neighbours is being factorised")
    vectors = factorization.factorise(factorization.ppmi(table), config, settings.seed)
    vectors[skip] = 0
    return vectors, factorization.word_weights(words, config.rarity)


def _opened(folder: str) -> tuple[PreTrainedTokenizerFast, torch.Tensor]:
    """Open static vectors: their tokenizer, as a masked LM needs it, and the vectors."""
    encoder = load_encoder(folder)
    module = encoder[0]
    if not isinstance(module, StaticEmbedding):
        raise UserError(f"{folder} holds no static vectors: give a folder that --size static made")
    missing = set(vocabulary.SPECIALS) - set(module.tokenizer.get_vocab())
    if missing:
        raise UserError(
            f"the vocabulary of {folder} has no {', '.join(sorted(missing))}, which a masked LM needs: "
            "give vectors that --size static made from text"
        )
    return vocabulary.framed_tokenizer(module.tokenizer), module.embedding.weight.detach().clone()


def _steps(
    run: Run,
    settings: PretrainConfig,
    encoder: SentenceTransformer,
    objective: masked_lm.MaskedLM,
    stretches: masked_lm.PackedSequences,
    plan: masked_lm.SequentialOrder,
    machine: hardware.Hardware,
    per_step: int,
) -> int:
    """Return how many steps to make: as asked, or as many as fit into the time, which is found out once."""
    if settings.tokens is not None:
        return max(1, round(settings.tokens / per_step))
    if settings.hours is None:
        return plan.steps_per_epoch
    path = run.folder / "plan.json"
    if path.is_file():
        return int(json.loads(path.read_text(encoding="utf-8"))["steps"])
    seconds = _seconds_a_step(encoder, objective, stretches, plan, machine)
    steps = int(0.95 * 3600 * settings.hours / seconds)  # the rest for evaluations and checkpoints
    if steps < 10:
        raise UserError(
            f"{settings.hours:g} hours are {steps} steps of {seconds:.1f} s, too few to learn from: give "
            f"{10 * seconds / 0.95 / 3600:.2g} hours at least, or a smaller size"
        )
    run.write("plan.json", {"steps": steps, "seconds_a_step": seconds})
    return steps


def _seconds_a_step(
    encoder: SentenceTransformer,
    objective: masked_lm.MaskedLM,
    stretches: masked_lm.PackedSequences,
    plan: masked_lm.SequentialOrder,
    machine: hardware.Hardware,
) -> float:
    """Time a few steps at a rate of 0, which leave no trace."""
    learner = trainer.Learner(encoder, objective, machine.precision).train()
    masters = MasterWeights(learner) if machine.precision == "bf16" else None
    parameters = masters.parameters() if masters else [p for p in learner.parameters() if p.requires_grad]
    optimizer = AdamW(parameters, lr=0.0, fused=machine.device in ("cpu", "cuda"))
    seconds = []
    for step in range(8):
        began = time.perf_counter()
        rows = stretches.rows(plan(step))
        half = stretches.length // 2
        columns = {"text": [row[:half] for row in rows] + [row[half:] for row in rows]}
        terms = learner({name: collate(encoder, column) for name, column in columns.items()})
        torch.stack(list(terms.values())).sum().backward()
        if masters:
            masters.collect_gradients()
        optimizer.step()
        optimizer.zero_grad()
        if masters:
            masters.publish()
        seconds.append(time.perf_counter() - began)
    if masters:
        masters.restore()
    return statistics.median(seconds[3:])


def _table(settings: PretrainConfig) -> dict[str, object]:
    return json.loads(json.dumps(asdict(settings)))


def pretrain_settings(kind: type[T], changes: Sequence[str] | None, **given: object) -> T:
    """Make settings of what was given and of ``key=value`` changes to it.

    Raises:
        UserError: an unknown key, or a value that does not fit.
    """
    table = apply_settings({key: value for key, value in given.items() if value is not None}, changes or ())
    for name, inner in get_type_hints(kind).items():
        if isinstance(inner, type) and is_dataclass(inner) and isinstance(table.get(name), dict):
            table[name] = build_config(inner, table[name], name)  # refuses unknown keys in it, too
    return build_config(kind, table, "")
