"""Progress bars on a terminal, a plain line now and then elsewhere (a file, CI).

Results go to standard output, everything else to standard error.  What stands in texts, titles and names of files can
hide, overwrite or colour what a terminal shows, so that every control character is replaced first.
"""

import time
from collections.abc import Iterator, Mapping
from datetime import timedelta

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar
from rich.segment import Segment

from selfsent.progress import Progress, printable
from selfsent.runtime.launch import launched_number

_PAUSE = 10.0  # seconds between plain lines


class SafeConsole(Console):
    """A console that shows the control characters of what it is given, and obeys none."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the pieces to write, of which only rich's own hold control characters."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(printable(piece.text), piece.style)


class Display(Progress):
    """Shows progress to a person."""

    def __init__(self) -> None:
        others = launched_number() > 0  # of several processes the first speaks
        self._console = SafeConsole(stderr=True, highlight=False, soft_wrap=True, quiet=others)
        self._result = SafeConsole(highlight=False, quiet=others)
        if not self._result.is_terminal:  # a table in a file may be wider than the terminal
            self._result.width = max(100, self._result.width)
        self.live = self._console.is_terminal
        self._bar: ProgressBar | None = None
        self._stage = ""
        self._steps, self._unit = 0, "texts"
        self._rate = 0.0  # units a second, smoothed
        self._terms: dict[str, float] = {}  # of the loss, smoothed
        self._last_step = self._last_line = time.perf_counter()
        self._begun: dict[str, float] = {}  # stages since the last line

    def begin(self, step: int, steps: int, unit: str) -> None:
        """Draw the bar of the training loop."""
        self._steps, self._unit = steps, unit
        self._rate, self._terms = 0.0, {}  # a selection trains several encoders
        self._last_step = time.perf_counter()
        self._start("train", steps, step, transient=False)

    def step(self, step: int, units: int, terms: Mapping[str, float]) -> None:
        """Move the bar, or print a line if it is time."""
        now = time.perf_counter()
        rate = units / max(now - self._last_step, 1e-9)
        self._rate = rate if not self._rate else 0.95 * self._rate + 0.05 * rate
        self._last_step = now
        self._terms |= {name: 0.9 * self._terms.get(name, term) + 0.1 * term for name, term in terms.items()}
        state = "  ".join(
            [f"{self._rate:,.0f} {self._unit}/s", *(f"{n} {value:.3f}" for n, value in self._terms.items())]
        )
        left = timedelta(seconds=int((self._steps - step) * units / max(self._rate, 1e-9)))
        line = f"step {step:,} of {self._steps:,}  {state}  {left} left"
        self._show(step, self._steps, f"{step}/{self._steps} {state}", line)

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Print the scores of an evaluation."""
        figures = "  ".join(f"{name} {value:.2f}" for name, value in scores.items())
        self.say(f"step {step:>6,}: {figures}{'  (best so far)' if best else ''}")
        self._last_step = time.perf_counter()  # evaluation does not count as training time

    def say(self, message: str) -> None:
        """Print a line above the bar."""
        self._begun.clear()
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
        self._show(done, total, f"{done:,}", f"{stage}: {done:,}" + (f" of {total:,}" if total else ""))
        if finished and self.live:
            self.end()

    def end(self) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.stop()
        self._bar, self._stage = None, ""

    def print(self, what: RenderableType, style: str | None = None) -> None:
        """Print a result on standard output."""
        self.end()
        # A line of text is broken at the width of a terminal, and stays one line in a file or a pipe.
        whole = isinstance(what, str) and not self._result.is_terminal
        self._result.print(what, style=style, markup=False, soft_wrap=whole)

    def _start(self, stage: str, total: int | None, done: int, *, transient: bool) -> None:
        self.end()
        self._stage = stage
        # Two stages may take turns, as reading and encoding do: each counts from its first report since the last line.
        self._last_line = max(self._last_line, self._begun.setdefault(stage, time.perf_counter()))
        if self.live:
            stage_column, state = (
                TextColumn(f"{{task.{field}}}", markup=False) for field in ("description", "fields[state]")
            )
            columns = stage_column, BarColumn(bar_width=24), state, TimeRemainingColumn()
            self._bar = ProgressBar(*columns, console=self._console, transient=transient)
            self._bar.start()
            self._bar.add_task(stage, total=total, completed=done, state="")

    def _show(self, done: int, total: int | None, state: str, line: str) -> None:
        """Move the bar, or print a line if the last one is long enough ago."""
        now = time.perf_counter()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total, state=state)
        elif now - self._last_line > _PAUSE:
            self._last_line = now
            self.say(line)
