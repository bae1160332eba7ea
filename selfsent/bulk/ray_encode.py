"""Blocks of texts encoded by workers of Ray that hold one encoder each and write their shards themselves."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from selfsent.bulk import encode, store
from selfsent.bulk.encode import Block, BlockJob, Engine
from selfsent.bulk.ray_cluster import Pool, open_cluster
from selfsent.encoder.open import open_encoder
from selfsent.encoder.quantize import needs_ranges
from selfsent.errors import EncoderError

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
            alone = 1 if needs_ranges(job.dtype) and not _has_ranges(job) else 0
            first = list(islice(whole, alone))  # it makes the ranges that all others need
            try:
                yield from pool.map(first)
                yield from pool.map(whole)
            finally:
                pool.close()

    return run


def _has_ranges(job: BlockJob) -> bool:
    output = job.output
    return store.ranges_file(output).is_file() if isinstance(output, Path) else output.has_ranges()


def _encoder_worker(model: str, job: BlockJob, threads: int) -> Callable[[Whole], tuple[int, int]]:
    """Open the encoder on a worker, and make sure that it is the one of the driver."""
    encoder = open_encoder(model, fastest=True, threads=threads)
    if encoder.digest != job.model:
        raise EncoderError(f"{model} is another encoder on a worker than here: give all machines the same folder")

    def work(block: Whole) -> tuple[int, int]:
        return encode.write_block(encoder, job, *block)

    return work
