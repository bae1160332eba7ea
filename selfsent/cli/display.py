"""What a person sees while something long runs, and the tables at its end.

On a terminal a bar that moves; elsewhere (a file, CI) a plain line now and then.  Everything but the result goes to
standard error.
"""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table
from rich.text import Text

from selfsent.evaluation.labelfree.verdict import SCORE, SCORED, LabelFreeVerdict
from selfsent.evaluation.score import Difference, Results, Score
from selfsent.evaluation.suite import absence
from selfsent.progress import Progress

_QUIET = 10.0  # seconds between plain lines
_LONG = 20  # characters of a classifier's name: a longer one is no part of a row's label
_FOLDED = 36  # characters that a label is given at least, before columns go
_WIDE = Console(width=10_000)  # where a table is measured


class Display(Progress):
    """A progress for people."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._result = Console(highlight=False, width=max(100, Console().width))
        self.live = self._console.is_terminal
        # What is read later, in a file, is not bound to the terminal that it was made in.
        self.width = self._result.width if not self._result.is_terminal else Console().width
        self._bar: ProgressBar | None = None
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
            self._bar = ProgressBar(
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

    def report(self, stage: str, done: int, total: int | None = None) -> None:
        """Show the progress of a stage of known or unknown length."""
        if stage != self._stage:
            self._finish_bar()
            self._stage, self._shown = stage, time.perf_counter()
            if self.live:
                self._bar = ProgressBar(
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
        table.add_row(_name(score, {}), figure(old[score.key]), figure(score), f"{score.n:,}")
    return table


def results_table(results: Mapping[str, Results], width: int = 100) -> RenderableType:
    """Lay out the scores of a model, one a row, and of its baselines, one a column.

    Where the columns do not fit, long labels are folded, then the baselines lose their intervals, which stand in the
    JSON, and then they go into further tables.

    Args:
        width: columns of the terminal.
    """
    notes: dict[str, None] = {}
    scores = [score for score in results["model"].scores if _is_main(score)]
    labels = [_name(score, notes) for score in scores]

    def table(names: Sequence[str], plain: bool) -> Table:
        found = Table()
        found.add_column("score", overflow="fold")
        for name in names:
            found.add_column(name.replace(" ", "\n"), justify="right", no_wrap=True)
        found.add_column("n", justify="right", no_wrap=True)
        for label, score in zip(labels, scores, strict=True):
            same = [next(s for s in results[name].scores if s.key == score.key) for name in names]
            written = [
                f"{other.value:.2f}" if plain and name != "model" else figure(other)
                for name, other in zip(names, same, strict=True)
            ]
            found.add_row(label, *written, f"{score.n:,}")
        return found

    shown: list[RenderableType] = []
    left = [*results]
    while left:
        # Better all systems side by side with one interval than one after the other with one each.
        ways = [(len(left), False), *((count, True) for count in range(len(left), 0, -1))]
        count, one = next(
            (count, found)
            for count, plain in ways
            if _needed(found := table(left[:count], plain)) <= width or (count, plain) == (1, True)
        )
        one.width = _whole(one, width)
        shown.append(one)
        left = left[count:]
    shown += [Text(f"{task} is missing: {absence(place)}") for task, place in results["model"].missing.items()]
    return Constrain(Group(*shown, *_footnotes(notes)), width)


def verdict_table(verdict: LabelFreeVerdict) -> Table:
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


def difference_table(
    names: Sequence[str], first: Results, second: Results, differences: Sequence[Difference], width: int = 100
) -> RenderableType:
    """Lay out two models and the first's lead over the second, with its paired interval.

    Where the columns do not fit, long labels are folded, and then both models lose the intervals of their own.

    Args:
        width: columns of the terminal.
    """
    notes: dict[str, None] = {}
    scores = [{score.key: score for score in results.scores} for results in (first, second)]

    def table(plain: bool) -> Table:
        found = Table()
        found.add_column("score", overflow="fold")
        for name in ("first", "second", "difference", "first ahead\nin resamples"):
            found.add_column(name, justify="right", no_wrap=True)
        for difference in differences:
            key = (difference.task, difference.split, difference.metric, difference.aggregation)
            both = [known[key] for known in scores]
            if _is_main(both[0]):
                gap = f"{difference.value:+.2f} [{difference.low:+.1f}, {difference.high:+.1f}]"
                values = [f"{score.value:.2f}" if plain else figure(score) for score in both]
                found.add_row(_name(both[0], notes), *values, gap, f"{100 * difference.above:.0f} %")
        return found

    whole = table(False)
    chosen = whole if _needed(whole) <= width else table(True)
    chosen.width = _whole(chosen, width)
    head = [Text(f"{place}: {name.replace(',', ', ')}") for place, name in zip(("first", "second"), names, strict=True)]
    return Constrain(Group(*head, chosen, *_footnotes(notes)), width)


def figure(score: Score) -> str:
    """Write a value with its interval."""
    if score.low is None or score.high is None or math.isnan(score.low):
        return f"{score.value:.2f}"
    return f"{score.value:.2f} [{score.low:.1f}, {score.high:.1f}]"


def _is_main(score: Score) -> bool:
    # mean and wmean over sub-files, and Pearson, stand in the JSON; a terminal shows what the literature quotes.
    return score.metric == "recall" or (score.aggregation in ("", "all") and score.metric != "pearson")


def _name(score: Score, notes: dict[str, None]) -> str:
    """Label a score; what would not fit into a row is kept in ``notes``, and the label has its number."""
    kind, colon, place = score.task.partition(":")  # an own file goes by its name, not by its whole path
    # "average of 7" needs no list: their rows stand above.
    task = kind if kind.startswith("average of ") else kind + colon + PurePath(place).name
    label = [task, score.split, score.metric, score.aggregation]
    if "classifier" in score.protocol and score.metric != "recall":
        how = str(score.protocol["classifier"])  # numbers of different classifiers differ by points
        if len(how) > _LONG:
            notes[how] = None
            how = str([*notes].index(how) + 1)
        label.append(f"({how})")
    return " ".join(part for part in label if part)


def _footnotes(notes: Mapping[str, None]) -> list[Text]:
    return [Text(f"({number}) {note}") for number, note in enumerate(notes, start=1)]


def _needed(table: Table) -> int:
    """Return the columns that a table takes if labels are folded at ``_FOLDED`` and nothing else is."""
    labels = table.columns[0]
    before, labels.max_width = labels.max_width, _FOLDED
    try:
        return _WIDE.measure(table).maximum
    finally:
        labels.max_width = before


def _whole(table: Table, width: int) -> int:
    """Return the columns that a table is given: what it takes without a fold, if there are as many."""
    return min(_WIDE.measure(table).maximum, width)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
