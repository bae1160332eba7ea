"""Progress callbacks.  The base class does nothing; a progress bar overrides what it shows."""

import re
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

# Control characters but for tabs and line ends, marks that turn the direction of writing, lone surrogates.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Replace by U+FFFD what a terminal would obey or could not show."""
    return _CONTROL.sub("\ufffd", text)


class Progress:
    """Told what happens, in the order in which it happens; every long function takes one as ``progress``.

    Examples:
        >>> class Lines(selfsent.Progress):
        ...     def say(self, message):
        ...         print(message)
        ...
        >>> selfsent.search("builtin-static", "tickets.jsonl", "cannot log in", progress=Lines())
    """

    def say(self, message: str) -> None:
        """Pass on a line that a person should read."""

    def opening(self, what: str) -> None:
        """Take note of what takes the next seconds and cannot report how far it is."""

    def report(self, stage: str, done: int, total: int | None = None) -> None:
        """Report how far a stage is; ``total`` is None where its length is unknown."""

    def begin(self, step: int, steps: int, unit: str) -> None:
        """Start to train at ``step`` of ``steps``; ``unit`` is what ``step`` counts."""

    def step(self, step: int, units: int, terms: Mapping[str, float]) -> None:
        """Take note of a step over so many texts or tokens, and its weighted terms."""

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Take note of an evaluation; ``best``: its weights are the best so far."""

    def end(self) -> None:
        """End, well or not."""


SILENT = Progress()


class Bar(Progress):
    """Shows bars of tqdm in a notebook or a terminal, plain ones where ipywidgets is absent, and every line.

    Examples:
        >>> selfsent.fit(corpus="tickets.jsonl", progress=selfsent.Bar())
    """

    def __init__(self) -> None:
        # Where ipywidgets is absent, tqdm.auto warns.
        self._tqdm: Any = import_module("tqdm.auto" if find_spec("ipywidgets") else "tqdm").tqdm
        self._bar: Any = None
        self._stage = ""

    def say(self, message: str) -> None:
        """Print a line above the bar."""
        self._tqdm.write(message, file=sys.stderr)

    def report(self, stage: str, done: int, total: int | None = None) -> None:
        """Move the bar of a stage."""
        if self._bar is None or stage != self._stage:
            self._start(stage, done, total, "texts")
        self._move(done)
        if done == total:
            self.end()

    def begin(self, step: int, steps: int, unit: str) -> None:
        """Start the bar of a training."""
        self._start("train", step, steps, "steps")

    def step(self, step: int, units: int, terms: Mapping[str, float]) -> None:
        """Move the bar of a training, and show the terms of the loss."""
        self._move(step, {name: f"{value:.3f}" for name, value in terms.items()})

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Print the scores of an evaluation."""
        figures = "  ".join(f"{name} {value:.2f}" for name, value in scores.items())
        self.say(f"step {step:,}: {figures}{'  (best so far)' if best else ''}")

    def end(self) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.close()
        self._bar = None

    def _start(self, stage: str, done: int, total: int | None, unit: str) -> None:
        self.end()
        self._stage = stage
        self._bar = self._tqdm(desc=stage, initial=done, total=total, unit=f" {unit}", leave=False)

    def _move(self, done: int, state: Mapping[str, str] | None = None) -> None:
        if self._bar is not None:
            self._bar.set_postfix(state or {}, refresh=False)
            self._bar.update(done - self._bar.n)


class Prefixed(Progress):
    """Reports stages to another progress with a prefix, such as the name of a task."""

    def __init__(self, progress: Progress, prefix: str) -> None:
        self._progress, self._prefix = progress, prefix

    def report(self, stage: str, done: int, total: int | None = None) -> None:
        """Pass on a stage with its prefix."""
        self._progress.report(self._prefix + stage, done, total)


class Passed(Progress):
    """Passes lines, stages and the steps of a run on to another progress."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def say(self, message: str) -> None:
        """Pass on a line."""
        self._progress.say(message)

    def report(self, stage: str, done: int, total: int | None = None) -> None:
        """Pass on a stage."""
        self._progress.report(stage, done, total)

    def begin(self, step: int, steps: int, unit: str) -> None:
        """Pass on the start of a run."""
        self._progress.begin(step, steps, unit)

    def step(self, step: int, units: int, terms: Mapping[str, float]) -> None:
        """Pass on a step."""
        self._progress.step(step, units, terms)

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Pass on an evaluation."""
        self._progress.evaluated(step, scores, best)

    def end(self) -> None:
        """Pass on the end."""
        self._progress.end()


class Quiet(Passed):
    """Passes everything on, except lines that are no warnings: one run of many says the same."""

    def say(self, message: str) -> None:
        """Pass on a warning."""
        if message.startswith("warning"):
            super().say(message)

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Pass on an evaluation that gave scores."""
        if scores:
            super().evaluated(step, scores, best)
