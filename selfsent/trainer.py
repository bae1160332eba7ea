"""fit(): the training loop, read top to bottom.

Encoder and objective are one module, so that clipping, checkpoints and resume see the weights of both.  Before each
step torch's generator is seeded from (seed, step), and the order of the data is a function of (seed, epoch): a run
that was stopped anywhere and resumed from its last checkpoint is, to the bit, the run that was never stopped.
"""

import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import FrameType
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from accelerate import Accelerator
from sentence_transformers import SentenceTransformer
from torch import nn
from torch.optim import AdamW

from selfsent.config import TrainConfig
from selfsent.encoder.embed import collate
from selfsent.errors import Interrupted, UserError, unknown
from selfsent.evaluation.geometry import collapse_alarms
from selfsent.hardware import Hardware, MasterWeights
from selfsent.objective import Batch, Examples, Objective, Rows, Terms
from selfsent.progress import Progress
from selfsent.run import Run

Scores = dict[str, float]
Validate = Callable[[SentenceTransformer], Scores]


@runtime_checkable
class TrainingRows(Protocol):
    """What the loop asks of a corpus: token rows by index, and those of their positives if it holds pairs."""

    @property
    def paired(self) -> bool:
        """Say whether every text has a positive."""

    def rows(self, indices: np.ndarray) -> Rows:
        """Return the token ids of these texts, special tokens included."""

    def positives(self, indices: np.ndarray) -> Rows:
        """Return the token ids of their positives."""


@runtime_checkable
class BatchPlan(Protocol):
    """Which texts make the batch of a step; ``Batches`` is one."""

    steps_per_epoch: int

    def __call__(self, step: int) -> np.ndarray:
        """Return the rows of a step, counted from 0 over all epochs."""


class Learner(nn.Module):
    """Encoder and objective, joined for training."""

    def __init__(self, encoder: SentenceTransformer, objective: Objective, precision: str) -> None:
        super().__init__()
        self.encoder = encoder
        self.objective = objective
        self._low = precision == "bf16"

    def forward(self, batch: Batch) -> Terms:
        """Return the objective's terms for one batch."""
        with torch.autocast(self.encoder.device.type, torch.bfloat16, enabled=self._low):
            terms: Terms = self.objective(self.encoder, batch)
        return terms


@dataclass
class TrainingState:
    """Where a run stands; what a checkpoint holds beside weights and optimizer."""

    step: int = 0
    best_step: int | None = None
    best_score: float | None = None
    since_best: int = 0  # evaluations without a better score
    start: Scores = field(default_factory=dict)  # before the first step: what the alarms compare with
    stopped: bool = False  # by patience


@dataclass(frozen=True, kw_only=True)
class TrainingOutcome:
    """How a run ended."""

    steps: int
    best_step: int  # whose weights the encoder holds now
    best_score: float | None
    selected_by: str
    start: Scores  # of the base
    seconds: float  # of this process
    texts_per_second: float  # while training, evaluations and checkpoints left out


def total_steps(config: TrainConfig, batches: BatchPlan) -> int:
    """Return the number of optimizer steps a run takes."""
    if config.steps is not None:
        return config.steps
    return max(1, math.ceil(config.epochs * batches.steps_per_epoch / config.accumulation))


