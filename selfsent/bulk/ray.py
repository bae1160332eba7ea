"""Workers of Ray: on this machine, or in the cluster that RAY_ADDRESS names; they encode, and prepare text.

A local Ray listens on 127.0.0.1 alone, without a dashboard; usage statistics are never sent.
"""

import logging
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from selfsent.bulk.encode import Block, BlockJob, Engine, write_block
from selfsent.corpus.dataset import Corpus
from selfsent.corpus.prepare import Unit, prepare_corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.tokenize import (
    ChunkTokenizer,
    CorpusEngine,
    NewText,
    Read,
    Split,
    SplitDocument,
    TokenizedChunk,
    split_texts,
)
from selfsent.encoder.open import open_encoder
from selfsent.encoder.quantize import needs_ranges
from selfsent.errors import ConfigurationError, EncoderError, UserError, first_line
from selfsent.progress import SILENT, Progress

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

NEEDED = (2, 60)
_ADVICE = 'install it with pip install ".[ray]" in the checkout'
_AHEAD = 2  # items that wait for each worker, besides the one it is at

Item = TypeVar("Item")
Result = TypeVar("Result")


def require_ray() -> None:
    """Refuse a Ray that is absent or too old.

    Raises:
        ConfigurationError: it is; the message has the command that installs it.
    """
    try:
        found = version("ray")
    except PackageNotFoundError:
        raise ConfigurationError(f"the engine ray needs the package Ray: {_ADVICE}") from None
    if tuple(map(int, re.findall(r"\d+", found)[:2])) < NEEDED:
        least = ".".join(map(str, NEEDED))
        raise ConfigurationError(f"Ray {found} is too old, {least} is needed: {_ADVICE}")


@contextmanager
def open_cluster(workers: int | None) -> Iterator[int]:
    """Start or join Ray for the block; yield the number of workers.

    Args:
        workers: Default: one for each core of this machine, or of the cluster.

    Raises:
        ConfigurationError: Ray is absent or too old, cannot be started or joined, or has fewer cores than workers.
    """
    require_ray()
    if workers is not None and workers < 1:
        raise ConfigurationError(f"{workers} workers cannot work: give 1 or more")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    address = os.environ.get("RAY_ADDRESS")
    if not address:  # read when ray is imported; without it Ray listens on the address of this machine in its network
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    import ray

    ours = not ray.is_initialized()
    if ours:
        local: dict[str, Any] = {"num_cpus": workers or _cores(), "include_dashboard": False}
        local |= {"_node_ip_address": "127.0.0.1", "object_store_memory": 1 << 30}
        quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        try:
            ray.init(address=address, **quiet) if address else ray.init(address="local", **local, **quiet)
        except Exception as error:  # each layer has its own
            where = f"at RAY_ADDRESS={address}" if address else "on this machine"
            raise ConfigurationError(f"Ray cannot be used {where}: {first_line(error)}") from error
    try:
        cores = int(ray.cluster_resources().get("CPU", 0))
        if cores < (workers or 1):
            raise ConfigurationError(f"{workers} workers need as many cores, and the cluster has {cores}: give fewer")
        yield workers or cores
    finally:
        if ours:
            ray.shutdown()


class _Worker:
    """What runs in a process of its own; it is made anew, by the next item, where that process died."""

    def __init__(self) -> None:
        self._work: Callable[..., Any] | None = None

    def work(self, item: Any, factory: Callable[..., Callable[..., Any]], given: Any) -> Any:  # noqa: ANN401
        import ray

        if self._work is None:
            self._work = factory(*ray.get(given))
        return self._work(item)


class Pool(Generic[Item, Result]):
    """Workers, each of which calls ``factory(*given)`` once and then what it returned for every item.

    A worker that dies is started again, and what it was at is computed again: an item must give the same whenever, and
    how often, it is computed.
    """

    def __init__(self, workers: int, factory: Callable[..., Callable[..., Any]], *given: object) -> None:
        import ray

        remote: Any = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(_Worker)
        self._factory, self._given = factory, [ray.put(one) for one in given]
        self._workers = [remote.remote() for _ in range(workers)]
        self._load = dict.fromkeys(self._workers, 0)  # items that each has not finished

    def map(self, items: Iterable[Item]) -> Iterator[Result]:
        """Yield the results of all items, in their order; a few items are taken ahead.

        Raises:
            Exception: what computing an item raised, first of all for the first of them.
        """
        import ray

        waiting: deque[tuple[Any, Any]] = deque()
        load = self._load
        done: set[Any] = set()

        def settle() -> None:
            """Take note of who has finished what."""
            open_ones = [ref for ref, _ in waiting if ref not in done]
            ready, _ = ray.wait(open_ones, num_returns=len(open_ones), timeout=0) if open_ones else ([], [])
            for ref, worker in waiting:
                if ref in ready:
                    done.add(ref)
                    load[worker] -= 1

        def first() -> Result:
            ref, worker = waiting.popleft()
            try:
                result: Result = ray.get(ref)
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, Exception):
                    raise error.cause from None
                raise
            except ray.exceptions.RayActorError as error:
                raise _broken(error) from error
            load[worker] -= ref not in done
            done.discard(ref)
            return result

        for item in items:
            settle()
            while len(waiting) >= (1 + _AHEAD) * len(self._workers):
                yield first()
                settle()
            worker = min(load, key=load.__getitem__)
            load[worker] += 1
            waiting.append((worker.work.remote(item, self._factory, self._given), worker))
        while waiting:
            yield first()

    def close(self) -> None:
        """End the workers."""
        import ray

        for worker in self._workers:
            ray.kill(worker)


