"""Several processes that train one encoder: which one this is, and what they exchange.

``torchrun`` and ``accelerate launch`` tell every process its rank.  Each embeds its share of the rows of a batch.
Where a loss compares texts the embeddings are gathered, with gradients, so that every rank computes the loss of the
whole batch; a loss over words divides by ``mean_count``.  Gradients and terms are averaged over the ranks, and are
then those of one process with the whole batch.

Random draws: torch's generator on the CPU is seeded alike on all ranks, and put in step again by ``gather``.  Masks of
words are drawn for the whole batch, of which a rank keeps its rows; dropout has a stream of the rank's own.
"""

import atexit
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist

from selfsent.errors import ConfigurationError, EndedElsewhere, Interrupted
from selfsent.runtime.launch import launched, launched_here
from selfsent.runtime.lifeline import Lifeline

T = TypeVar("T")

_FOREVER = timedelta(days=365)  # a rank waits for as long as the others live, which `Lifeline` looks after
_BUCKET = 2**23  # gradients that are averaged at a time


class Ranks:
    """The processes of a run, seen from one of them; of one process alone, every exchange returns what it is given.

    Attributes:
        number: of this process, from 0.
        count: of processes.
        first: whether this is the one that writes, evaluates and speaks.
    """

    def __init__(self, number: int = 0, count: int = 1, local: int = 0) -> None:
        self.number, self.count, self.first = number, count, number == 0
        self._turn = 0 if number == 0 else 1 if local == 0 else 2
        if count > 1:
            self._control = dist.new_group(backend="gloo", timeout=_FOREVER)  # small things, on the CPU
            self._lifeline = Lifeline(number, count, self._everyones, begun=lambda: _exchanges)

    def table(self) -> dict[str, int]:
        """Return what config.json says of several processes."""
        return {} if self.count == 1 else {"processes": self.count}

    # ------------------------------------------------------------------------------------------ rows and embeddings

    def block(self, rows: int) -> slice:
        """Return which of the rows of a whole batch are this rank's: consecutive, and at most one more or less."""
        return slice(self.number * rows // self.count, (self.number + 1) * rows // self.count)

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows of all ranks, in order of rank, with gradients; draws on the CPU then agree on all ranks."""
        if self.count == 1:
            return rows
        state = torch.get_rng_state()
        with _met():
            dist.broadcast(state, src=0, group=self._control)
            torch.set_rng_state(state)
            gathered: Tensor = _Gathered.apply(rows, self)
        return gathered

    def counts(self, rows: int) -> list[int]:
        """Return how many rows each rank has."""
        if self.count == 1:
            return [rows]
        every = [torch.zeros(1, dtype=torch.long) for _ in range(self.count)]
        with _met():
            dist.all_gather(every, torch.tensor([rows]), group=self._control)
        return [int(count) for count in every]

    def mean_count(self, count: int) -> int | float:
        """Return a count's mean over the ranks, what each divides its own sum by; 1 where all of them count none."""
        return (count if self.count == 1 else self.means([count])[0]) or 1

    # ------------------------------------------------------------------------------------------------- gradients

    def average_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace every gradient by its mean over the ranks; one that no rank has stays None."""
        if self.count == 1:
            return
        fractions = self.means([float(parameter.grad is not None) for parameter in parameters])
        held = [parameter for parameter, fraction in zip(parameters, fractions, strict=True) if fraction]
        for parameter in held:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        while held:
            bucket = [held.pop(0)]
            while held and held[0].dtype == bucket[0].dtype and _size(bucket) + held[0].numel() <= _BUCKET:
                bucket.append(held.pop(0))
            gradients = [parameter.grad for parameter in bucket if parameter.grad is not None]
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            with _met():
                dist.all_reduce(flat)
            flat /= self.count
            for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
                gradient.copy_(mean.view_as(gradient))

    def means(self, values: Sequence[float]) -> list[float]:
        """Return each value's mean over the ranks."""
        if self.count == 1:
            return list(values)
        sums = torch.tensor(values, dtype=torch.float64)
        with _met():
            dist.all_reduce(sums, group=self._control)
        return (sums / self.count).tolist()

    # ------------------------------------------------------------------------------------------------- who does what

    def on_first(self, make: Callable[[], T]) -> T:
        """Return what ``make`` returns on the first rank; the others wait, without a time-out.

        Raises:
            EndedElsewhere: on the others, where it raises on the first.
        """
        if self.count == 1:
            return make()
        box: list[Any] = [None, None]
        try:
            with unsharded():
                box[0] = make() if self.first else None
        except Exception as error:
            box[1] = str(error) or type(error).__name__
            raise
        finally:
            with _met():
                dist.broadcast_object_list(box, src=0, group=self._control)
        if box[1] is not None:
            raise EndedElsewhere(f"process 0 ended: {box[1]}")
        return box[0]

    def rank_zero_first(self, make: Callable[[], T]) -> T:
        """Return what ``make`` returns here: first the first rank, then one on each other machine, then the rest.

        So what it prepares in a cache is prepared once a cache.

        Raises:
            EndedElsewhere: it raised on another rank.
        """
        if self.count == 1:
            return make()
        made: T | None = None
        for turn in range(3):
            error: Exception | None = None
            try:
                with unsharded():
                    made = make() if self._turn == turn else made
            except Exception as raised:
                error = raised
            told: list[str | None] = self._everyones(None if error is None else str(error) or type(error).__name__)
            if error is not None:
                raise error
            for number, message in enumerate(told):
                if message is not None:
                    raise EndedElsewhere(f"process {number} ended: {message}")
        return made  # type: ignore[return-value]

    def require_equal(self, content: Mapping[str, object], difference: Callable[[object, object], Any]) -> None:
        """Refuse ranks that were given different things, before anything is trained.

        Args:
            difference: returns the first key in which two tables differ, with both values, or None.

        Raises:
            ConfigurationError: a rank differs from the first; raised on all of them.
        """
        if self.count == 1:
            return
        tables = self._everyones(dict(content))
        for number, table in enumerate(tables[1:], start=1):
            difference_found = difference(tables[0], table)
            if difference_found:
                key, ours, theirs = difference_found
                raise (ConfigurationError if self.first else EndedElsewhere)(
                    f"the processes differ: {key} is {ours!r} in process 0 and {theirs!r} in process {number}: "
                    "start all of them with the same command, text, base and versions"
                )

    def require_even(self, batch_size: int, key: str) -> None:
        """Refuse a batch that the processes cannot share evenly.

        Raises:
            ConfigurationError: it does not divide; raised on all of them.
        """
        if batch_size % self.count:
            near = -(-batch_size // self.count) * self.count
            raise (ConfigurationError if self.first else EndedElsewhere)(
                f"{key} = {batch_size} does not divide by the {self.count} processes that share a batch: give a "
                f"multiple, such as {near}, or start another number of processes"
            )

    def _everyones(self, value: T) -> list[T]:
        every: list[Any] = [None] * self.count
        with _met():
            dist.all_gather_object(every, value, group=self._control)
        return every

    # ------------------------------------------------------------------------------------------------------- the end

    def end(self) -> None:
        """End together."""
        with suppress(EndedElsewhere), _met():
            dist.barrier(group=self._control)
        self._lifeline.leave()

    def fail(self) -> None:
        """End alone, which ends the others."""
        self._lifeline.cut()


class _Gathered(torch.autograd.Function):
    """All ranks' rows; backwards, the sum of all ranks' gradients of this rank's rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, ranks: Ranks) -> Tensor:  # noqa: ANN401
        counts = ranks.counts(len(rows))
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: len(rows)] = rows
        every = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(every, padded)
        ctx.start, ctx.rows = sum(counts[: ranks.number]), len(rows)
        return torch.cat([padded[:count] for padded, count in zip(every, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        with _met():
            dist.all_reduce(total)
        return total[ctx.start : ctx.start + ctx.rows], None


ALONE = Ranks()
_here = ALONE
_exchanges = 0  # that this process has begun


def here() -> Ranks:
    """Return the processes of the run that is on, or ``ALONE``."""
    return _here


@contextmanager
def joined(device: str | None) -> Iterator[Ranks]:
    """Join the processes that a launcher started, for the block; without a launcher, ``ALONE``.

    Args:
        device: what is trained on, cpu or cuda; None: cuda where there is one.

    Raises:
        ConfigurationError: a device that several processes cannot train on, or fewer GPUs than processes.
    """
    global _here
    if _here.count > 1 or launched() == 1:
        yield _here
        return
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if device not in ("cpu", "cuda"):
        raise ConfigurationError(f"several processes cannot train on {device!r}: set hardware.device to cpu or cuda")
    if device == "cuda":
        if launched_here() > torch.cuda.device_count():
            raise ConfigurationError(
                f"{launched_here()} processes were started on a machine with {torch.cuda.device_count()} GPUs: start "
                "one a GPU, or set hardware.device=cpu"
            )
        torch.cuda.set_device(local)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device == "cuda" else "gloo", timeout=_FOREVER)
        atexit.register(dist.destroy_process_group)  # not here: a process may join more than one run
    _here = ranks = Ranks(dist.get_rank(), dist.get_world_size(), local)
    try:
        yield ranks
        ranks.end()
    except Interrupted:  # all of them, after the same step
        ranks.end()
        raise
    except BaseException:
        ranks.fail()
        raise
    finally:
        _here = ALONE


@contextmanager
def unsharded() -> Iterator[None]:
    """Exchange nothing in the block: every rank computes all of a batch that is too small to be shared."""
    global _here
    before, _here = _here, ALONE
    try:
        yield
    finally:
        _here = before


def draw_rows(shape: Sequence[int], draw: Callable[[Sequence[int]], Tensor] = torch.rand) -> Tensor:
    """Draw for the rows of the whole batch from torch's generator on the CPU, and return those of this rank.

    Args:
        shape: of what is wanted, this rank's rows first.
    """
    if _here.count == 1:
        return draw(shape)
    counts = _here.counts(shape[0])
    start = sum(counts[: _here.number])
    return draw((sum(counts), *shape[1:]))[start : start + shape[0]]


@contextmanager
def _met() -> Iterator[None]:
    """Count an exchange, and turn its failure into a sentence: another process has ended."""
    global _exchanges
    _exchanges += 1
    try:
        yield
    except RuntimeError as error:  # also torch.distributed.DistBackendError
        raise EndedElsewhere("another process ended, and so does this one: add --resume to go on") from error


def _size(parameters: Sequence[nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)
