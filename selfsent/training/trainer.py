"""Trainer: the training loop.

Encoder and objective are one module, so that clipping, checkpoints and resume see the weights of both.  Before each
step torch's generator is seeded from (seed, step), and the order of the data is a function of (seed, epoch): a run
that was stopped anywhere and resumed from its last checkpoint ends, to the bit, as the run that was never stopped.
"""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import nn
from torch.optim import AdamW

from selfsent.config import TrainConfig
from selfsent.encoder.batches import Tokens
from selfsent.encoder.embed import chunked, collate
from selfsent.errors import ConfigurationError, Interrupted, UserError, unknown
from selfsent.evaluation.geometry import collapse_alarms
from selfsent.objectives.base import Batch, Examples, Objective, Rows, Terms
from selfsent.progress import Progress
from selfsent.runtime import distributed
from selfsent.runtime.ending import stop_requested
from selfsent.runtime.hardware import Hardware
from selfsent.runtime.randomness import seed_step, text_generator
from selfsent.storage.run_folder import Run
from selfsent.training.optimizer import MasterWeights, adam_settings, learning_rate, parameter_groups, row_gradients

_TIE = 1e-9  # points of a score that tell nothing apart: the last bits of a mean

Scores = dict[str, float]
Validate = Callable[[SentenceTransformer], Scores]


@runtime_checkable
class TrainingRows(Protocol):
    """What the loop needs of a corpus: token rows by index, and those of their positives if it holds pairs."""

    @property
    def paired(self) -> bool:
        """Whether every text has a positive."""

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
    start: Scores = field(default_factory=dict)  # before the first step: the reference of the collapse alarms
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


