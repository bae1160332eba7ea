"""Encode any number of texts to disk: streamed, resumable, and byte-identical after a restart.

Texts are encoded in blocks of ``_BLOCK`` rows; each block is an ``.npy`` shard that is written whole or not at all.  A
job that was killed resumes after the last shard.  At the end the shards become the output.  All of it happens in a
folder beside the output, ``.NAME.encoding``, which needs as much disk space again as the output; a folder of shards
needs none.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from selfsent import atomic
from selfsent.corpus import read
from selfsent.encoder.encode import computes_in_bf16, encode, resolve_prompt, task_prompt
from selfsent.encoder.inspect import encoder_digest
from selfsent.errors import ConfigurationError, CorpusError, EncoderError, ResumeError, unknown
from selfsent.progress import SILENT, Progress

DTYPES = ("float32", "float16")
SUFFIXES = (".npy", ".parquet", ".arrow")
_BLOCK = 16_384  # rows that are sorted by length together, lost at most by a kill, and make one shard
_CHARACTERS = 1 << 24  # of a block that are held in memory at once
_HINT = f"give a name that ends in {', '.join(SUFFIXES)}, or one without a suffix for a folder of shards"
_Vectors = NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """What was written."""

    output: Path
    rows: int
    width: int
    resumed: int  # rows that an earlier, unfinished job had encoded


def encode_to(
    output: str | Path,
    encoder: SentenceTransformer,
    texts: Sequence[str | Path] | Iterable[str],
    *,
    stream: bool = False,
    text_column: str = "text",
    prompt_name: str | None = None,
    prompt: str | None = None,
    truncate_dim: int | None = None,
    precision: str = "auto",
    dtype: str = "float32",
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> Encoded:
    """Encode every text of the sources into ``output``, one row a text in their order.

    Every line of a plain file is a text, also an empty one, and so is each row of a table, also one whose column is
    empty.  Run again after a kill, it resumes, and ends with the bytes of a job that was never stopped.

    Args:
        output: ``.npy`` (N, D); ``.parquet`` or ``.arrow`` with the columns ``row`` and ``vector``; or, without a
            suffix, a folder of ``.npy`` shards with a ``manifest.json``.
        texts: names of sources (files, folders, data sets on the hub); with ``stream`` the texts themselves, which
            are read once: such a job restarts from the beginning.
        text_column: the column of a table that is encoded.
        prompt_name: a prompt of the encoder's folder.  Default: its prompt for documents, as ``task_prompt`` finds it.
        prompt: what is put before every text, in place of a prompt of the folder; "" for none.
        truncate_dim: keep this many leading dimensions.  Default: as many as the folder says, or all.
        precision: "fp32", "bf16", or "auto" for bf16 where this machine is faster at it.
        dtype: what is written, "float32" or "float16".
        overwrite: replace an output that exists, once the new one is whole.

    Raises:
        UserError: no such source or nothing in it; an output that exists or does not fit; an unfinished output of
            another model, source or setting; a vector that is not finite; another process at the same output.
    """
    output = Path(output)
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    require_output(output)
    precision = "bf16" if computes_in_bf16(encoder, precision) else "fp32"
    by_name = prompt is not None or prompt_name is not None
    prompt = resolve_prompt(encoder, prompt_name, prompt) if by_name else task_prompt(encoder, "document")
    sources = [] if stream else find_sources([str(name) for name in texts])
    plan = {
        "model": encoder_digest(encoder),
        "source": None if stream else [source.identity() for source in sources],
        "text column": text_column,
        "prompt": prompt,
        "dimensions": truncate_dim,
        "precision": precision,
        "dtype": dtype,
        "block": [_BLOCK, _CHARACTERS],
    }
    rows: Iterable[str] = (str(text) for text in texts) if stream else _texts(sources, text_column)
    job = _Job(output, json.loads(json.dumps(plan)), np.dtype(dtype))
    with _permissions(output), job.lock():
        resumed = job.open(resume=not stream, overwrite=overwrite)
        try:
            written = job.encode(
                rows,
                lambda block: encode(encoder, block, prompt=prompt, truncate_dim=truncate_dim, precision=precision),
                progress,
            )
        except BaseException:
            if stream:
                atomic.remove(job.folder)
            raise
        job.publish()
    return Encoded(output=output, **written, resumed=resumed)


def kept_texts(output: str | Path) -> int:
    """Count the rows of an unfinished output that are on disk and will not be encoded again."""
    return sum(_shape(shard)[0] for shard in _shards(_unfinished(Path(output)) / "shards"))


def require_output(output: Path) -> None:
    """Refuse an output that cannot be written, before anything is loaded.

    Raises:
        UserError: an unknown suffix, no folder to write to, or a folder where a file is meant and the other way round.
    """
    if output.suffix and output.suffix not in SUFFIXES:
        raise ConfigurationError(f"output {output} does not fit: {_HINT}")
    if output.suffix and output.is_dir():
        raise ConfigurationError(f"output {output} is a folder: {_HINT}")
    if not output.suffix and output.is_file():
        raise ConfigurationError(f"output {output} is a file: {_HINT}")
    above = output.absolute().parent
    if not above.is_dir():
        raise ConfigurationError(f"output {output} has no place: there is no folder {above}")


def find_sources(names: Sequence[str]) -> list[read.Source]:
    """Find the sources behind the names; a file without a known suffix is lines of text.

    Raises:
        UserError: a name is no file, folder, hub data set or demo corpus.
    """
    sources: list[read.Source] = []
    for name in names:
        path = Path(name).expanduser()
        suffixes = [suffix for suffix in path.suffixes if suffix.lower() not in read.COMPRESSIONS]
        if path.is_file() and not (suffixes and suffixes[-1].lower() in read.FORMATS):
            sources.append(read.Source(name, ".txt", path))
        else:
            sources += read.resolve_sources([name])
    return sources


def _texts(sources: Sequence[read.Source], column: str) -> Iterator[str]:
    # A corpus may have other columns, which are not read here: all of them name that of the text.
    columns = read.Columns(text=column, title=column, summary=column, positive=column)
    return (document.text for source in sources for document in source.documents(columns))


@contextmanager
def _permissions(output: Path) -> Iterator[None]:
    """Turn a refusal of the file system into a sentence; a full disk has its own, for every command."""
    try:
        yield
    except PermissionError as error:
        raise ConfigurationError(f"cannot write {output}: {error.strerror} ({error.filename})") from error


def _unfinished(output: Path) -> Path:
    return output.absolute().parent / f".{output.name}.encoding"


def _shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("vectors-*.npy"))


def _shape(shard: Path) -> tuple[int, int]:
    rows, width = np.load(shard, mmap_mode="r").shape
    return rows, width


class _Job:
    """An unfinished output: a folder with the plan, the shards, the assembled file, and a mark that all is there."""

    def __init__(self, output: Path, plan: dict[str, Any], dtype: np.dtype[Any]) -> None:
        self.output = output
        self.folder = _unfinished(output)
        self._plan = plan
        self._dtype = dtype
        self._shards = self.folder / "shards"
        self._whole = self.folder / "whole" if output.suffix else self._shards  # what becomes the output
        self._complete = self.folder / "complete.json"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep a second process out for the block."""
        lock = FileLock(self.folder.with_name(f"{self.folder.name}.lock"))
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise ConfigurationError(
                f"another process is writing {self.output}: wait for it, or name another output"
            ) from None
        try:
            yield
        finally:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()

    def open(self, *, resume: bool, overwrite: bool) -> int:
        """Start, or resume where the plan is the same; return how many rows an earlier job encoded."""
        plan = self.folder / "plan.json"
        if not (resume and plan.is_file()):
            self._refuse_existing(overwrite)
            atomic.remove(self.folder)
            self._shards.mkdir(parents=True)
            atomic.write_json(plan, self._plan)
            return 0
        before = json.loads(plan.read_text(encoding="utf-8"))
        if before != self._plan:
            changed = ", ".join(key for key in self._plan if before.get(key) != self._plan[key])
            raise ResumeError(
                f"{self.output} was begun with another {changed}: repeat that command to finish it, or remove "
                f"{self.folder} to start again"
            )
        if self._complete.is_file():
            return int(json.loads(self._complete.read_text(encoding="utf-8"))["rows"])
        self._refuse_existing(overwrite)
        return kept_texts(self.output)

    def _refuse_existing(self, overwrite: bool) -> None:
        if self.output.exists() and not overwrite:
            raise ConfigurationError(f"output {self.output} exists: remove it, choose another name, or add --overwrite")
        ours = self.output.suffix or (self.output / "manifest.json").is_file()
        if self.output.is_dir() and not ours and any(self.output.iterdir()):
            raise ConfigurationError(f"output {self.output} is a folder of something else: choose another name")

    def encode(
        self, texts: Iterable[str], embed: Callable[[list[str]], NDArray[np.float32]], progress: Progress
    ) -> dict[str, int]:
        """Write the shards that are missing, then the assembled output; return its rows and width."""
        if self._complete.is_file():
            written: dict[str, int] = json.loads(self._complete.read_text(encoding="utf-8"))
            return written
        rows = kept_texts(self.output)
        rest = islice(texts, rows, None)
        while block := [self._rounded(embed(chunk), row) for row, chunk in _block(rest, rows)]:
            vectors = np.concatenate(block)
            with atomic.replacing_file(self._shards / f"vectors-{rows // _BLOCK:06}.npy") as file:
                _write_header(file, vectors.shape, self._dtype)
                file.write(vectors.data)  # not ndarray.tofile, whose error does not say that the disk is full
            rows += len(vectors)
            progress.report("encode", rows)
        if not rows:
            atomic.remove(self.folder)
            raise CorpusError("nothing to encode: the source held no texts")
        written = {"rows": rows, "width": _shape(_shards(self._shards)[0])[1]}
        self._assemble((rows, written["width"]))
        atomic.write_json(self._complete, written)
        return written

    def _rounded(self, exact: NDArray[np.float32], first: int) -> _Vectors:
        """Convert to the type that is written, and refuse what is not finite; ``first`` is the number of the row."""
        with np.errstate(over="ignore"):
            vectors: _Vectors = np.ascontiguousarray(exact, dtype=self._dtype)
        bad = ~np.isfinite(vectors).all(axis=1)
        if bad.any():
            row = int(bad.argmax())
            if np.isfinite(exact[row]).all():
                raise ConfigurationError(f"row {first + row} has a value too large for {self._dtype}: give float32")
            raise EncoderError(
                f"row {first + row} got a vector that is not finite: the model's weights are broken, or it needs "
                "precision fp32"
            )
        return vectors

    def _assemble(self, shape: tuple[int, int]) -> None:
        shards = _shards(self._shards)
        if not self.output.suffix:
            facts = {"rows": shape[0], "width": shape[1], "dtype": str(self._dtype), "rows_a_shard": _BLOCK}
            atomic.write_json(self._shards / "manifest.json", {**facts, "shards": [shard.name for shard in shards]})
            return
        with atomic.replacing_file(self._whole) as file:
            if self.output.suffix == ".npy":
                _write_header(file, shape, self._dtype)
                for shard in shards:
                    file.write(np.load(shard).data)
            else:
                _write_table(file, self.output.suffix, shards, shape[1], self._dtype)

    def publish(self) -> None:
        """Put the whole output in its place, unless an earlier job did so just before it was killed."""
        if self._whole.exists():
            if self.output.is_dir():  # no rename replaces a folder that holds something
                atomic.rename(self.output, self.folder / "replaced")
            atomic.rename(self._whole, self.output)
        atomic.remove(self.folder)


