"""Watcher: who is told how something long goes.  This one says nothing; a progress bar overrides what it shows."""

from collections.abc import Mapping


class Progress:
    """Told what happens, in the order in which it happens."""

    unit: str = "texts"  # what ``step`` counts

    def report(self, stage: str, done: int, total: int | None) -> None:
        """Hear how far a stage is; ``total`` is None where its length is unknown."""

    def begin(self, step: int, steps: int) -> None:
        """Hear that training starts at ``step`` of ``steps``."""

    def step(self, step: int, texts: int, terms: Mapping[str, float]) -> None:
        """Hear that a step over so many texts ended, and its weighted terms."""

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Hear the scores of an evaluation, and whether its weights are the best so far."""

    def say(self, message: str) -> None:
        """Pass on something that a person should read."""

    def end(self) -> None:
        """Hear that training ended, well or not."""
