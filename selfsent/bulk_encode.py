"""Millions of texts to vectors on disk: streamed, resumable, and the same bytes however often it was killed.

Texts are taken in blocks of ``_BLOCK`` rows.  A block is encoded, written and synced before the progress says so, and
writing a block again changes nothing; so a job that was killed anywhere goes on with the first block that is not said
to be done.  Everything happens in a folder beside the output, ``.NAME.partial``; the output appears by one rename.
"""

import io
import json
import os
import shutil
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

from selfsent import hardware
from selfsent.corpus import read
from selfsent.encoder.encode import encode
from selfsent.encoder.inspect import embedding_width, encoder_digest
from selfsent.errors import UserError, unknown
from selfsent.progress import SILENT, Progress

DTYPES = ("float32", "float16")
SUFFIXES = (".npy", ".parquet", ".arrow")
_BLOCK = 16_384  # rows: what is sorted by length together, lost at most by a kill, and one shard of a folder
_CHARACTERS = 1 << 24  # of a block that are held at once, so that long documents do not fill the memory
_STATE = "progress.json"  # in the folder of an unfinished output
_HINT = f"give a name that ends in {', '.join(SUFFIXES)}, or one without a suffix for a folder of shards"
_Vectors = NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """What was written."""

    output: Path
    rows: int
    width: int
    resumed: int  # rows that an earlier, unfinished job had left


