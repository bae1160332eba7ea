"""From texts to a pairs file, by way of the cache: what is there already costs nothing."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from selfsent.augment.cache import Output, OutputCache
from selfsent.augment.pairs_file import PairsFile
from selfsent.corpus import clean
from selfsent.progress import Progress

_SHOWN = 5  # pairs of the sample
Store = Callable[[Sequence[Output]], None]


@runtime_checkable
class Backend(Protocol):
    """Makes outputs of texts."""

    @property
    def name(self) -> str:
        """The backend as the cache and the pairs file know it."""

    @property
    def digest(self) -> str:
        """Hash all that an output hangs on."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings for people."""

    @property
    def limit(self) -> int | None:
        """Tokens that an output may have."""

    def run(self, pages: Iterable[Sequence[str]], asking: Callable[[int], None], store: Store) -> Counter[str]:
        """Work through the texts.

        Args:
            pages: texts, a few thousand at a time.
            asking: hears how many texts are about to be worked on.
            store: keeps outputs for good, as soon as there are any.

        Returns:
            The texts that failed, counted by reason.
        """

    def tidy(self, text: str, output: str) -> str:
        """Make a positive of an output."""


@dataclass(kw_only=True)
class AugmentOutcome:
    """What became of every text."""

    out: Path
    texts: int = 0
    made: int = 0  # by this run; the others were in the cache
    seconds: float = 0.0  # that making took
    pairs: int = 0
    identical: int = 0
    empty: int = 0
    cut: int = 0
    repeated: int = 0  # pairs that were given twice
    failed: Counter[str] = field(default_factory=Counter)
    sample: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._draw = random.Random(0)

    def judge(self, text: str, positive: str) -> bool:
        """Say whether these are a pair, and count them."""
        if not positive:
            self.empty += 1
        elif clean.content_key(text) == clean.content_key(positive):
            self.identical += 1
        else:
            self.pairs += 1
            # Every pair has the same chance to be shown, however many there are.
            place = self.pairs - 1 if self.pairs <= _SHOWN else self._draw.randrange(self.pairs)
            if place < _SHOWN:
                self.sample[place : place + 1] = [(text, positive)]
            return True
        return False

    @property
    def speed(self) -> float:
        """Texts a second, of those that this run made."""
        return self.made / self.seconds if self.made else 0.0

    def lines(self) -> list[str]:
        """Return the account as aligned lines of plain text."""
        rows = [
            ("texts", self.texts),
            ("  made now", self.made),
            ("  identical to their text", self.identical),
            ("  empty", self.empty),
            ("  cut off", self.cut),
            ("  given twice", self.repeated),
            *((f"  failed: {reason}", count) for reason, count in self.failed.most_common()),
            ("pairs", self.pairs),
        ]
        shown = [row for row in rows if row[1] or not row[0].startswith(" ")]
        label = max(len(name) for name, _ in shown)
        number = max(len(f"{count:,}") for _, count in shown)
        return [f"{name:<{label}}  {count:>{number},}" for name, count in shown]


def produce(cache: OutputCache, backend: Backend, out: Path, progress: Progress) -> AugmentOutcome:
    """Let the backend work on what the cache lacks of its list, and write the pairs of all of it.

    Raises:
        UserError: the backend had to stop; what it made until then is in the cache.
    """
    outcome = AugmentOutcome(out=out, texts=len(cache))
    total = cache.left()[0]

    def store(outputs: Sequence[Output]) -> None:
        cache.put(outputs)
        outcome.made += len(outputs)
        outcome.seconds = time.perf_counter() - began
        progress.report(backend.name, outcome.made, total)

    began = time.perf_counter()
    outcome.failed = backend.run(cache.pending(), cache.asking, store)
    _write(cache, backend, outcome)
    return outcome


def _write(cache: OutputCache, backend: Backend, outcome: AugmentOutcome) -> None:
    with PairsFile(outcome.out, backend.name, backend.digest, backend.settings) as file:
        for made in cache.outputs():
            if made.cut:
                outcome.cut += 1
                continue
            positive = backend.tidy(made.text, made.output)
            if outcome.judge(made.text, positive):
                file.add(made.text, positive, made.created)
