"""The trials of a sweep, in an Optuna journal: which settings are tried, in which order, and how each ended.

What is tried next depends on the seed, the number of the trial and the trials before it, never on the process: every
key of every trial has a sampler with a seed of its own.  So a sweep that was killed tries the same settings as one that
was not.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from selfsent.errors import ConfigurationError, ResumeError, first_line, unknown
from selfsent.storage import atomic
from selfsent.sweeping.space import SweptKey, grid_points, random_points

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import FrozenTrial, Trial

Sampler = Literal["grid", "random", "tpe"]
TrialState = Literal["complete", "pruned", "failed", "repeated"]
JOURNAL = "sweep.journal"
TRIALS = 20  # of random and tpe
MOST = 10_000  # of a grid, where nobody said how many
_STATE, _REASON, _SAME = "state", "reason", "same as"


@dataclass(frozen=True, kw_only=True)
class TrialEnd:
    """How a trial ended."""

    state: TrialState
    score: float | None = None  # the higher the better; of a pruned trial None
    reason: str = ""  # why it failed or was pruned
    same_as: int | None = None  # the earlier trial of the same recipe; None with "repeated": the recipe as it is


def require_optuna(sampler: str) -> None:
    """Refuse an unknown sampler, or a machine without the package.

    Raises:
        ConfigurationError: the message says what would work.
    """
    if sampler not in get_args(Sampler):
        raise unknown("sampler", sampler, get_args(Sampler))
    if find_spec("optuna") is None:
        raise ConfigurationError("a sweep needs the package optuna: pip install '.[sweep]' in the checkout")


def plan_points(space: Sequence[SweptKey], sampler: str, trials: int | None, seed: int) -> list[dict[str, str]] | None:
    """Return the settings of every trial where they are known at the start; None: they are drawn as the sweep goes.

    A random sweep of lists alone draws from their combinations without replacement.

    Raises:
        ConfigurationError: a grid with a range or of too many combinations, or fewer than one trial.
    """
    if trials is not None and trials < 1:
        raise ConfigurationError(f"trials = {trials} does not fit: it must be at least 1")
    ranges = [one.key for one in space if not one.values]
    if sampler == "grid" and ranges:
        raise ConfigurationError(
            f"a grid needs a list of values, and {ranges[0]} has a range: add --sampler tpe, or --sampler random"
        )
    if sampler == "tpe" or ranges:
        return None
    if sampler == "random":
        return random_points(space, trials or TRIALS, seed)
    points = list(islice(grid_points(space), trials or MOST + 1))
    if trials is None and len(points) > MOST:
        raise ConfigurationError(
            f"this grid has more than {MOST:,} combinations: add --trials for the first of them, or --sampler random"
        )
    return points


class TrialJournal:
    """Hands out one trial after the other; a trial that a kill left unfinished is handed out again first."""

    def __init__(
        self,
        folder: Path,
        space: Sequence[SweptKey],
        points: list[dict[str, str]] | None,
        *,
        trials: int | None,
        seed: int,
        tpe: bool,
        prune: bool,
    ) -> None:
        import optuna
        from optuna.storages import JournalStorage

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        _repair(folder / JOURNAL)
        self._space, self._points, self._seed, self._tpe = space, points, seed, tpe
        self.total = len(points) if points is not None else trials or TRIALS
        self._study = optuna.create_study(
            study_name="sweep",
            storage=JournalStorage(_sealed_backend(folder / JOURNAL)),
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner() if prune else optuna.pruners.NopPruner(),
        )
        self._states = optuna.trial.TrialState

    def take(self) -> "tuple[Trial, dict[str, str]] | None":
        """Return the next trial with its settings; None: all are done."""
        import optuna

        known = self._study.get_trials(deepcopy=False)
        running = [trial for trial in known if trial.state == self._states.RUNNING]
        if running:
            trial = optuna.trial.Trial(self._study, running[0]._trial_id)  # ask() would begin another one
            return trial, self._settings(trial)
        waiting = [trial for trial in known if trial.state == self._states.WAITING]
        number = len(known) - len(waiting)
        if number >= self.total:
            return None
        if self._points is not None and not waiting:
            self._study.enqueue_trial(dict(self._points[number]))
        trial = self._study.ask()
        return trial, self._settings(trial)

    def _settings(self, trial: "Trial") -> dict[str, str]:
        chosen: dict[str, str] = {}
        for place, one in enumerate(self._space):
            self._study.sampler = self._sampler((self._seed, trial.number, place))
            if one.values:
                chosen[one.key] = str(trial.suggest_categorical(one.key, list(one.values)))
            elif one.whole:
                chosen[one.key] = str(trial.suggest_int(one.key, int(one.low), int(one.high), log=one.log))
            else:
                chosen[one.key] = repr(trial.suggest_float(one.key, one.low, one.high, log=one.log))
        return chosen

    def _sampler(self, place: tuple[int, int, int]) -> "BaseSampler":
        from optuna.samplers import RandomSampler, TPESampler

        seed = int(np.random.SeedSequence(place).generate_state(1)[0])
        return TPESampler(seed=seed) if self._tpe else RandomSampler(seed=seed)

    def report(self, trial: "Trial", step: int, score: float) -> bool:
        """Take note of a dev score; return whether the trial should be given up, as it is below the median.

        Steps that were reported before a kill have been judged already.
        """
        known = self._frozen(trial.number).intermediate_values
        if step < max(known, default=step):
            return False
        if step not in known:
            trial.report(score, step)
        return bool(trial.should_prune())

    def end(self, trial: "Trial", end: TrialEnd) -> None:
        """Record how a trial ended."""
        for name, value in ((_STATE, end.state), (_REASON, end.reason), (_SAME, end.same_as)):
            trial.set_user_attr(name, value)
        if end.score is not None:
            self._study.tell(trial, end.score)
        else:
            self._study.tell(trial, state=self._states.PRUNED if end.state == "pruned" else self._states.FAIL)

    def ended(self) -> list[tuple[int, dict[str, str], TrialEnd]]:
        """Return number, settings and end of every trial that is done."""
        found = []
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state.is_finished():
                attributes = trial.user_attrs
                end = TrialEnd(
                    state=attributes[_STATE],
                    score=trial.value if trial.state == self._states.COMPLETE else None,
                    reason=attributes[_REASON],
                    same_as=attributes[_SAME],
                )
                # Optuna keeps numbers as numbers, and repr() writes a float so that it is read back as the same one.
                settings = {key: v if isinstance(v, str) else repr(v) for key, v in trial.params.items()}
                found.append((trial.number, settings, end))
        return found

    def _frozen(self, number: int) -> "FrozenTrial":
        return self._study.get_trials(deepcopy=False)[number]


def _repair(path: Path) -> None:
    """Remove what a kill left in the journal: its lock, and a line that was cut off; refuse lines that were changed."""
    atomic.remove(path.with_name(f"{path.name}.lock"))
    if not path.is_file():
        return
    whole, _, cut = path.read_bytes().rpartition(b"\n")
    if cut:
        atomic.write_bytes(path, whole + b"\n" * bool(whole))
    for number, line in enumerate(whole.splitlines() if whole else [], start=1):
        try:
            atomic.open_sealed(line)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ResumeError(
                f"line {number} of {path} is damaged ({first_line(error)}): start a new sweep with another --out"
            ) from error


def _sealed_backend(path: Path) -> "JournalFileBackend":
    """Return Optuna's journal, each line of which carries a checksum."""
    from optuna.storages.journal import JournalFileBackend

    class SealedJournal(JournalFileBackend):
        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            super().append_logs([atomic.with_checksum(log) for log in logs])

        def read_logs(self, log_number_from: int) -> Generator[dict[str, Any]]:
            for log in super().read_logs(log_number_from):
                del log["checksum"]
                yield log

    return SealedJournal(str(path))
