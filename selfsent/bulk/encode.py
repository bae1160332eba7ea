"""Encode any number of texts to disk: streamed, resumable, and byte-identical after a restart.

Each block of ``_BLOCK`` rows is an ``.npy`` shard that is written whole or not at all, with its checksum; a job that
was killed resumes after the last that is still what was written.  At the end the shards become the output.  All of it
happens in a folder beside the output, ``.NAME.encoding``, which needs as much disk space again as the output; a folder
of shards needs none.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selfsent.bulk import store
from selfsent.bulk.parts import WHOLE, EncodePart, finish_part, open_part, require_same_plan
from selfsent.bulk.remote import RemoteFolder
from selfsent.corpus import formats
from selfsent.corpus.remote import is_url
from selfsent.corpus.sources import Columns, Source, resolve_sources, strings_of
from selfsent.encoder.base import Encoder, TextEncoder
from selfsent.encoder.coverage import checked_texts
from selfsent.encoder.open import as_encoder
from selfsent.encoder.quantize import QUANTIZED, needs_ranges
from selfsent.errors import ConfigurationError, CorpusError, EncoderError, ResumeError, unknown
from selfsent.progress import SILENT, Progress
from selfsent.storage import atomic, locks

DTYPES = ("float32", "float16")
SUFFIXES = (".npy", ".parquet", ".arrow")
_BLOCK = 16_384  # rows that are sorted by length together, lost at most by a kill, and make one shard
_CHARACTERS = 1 << 21  # of a block that are tokenised together, which takes some 160 bytes each


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """What was written."""

    output: Path | str
    rows: int
    width: int
    resumed: int  # rows that an earlier, unfinished job had encoded
    missing: tuple[int, ...] = ()  # the parts that are not done; the output is not there before they are


@dataclass(frozen=True, kw_only=True)
class BlockJob:
    """What is the same for all blocks of a job; it can be sent to another process."""

    output: Path | RemoteFolder
    model: str  # digest of the encoder
    prompt: str
    dimensions: int | None
    precision: str
    dtype: str
    block: int = field(default_factory=lambda: _BLOCK)
    characters: int = field(default_factory=lambda: _CHARACTERS)
    part: EncodePart = WHOLE


Block = tuple[int, Iterable[str]]  # its number, from 0, and its texts
ReadTexts = Callable[[], Iterator[str]]  # opens the sources
Engine = Callable[[BlockJob, Iterator[Block]], Iterator[tuple[int, int]]]  # as ``write_block`` for each, in any order


def encode_to(
    output: str | Path,
    encoder: TextEncoder,
    texts: Sequence[str | Path] | Iterable[str] | Path,
    *,
    stream: bool = False,
    text_column: str = "text",
    prompt_name: str | None = None,
    prompt: str | None = None,
    truncate_dim: int | None = None,
    precision: str = "auto",
    dtype: str = "float32",
    overwrite: bool = False,
    part: EncodePart | None = None,
    engine: Engine | None = None,
    progress: Progress = SILENT,
) -> Encoded:
    """Encode every text of the sources into ``output``, one row a text in their order.

    Every line of a plain file is a text, also an empty one, and so is each row of a table, also one whose column is
    empty.  Run again after a kill, it resumes, and ends with the bytes of a job that was never stopped.

    Args:
        output: ``.npy`` (N, D); ``.parquet`` or ``.arrow`` with the columns ``row`` and ``vector``; or, without a
            suffix, a folder of ``.npy`` shards with a ``manifest.json``; or the URL of a folder of Parquet shards on
            a file system of fsspec, such as s3://bucket/vectors, which is never replaced.
        texts: names of sources (files, folders, data sets on the hub); with ``stream`` the texts themselves, which
            are read once: such a job restarts from the beginning.
        prompt_name: a prompt of the encoder's folder.  Default: its prompt for documents, as ``task_prompt`` finds it.
        prompt: what is put before every text, in place of a prompt of the folder; "" for none.
        truncate_dim: keep this many leading dimensions.  Default: as many as the folder says, or all.
        precision: "fp32", "bf16", or "auto" for bf16 where this machine is faster at it.
        dtype: what is written: "float32", "float16", or packed as ``encoder.quantize`` does, "int8", "uint8",
            "binary" or "ubinary".  The ranges of int8 and uint8 are those of the first 16,384 texts; they are written
            beside the output, as ``NAME.ranges.npy`` (2, D), because queries need the same.
        overwrite: replace an output of an earlier call, once the new one is whole; nothing else is ever replaced.
        part: encode this share alone; the output appears, with the bytes of an unsplit job, when all parts are done.
        engine: what computes the blocks.  Default: this process.

    Raises:
        UserError: no such source or nothing in it; an output that exists or does not fit; an unfinished output of
            another model, source or setting; a vector that is not finite; another process at the same output.
    """
    if isinstance(encoder, str | Path):
        raise ConfigurationError(f"encode_to takes an encoder and not its name: selfsent.load({str(encoder)!r})")
    texts = [str(texts)] if isinstance(texts, str | Path) else texts
    encoder = as_encoder(encoder)
    encoder.require_width(truncate_dim)
    target = output_of(output)
    if dtype not in (*DTYPES, *QUANTIZED):
        raise unknown("dtype", dtype, (*DTYPES, *QUANTIZED))
    require_output(target)
    if isinstance(target, RemoteFolder) and (part or stream):
        what = f"part {part}" if part else "standard input"  # of which the shards that are there may be another's
        raise ConfigurationError(f"{what} cannot be encoded to {output}, a URL: name a file or folder")
    if part and stream:
        raise ConfigurationError(f"part {part} of standard input cannot be told: give files")
    named = prompt is not None or prompt_name is not None
    job = BlockJob(
        output=target.absolute() if isinstance(target, Path) else target,
        model=encoder.digest,
        prompt=encoder.resolve_prompt(prompt_name, prompt) if named else encoder.task_prompt("document"),
        dimensions=truncate_dim,
        precision="bf16" if encoder.in_bf16(precision) else "fp32",
        dtype=dtype,
        part=part or WHOLE,
    )
    sources = [] if stream else find_sources([str(name) for name in texts])
    plan = _plan(job, None if stream else sources, text_column) | ({"parts": part.of} if part else {})
    columns = Columns(text=text_column, title=text_column, summary=text_column, positive=None)  # no others
    found = (document.text for source in sources for document in source.documents(columns))
    checked = partial(checked_texts, encoder, strings_of(texts) if stream else found, "this encoder", progress)
    run = engine or _here(encoder)
    if isinstance(target, RemoteFolder):
        return _encode_remotely(target, job, plan, checked, run, progress)
    return _encode_locally(target, job, plan, checked, run, stream=stream, overwrite=overwrite, progress=progress)


def _encode_locally(
    output: Path,
    job: BlockJob,
    plan: dict[str, Any],
    read_texts: ReadTexts,
    run: Engine,
    *,
    stream: bool,
    overwrite: bool,
    progress: Progress,
) -> Encoded:
    part = job.part if job.part is not WHOLE else None
    claimed = output.with_name(f"{output.name}.part-{part.number}") if part else output
    with locks.exclusive(claimed, folder=False):
        if part:
            resumed = open_part(output, part, plan, overwrite=overwrite, progress=progress)
        else:
            resumed = _open(output, plan, resume=not stream, overwrite=overwrite, progress=progress)
        try:
            total = _encode_blocks(job, read_texts(), run, progress)
            if part:
                shape, missing = finish_part(output, part, total, job.dtype, job.block)
            else:
                shape, missing = store.publish(output, job.dtype, job.block), ()
        except BaseException:
            if stream:
                atomic.remove(store.unfinished_of(output))
            raise
    rows, width = shape or (total, 0)
    return Encoded(output=output, rows=rows, width=width, resumed=resumed, missing=missing)


def _encode_remotely(
    target: RemoteFolder, job: BlockJob, plan: dict[str, Any], read_texts: ReadTexts, run: Engine, progress: Progress
) -> Encoded:
    target.begin(plan)
    resumed = sum(shard.rows for shard in target.shards().values())
    _encode_blocks(job, read_texts(), run, progress)
    rows, width = target.publish(job.dtype, job.block)
    return Encoded(output=target.url, rows=rows, width=width, resumed=resumed)


def _here(encoder: Encoder) -> Engine:
    """Compute blocks in this process, one after the other."""
    return lambda job, blocks: (write_block(encoder, job, number, texts) for number, texts in blocks)


def _plan(job: BlockJob, sources: Sequence[Source] | None, text_column: str) -> dict[str, Any]:
    """Return all that the bytes of an output depend on, as it is read back from JSON."""
    plan = {
        "model": job.model,
        "source": None if sources is None else [source.identity() for source in sources],
        "text column": text_column,
        "prompt": job.prompt,
        "dimensions": job.dimensions,
        "precision": job.precision,
        "dtype": job.dtype,
        "block": [job.block, job.characters],
    }
    return dict(json.loads(json.dumps(plan)))


def kept_texts(output: str | Path) -> int:
    """Count the rows of an unfinished output that are on disk and will not be encoded again."""
    place = output_of(output)
    if isinstance(place, RemoteFolder):
        return sum(shard.rows for shard in place.shards().values())
    shape = store.shape_when_complete(place)
    return shape[0] if shape else store.rows_in(store.shards_of(place))


def output_of(name: str | Path) -> Path | RemoteFolder:
    """Return the place that the name of an output stands for."""
    return RemoteFolder(str(name)) if is_url(name) else Path(name)


def require_output(output: Path | RemoteFolder) -> None:
    """Refuse an output that cannot be written, before anything is loaded.

    Raises:
        UserError: an unknown suffix, no folder to write to, or a folder where a file is meant and the other way round.
    """
    if isinstance(output, RemoteFolder):
        return
    if (
        not output.name
        or output.suffix not in ("", *SUFFIXES)
        or (output.is_dir() if output.suffix else output.is_file())
    ):
        raise ConfigurationError(
            f"output {output} does not fit: give a file that ends in {', '.join(SUFFIXES)}, or a folder of shards, "
            "whose name has no suffix"
        )
    above = output.absolute().parent
    if not above.is_dir():
        raise ConfigurationError(f"output {output} has no place: there is no folder {above}")


def find_sources(names: Sequence[str]) -> list[Source]:
    """Find the sources behind the names; a file without a known suffix is lines of text.

    Raises:
        UserError: a name is no file, folder, hub data set or demo corpus.
    """
    sources: list[Source] = []
    for name in names:
        path = Path(name).expanduser()
        if not is_url(name) and path.is_file() and not formats.format_of(path):
            sources.append(Source(name, ".txt", path))
        else:
            sources += resolve_sources([name])
    return sources


def _open(output: Path, plan: dict[str, Any], *, resume: bool, overwrite: bool, progress: Progress) -> int:
    """Start, or resume where the plan is the same; return how many rows an earlier job encoded."""
    folder = store.unfinished_of(output)
    path = folder / "plan.json"
    if any(folder.glob("plan-*.json")):  # of parts, which may be at work
        require_same_plan(output, plan)
    if not resume and path.is_file() and kept_texts(output):  # no stream can go on with what files began
        begun = atomic.read_sealed(path, store.afresh(output))
        if begun["source"] is not None:
            raise ResumeError(
                f"{output} was begun with files, not with standard input: repeat that command to finish it, choose "
                f"another --output, or remove {folder}"
            )
    resuming = resume and path.is_file()
    before = atomic.read_sealed(path, store.afresh(output)) if resuming else plan
    if before["source"] is None and plan["source"] is not None:  # of a stream, which always starts again
        resuming, before = False, plan
    if before != plan and not kept_texts(output):
        resuming = False
    elif before != plan:
        changed = ", ".join(key for key in plan if before.get(key) != plan[key])
        raise ResumeError(
            f"{output} was begun with another {changed}: repeat that command to finish it, or remove {folder} to start "
            "again"
        )
    if resuming and store.shape_when_complete(output):
        if store.is_intact(output):
            return kept_texts(output)
        atomic.remove(folder / "complete.json")
    if not resuming:
        store.require_no_ranges(output, plan["dtype"], overwrite=overwrite)
    if output.exists() and not overwrite:
        raise ConfigurationError(f"output {output} exists: remove it, choose another name, or add --overwrite")
    if output.exists():
        store.require_ours(output)
    if resuming:
        store.remove_damaged(output, progress)
    else:
        atomic.remove(folder)
        (folder / "shards").mkdir(parents=True)
        atomic.write_sealed(path, plan)
    return kept_texts(output)


def _blocks(texts: Iterable[str], wanted: Callable[[int], bool], read: list[int]) -> Iterator[Block]:
    """Yield the blocks that are wanted, whose texts must be taken before the next; count in ``read`` all that came."""
    rest = iter(texts)
    for number in count():
        inside = _counted(islice(rest, _BLOCK), read)
        for first in inside:
            if wanted(number):
                yield number, chain([first], inside)
            deque(inside, 0)
            break
        else:
            return


def _counted(texts: Iterable[str], read: list[int]) -> Iterator[str]:
    for text in texts:
        read[0] += 1
        yield text


def _encode_blocks(job: BlockJob, texts: Iterable[str], run: Engine, progress: Progress) -> int:
    """Write the shards that are missing; return how many texts there are."""
    read, zeros = [0], 0
    if isinstance(job.output, RemoteFolder):
        shards = job.output.shards()
        kept, done, ranges = {*shards}, sum(shard.rows for shard in shards.values()), job.output.has_ranges()
    else:
        if shape := store.shape_when_complete(job.output):
            return shape[0]
        files = store.shards_of(job.output)
        kept, done = {store.number_of(shard) for shard in files}, store.rows_in(files)
        ranges = store.ranges_file(job.output, job.part.number).is_file()

    def wanted(number: int) -> bool:
        own = job.part.has(number) and number not in kept
        return own or (number == 0 and needs_ranges(job.dtype) and not ranges)

    for rows, zero in run(job, _blocks(texts, wanted, read)):
        done, zeros = done + rows, zeros + zero
        progress.report("encode", done)
    if zeros:
        progress.say(f"warning: {zeros:,} of the vectors are zeros: their texts are empty, or hold no known word piece")
    if not read[0]:
        if isinstance(job.output, RemoteFolder):
            job.output.discard()
        else:
            atomic.remove(store.unfinished_of(job.output))
        raise CorpusError("nothing to encode: the source held no texts")
    return read[0]


def write_block(encoder: Encoder, job: BlockJob, number: int, texts: Iterable[str]) -> tuple[int, int]:
    """Encode one block and write its shard; return its rows, and how many of their vectors are zeros.

    Raises:
        EncoderError: a vector that is not finite.
    """
    parts = _parts(texts, job.characters)
    how: dict[str, Any] = {"prompt": job.prompt, "truncate_dim": job.dimensions, "precision": job.precision}
    vectors = np.concatenate([encoder.embed(part, **how) for part in parts])
    with np.errstate(over="ignore"):
        finite = np.isfinite(vectors.astype("float16" if job.dtype == "float16" else "float32")).all(axis=1)
    if not finite.all():
        raise EncoderError(
            f"row {number * job.block + int(finite.argmin())} has a value that is not finite in {job.dtype}: give "
            "dtype float32 or precision fp32; if both are given, the model's weights are broken"
        )
    if isinstance(job.output, RemoteFolder):
        job.output.write(number, number * job.block, job.output.pack(vectors, job.dtype))
        return _counts(vectors)
    ranges = store.ranges_file(job.output, job.part.number)
    packed = store.pack_vectors(vectors, job.dtype, ranges, store.afresh(job.output))
    if job.part.has(number):
        store.write_shard(store.shard_file(job.output, number), packed)
    return _counts(vectors)


def _counts(vectors: NDArray[np.float32]) -> tuple[int, int]:
    return len(vectors), len(vectors) - int(vectors.any(axis=1).sum())


def _parts(texts: Iterable[str], most: int) -> Iterator[list[str]]:
    """Yield the texts of one block in parts of about ``most`` characters."""
    part: list[str] = []
    held = 0
    for text in texts:
        if part and held + len(text) > most:
            yield part
            part, held = [], 0
        part.append(text)
        held += len(text)
    if part:
        yield part
