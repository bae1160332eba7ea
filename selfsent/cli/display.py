"""Progress bars on a terminal, a plain line now and then elsewhere (a file, CI).

Results go to standard output, everything else to standard error.
"""

import time
from collections.abc import Mapping
from datetime import timedelta

from rich.console import Console, RenderableType
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

from selfsent.progress import Progress

_PAUSE = 10.0  # seconds between plain lines


class Display(Progress):
    """Shows progress to a person."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._result = Console(highlight=False, width=max(100, Console().width))
        self.live = self._console.is_terminal
        # A table in a file may be wider than the terminal that the command was run in.
        self.width = self._result.width if not self._result.is_terminal else Console().width
        self._bar: ProgressBar | None = None
        self._task: TaskID | None = None
        self._stage = ""
        self._steps, self._unit = 0, "texts"
        self._rate = 0.0  # units a second, smoothed
        self._terms: dict[str, float] = {}  # of the loss, smoothed
        self._last_step = self._last_line = time.perf_counter()

    def begin(self, step: int, steps: int, unit: str) -> None:
        """Draw the bar of the training loop."""
        self._steps, self._unit = steps, unit
        self._last_step = time.perf_counter()
        self._start("train", steps, step, transient=False)

    def step(self, step: int, units: int, terms: Mapping[str, float]) -> None:
        """Move the bar, or print a line if it is time."""
        now = time.perf_counter()
        rate = units / max(now - self._last_step, 1e-9)
        self._rate = rate if not self._rate else 0.95 * self._rate + 0.05 * rate
        self._last_step = now
        for name, term in terms.items():
            self._terms[name] = 0.9 * self._terms.get(name, term) + 0.1 * term
        state = "  ".join(
            [f"{self._rate:,.0f} {self._unit}/s", *(f"{n} {value:.3f}" for n, value in self._terms.items())]
        )
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=step, state=f"{step}/{self._steps} {state}")
        elif self._is_time():
            left = timedelta(seconds=int((self._steps - step) * units / max(self._rate, 1e-9)))
            self.say(f"step {step:,} of {self._steps:,}  {state}  {left} left")

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Print the scores of an evaluation."""
        figures = "  ".join(f"{name} {value:.2f}" for name, value in scores.items())
        self.say(f"step {step:>6,}: {figures}{'  (best so far)' if best else ''}")
        self._last_step = time.perf_counter()  # evaluation does not count as training time

    def say(self, message: str) -> None:
        """Print a line above the bar."""
        self._console.print(message, markup=False, style="yellow" if message.startswith("warning") else None)

    def opening(self, what: str) -> None:
        """Say on a terminal what takes the first seconds."""
        if self.live:
            self._console.print(f"{what} ...", style="dim")

    def report(self, stage: str, done: int, total: int | None = None) -> None:
        """Move the bar of a stage of known or unknown length, or print a line if it is time."""
        finished = total is not None and done >= total
        if stage != self._stage:
            if finished and self.live:
                return  # over before a bar could be seen
            self._start(stage, total, 0, transient=True)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total, state=f"{done:,}")
            if finished:
                self.end()
        elif self._is_time():
            self.say(f"{stage}: {done:,}" + (f" of {total:,}" if total else ""))

    def end(self) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._task = None
        self._stage = ""

    def print(self, what: RenderableType, style: str | None = None) -> None:
        """Print a result on standard output."""
        self.end()
        self._result.print(what, style=style, markup=False)

    def _start(self, stage: str, total: int | None, done: int, *, transient: bool) -> None:
        self.end()
        self._stage, self._last_line = stage, time.perf_counter()
        if self.live:
            self._bar = ProgressBar(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[state]}"),
                TimeRemainingColumn(),
                console=self._console,
                transient=transient,
            )
            self._bar.start()
            self._task = self._bar.add_task(stage, total=total, completed=done, state="")

    def _is_time(self) -> bool:
        """Tell whether the last plain line is long enough ago, and if so count one as printed now."""
        now = time.perf_counter()
        if now - self._last_line <= _PAUSE:
            return False
        self._last_line = now
        return True
