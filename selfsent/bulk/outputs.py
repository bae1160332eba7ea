"""The files of an output, before and when it is whole: on this machine, or behind a URL that fsspec opens."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from selfsent.corpus.remote import is_url, open_system, reported
from selfsent.encoder.quantize import QUANTIZED, needs_ranges
from selfsent.errors import ConfigurationError, first_line
from selfsent.storage import atomic

SUFFIXES = (".npy", ".parquet", ".arrow")


def require_output(name: str | Path) -> None:
    """Refuse an output that cannot be written, before anything is loaded.

    Raises:
        UserError: an unknown suffix, no folder to write to, or a folder where a file is meant and the other way round.
    """
    if is_url(name):
        return
    output = Path(name)
    if (
        not output.name
        or output.suffix not in ("", *SUFFIXES)
        or (output.is_dir() if output.suffix else output.exists() and not output.is_dir())
    ):
        raise ConfigurationError(
            f"output {output} does not fit: give a file that ends in {', '.join(SUFFIXES)}, or a folder of shards, "
            "whose name has no suffix"
        )
    above = output.absolute().parent
    if not above.is_dir():
        raise ConfigurationError(f"output {output} has no place: there is no folder {above}")


def require_ours(output: Path) -> None:
    """Refuse to replace what was not written here: another table, or a folder that holds something else, too."""
    others: Sequence[str] = []
    try:
        if output.is_dir():
            others = sorted(path.name for path in output.iterdir() if path.name != "manifest.json")
            shards = json.loads((output / "manifest.json").read_text(encoding="utf-8"))["shards"] if others else []
            others = [name for name in others if name not in shards]
        elif output.suffix == ".npy":
            others = [] if np.load(output, mmap_mode="r").ndim == 2 else ["an array of another shape"]
        else:
            import pyarrow as pa  # where a matrix is written it is not needed
            from pyarrow import parquet

            schema = parquet.read_schema(output) if output.suffix == ".parquet" else pa.ipc.open_file(output).schema
            others = sorted({*schema.names} ^ {"row", "vector"})
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        others = others or [first_line(error)]
    if others:
        raise ConfigurationError(
            f"output {output} is of something else ({others[0]}): choose another name, or remove it"
        )


def ranges_beside(output: Path) -> Path:
    """Return where the ranges of int8 and uint8 are written."""
    return output.with_name(f"{output.stem}.ranges.npy")


def read_ranges(path: str | Path | None, dtype: str, width: int) -> bytes:
    """Return the content of a file of ranges; nothing where none is given.

    Raises:
        ConfigurationError: it cannot be read, is of another width or holds no ranges; or the dtype needs none.
    """
    if path is None:
        return b""
    if not needs_ranges(dtype):
        raise ConfigurationError(f"--ranges changes nothing with --dtype {dtype}: leave it out, or give int8 or uint8")
    try:
        ranges = np.load(io.BytesIO(Path(path).read_bytes()))
    except (OSError, ValueError, EOFError) as error:
        raise ConfigurationError(f"ranges {path} cannot be read ({first_line(error)}): give .ranges.npy") from error
    fits = isinstance(ranges, np.ndarray) and ranges.shape == (2, width) and ranges.dtype == np.float32
    if not fits or not np.isfinite(ranges).all() or not (ranges[0] <= ranges[1]).all():
        raise ConfigurationError(
            f"ranges {path} do not fit: give those that an output of this model, {width} wide, left as NAME.ranges.npy"
        )
    return npy_bytes(ranges)


def write_shards(file: BinaryIO, suffix: str, shards: Sequence[Path], facts: Mapping[str, Any]) -> None:
    """Write a matrix, or a table of row numbers and vectors with one record batch or row group a shard.

    Args:
        facts: rows, width and dtype of the output.
    """
    dtype = np.dtype(QUANTIZED.get(facts["dtype"], facts["dtype"]))
    if suffix == ".npy":
        shape = facts["rows"], facts["width"]
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)  # as ``np.save`` does
        for shard in shards:
            file.write(np.load(shard).data)  # not ndarray.tofile, whose error does not say that the disk is full
        return
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([("row", pa.int64()), ("vector", pa.list_(pa.from_numpy_dtype(dtype), facts["width"]))])
    if suffix == ".parquet":  # vectors do not compress
        writer = parquet.ParquetWriter(file, schema, compression="none", use_dictionary=False, write_statistics=["row"])
    else:
        writer = pa.ipc.new_file(file, schema)
    row = 0
    with writer:
        for vectors in map(np.load, shards):
            writer.write_batch(pa.record_batch(_columns(row, vectors), schema=schema))
            row += len(vectors)


def _columns(first_row: int, vectors: NDArray[Any]) -> list[Any]:
    """Return the numbers of rows, and their vectors as lists of one size."""
    import pyarrow as pa

    rows = pa.array(np.arange(first_row, first_row + len(vectors), dtype=np.int64))
    return [rows, pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])]


@dataclass(frozen=True)
class LocalFiles:
    """The files of a folder on this machine, each written whole or not at all, and flushed to the disk."""

    folder: Path
    shards, aside, suffix = "shards/", "", ".npy"

    def encode(self, first_row: int, vectors: NDArray[Any]) -> bytes:
        """Return the content of a shard."""
        return npy_bytes(vectors)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of every file by its name."""
        sizes = {}
        for path in self.folder.rglob("*"):
            if not atomic.is_unfinished(path) and path.is_file():
                sizes[path.relative_to(self.folder).as_posix()] = path.stat().st_size
        return sizes

    def has(self, name: str) -> bool:
        """Tell whether there is a file."""
        return (self.folder / name).is_file()

    def read(self, name: str) -> bytes:
        """Return what is in a file."""
        return (self.folder / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Write a file.

        For some moments a worker whose driver has died may still write the same one, with the same bytes: what it takes
        away from here is written again.
        """
        for tries_left in (2, 1, 0):
            try:
                atomic.write_bytes(self.folder / name, content)
            except FileNotFoundError:
                if not tries_left:
                    raise
            else:
                return

    def discard(self) -> None:
        """Remove the folder."""
        atomic.remove(self.folder)


@dataclass(frozen=True)
class RemoteFiles:
    """The files of a folder behind a URL, as Parquet with the columns ``row`` and ``vector``."""

    folder: str
    shards, aside, suffix = "", "_encoding/", ".parquet"

    def encode(self, first_row: int, vectors: NDArray[Any]) -> bytes:
        """Return the content of a shard."""
        import pyarrow as pa
        from pyarrow import parquet

        content = io.BytesIO()
        table = pa.table(_columns(first_row, vectors), ["row", "vector"])
        parquet.write_table(table, content, write_page_checksum=True)
        return content.getvalue()

    @contextmanager
    def _open(self, name: str = "") -> Iterator[tuple[Any, str]]:
        with reported(self.folder):
            system, path = open_system(self.folder)
            system.invalidate_cache()
            yield system, f"{path.rstrip('/')}/{name}"

    def sizes(self) -> dict[str, int]:
        """Return the bytes of every file by its name."""
        with self._open() as (system, path):
            files = system.find(path.rstrip("/"), detail=True)
        return {name.removeprefix(path): int(facts["size"] or 0) for name, facts in files.items()}

    def has(self, name: str) -> bool:
        """Tell whether there is a file."""
        with self._open(name) as (system, path):
            return bool(system.isfile(path))

    def read(self, name: str) -> bytes:
        """Return what is in a file."""
        with self._open(name) as (system, path):
            return bytes(system.cat_file(path))

    def write(self, name: str, content: bytes) -> None:
        """Write a file."""
        with self._open(name) as (system, path):
            system.makedirs(path.rpartition("/")[0], exist_ok=True)
            system.pipe_file(path, content)

    def discard(self) -> None:
        """Remove what stands aside."""
        with self._open("_encoding") as (system, path):
            if system.exists(path):
                system.rm(path, recursive=True)


def npy_bytes(array: NDArray[Any]) -> bytes:
    """Return an array as ``np.save`` writes it."""
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()
