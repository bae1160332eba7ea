"""Encode any number of texts to disk: streamed, resumable, and byte-identical after a restart.

Each block of ``shard_rows`` rows is a shard that is written whole or not at all, with its checksum; a job that was
killed resumes with the blocks that have no shard, or one that was changed since.  At the end the shards become the
output.  All of it happens in a folder beside the output, ``.NAME.encoding``, which needs as much disk space again as
the output; a folder of shards needs none.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selfsent.bulk.outputs import ranges_beside, read_ranges, require_output
from selfsent.bulk.store import EncodePart, Store
from selfsent.corpus import formats
from selfsent.corpus.in_memory import source_names, strings_of
from selfsent.corpus.remote import is_url
from selfsent.corpus.sources import Columns, Source, at_home, read_sources, resolve_sources
from selfsent.encoder.base import Encoder, TextEncoder
from selfsent.encoder.coverage import checked_texts
from selfsent.encoder.open import as_encoder
from selfsent.encoder.quantize import QUANTIZED, needs_ranges, quantized_width
from selfsent.errors import ConfigurationError, CorpusError, EncoderError, unknown
from selfsent.progress import SILENT, Progress
from selfsent.runtime.precision import require_dimensions
from selfsent.runtime.printed import Printed, Shown
from selfsent.storage.atomic import bytes_digest

DTYPES = ("float32", "float16")
_UNIT = 1e-2  # from 1: of float16 and bf16, too
CALIBRATION = 100  # different texts that ranges are taken from, at least, as sentence-transformers advises


@dataclass(frozen=True, kw_only=True, repr=False)
class Encoded(Printed):
    """What was written."""

    output: Path | str
    rows: int
    width: int
    resumed: int  # rows that an earlier, unfinished job had encoded
    missing: tuple[int, ...] = ()  # the parts that are not done; the output is not there before they are

    def shown(self) -> Shown:
        """Return what was written, or what is missing for that."""
        if self.missing:
            others = ", ".join(map(str, self.missing[:20])) + (" ..." if len(self.missing) > 20 else "")
            return Shown([f"this part is done; {self.output} is made when these are, too: {others}"])
        kept = f", {self.resumed:,} of them before" if self.resumed else ""
        return Shown([f"wrote {self.output}: {self.rows:,} texts{kept}, {self.width} wide"])


@dataclass(frozen=True, kw_only=True)
class BlockJob:
    """What is the same for all blocks of a job; it can be sent to another process."""

    store: Store
    model: str  # digest of the encoder
    prompt: str
    dimensions: int | None
    width: int  # of what is written
    precision: str
    dtype: str
    ranges: bytes  # of a file; empty: those of the first block
    shard_rows: int
    chunk_characters: int


Block = tuple[int, Iterable[str]]  # its number, from 0, and its texts
Engine = Callable[[BlockJob, Iterator[Block]], Iterator[tuple[int, int]]]  # as ``write_block`` for each, in any order


def encode_to(
    output: str | Path,
    encoder: TextEncoder,
    corpus: Sequence[str | Path] | str | Path | None = None,
    *,
    texts: Iterable[str] | None = None,
    column: str | None = None,
    prompt_name: str | None = None,
    prompt: str | None = None,
    truncate_dim: int | None = None,
    precision: str = "auto",
    dtype: str = "float32",
    ranges: str | Path | None = None,
    overwrite: bool = False,
    part: EncodePart | None = None,
    shard_rows: int = 16_384,
    chunk_characters: int = 1 << 21,
    engine: Engine | None = None,
    progress: Progress = SILENT,
) -> Encoded:
    """Encode every text of a corpus into ``output``, one row a text in their order.

    Every line of a plain file is a text, also an empty one, and so is each row of a table, also one whose column is
    empty.  Run again after a kill, it resumes, and ends with the bytes of a job that was never stopped.

    Args:
        output: ``.npy`` (N, D); ``.parquet`` or ``.arrow`` with the columns ``row`` and ``vector``; or, without a
            suffix, a folder of ``.npy`` shards with a ``manifest.json``; or the URL of a folder of Parquet shards on
            a file system of fsspec, such as s3://bucket/vectors, which is never replaced.
        corpus: names of sources: files, folders, data sets on the hub.
        texts: the texts themselves, in place of a corpus; they are read once: such a job restarts from the beginning.
        prompt_name: a prompt of the encoder's folder.  Default: its prompt for documents, as ``task_prompt`` finds it.
        prompt: what is put before every text, in place of a prompt of the folder; "" for none.
        truncate_dim: keep this many leading dimensions.  Default: as many as the folder says, or all.
        precision: "fp32", "bf16", or "auto" for bf16 where this machine is faster at it.
        dtype: what is written: "float32", "float16", or packed as ``encoder.quantize`` does, "int8", "uint8",
            "binary" or "ubinary".
        ranges: of int8 and uint8: a file of an earlier call.  Default: those of the first block.  They are written
            beside the output, as ``NAME.ranges.npy`` (2, D), because queries need the same.
        overwrite: replace an output of an earlier call, once the new one is whole; a file of another form never is.
        part: encode this share alone; the output appears, with the bytes of an unsplit job, when all parts are done.
        shard_rows: of a block: its texts are sorted by length together, and at most its work is lost by a kill.
        chunk_characters: of a block that are tokenised together, which takes some 160 bytes each.
        engine: what computes the blocks.  Default: this process.

    Raises:
        UserError: no such source or nothing in it; an output that exists or does not fit; an unfinished output of
            another model, source or setting; a vector that is not finite; another process at the same output; ranges
            that do not fit, or too few texts for them.

    Examples:
        >>> selfsent.encode_to("vectors.npy", selfsent.load("builtin"), ["tickets.jsonl"])
    """
    encoder = _require_given(encoder, corpus, texts)
    require_dimensions(truncate_dim, encoder.width)
    _require_fitting(output, dtype, part, stream=texts is not None)
    width = truncate_dim or encoder.width
    defaults = prompt_name is None and prompt is None
    job = BlockJob(
        store=Store.of(output, part),
        model=encoder.digest,
        prompt=encoder.task_prompt("document") if defaults else encoder.resolve_prompt(prompt_name, prompt),
        dimensions=truncate_dim,
        width=quantized_width(width, dtype) if dtype in QUANTIZED else width,
        precision="bf16" if encoder.in_bf16(precision) else "fp32",
        dtype=dtype,
        ranges=read_ranges(ranges, dtype, width),
        shard_rows=shard_rows,
        chunk_characters=chunk_characters,
    )
    sources = _other_sources(output, corpus, progress) if texts is None else None
    strings = texts_in(sources or (), column, progress) if texts is None else strings_of(texts, column)
    read = partial(checked_texts, encoder, strings, "this encoder", progress)
    engine = engine or (lambda job, blocks: (write_block(encoder, job, *block) for block in blocks))
    rows, resumed, missing = _run(job, _plan(job, sources, column), read, engine, overwrite, progress)
    written = str(output) if is_url(output) else Path(output)
    _say_lengths(encoder.embed(["a"], truncate_dim=truncate_dim, precision=precision), job, progress)
    if needs_ranges(dtype) and not missing:
        _say_ranges(written, dtype, ranges or f"the first {min(rows, shard_rows):,} texts", progress)
    return Encoded(output=written, rows=rows, width=job.width, resumed=resumed, missing=missing)


def _require_given(encoder: TextEncoder, corpus: object, texts: object) -> Encoder:
    """Refuse the name of an encoder, and texts that are given twice or not at all."""
    if isinstance(encoder, str | Path):
        raise ConfigurationError(f"encode_to takes an encoder and not its name: selfsent.load({str(encoder)!r})")
    if (corpus is None) == (texts is None):
        raise ConfigurationError("give encode_to either a corpus, names of sources, or texts, the strings themselves")
    if texts is None and not isinstance(corpus, str | Path | Sequence):
        raise ConfigurationError(f"corpus is a {type(corpus).__name__} and no names of sources: give texts as texts=")
    return as_encoder(encoder)


def _say_lengths(vectors: NDArray[np.float32], job: BlockJob, progress: Progress) -> None:
    length = float(np.linalg.norm(vectors))
    if length and abs(length - 1) > _UNIT and not job.dtype.endswith("binary"):  # packed bits have no length
        why = "because they are cut" if job.dimensions else "as this encoder gives them"
        progress.say(f"the vectors have other lengths than 1, {why}: compare them by cosine")


def _say_ranges(written: Path | str, dtype: str, of: str | Path, progress: Progress) -> None:
    beside = ranges_beside(written) if isinstance(written, Path) else f"{written}/_ranges.npy"
    progress.say(f"the ranges of {dtype} are those of {of}; encode queries with the same: --ranges {beside}")


def _require_fitting(output: str | Path, dtype: str, part: EncodePart | None, *, stream: bool) -> None:
    """Refuse what cannot be written, and parts of what cannot be told apart."""
    if dtype not in (*DTYPES, *QUANTIZED):
        raise unknown("dtype", dtype, (*DTYPES, *QUANTIZED))
    require_output(output)
    if is_url(output) and (part or stream):
        asked = f"part {part}" if part else "standard input"  # of which the shards that are there may be another's
        raise ConfigurationError(f"{asked} cannot be encoded to {output}, a URL: name a file or folder")
    if part and stream:
        raise ConfigurationError(f"part {part} of standard input cannot be told: give files")


def find_sources(names: Sequence[str], progress: Progress = SILENT) -> list[Source]:
    """Find the sources behind the names; a file without a known suffix is lines of text.

    Raises:
        UserError: a name is no file, folder, hub data set or demo corpus.
    """
    sources: list[Source] = []
    for name in names:
        path = at_home(name)
        if not is_url(name) and path.is_file() and not formats.format_of(path):
            sources.append(Source(name, ".txt", path))
        else:
            sources += resolve_sources([name], progress)
    return sources


def _other_sources(
    output: str | Path, corpus: Sequence[str | Path] | str | Path | None, progress: Progress
) -> list[Source]:
    """Find the sources, and refuse an output that would replace one of them."""
    sources = find_sources(source_names(corpus or ()), progress)
    if not is_url(output) and Path(output).exists():
        for source in sources:
            if source.path and Path(output).samefile(source.path):
                raise ConfigurationError(f"output {output} is the text itself: name another file")
    return sources


def texts_in(sources: Sequence[Source], column: str | None, progress: Progress) -> Iterator[str]:
    """Yield every text of the sources in their order, empty ones too."""
    columns = Columns(text=column, title=column, summary=column, positive=None, asked=column is not None)  # no others
    return (document.text for _, document in read_sources(sources, columns, progress))


def _plan(job: BlockJob, sources: Sequence[Source] | None, column: str | None) -> dict[str, Any]:
    """Return all that the bytes of an output depend on, as it is read back from JSON."""
    plan = {
        "model": job.model,
        "source": None if sources is None else [source.identity() for source in sources],
        "text column": column,
        "prompt": job.prompt,
        "dimensions": job.dimensions,
        "precision": job.precision,
        "dtype": job.dtype,
        "block": [job.shard_rows, job.chunk_characters],
        **({"ranges": bytes_digest(job.ranges)} if job.ranges else {}),
        **({"parts": job.store.part.of} if job.store.is_split else {}),
    }
    return dict(json.loads(json.dumps(plan)))


def _run(
    job: BlockJob,
    plan: dict[str, Any],
    read: Callable[[], Iterator[str]],
    engine: Engine,
    overwrite: bool,
    progress: Progress,
) -> tuple[int, int, tuple[int, ...]]:
    """Write the shards and what they make; return all rows, those that were there before, and the parts to do."""
    store = job.store
    with store.claim():
        store.begin(plan, overwrite=overwrite, progress=progress)
        if job.ranges and not store.finished():
            store.take_ranges(job.ranges)
        resumed = store.rows()
        try:
            rows = store.finished() or _write_shards(job, read(), engine, progress)
            facts = {"rows": rows, "width": job.width, "dtype": job.dtype, "rows_a_shard": job.shard_rows}
            missing = store.finish(facts)
        except BaseException:
            if plan["source"] is None or not (store.is_split or store.rows()):  # nothing to go on with
                store.files.discard()
            raise
    return rows, resumed, missing


def _write_shards(job: BlockJob, texts: Iterator[str], engine: Engine, progress: Progress) -> int:
    """Write the shards that are missing; return how many texts there are."""
    store, numbers = job.store, count()
    shards = store.shards()
    done, zeros = sum(shard.rows for shard in shards.values()), 0
    first = needs_ranges(job.dtype) and not store.has_ranges()
    texts = _calibrating(texts, job) if first else texts
    blocks = _blocks(
        (text for text, _ in zip(texts, numbers, strict=False)),
        job.shard_rows,
        lambda block: (first and block == 0) or (store.part.has(block) and block not in shards),
    )
    for rows, zero in engine(job, blocks):
        done, zeros = done + rows, zeros + zero
        progress.report("encode", done)
    if zeros:
        progress.say(f"warning: vectors of zeros: {zeros:,}; their texts are empty, or hold no known token")
    total = next(numbers)
    if not total:
        store.files.discard()
        raise CorpusError("nothing to encode: the source held no texts")
    return total


def _calibrating(texts: Iterator[str], job: BlockJob) -> Iterator[str]:
    """Yield texts whose first block has enough different ones for ranges; of one text alone every value is the lowest.

    Raises:
        ConfigurationError: it has fewer.
    """
    taken, different = [], set()
    for text in islice(texts, job.shard_rows):
        taken.append(text)
        different.add(text)
        if len(different) >= CALIBRATION:
            break
    if 0 < len(different) < CALIBRATION:
        if not job.store.is_split:
            job.store.files.discard()
        raise ConfigurationError(
            f"{job.dtype} takes its ranges from the first {job.shard_rows:,} texts, and {len(different)} different are "
            f"too few: give {CALIBRATION}, or --ranges of a larger output of this model, or another --dtype"
        )
    return chain(taken, texts)


def _blocks(texts: Iterator[str], rows: int, wanted: Callable[[int], bool]) -> Iterator[Block]:
    """Yield the blocks that are wanted, whose texts must be taken before the next."""
    for number in count():
        block = islice(texts, rows)
        first = next(block, None)
        if first is None:
            return
        if wanted(number):
            yield number, chain([first], block)
        deque(block, 0)


def write_block(encoder: Encoder, job: BlockJob, number: int, texts: Iterable[str]) -> tuple[int, int]:
    """Encode one block and write its shard; return its rows, and how many of their vectors are zeros.

    Raises:
        EncoderError: a vector that is not finite.
    """
    chunks = _chunks(texts, job.chunk_characters)
    how: dict[str, Any] = {"prompt": job.prompt, "truncate_dim": job.dimensions, "precision": job.precision}
    vectors = np.concatenate([encoder.embed(chunk, **how) for chunk in chunks])
    with np.errstate(over="ignore"):
        finite = np.isfinite(vectors.astype("float16" if job.dtype == "float16" else "float32")).all(axis=1)
    if not finite.all():
        raise EncoderError(
            f"row {number * job.shard_rows + int(finite.argmin())} has a value that is not finite in {job.dtype}: give "
            "dtype float32 or precision fp32; if both are given, the model's weights are broken"
        )
    packed = job.store.pack(vectors, job.dtype, number)
    if job.store.part.has(number):
        job.store.write(number, number * job.shard_rows, packed)
    return len(vectors), len(vectors) - int(vectors.any(axis=1).sum())


def _chunks(texts: Iterable[str], most: int) -> Iterator[list[str]]:
    """Yield the texts of one block in chunks of about ``most`` characters."""
    chunk: list[str] = []
    held = 0
    for text in texts:
        if chunk and held + len(text) > most:
            yield chunk
            chunk, held = [], 0
        chunk.append(text)
        held += len(text)
    if chunk:
        yield chunk
