"""Workers of Ray: on this machine, or in the cluster that RAY_ADDRESS names; they encode, and prepare text.

A local Ray listens on 127.0.0.1 alone, without a dashboard; usage statistics are never sent.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import islice, tee
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfsent.bulk.encode import Block, BlockJob, Engine, write_block
from selfsent.corpus.dataset import Corpus
from selfsent.corpus.prepare import Unit, prepare_corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.tokenize import ChunkTokenizer, CorpusEngine, NewText, Read, Split, TokenizedChunk, split_texts
from selfsent.encoder.open import open_encoder
from selfsent.encoder.quantize import needs_ranges
from selfsent.errors import ConfigurationError, EncoderError, UserError, first_line
from selfsent.progress import SILENT, Progress

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

NEEDED = (2, 60)
_ADVICE = 'install it with pip install ".[ray]" in the checkout'
_ITEMS = 3  # of each worker at once: the one it is at, and those that wait for it
_LETTERS = 1 << 20  # of documents that are sent to a worker together, where they are not as many as may be


def require_ray() -> None:
    """Refuse a Ray that is absent or too old.

    Raises:
        ConfigurationError: it is; the message has the command that installs it.
    """
    try:
        installed = version("ray")
    except PackageNotFoundError:
        raise ConfigurationError(f"the engine ray needs the package Ray: {_ADVICE}") from None
    if tuple(map(int, re.findall(r"\d+", installed)[:2])) < NEEDED:
        least = ".".join(map(str, NEEDED))
        raise ConfigurationError(f"Ray {installed} is too old, {least} is needed: {_ADVICE}")


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

    from selfsent.runtime.hardware import usable_cores  # here: it imports torch, which workers for text do without

    ours = not ray.is_initialized()
    if ours:
        local: dict[str, Any] = {"num_cpus": workers or usable_cores(), "include_dashboard": False}
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
        self._work: Callable[[Any], Any] | None = None

    def work(self, item: Any, make: Sequence[Any]) -> Any:  # noqa: ANN401
        import ray

        if self._work is None:
            self._work = ray.get(make[0])()
        return self._work(item)


class Pool:
    """Workers, each of which calls ``factory(*arguments)`` once and then what it returned for every item.

    A worker that dies is started again, and what it was at is computed again: an item must give the same whenever, and
    how often, it is computed.
    """

    def __init__(self, workers: int, factory: Callable[..., Callable[[Any], Any]], *arguments: object) -> None:
        import ray

        remote: Any = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(_Worker)
        self._make = [ray.put(partial(factory, *arguments))]  # in a list, so that a worker reads it only once
        self._workers = [remote.remote() for _ in range(workers)]

    def map(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the results of all items, in their order; a few items are taken ahead.

        Raises:
            Exception: what computing an item raised, first of all for the first of them.
        """
        from ray.util import ActorPool

        sent = ActorPool(self._workers * _ITEMS)
        for item in items:
            if not sent.has_free():
                yield self._next_result(sent)
            sent.submit(lambda worker, item: worker.work.remote(item, self._make), item)
        while sent.has_next():
            yield self._next_result(sent)

    def _next_result(self, sent: Any) -> Any:  # noqa: ANN401
        import ray

        try:
            return sent.get_next()
        except ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except ray.exceptions.RayActorError as error:
            reasons = re.findall(r"^(?:[\w.]+Error|[\w.]+Exception): (.+)$", str(error), re.M) or [first_line(error)]
            raise UserError(f"a worker of Ray could not start or was lost: {reasons[-1]}") from error

    def close(self) -> None:
        """End the workers."""
        import ray

        for worker in self._workers:
            ray.kill(worker)


def ray_blocks(model: str, workers: int | None, threads: int = 1) -> Engine:
    """Return an engine for ``encode_to`` that sends blocks to workers.

    The driver reads the texts; each worker encodes its blocks and writes their shards, so that the output has to be on
    a file system that all machines share, or a URL.

    Args:
        model: the name under which every machine finds the encoder.
        threads: of every worker.
    """

    def run(job: BlockJob, blocks: Iterator[Block]) -> Iterator[tuple[int, int]]:
        with open_cluster(workers) as count, closing(Pool(count, _block_writer, model, job, threads)) as pool:
            read_blocks = ((number, list(texts)) for number, texts in blocks)
            alone = 1 if needs_ranges(job.dtype) and not job.store.has_ranges() else 0
            first = list(islice(read_blocks, alone))  # it makes the ranges that all others need
            yield from pool.map(first)
            yield from pool.map(read_blocks)

    return run


def _block_writer(model: str, job: BlockJob, threads: int) -> Callable[[tuple[int, list[str]]], tuple[int, int]]:
    """Open the encoder on a worker, and make sure that it is the one of the driver."""
    encoder = open_encoder(model, fastest=True, threads=threads)
    if encoder.digest != job.model:
        raise EncoderError(f"{model} is another encoder on a worker than here: give all machines the same folder")
    return lambda block: write_block(encoder, job, *block)


class RayCorpus(CorpusEngine):
    """Splits and tokenises by the same workers; to be used, and closed, inside ``open_cluster``."""

    def __init__(self, workers: int, group_documents: int) -> None:
        self._workers, self._most = workers, group_documents
        self._pool: Pool | None = None

    def split(self, documents: Iterator[Read]) -> Iterator[Split]:
        """Yield every document with its texts, in order, once ``tokenize`` has started the workers."""
        assert self._pool is not None
        groups, sent = tee(_groups(documents, self._most))
        results = self._pool.map(("split", group) for group in sent)
        for splits, group in zip(results, groups, strict=True):
            for (document, rules), split in zip(group, splits, strict=True):
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
    def work(item: tuple[str, Any]) -> Any:  # noqa: ANN401
        step, content = item
        return tokenize(content) if step == "tokenize" else [split_texts(*read) for read in content]

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
    with open_cluster(workers) as count, closing(RayCorpus(count, group_documents)) as engine:
        return prepare_corpus(sources, config, tokenizer, unit=unit, cache=cache, engine=engine, progress=progress)
