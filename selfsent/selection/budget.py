"""The time of a selection, and what it decides or measures once.

All of it is kept in ``plan.json``: a process that resumes the selection reads that instead of deciding anew.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from sentence_transformers import SentenceTransformer

from selfsent.encoder.encode import encode
from selfsent.errors import Interrupted, ResumeError
from selfsent.storage import atomic

T = TypeVar("T")

LENGTH = 64  # tokens of a text that is trained on
_FOR_TRAINING = 0.7  # of the minutes; the rest is for scoring
_TRAINING_COST = 5.0  # encodings of a text that one training step on it costs
_SAMPLE, _LARGEST, _BATCH = 256, 16_384, 32  # rows; texts
_LONG = 0.5  # seconds: a shorter encoding is mostly its start, on a GPU above all


class Budget:
    """The minutes of a selection, how much of them is spent, and what was decided with them."""

    def __init__(
        self, path: Path, content: dict[str, Any], minutes: float, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Open the plan, which has some content so far; the clock gives seconds."""
        self._path, self._content, self._minutes, self._clock = path, content, minutes, clock
        self._broken_off: dict[str, float] = content.setdefault("broken off", {})  # seconds of what was interrupted

    def once(self, kind: str, name: str, value: T) -> T:
        """Return what was kept under a name before, or keep ``value`` now."""
        kept: dict[str, T] = self._content.setdefault(kind, {})
        if name not in kept:
            kept[name] = value
            atomic.write_sealed(self._path, self._content)
        return kept[name]

    @property
    def spent(self) -> float:
        """Return the seconds of all blocks that were timed, by whichever process."""
        return float(sum((self._broken_off | self._content.get("seconds", {})).values()))

    @property
    def seconds_left(self) -> float:
        """Return the seconds that trainings may still take."""
        return 60 * self._minutes * _FOR_TRAINING - self.spent

    def steps_left(self, slug: str, batch: int) -> float:
        """Return how many steps of ``batch`` texts the time left is enough for, from a base whose rate was measured."""
        return self.seconds_left * float(self._content["rates"][slug]) / (_TRAINING_COST * 2 * batch)

    @contextmanager
    def timed(self, slug: str) -> Iterator[None]:
        """Time a block, and keep its seconds, with those of the same block before it was interrupted."""
        began, before = self._clock(), self._broken_off.get(slug, 0.0)
        try:
            yield
        except Interrupted:
            self._broken_off[slug] = round(before + self._clock() - began, 1)
            atomic.write_sealed(self._path, self._content)
            raise
        self.once("seconds", slug, round(before + self._clock() - began, 1))

    def seconds(self, slug: str) -> float:
        """Return what a block took."""
        return float(self._content["seconds"][slug])

    def require_same_base(self, name: str, digest: str, source: str) -> None:
        """Keep the digest of a base, or compare it with the one that was kept.

        Raises:
            ResumeError: the base has changed.
        """
        if self.once("bases", name, digest) != digest:
            raise ResumeError(
                f"the base {source} has changed since this selection was begun: put it back, or choose another --out"
            )

    def measure_rate(
        self,
        encoder: SentenceTransformer,
        texts: Path,
        slug: str,
        encode: Callable[[SentenceTransformer, list[str]], object] = encode,
    ) -> float:
        """Return how many texts a second an encoder encodes, of those that it would be trained on; kept by its slug.

        The texts that candidates are scored on are no measure: passages are several times as long.
        """
        if slug in self._content.get("rates", {}):  # of before the selection was resumed
            return float(self._content["rates"][slug])
        with texts.open(encoding="utf-8") as file:
            rows = [json.loads(line) for line in islice(file, _LARGEST)]
        encoder.max_seq_length = min(encoder.max_seq_length or LENGTH, LENGTH)
        encode(encoder, _texts(rows[:_BATCH])[:_BATCH])  # the first products are compiled
        count, took = _SAMPLE, 0.0
        with self.timed(f"{slug}-sample"):
            while True:
                sample, began = _texts(rows[:count]), self._clock()
                encode(encoder, sample)
                took = self._clock() - began
                if took >= _LONG or count >= len(rows):
                    break
                count *= 4
        return self.once("rates", slug, round(len(sample) / max(took, 1e-3), 1))


def _texts(rows: Sequence[dict[str, str]]) -> list[str]:
    return [row[key] for row in rows for key in ("text", "positive") if row.get(key)]