def _block(texts: Iterator[str], row: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the texts of one block in parts of about ``_CHARACTERS``, each with the number of its first row."""
    chunk: list[str] = []
    held = 0
    for text in islice(texts, _BLOCK):
        chunk.append(text)
        held += len(text)
        if held >= _CHARACTERS:
            yield row, chunk
            row, chunk, held = row + len(chunk), [], 0
    if chunk:
        yield row, chunk


def _write_header(file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Write the first bytes of an ``.npy`` file, as ``np.save`` does."""
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})


def _write_table(file: BinaryIO, suffix: str, shards: Sequence[Path], width: int, dtype: np.dtype[Any]) -> None:
    """Write a table of row numbers and vectors, one record batch or row group a shard."""
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([("row", pa.int64()), ("vector", pa.list_(pa.from_numpy_dtype(dtype), width))])
    if suffix == ".parquet":  # vectors do not compress
        writer = parquet.ParquetWriter(file, schema, compression="none", use_dictionary=False, write_statistics=["row"])
    else:
        writer = pa.ipc.new_file(file, schema)
    with writer:
        row = 0
        for shard in shards:
            vectors = np.load(shard)
            numbers = pa.array(np.arange(row, row + len(vectors)))
            flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=schema.field("vector").type)
            writer.write_batch(pa.record_batch([numbers, flat], schema=schema))
            row += len(vectors)