def encode_to(
    output: str | Path,
    encoder: SentenceTransformer,
    texts: Sequence[str | Path] | Iterable[str],
    *,
    stream: bool = False,
    text_column: str = "text",
    precision: str = "auto",
    dtype: str = "float32",
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> Encoded:
    """Encode every text of the sources into ``output``, one row a text in their order, whatever their number.

    A line of a plain file is a text, an empty one too, and so is each row of a table, with nothing in its column, too.
    Each block is done as ``encoder.encode`` would.  Run again after a kill, it goes on where it was, and ends with
    the bytes of a job that was never stopped.

    Args:
        output: ``.npy`` (N, D); ``.parquet`` or ``.arrow`` with the columns ``row`` and ``vector``; or, without a
            suffix, a folder of ``.npy`` shards with a ``manifest.json``.
        texts: names of sources (files, folders, data sets on the hub); with ``stream`` the texts themselves, which
            are read once: such a job cannot be resumed and begins anew.
        text_column: the column of a table that is encoded.
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
    if precision not in hardware.PRECISIONS:
        raise unknown("precision", precision, hardware.PRECISIONS)
    require_output(output)
    device = encoder.device.type
    low = precision == "bf16" or (precision == "auto" and hardware.has_fast_bf16(device))
    sources = [] if stream else find_sources([str(name) for name in texts])
    computed = "bf16" if low else "fp32"
    plan = {
        "model": encoder_digest(encoder),
        "source": None if stream else [source.identity() for source in sources],
        "text column": text_column,
        "precision": computed,
        "dtype": dtype,
        "block": [_BLOCK, _CHARACTERS],
    }
    found: Iterable[str] = (str(text) for text in texts) if stream else _texts(sources, text_column)
    job = _Job(output, json.loads(json.dumps(plan)), embedding_width(encoder), np.dtype(dtype))
    with _one_sentence(output), job.alone():
        if job.open(resume=not stream, overwrite=overwrite):
            resumed = job.rows
            try:
                job.encode(found, lambda block: encode(encoder, block, precision=computed), progress)
            except BaseException:
                if stream:
                    shutil.rmtree(job.folder, ignore_errors=True)
                raise
            job.finish()
        else:
            resumed = job.rows
    return Encoded(output=output, rows=job.rows, width=job.width, resumed=resumed)


def kept_texts(output: str | Path) -> int:
    """Count the rows of an unfinished output that are on disk and will not be encoded again."""
    state = _progress(Path(output))
    return 0 if state is None else int(state["rows"])


def require_output(output: Path) -> None:
    """Refuse an output that cannot be written, before anything is loaded.

    Raises:
        UserError: an unknown suffix, no folder to write to, or a folder where a file is meant and the other way round.
    """
    if output.suffix and output.suffix not in SUFFIXES:
        raise UserError(f"output {output} does not fit: {_HINT}")
    if output.suffix and output.is_dir():
        raise UserError(f"output {output} is a folder: {_HINT}")
    if not output.suffix and output.is_file():
        raise UserError(f"output {output} is a file: {_HINT}")
    above = output.absolute().parent
    if not above.is_dir():
        raise UserError(f"output {output} has no place: there is no folder {above}")


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
            packed = path.suffix.lower() if path.suffix.lower() in read.COMPRESSIONS else ""
            sources.append(read.Source(name, ".txt", path, packed))
        else:
            sources += read.resolve_sources([name])
    return sources


def _texts(sources: Sequence[read.Source], column: str) -> Iterator[str]:
    # The other columns that a corpus may have are of no interest: all of them point at the text itself.
    columns = read.Columns(text=column, title=column, summary=column, positive=column)
    return (document.text for source in sources for document in source.documents(columns))


@contextmanager
def _one_sentence(output: Path) -> Iterator[None]:
    """Turn what the file system refuses into a sentence; a full disk has its own, for every command."""
    try:
        yield
    except PermissionError as error:
        raise UserError(f"cannot write {output}: {error.strerror} ({error.filename})") from error


def _unfinished(output: Path) -> Path:
    return output.absolute().parent / f".{output.name}.partial"


def _progress(output: Path) -> dict[str, Any] | None:
    try:
        state: dict[str, Any] = json.loads((_unfinished(output) / _STATE).read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return state


class _Job:
    """One output on its way: its folder, what is done of it, and how it ends.

    ``whole`` inside the folder becomes the output: a file, or the folder of shards itself.
    """

    def __init__(self, output: Path, plan: dict[str, Any], width: int, dtype: np.dtype[Any]) -> None:
        self.output = output
        self.folder = _unfinished(output)
        self.width = width
        self.dtype = dtype
        self.rows = 0
        self._plan = plan
        self._whole = self.folder / "whole"
        self._shards = self._whole if not output.suffix else self.folder / "shards"
        self._state = self.folder / _STATE

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep a second process out for the block."""
        lock = FileLock(self.folder.with_name(f"{self.folder.name}.lock"))
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise UserError(f"another process is writing {self.output}: wait for it, or name another output") from None
        try:
            yield
        finally:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()

    def open(self, *, resume: bool, overwrite: bool) -> bool:
        """Begin or go on; False where an earlier job was done but for its last touch, which is made up for."""
        state = _progress(self.output) if resume else None
        if state is None:
            self._refuse_existing(overwrite)
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir()
            if self.output.suffix != ".npy":
                self._shards.mkdir()
            self._say(complete=False)
            return True
        before = state["plan"]
        if before != self._plan:
            changed = ", ".join(key for key in self._plan if before.get(key) != self._plan[key])
            raise UserError(
                f"{self.output} was begun with another {changed}: repeat that command to finish it, or remove "
                f"{self.folder} to begin anew"
            )
        self.rows = state["rows"]
        if state["complete"] and self.output.exists() and not self._whole.exists():  # killed after the rename
            shutil.rmtree(self.folder)
            return False
        self._refuse_existing(overwrite)
        return True

    def _refuse_existing(self, overwrite: bool) -> None:
        if self.output.exists() and not overwrite:
            raise UserError(f"output {self.output} exists: remove it, choose another name, or add --overwrite")
        ours = self.output.suffix or (self.output / "manifest.json").is_file()
        if self.output.is_dir() and not ours and any(self.output.iterdir()):
            raise UserError(f"output {self.output} is a folder of something else: choose another name")

    def encode(
        self,
        texts: Iterable[str],
        embed: Callable[[list[str]], NDArray[np.float32]],
        progress: Progress,
    ) -> None:
        """Encode what is not yet done, block by block."""
        rest = islice(texts, self.rows, None)
        while True:
            block = [self._vectors(embed(chunk), before) for before, chunk in _block(rest, self.rows)]
            if not block:
                break
            vectors = np.concatenate(block)
            self._put(vectors)
            self.rows += len(vectors)
            self._say(complete=False)
            progress.report("encode", self.rows)
        if not self.rows:
            shutil.rmtree(self.folder)
            raise UserError("nothing to encode: the source held no texts")

    def _vectors(self, exact: NDArray[np.float32], before: int) -> _Vectors:
        """Round to what is written, and refuse what is no number; ``before`` is the number of the first row."""
        with np.errstate(over="ignore"):
            vectors: _Vectors = exact.astype(self.dtype, copy=False)
        bad = ~np.isfinite(vectors).all(axis=1)
        if bad.any():
            row = int(bad.argmax())
            if np.isfinite(exact[row]).all():
                raise UserError(f"row {before + row} has a value too large for {self.dtype}: give float32")
            raise UserError(
                f"row {before + row} got a vector that is not finite: the model's weights are broken, or it needs "
                "precision fp32"
            )
        return vectors

    def _put(self, vectors: _Vectors) -> None:
        """Write the block that begins at row ``self.rows``, to the disk itself; again is as good as once."""
        if self.output.suffix == ".npy":
            with self._whole.open("r+b" if self._whole.exists() else "w+b") as file:
                file.seek(len(self._header(0)) + self.rows * self.width * self.dtype.itemsize)
                _write(file, vectors)
        else:
            with _renamed(self._shards / self._shard(self.rows)) as file:
                file.write(self._header(len(vectors)))
                _write(file, vectors)

    def _shard(self, row: int) -> str:
        return f"vectors-{row // _BLOCK:06}.npy"

    def _header(self, rows: int) -> bytes:
        """Return the first bytes of an ``.npy`` file, as ``np.save`` writes them; their length is always the same."""
        head = io.BytesIO()
        described = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False}
        np.lib.format.write_array_header_1_0(head, {**described, "shape": (rows, self.width)})
        return head.getvalue()

    def _say(self, *, complete: bool) -> None:
        with _renamed(self._state) as file:
            file.write(json.dumps({"plan": self._plan, "rows": self.rows, "complete": complete}).encode())

    def finish(self) -> None:
        """Make the output out of the blocks and put it in its place."""
        shards = [self._shard(row) for row in range(0, self.rows, _BLOCK)]
        if self.output.suffix == ".npy":
            with self._whole.open("r+b") as file:
                file.write(self._header(self.rows))
                # A kill between a block and its progress, and then a source that ended earlier, would leave a tail.
                file.truncate(len(self._header(0)) + self.rows * self.width * self.dtype.itemsize)
                _synced(file)
        elif self.output.suffix:
            with _renamed(self._whole) as file:
                _assemble(file, self.output.suffix, [self._shards / name for name in shards], self.width, self.dtype)
        else:
            manifest = {"rows": self.rows, "width": self.width, "dtype": str(self.dtype), "rows_a_shard": _BLOCK}
            with _renamed(self._whole / "manifest.json") as file:
                file.write((json.dumps({**manifest, "shards": shards}, indent=2) + "\n").encode())
        self._say(complete=True)
        if self.output.is_dir():  # no rename replaces a folder that holds something
            self.output.rename(self.folder / "replaced")
        self._whole.replace(self.output)
        shutil.rmtree(self.folder)


def _block(texts: Iterator[str], row: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the texts of one block in shares of about ``_CHARACTERS``, each with the number of its first row."""
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


def _write(file: BinaryIO, vectors: _Vectors) -> None:
    # Not ndarray.tofile, whose error does not say that the disk is full.
    file.write(np.ascontiguousarray(vectors).data)
    _synced(file)


def _synced(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def _renamed(target: Path) -> Iterator[BinaryIO]:
    """Open a file that becomes ``target`` when the block ends well."""
    scratch = target.with_name(f"{target.name}.new")
    with scratch.open("wb") as file:
        yield file
        _synced(file)
    scratch.replace(target)


def _assemble(file: BinaryIO, suffix: str, shards: Sequence[Path], width: int, dtype: np.dtype[Any]) -> None:
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
