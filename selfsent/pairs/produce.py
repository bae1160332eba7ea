"""From texts to a pairs file through a backend; texts whose output is in the cache are not processed again."""

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from selfsent.errors import CorpusError, Interrupted, UserError
from selfsent.pairs.cache import OutputCache, identity_digest
from selfsent.pairs.write import PairsSummary, check_pairs_file, write_pairs
from selfsent.progress import SILENT, Progress
from selfsent.storage import locks
from selfsent.text import clean


class Backend(ABC):
    """Generates an output for each text.

    Attributes:
        name: in the cache and in the pairs file.
        limit: the most tokens of an output; None: not limited by us.
        identity: everything that an output depends on, except the limit, which the cache stores with the output.
        settings: the same for people.
    """

    name: ClassVar[str]
    limit: int | None
    identity: dict[str, Any]
    settings: dict[str, Any]

    @abstractmethod
    def run(self, cache: OutputCache, progress: Progress) -> Counter[str]:
        """Generate an output for each pending text of the cache, and store it there as soon as it is made.

        Returns:
            The texts that failed, counted by reason.
        """

    def positive_from(self, text: str, output: str) -> str:
        """Return the positive that an output holds, on one line."""
        return clean.one_line(output)

    def cost(self, texts: int, size: int) -> str:
        """Estimate in one line what so many texts of so many bytes in all will cost; empty: nothing."""
        return ""

    @property
    def digest(self) -> str:
        """Hash the backend and its identity."""
        return identity_digest({"backend": self.name, **self.identity})


def produce_pairs(
    texts: Iterable[str],
    backend: Backend,
    out: Path,
    *,
    max_texts: int | None = None,
    confirm: Callable[[], object] | None = None,
    left_out: Counter[str] | None = None,
    progress: Progress = SILENT,
) -> PairsSummary:
    """Run the backend on the texts that have no output in the cache, and write the pairs of all of them.

    Args:
        max_texts: stop after so many distinct texts.
        left_out: what was not among ``texts``, counted by reason while they are read; the summary shows it.
        confirm: called after the estimated cost was reported and before anything is spent; it raises to stop.

    Raises:
        UserError: ``out`` cannot be written, or the backend had to stop; outputs until then are in the cache.
    """
    check_pairs_file(out)
    with (
        locks.exclusive(out, folder=False),
        OutputCache(backend.name, backend.digest, backend.settings, backend.limit) as cache,
    ):
        try:
            cache.add(texts, max_texts)
            if not len(cache):
                raise CorpusError("there is no text: sentences of tables need 5 words; --split no keeps rows whole")
            remaining, size = cache.remaining()
            progress.say(f"texts: {len(cache):,}, of which {len(cache) - remaining:,} are in the cache {cache.path}")
            if remaining and (cost := backend.cost(remaining, size)):
                progress.say(f"cost: {cost}")
                if confirm is not None:
                    confirm()
            start = time.perf_counter()
            failed = backend.run(cache, progress)
            seconds = time.perf_counter() - start
        except KeyboardInterrupt:
            progress.end()
            done = len(cache) - cache.remaining()[0]
            raise Interrupted(
                f"stopped with {done:,} of {len(cache):,} texts done: run the same command again to resume"
            ) from None
        if failed and cache.remaining()[0] == len(cache):
            raise UserError(f"none of {len(cache):,} texts got an output ({next(iter(failed))}): no {out} is written")
        summary = PairsSummary(out=out, texts=len(cache), made=cache.made, seconds=seconds, failed=failed)
        summary.dropped.update(left_out or {})

        def pairs() -> Iterator[tuple[str, str, str]]:
            for generated in cache.outputs():
                positive = backend.positive_from(generated.text, generated.output)
                if summary.count(generated.text, positive, truncated=generated.truncated_at is not None):
                    yield generated.text, positive, generated.created
            if not summary.pairs:  # before a file that is there is replaced
                raise CorpusError(f"no {out} is written, because nothing became a pair: {summary}")

        write_pairs(out, pairs(), backend=backend.name, digest=backend.digest, settings=backend.settings)
    return summary