def _cores() -> int:
    from selfsent.runtime.hardware import usable_cores  # which imports torch, and workers that prepare text need none

    return usable_cores()


def _broken(error: Exception) -> UserError:
    """Build the error for workers that cannot be started, with the reason that their own error gives."""
    found = re.findall(r"^(?:[\w.]+Error|[\w.]+Exception): (.+)$", str(error), re.M)
    cause = getattr(error, "cause", None)
    return (
        cause
        if isinstance(cause, UserError)
        else UserError(f"a worker of Ray could not start or was lost: {found[-1] if found else first_line(error)}")
    )


# encoding

Whole = tuple[int, list[str]]


def ray_blocks(model: str, workers: int | None, threads: int = 1) -> Engine:
    """Return an engine for ``encode_to`` that sends blocks to workers.

    The driver reads the texts; each worker encodes its blocks and writes their shards, so that the output has to be on
    a file system that all machines share, or a URL.

    Args:
        model: the name under which every machine finds the encoder.
        threads: of every worker.
    """

    def run(job: BlockJob, blocks: Iterator[Block]) -> Iterator[tuple[int, int]]:
        with open_cluster(workers) as count:
            pool: Pool[Whole, tuple[int, int]] = Pool(count, _encoder_worker, model, job, threads)
            whole = ((number, list(texts)) for number, texts in blocks)
            alone = 1 if needs_ranges(job.dtype) and not job.store.has_ranges(job.part) else 0
            first = list(islice(whole, alone))  # it makes the ranges that all others need
            try:
                yield from pool.map(first)
                yield from pool.map(whole)
            finally:
                pool.close()

    return run


def _encoder_worker(model: str, job: BlockJob, threads: int) -> Callable[[Whole], tuple[int, int]]:
    """Open the encoder on a worker, and make sure that it is the one of the driver."""
    encoder = open_encoder(model, fastest=True, threads=threads)
    if encoder.digest != job.model:
        raise EncoderError(f"{model} is another encoder on a worker than here: give all machines the same folder")

    def work(block: Whole) -> tuple[int, int]:
        return write_block(encoder, job, *block)

    return work


# preparation

_LETTERS = 1 << 20  # of documents that are sent to a worker together, where they are not as many as may be


class RayCorpus(CorpusEngine):
    """Splits and tokenises by the same workers; to be used, and closed, inside ``open_cluster``."""

    def __init__(self, workers: int, group_documents: int) -> None:
        self._workers, self._most = workers, group_documents
        self._pool: Pool[Any, Any] | None = None

    def split(self, documents: Iterator[Read]) -> Iterator[Split]:
        """Yield every document with its texts, in order, once ``tokenize`` has started the workers."""
        assert self._pool is not None
        sent: deque[list[Read]] = deque()

        def groups() -> Iterator[tuple[str, list[Read]]]:
            for group in _groups(documents, self._most):
                sent.append(group)
                yield "split", group

        for splits in self._pool.map(groups()):
            for (document, rules), split in zip(sent.popleft(), splits, strict=True):
                yield document, rules, split

    def tokenize(self, work: ChunkTokenizer, chunks: Iterator[list[NewText]]) -> Iterator[TokenizedChunk]:
        """Yield every chunk tokenised, in order."""
        if self._pool is None:
            self._pool = Pool(self._workers, _corpus_worker, work)
        yield from self._pool.map(("tokenize", chunk) for chunk in chunks)

    def close(self) -> None:
        """End the workers."""
        if self._pool is not None:
            self._pool.close()


def _groups(documents: Iterator[Read], most: int) -> Iterator[list[Read]]:
    group: list[Read] = []
    letters = 0
    for read in documents:
        group.append(read)
        letters += len(read[0].text)
        if len(group) >= most or letters >= _LETTERS:
            yield group
            group, letters = [], 0
    if group:
        yield group


def _corpus_worker(tokenize: ChunkTokenizer) -> Callable[[tuple[str, Any]], Any]:
    def work(item: tuple[str, Any]) -> list[SplitDocument] | TokenizedChunk:
        what, content = item
        return tokenize(content) if what == "tokenize" else [split_texts(*read) for read in content]

    return work


def prepare_on_ray(
    sources: Sequence[str],
    config: CorpusConfig,
    tokenizer: "PreTrainedTokenizerBase",
    *,
    unit: Unit = "sentences",
    workers: int | None = None,
    group_documents: int = 1024,
    cache: Path | None = None,
    progress: Progress = SILENT,
) -> Corpus:
    """Prepare a corpus as ``prepare_corpus`` does, with the same rows, by workers of Ray; the driver writes it.

    Args:
        group_documents: that are sent to a worker together, at most.

    Raises:
        UserError: those of ``prepare_corpus`` and of ``open_cluster``.
    """
    with open_cluster(workers) as count:
        engine = RayCorpus(count, group_documents)
        try:
            return prepare_corpus(sources, config, tokenizer, unit=unit, cache=cache, engine=engine, progress=progress)
        finally:
            engine.close()