def learning_rate(step: int, steps: int, config: TrainConfig) -> float:
    """Return the rate of update ``step``, counted from 0: a pure function, so there is no schedule to save."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    if config.schedule == "slanted":
        return slanted_triangular(step + 1, steps, config.learning_rate)
    left = (steps - step) / max(1, steps - config.warmup_steps)
    shape = {"constant": 1.0, "linear": left, "cosine": (1 + math.cos(math.pi * (1 - left))) / 2}[config.schedule]
    return config.learning_rate * shape


def adam_settings(step: int, rate: float, weight_decay: float, config: TrainConfig) -> dict[str, float]:
    """Return what AdamW is told for update ``step``, counted from 0.

    Without bias correction an update is rate * m / (sqrt(v) + eps).  Torch's divides m by 1 - beta1^t and v by
    1 - beta2^t; the same comes out of it with another rate and eps, and a weight decay that undoes the rate's change.
    """
    if config.adam_bias_correction:
        return {"lr": rate, "eps": config.adam_epsilon, "weight_decay": weight_decay}
    first, second = (1 - beta ** (step + 1) for beta in config.adam_betas)
    factor = first / math.sqrt(second)
    return {
        "lr": rate * factor,
        "eps": config.adam_epsilon / math.sqrt(second),
        "weight_decay": weight_decay / factor,
    }


def slanted_triangular(step: int, steps: int, peak: float, cut_share: float = 0.1, ratio: int = 32) -> float:
    """Return a rate that rises from ``peak / ratio`` over a tenth of the steps, then falls back to it.

    Source: Howard & Ruder 2018, https://arxiv.org/abs/1801.06146, equation 3, with step 1 as its first update.
    """
    cut = math.floor(cut_share * steps)
    height = step / cut if step < cut else 1 - (step - cut) / (steps - cut)
    return peak * (1 + height * (ratio - 1)) / ratio


def fit(
    encoder: SentenceTransformer,
    objective: Objective,
    texts: TrainingRows,
    batches: BatchPlan,
    run: Run,
    *,
    config: TrainConfig,
    hardware: Hardware,
    seed: int,
    validate: Validate,
    select: str,
    progress: Progress,
    weight: int = 1,
) -> TrainingOutcome:
    """Train ``encoder`` in place; it ends with its best weights, or its last where ``select`` is ``last``.

    Args:
        validate: scores of the encoder as it is, the higher the better for the one named by ``select``.
        weight: what a text counts when speed is told, such as its tokens.

    Raises:
        UserError: settings that cannot work together; a damaged checkpoint; a loss that is no longer finite.
        Interrupted: Ctrl-C or SIGTERM; the state is saved.
    """
    accelerator = Accelerator(cpu=hardware.device == "cpu")
    if accelerator.num_processes > 1:
        raise UserError(
            f"{accelerator.num_processes} processes were started, but the negatives of a batch have to meet in one: "
            "start one process"
        )
    if config.accumulation > 1 and objective.in_batch and not config.allow_accumulation:
        raise UserError(
            f"train.accumulation = {config.accumulation} would give no more negatives than one batch has, because this "
            "objective compares the texts of a batch: raise train.batch_size, or set train.allow_accumulation=true"
        )
    learner = accelerator.prepare_model(Learner(encoder, objective, hardware.precision))
    watched = TrainingState()
    steps = total_steps(config, batches)
    if config.warmup_steps >= steps:
        progress.say(
            f"warning: the rate rises for {config.warmup_steps:,} steps and the run has {steps:,}, so it never gets to "
            f"{config.learning_rate:g}: set train.warmup_steps to fewer"
        )

    saved = run.load_checkpoint()
    if saved is not None:
        watched.step, weights, state = saved
        learner.load_state_dict(weights)
        watched = TrainingState(**state["progress"])
        progress.say(f"resumed at step {watched.step:,} of {steps:,}")
    run.rewind(watched.step if saved is not None else -1)
    masters = MasterWeights(learner) if hardware.precision == "bf16" else None
    parameters = masters.parameters() if masters else [p for p in learner.parameters() if p.requires_grad]
    optimizer = AdamW(
        _groups(parameters, config.weight_decay),
        lr=config.learning_rate,
        betas=config.adam_betas,
        eps=config.adam_epsilon,
        fused=hardware.device in ("cpu", "cuda"),
    )
    if saved is not None:
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["torch_rng"])

    def update() -> dict[str, float]:
        """Make one update; return its terms, averaged over the batches that it accumulated."""
        totals: dict[str, float] = {}
        for part in range(config.accumulation):
            index = watched.step * config.accumulation + part
            torch.manual_seed(_seed(seed, index))
            columns = objective.views(_examples(texts, batches(index), seed, index // batches.steps_per_epoch))
            terms = learner({name: collate(encoder, column) for name, column in columns.items()})
            loss = torch.stack(list(terms.values())).sum() / config.accumulation
            if not torch.isfinite(loss):
                broken = ", ".join(name for name, term in terms.items() if not torch.isfinite(term))
                raise UserError(
                    f"the loss is no longer finite at step {watched.step + 1} (term {broken}): "
                    "lower train.learning_rate, or set hardware.precision=fp32"
                )
            accelerator.backward(loss)
            for name, term in terms.items():
                totals[name] = totals.get(name, 0.0) + term.item() / config.accumulation
        if masters:
            masters.collect_gradients()
        if config.max_grad_norm:
            norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
            if norm > config.max_grad_norm:
                nn.utils.clip_grads_with_norm_(parameters, config.max_grad_norm, norm)
        for group in optimizer.param_groups:
            group |= adam_settings(watched.step, learning_rate(watched.step, steps, config), group["decay"], config)
        optimizer.step()
        optimizer.zero_grad()
        if masters:
            masters.publish()
        watched.step += 1
        return totals

    def evaluate(*, candidate: bool = True) -> None:
        """Score the encoder as it is, keep its weights if they are the best so far, and sound the alarms."""
        with masters.exact() if masters else nullcontext():
            scores = validate(encoder)
            if select not in ("last", *scores):
                raise unknown("score to select by", select, ("last", *scores))
            watched.start = watched.start or dict(scores)
            bar = -math.inf if watched.best_score is None else watched.best_score
            better = candidate and select != "last" and scores[select] > bar
            if better:
                watched.best_step, watched.best_score, watched.since_best = watched.step, scores[select], 0
                run.save_best(watched.step, encoder.state_dict())
            elif candidate:
                watched.since_best += 1
        run.log(step=watched.step, scores=scores, best=better)
        progress.evaluated(watched.step, scores, better)
        for alarm in collapse_alarms(scores, watched.start):
            run.log(step=watched.step, alarm=alarm)
            progress.say(f"warning: {alarm}")
        watched.stopped = config.patience is not None and watched.since_best >= config.patience

    def checkpoint() -> None:
        """Save all that the next step depends on."""
        with masters.exact() if masters else nullcontext():
            state = {
                "optimizer": optimizer.state_dict(),
                "progress": vars(watched),
                "torch_rng": torch.get_rng_state(),
            }
            run.save_checkpoint(watched.step, learner.state_dict(), state)
        run.forget_best({watched.best_step} if watched.best_step is not None else set())

    def due(every: int | None) -> bool:
        return every is not None and every > 0 and watched.step % every == 0

    began, busy, seen = time.perf_counter(), 0.0, 0
    progress.begin(watched.step, steps)
    try:
        if not watched.start:
            evaluate(candidate=False)  # stops here, not hours later, where the score to select by does not exist
        with _asked_to_stop() as asked:
            while watched.step < steps and not watched.stopped:
                started = time.perf_counter()
                learner.train()
                terms = update()
                busy += time.perf_counter() - started
                seen += config.batch_size * config.accumulation * weight
                progress.step(watched.step, config.batch_size * config.accumulation * weight, terms)
                last = watched.step == steps
                if last or due(config.log_every):
                    run.log(step=watched.step, loss=sum(terms.values()), terms=terms, figures=objective.figures())
                if last or due(config.evaluate_every):
                    evaluate()
                if last or watched.stopped or asked() or due(config.checkpoint_every or config.evaluate_every):
                    checkpoint()
                if asked() and not last:
                    raise Interrupted(
                        f"stopped at step {watched.step:,} of {steps:,}; its state is saved in {run.folder}"
                    )
    finally:
        progress.end()

    if watched.stopped:
        progress.say(f"stopped at step {watched.step:,}: no better {select} in {config.patience} evaluations")
    if watched.best_score is not None and watched.best_score < watched.start[select]:
        progress.say(
            f"warning: no weights reached the base's {select} of {watched.start[select]:.2f}; the best have "
            f"{watched.best_score:.2f} and are kept: train for longer, or otherwise"
        )
    if masters:
        masters.restore()
    if watched.best_step is not None:
        encoder.load_state_dict(run.load_best(watched.best_step))
    encoder.eval()
    return TrainingOutcome(
        steps=watched.step,
        best_step=watched.step if watched.best_step is None else watched.best_step,
        best_score=watched.best_score,
        selected_by=select,
        start=watched.start,
        seconds=time.perf_counter() - began,
        texts_per_second=seen / busy if busy else 0.0,
    )


def _examples(texts: TrainingRows, indices: np.ndarray, seed: int, epoch: int) -> Examples:
    def draw(i: int) -> np.random.Generator:
        return np.random.default_rng([seed, epoch, int(indices[i])])

    return Examples(texts.rows(indices), texts.positives(indices) if texts.paired else None, draw)


def _seed(seed: int, step: int) -> int:
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0] >> 1)


def _groups(parameters: Sequence[nn.Parameter], weight_decay: float) -> list[dict[str, object]]:
    matrices = [p for p in parameters if p.ndim >= 2]
    vectors = [p for p in parameters if p.ndim < 2]
    return [{"params": matrices, "decay": weight_decay}, {"params": vectors, "decay": 0.0}]


@contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Turn a first Ctrl-C or SIGTERM into a request that the loop answers after its step; a second one kills."""
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: whoever runs us there handles signals
        before = {}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
