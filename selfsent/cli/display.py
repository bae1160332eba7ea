"""What a person sees while something long runs, and the tables at its end.

On a terminal a bar that moves; elsewhere (a file, CI) a plain line now and then.  Everything but the result goes to
standard error.
"""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from selfsent.evaluation.score import Difference, Results, Score
from selfsent.evaluation.suite import absence
from selfsent.evaluation.verdict import SCORE, SCORED, Verdict
from selfsent.watcher import Watcher

_QUIET = 10.0  # seconds between plain lines


class Display(Watcher):
    """A watcher for people."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._result = Console(highlight=False, width=max(100, Console().width))
        self.live = self._console.is_terminal
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._stage = ""
        self._shown = 0.0
        self._steps = 0
        self._rate = 0.0  # texts a second, smoothed
        self._clock = time.perf_counter()
        self._smooth: dict[str, float] = {}

    # ------------------------------------------------------------------------------------------- Watcher

    def begin(self, step: int, steps: int) -> None:
        """Draw the bar of the training loop."""
        self._finish_bar()
        self._steps = steps
        self._clock = self._shown = time.perf_counter()
        if self.live:
            self._bar = Progress(
                TextColumn("train"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]:>6,.0f} " + self.unit + "/s  {task.fields[terms]}"),
                TimeRemainingColumn(),
                console=self._console,
                transient=False,
            )
            self._bar.start()
            self._task = self._bar.add_task("train", total=steps, completed=step, rate=0.0, terms="")

    def step(self, step: int, texts: int, terms: Mapping[str, float]) -> None:
        """Move the bar, or print a line if it is time."""
        now = time.perf_counter()
        rate = texts / max(now - self._clock, 1e-9)
        self._rate = rate if not self._rate else 0.95 * self._rate + 0.05 * rate
        self._clock = now
        for name, term in terms.items():
            self._smooth[name] = 0.9 * self._smooth.get(name, term) + 0.1 * term
        said = "  ".join(f"{name} {value:.3f}" for name, value in self._smooth.items())
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=step, rate=self._rate, terms=said)
        elif now - self._shown > _QUIET:
            self._shown = now
            left = (self._steps - step) * texts / max(self._rate, 1e-9)
            self.say(f"step {step:,} of {self._steps:,}  {self._rate:.0f} {self.unit}/s  {said}  {_clock(left)} left")

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Print the scores of an evaluation."""
        figures = "  ".join(f"{name} {value:.2f}" for name, value in scores.items())
        self.say(f"step {step:>6,}: {figures}{'  (best so far)' if best else ''}")
        self._clock = time.perf_counter()

    def say(self, message: str) -> None:
        """Print a line above the bar."""
        self._console.print(message, markup=False, style="yellow" if message.startswith("warning") else None)

    def end(self) -> None:
        """Close the bar."""
        self._finish_bar()

    # --------------------------------------------------------------------------------------------- others

    def opening(self, what: str) -> None:
        """Say what makes the first seconds pass; only to a person who is waiting."""
        if self.live:
            self._console.print(f"{what} ...", style="dim")

    def report(self, stage: str, done: int, total: int | None) -> None:
        """Show the progress of a stage of known or unknown length."""
        if stage != self._stage:
            self._finish_bar()
            self._stage, self._shown = stage, time.perf_counter()
            if self.live:
                self._bar = Progress(
                    TextColumn("{task.description}"),
                    BarColumn(bar_width=24),
                    TextColumn("{task.completed:,.0f}"),
                    TimeRemainingColumn(),
                    console=self._console,
                    transient=True,
                )
                self._bar.start()
                self._task = self._bar.add_task(stage, total=total)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)
            if total is not None and done >= total:
                self._finish_bar()
        elif time.perf_counter() - self._shown > _QUIET:
            self._shown = time.perf_counter()
            self.say(f"{stage}: {done:,}" + (f" of {total:,}" if total else ""))

    def print(self, what: RenderableType, style: str | None = None) -> None:
        """Print a result, on standard output."""
        self._finish_bar()
        self._result.print(what, style=style, markup=False)

    def _finish_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._task = None
        self._stage = ""