class Trainer:
    """Trains an encoder in place; ``train`` runs the loop, every other method is one part of it."""

    def __init__(
        self,
        encoder: SentenceTransformer,
        objective: Objective,
        rows: TrainingRows,
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
        unit: str = "texts",
    ) -> None:
        """Join the parts; nothing is read or drawn yet.

        Args:
            validate: scores of the encoder as it is, the higher the better for the one named by ``select``.
            select: the score that picks the best weights; ``last`` keeps the final ones.
            weight: how many of ``unit`` a row counts in the throughput that is shown.

        Raises:
            ConfigurationError: settings that cannot work together.
        """
        self.encoder, self.objective, self.rows, self.batches, self.run = encoder, objective, rows, batches, run
        self.config, self.seed, self.validate, self.select = config, seed, validate, select
        self.progress, self.weight, self.unit = progress, weight, unit
        self.steps = total_steps(config, batches)
        self.state = TrainingState()
        self.ranks = distributed.here()
        self._check()
        self.learner = Learner(encoder, objective, hardware.precision)
        self._hardware = hardware

    def _check(self) -> None:
        config = self.config
        self.ranks.require_even(config.batch_size, "train.batch_size")
        if config.accumulation > 1 and self.objective.in_batch and not config.allow_accumulation:
            raise ConfigurationError(
                f"train.accumulation = {config.accumulation} would give no more negatives than one batch has, because "
                "this objective compares the texts of a batch: raise train.batch_size, or set "
                "train.allow_accumulation=true"
            )
        if config.patience is not None and self.select == "last":
            self.progress.say("warning: train.patience has no effect, because no score is selected by: last is kept")
        if config.warmup_steps >= self.steps:
            self.progress.say(
                f"warning: the learning rate warms up for {config.warmup_steps:,} steps and the run has "
                f"{self.steps:,}, so it never reaches {config.learning_rate:g}: set train.warmup_steps to fewer"
            )

    def train(self) -> TrainingOutcome:
        """Run the loop to its end; the encoder then holds its best weights, or its last where ``select`` is ``last``.

        Raises:
            UserError: a damaged checkpoint; a score to select by that does not exist; a loss that is not finite.
            Interrupted: Ctrl-C or SIGTERM; the state is saved.
        """
        self.restore()
        state, config, size = self.state, self.config, self.config.batch_size * self.config.accumulation * self.weight
        began, busy, units = time.perf_counter(), 0.0, 0
        # Without evaluations, too, a kill loses no more than it does by default.
        saved_every = config.checkpoint_every or config.evaluate_every or TrainConfig.evaluate_every
        self.progress.begin(state.step, self.steps, self.unit)
        try:
            if not state.step:
                self.evaluate(candidate=False)  # fails here, not hours later, if the score to select by does not exist
            with stop_requested() as asked, row_gradients(self.learner):
                while state.step < self.steps and not state.stopped:
                    started = time.perf_counter()
                    self.learner.train()
                    terms = self.train_step()
                    busy += time.perf_counter() - started
                    units += size
                    self.progress.step(state.step, size, terms)
                    last, stopping = state.step == self.steps, any(self.ranks.means([float(asked())]))
                    if self.ranks.first and (last or self._due(config.log_every)):
                        figures = self.objective.figures()
                        self.run.log(step=state.step, loss=sum(terms.values()), terms=terms, figures=figures)
                    if last or self._due(config.evaluate_every):
                        self.evaluate()
                    if last or state.stopped or stopping or self._due(saved_every):
                        self.save_checkpoint()
                    if stopping and not last:
                        raise Interrupted(
                            f"stopped at step {state.step:,} of {self.steps:,}; its state is saved in {self.run.folder}"
                        )
        finally:
            self.progress.end()
        self._finish()
        return TrainingOutcome(
            steps=state.step,
            best_step=state.step if state.best_step is None else state.best_step,
            best_score=state.best_score,
            selected_by=self.select,
            start=state.start,
            seconds=time.perf_counter() - began,
            texts_per_second=units / busy if busy else 0.0,
        )

    def restore(self) -> None:
        """Load the newest checkpoint, if there is one, and build the optimizer over the weights."""
        saved = self.ranks.on_first(self._saved)
        if saved is not None:
            step, weights, content = saved
            self.learner.load_state_dict(weights)
            self.state = TrainingState(**content["progress"])
            self.progress.say(f"resumed at step {step:,} of {self.steps:,}")
        self.masters = MasterWeights(self.learner) if self._hardware.precision == "bf16" else None
        learned = [parameter for parameter in self.learner.parameters() if parameter.requires_grad]
        self.parameters = self.masters.parameters() if self.masters else learned
        self.optimizer = AdamW(
            parameter_groups(self.parameters, self.config.weight_decay),
            lr=self.config.learning_rate,
            betas=self.config.adam_betas,
            eps=self.config.adam_epsilon,
            fused=self._hardware.device in ("cpu", "cuda"),
        )
        if saved is not None:
            self.optimizer.load_state_dict(content["optimizer"])

    def _saved(self) -> tuple[int, dict[str, torch.Tensor], dict[str, Any]] | None:
        """Load the newest checkpoint, and drop the lines that were logged after it."""
        saved = self.run.checkpoints.load()
        self.run.rewind("" if saved is None else saved[2]["log"])
        return saved

    def train_step(self) -> dict[str, float]:
        """Make one update; return its terms, averaged over the batches that it accumulated."""
        state, config = self.state, self.config
        totals: dict[str, float] = {}
        for number in range(config.accumulation):
            terms = self._backward(state.step * config.accumulation + number)
            for name, term in terms.items():
                totals[name] = totals.get(name, 0.0) + term / config.accumulation
        if self.masters:
            self.masters.collect_gradients()
        self.ranks.average_gradients(self.parameters)
        norm = nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        if not norm.isfinite():  # before it reaches the weights, which the next checkpoint would keep
            exact = ", or with hardware.precision=fp32" if self._hardware.precision == "bf16" else ""
            raise UserError(
                f"the gradient is no longer finite at step {state.step + 1}: start again with a lower "
                f"train.learning_rate{exact}"
            )
        if config.max_grad_norm and norm > config.max_grad_norm:
            nn.utils.clip_grads_with_norm_(self.parameters, config.max_grad_norm, norm)
        rate = learning_rate(state.step, self.steps, config)
        for group in self.optimizer.param_groups:
            group |= adam_settings(state.step, rate, group["decay"], config)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.masters:
            self.masters.publish()
        state.step += 1
        return totals

    def _backward(self, index: int) -> dict[str, float]:
        """Compute the terms of batch ``index``, counted from 0 over all epochs, and their gradients."""
        seed_step(self.seed, index)
        columns = self.objective.views(self._examples(index))
        few_rows = min(map(len, columns.values())) < self.ranks.count
        chunk_size = self.config.chunk_size if self.config.cached else None
        with distributed.unsharded() if few_rows else nullcontext(), chunked(chunk_size):
            terms: Terms = self.learner({name: self._own_rows(rows) for name, rows in columns.items()})
            loss = torch.stack(list(terms.values())).sum() / self.config.accumulation
            values = [term.item() for term in terms.values()]
            mean_loss, *told = self.ranks.means([loss.item(), *values])
            if not math.isfinite(mean_loss):
                broken = ", ".join(name for name, term in zip(terms, told, strict=True) if not math.isfinite(term))
                raise UserError(
                    f"the loss is no longer finite at step {self.state.step + 1} (term {broken}): "
                    "lower train.learning_rate, or set hardware.precision=fp32"
                )
            loss.backward()
        return dict(zip(terms, told, strict=True))

    def _own_rows(self, rows: Rows) -> Tokens:
        """Pad this process's rows of a column like those of the whole batch."""
        return collate(self.encoder, rows[distributed.here().block(len(rows))], max(map(len, rows)))

    def _examples(self, index: int) -> Examples:
        texts, epoch = self.batches(index), index // self.batches.steps_per_epoch
        positives = self.rows.positives(texts) if self.rows.paired else None
        return Examples(self.rows.rows(texts), positives, lambda i: text_generator(self.seed, epoch, int(texts[i])))

    def evaluate(self, *, candidate: bool = True) -> None:
        """Score the encoder as it is, keep its weights if they are the best so far, and warn of a collapse."""
        vars(self.state).update(vars(self.ranks.on_first(lambda: self._evaluated(candidate=candidate))))

    def _evaluated(self, *, candidate: bool) -> TrainingState:
        state = self.state
        with self._exact_weights():
            scores = self.validate(self.encoder)
            if self.select not in ("last", *scores):
                raise unknown("score to select by", self.select, ("last", *scores))
            state.start = state.start or dict(scores)
            bar = -math.inf if state.best_score is None else state.best_score
            # A published score has to be strictly better, as in the papers' code.  Of equal ones of held-out retrieval,
            # which may be 100 from the first on, the later weights are kept: they learned from more text.
            tie = _TIE if self.select == "retrieval" else 0.0
            better = candidate and self.select != "last" and scores[self.select] > bar - tie
            if better:
                state.since_best = 0 if scores[self.select] > bar + tie else state.since_best + 1
                state.best_step, state.best_score = state.step, max(scores[self.select], bar)
                self.run.checkpoints.save_best(state.step, self._selected().state_dict())
            elif candidate and self.select != "last":
                state.since_best += 1
        self.run.log(step=state.step, scores=scores, best=better)
        self.progress.evaluated(state.step, scores, better)
        for alarm in collapse_alarms(scores, state.start):
            self.run.log(step=state.step, alarm=alarm)
            self.progress.say(f"warning: {alarm}")
        state.stopped = self.config.patience is not None and state.since_best >= self.config.patience
        return state

    def save_checkpoint(self) -> None:
        """Save everything that the next step depends on."""
        self.ranks.on_first(self._save)

    def _save(self) -> None:
        state = self.state
        with self._exact_weights():
            content = {
                "optimizer": self.optimizer.state_dict(),
                "progress": asdict(state),
                "log": self.run.logged(),
            }
            self.run.checkpoints.save(state.step, self.learner.state_dict(), content)
        self.run.checkpoints.forget_best({state.best_step} if state.best_step is not None else set())

    def _finish(self) -> None:
        """Put the selected weights into the encoder."""
        state = self.state
        if state.stopped:
            self.progress.say(
                f"stopped at step {state.step:,}: no better {self.select} in {self.config.patience} evaluations"
            )
        if state.best_score is not None and state.best_score < state.start[self.select] - _TIE:
            self.progress.say(
                f"warning: no weights reached the base's {self.select} of {state.start[self.select]:.2f}; the best "
                f"have {state.best_score:.2f} and are kept: train for longer, or with other settings"
            )
        if self.masters:
            self.masters.restore()
        best = state.best_step
        if best is not None:
            self._selected().load_state_dict(self.ranks.on_first(lambda: self.run.checkpoints.load_best(best)))
        self.encoder.eval()

    def _selected(self) -> nn.Module:
        """Return what the best step gives: the encoder, with the head that is exported behind it."""
        head = self.objective.exported_head()
        return self.encoder if head is None else nn.ModuleList([self.encoder, head])

    def _exact_weights(self) -> AbstractContextManager[None]:
        return self.masters.exact() if self.masters else nullcontext()

    def _due(self, every: int | None) -> bool:
        return every is not None and every > 0 and self.state.step % every == 0


def total_steps(config: TrainConfig, batches: BatchPlan) -> int:
    """Return the number of optimizer steps of a run."""
    if config.steps is not None:
        return config.steps
    return max(1, math.ceil(config.epochs * batches.steps_per_epoch / config.accumulation))
