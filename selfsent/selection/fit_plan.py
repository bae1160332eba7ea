"""What a selection decides or measures once: a process that resumes it reads that instead of deciding anew."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from selfsent.errors import Interrupted, ResumeError
from selfsent.storage import atomic

T = TypeVar("T")


class Seconds:
    """What a block took; known after it."""

    value = 0.0

    def __call__(self) -> float:
        """Return the seconds."""
        return self.value


class FitPlan:
    """What is kept in ``plan.json``."""

    def __init__(self, path: Path, content: dict[str, Any]) -> None:
        self._path, self._content = path, content

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
    def _broken_off(self) -> dict[str, float]:
        found: dict[str, float] = self._content.setdefault("broken off", {})
        return found

    @contextmanager
    def timed(self, slug: str) -> Iterator[Seconds]:
        """Time a block, and keep its seconds, with those of the same block before it was interrupted."""
        seconds, began, before = Seconds(), time.perf_counter(), self._broken_off.get(slug, 0.0)
        try:
            yield seconds
        except Interrupted:
            self._broken_off[slug] = round(before + time.perf_counter() - began, 1)
            atomic.write_sealed(self._path, self._content)
            raise
        seconds.value = self.once("seconds", slug, round(before + time.perf_counter() - began, 1))

    def require_same_base(self, name: str, digest: str, place: str) -> None:
        """Keep the digest of a base, or compare it with the one that was kept.

        Raises:
            ResumeError: the base has changed.
        """
        if self.once("bases", name, digest) != digest:
            raise ResumeError(
                f"the base {place} has changed since this selection was begun: put it back, or choose another --out"
            )