def trained_table(before: Results, after: Results) -> Table:
    """Lay out the scores of base and trained encoder side by side."""
    table = Table(title="base and trained encoder, on held-out text", title_justify="left")
    table.add_column("score")
    table.add_column("base encoder", justify="right")
    table.add_column("trained encoder", justify="right")
    table.add_column("n", justify="right")
    old = {score.key: score for score in before.scores}
    for score in after.scores:
        if not _is_main(score):
            continue
        table.add_row(_name(score), figure(old[score.key]), figure(score), f"{score.n:,}")
    return table


def results_table(results: Mapping[str, Results]) -> Table:
    """Lay out the scores of a model, one a row, and of its baselines, one a column."""
    table = Table(title_justify="left")
    table.add_column("score")
    for name in results:
        table.add_column(name, justify="right")
    table.add_column("n", justify="right")
    for score in results["model"].scores:
        if _is_main(score):
            others = [next(s for s in other.scores if s.key == score.key) for other in results.values()]
            table.add_row(_name(score), *map(figure, others), f"{score.n:,}")
    for task, place in results["model"].missing.items():
        table.add_row(task, f"missing: {absence(place)}", *[""] * len(results))
    return table


def verdict_table(verdict: Verdict) -> Table:
    """Lay out every test, one a row, of every system, one a column; those in the score first, marked."""
    table = Table(title="base and trained encoder, on tests made of the text", title_justify="left")
    table.add_column("test", no_wrap=True)
    for name in verdict.results:
        table.add_column({"bm25": "BM25", "static": "static vectors"}.get(name, name), justify="right")
    table.add_column("change", justify="right")
    table.add_column("n", justify="right")
    changes = {(change.task, change.metric): change for change in verdict.differences}
    scores = verdict.results["trained"].scores
    whole = [score for score in scores if score.task == SCORE]
    inside = [score for score in scores if (score.task, score.metric) in SCORED]
    beside = [score for score in scores if score not in whole and score not in inside]
    for part, mark, last in ((inside, "* ", False), (whole, "= ", True), (beside, "  ", False)):
        for number, score in enumerate(part):
            figures = [
                next((f"{other.value:.2f}" for other in system.scores if other.key == score.key), "-")
                for system in verdict.results.values()
            ]
            change = changes.get((score.task, score.metric))
            said = f"{change.value:+.2f} [{change.low:+.1f}, {change.high:+.1f}]" if change else ""
            end = last or (bool(whole) and part is inside and number == len(part) - 1)
            table.add_row(f"{mark}{score.task} {score.metric}", *figures, said, f"{score.n:,}", end_section=end)
    return table


def difference_table(names: Sequence[str], first: Results, second: Results, differences: Sequence[Difference]) -> Table:
    """Lay out two models and the first's lead over the second, with its paired interval."""
    table = Table(title=f"{names[0]} against {names[1]}", title_justify="left")
    table.add_column("score")
    for name in ("first", "second", "difference", "first is ahead in"):
        table.add_column(name, justify="right", no_wrap=True)
    scores = [{score.key: score for score in results.scores} for results in (first, second)]
    for found in differences:
        key = (found.task, found.split, found.metric, found.aggregation)
        one, two = (known[key] for known in scores)
        if _is_main(one):
            gap = f"{found.value:+.2f} [{found.low:+.1f}, {found.high:+.1f}]"
            table.add_row(_name(one), figure(one), figure(two), gap, f"{100 * found.above:.0f} % of resamples")
    return table


def figure(score: Score) -> str:
    """Write a value with its interval."""
    if score.low is None or score.high is None or math.isnan(score.low):
        return f"{score.value:.2f}"
    return f"{score.value:.2f} [{score.low:.1f}, {score.high:.1f}]"


def _is_main(score: Score) -> bool:
    # mean and wmean over sub-files, and Pearson, stand in the JSON; a terminal shows what the literature quotes.
    return score.metric == "recall" or (score.aggregation in ("", "all") and score.metric != "pearson")


def _name(score: Score) -> str:
    kind, colon, place = score.task.partition(":")  # an own file goes by its name, not by its whole path
    label = [kind + colon + PurePath(place).name, score.split, score.metric, score.aggregation]
    if "classifier" in score.protocol and score.metric != "recall":
        label.append(f"({score.protocol['classifier']})")  # numbers of different classifiers differ by points
    return " ".join(part for part in label if part)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
