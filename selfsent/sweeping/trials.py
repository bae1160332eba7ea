"""The trials of a sweep, in an Optuna journal: which settings are tried, in which order, and how each ended.

What is tried next depends on the seed, the number of the trial and the trials before it, never on the process: every
key of every trial has a sampler with a seed of its own.  So a sweep that was killed tries the same settings as one that
was not.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from selfsent.errors import ConfigurationError, ResumeError, first_line, unknown
from selfsent.runtime.printed import Printed, Shown
from selfsent.storage import atomic
from selfsent.sweeping.space import SweptKey, grid_points, random_points

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import Trial

    from selfsent.evaluation.comparison import Comparison
    from selfsent.training.run import Trained

Sampler = Literal["grid", "random", "tpe"]
TrialState = Literal["complete", "pruned", "failed", "repeated"]
AS_IT_IS = "the recipe as it is"
JOURNAL = "sweep.journal"
TRIALS = 20  # of random and tpe
MOST = 10_000  # of a grid, where nobody said how many
_STATE, _REASON, _SAME = "state", "reason", "same as"


@dataclass(frozen=True, kw_only=True, repr=False)
class SweepTrial(Printed):
    """One setting of a sweep and how it ended; scores are means over the seeds, in points."""

    number: int | None = None  # None: the recipe as it is
    settings: dict[str, str] = field(default_factory=dict)
    state: TrialState
    score: float | None = None  # the dev score, of a repeated trial that of the earlier; None: pruned or failed
    reason: str = ""  # why it failed or was pruned
    same_as: int | None = None  # of a repeated one: the earlier trial; None: the recipe as it is
    runs: "list[Trained]" = field(default_factory=list)  # by seed; empty if it is not complete
    comparison: "Comparison | None" = None  # with the recipe as it is, corrected for all settings
    p_best: float | None = None  # that it does not differ from the best, corrected for all pairs

    @property
    def dev(self) -> float | None:
        """The score that chooses."""
        return _mean([run.dev for run in self.runs])

    @property
    def test(self) -> float | None:
        """The score that the choice is judged by."""
        return _mean([run.test for run in self.runs])

    @property
    def p_reference(self) -> float | None:
        """The probability of such a difference to the recipe by chance, corrected for all settings."""
        return None if self.comparison is None else self.comparison.p

    @property
    def name(self) -> str:
        """How tables call it."""
        return "recipe" if self.number is None else f"{self.number}"

    def shown(self) -> Shown:
        """Return what was changed, and how it ended."""
        how = self.reason or (f"dev {self.dev:.2f}" if self.dev is not None else "")
        return Shown([f"{name_setting(self.settings)}: {self.state}{f', {how}' if how else ''}"])


def _mean(values: Sequence[float | None]) -> float | None:
    scores = [value for value in values if value is not None]
    return float(np.mean(scores)) if scores and len(scores) == len(values) else None


def name_setting(settings: Mapping[str, str]) -> str:
    """Write settings as a reader would call them; floats of a range with four digits."""
    return ", ".join(f"{key}={short_value(value)}" for key, value in settings.items()) or AS_IT_IS


def short_value(value: str) -> str:
    """Write a value of a key; a long float with four digits."""
    try:
        return f"{float(value):.4g}" if len(value) > 8 else value
    except ValueError:
        return value


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
    ranges = [swept.key for swept in space if not swept.values]
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

        begun = self._study.get_trials(deepcopy=False)
        running = [trial for trial in begun if trial.state == self._states.RUNNING]
        if running:
            trial = optuna.trial.Trial(self._study, running[0]._trial_id)  # ask() would begin another one
            return trial, self._settings(trial)
        waiting = [trial for trial in begun if trial.state == self._states.WAITING]
        number = len(begun) - len(waiting)
        if number >= self.total:
            return None
        if self._points is not None and not waiting:
            self._study.enqueue_trial(dict(self._points[number]))
        trial = self._study.ask()
        return trial, self._settings(trial)

    def _settings(self, trial: "Trial") -> dict[str, str]:
        chosen: dict[str, str] = {}
        for number, swept in enumerate(self._space):
            self._study.sampler = self._sampler((self._seed, trial.number, number))
            if swept.values:
                chosen[swept.key] = str(trial.suggest_categorical(swept.key, list(swept.values)))
            elif swept.whole:
                chosen[swept.key] = str(trial.suggest_int(swept.key, int(swept.low), int(swept.high), log=swept.log))
            else:
                chosen[swept.key] = repr(trial.suggest_float(swept.key, swept.low, swept.high, log=swept.log))
        return chosen

    def _sampler(self, entropy: tuple[int, int, int]) -> "BaseSampler":
        from optuna.samplers import RandomSampler, TPESampler

        seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        return TPESampler(seed=seed) if self._tpe else RandomSampler(seed=seed)

    def report(self, trial: "Trial", step: int, score: float) -> bool:
        """Take note of a dev score; return whether the trial should be given up, as it is below the median.

        Steps that were reported before a kill have been judged already.
        """
        reported = self._study.get_trials(deepcopy=False)[trial.number].intermediate_values
        if step < max(reported, default=step):
            return False
        if step not in reported:
            trial.report(score, step)
        return bool(trial.should_prune())

    def end(self, trial: "Trial", ended: SweepTrial) -> None:
        """Record how a trial ended."""
        for name, value in ((_STATE, ended.state), (_REASON, ended.reason), (_SAME, ended.same_as)):
            trial.set_user_attr(name, value)
        if ended.score is not None:
            self._study.tell(trial, ended.score)
        else:
            self._study.tell(trial, state=self._states.PRUNED if ended.state == "pruned" else self._states.FAIL)

    def ended(self) -> list[SweepTrial]:
        """Return every trial that is done, without its runs."""
        return [
            SweepTrial(
                number=trial.number,
                # Optuna keeps numbers as numbers, and repr() writes a float so that it is read back as the same one.
                settings={key: v if isinstance(v, str) else repr(v) for key, v in trial.params.items()},
                state=trial.user_attrs[_STATE],
                score=trial.value if trial.state == self._states.COMPLETE else None,
                reason=trial.user_attrs[_REASON],
                same_as=trial.user_attrs[_SAME],
            )
            for trial in self._study.get_trials(deepcopy=False)
            if trial.state.is_finished()
        ]


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
