"""Where the shards of an encoding lie, how vectors are packed in them, and how they become the output.

Beside an output ``NAME`` stands ``.NAME.encoding`` until the output is whole: what is encoded, by whom, its shards
(``.npy``, sealed), the ranges of int8 and uint8, and the whole before it is put in its place.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from selfsent.encoder.quantize import QUANTIZED, needs_ranges, quantize, ranges_of
from selfsent.errors import ConfigurationError, ResumeError, first_line
from selfsent.progress import Progress
from selfsent.storage import atomic


def unfinished_of(output: Path) -> Path:
    """Return the folder of an unfinished output: its plan, the shards, the whole, and a mark that all is there."""
    return output.absolute().parent / f".{output.name}.encoding"


def whole_of(output: Path) -> Path:
    """Return where an output is whole before it is put in its place."""
    return unfinished_of(output) / ("whole" if output.suffix else "shards")


def shape_when_complete(output: Path) -> tuple[int, int] | None:
    """Return the rows and the width of an output that is whole, though perhaps not in its place."""
    mark = unfinished_of(output) / "complete.json"
    if not mark.is_file():
        return None
    facts = atomic.read_sealed(mark, afresh(output))
    return facts["rows"], facts["width"]


def afresh(output: Path) -> str:
    """Return the advice to give up what is unfinished."""
    return f"remove {unfinished_of(output)} to start again"


def shards_of(output: Path) -> list[Path]:
    """Return the shards that are there, in their order."""
    return sorted((unfinished_of(output) / "shards").glob("vectors-*.npy"))


def shard_file(output: Path, number: int) -> Path:
    """Return where the shard of a block is, counted from 0."""
    return unfinished_of(output) / "shards" / f"vectors-{number:06}.npy"


def number_of(shard: Path) -> int:
    """Return the number of the block that a shard holds."""
    return int(shard.stem.rpartition("-")[2])


def write_shard(place: Path, vectors: NDArray[Any]) -> None:
    """Write packed vectors as a sealed ``.npy`` file.

    For some moments a worker whose driver has died may still write the same shard, with the same bytes: what it takes
    away from here is written again.
    """
    for tries_left in (2, 1, 0):
        try:
            with atomic.sealed_file(place) as file:
                _write_header(file, vectors.shape, vectors.dtype)
                file.write(vectors.data)  # not ndarray.tofile, whose error does not say that the disk is full
        except FileNotFoundError:
            if not tries_left:
                raise
        else:
            return


def is_intact(output: Path) -> bool:
    """Tell whether a complete output is still what was written, or is in its place."""
    whole = whole_of(output)
    if not whole.exists():
        return output.exists()
    try:
        if output.suffix:
            atomic.verify(whole, afresh(output))
            return True
        digests = atomic.read_sealed(whole / "manifest.json", afresh(output))["checksums"]
        return all(atomic.file_digest(whole / name) == digest for name, digest in digests.items())
    except (ResumeError, OSError):
        return False


def require_ours(output: Path) -> None:
    """Refuse to replace what was not written here: another table, or a folder that holds something else, too."""
    others: Iterable[str] = []
    try:
        if output.is_dir():
            others = sorted(path.name for path in output.iterdir() if path.name != "manifest.json")
            shards = json.loads((output / "manifest.json").read_text(encoding="utf-8"))["shards"] if others else []
            others = [name for name in others if name not in shards]
        elif output.suffix == ".npy":
            others = [] if np.load(output, mmap_mode="r").ndim == 2 else ["an array of another shape"]
        else:
            others = {*_schema_of(output).names} ^ {"row", "vector"}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        others = others or [first_line(error)]
    for one in others:
        raise ConfigurationError(f"output {output} is of something else ({one}): choose another name, or remove it")


def pack_vectors(vectors: NDArray[np.float32], dtype: str, place: Path, advice: str) -> NDArray[Any]:
    """Return vectors as they are written; the ranges of the first block serve all others, after a kill, too.

    Args:
        place: of the ranges; they are those of ``vectors`` where nothing is there.
    """
    if dtype not in QUANTIZED:
        return vectors.astype(dtype, order="C")
    if not needs_ranges(dtype):
        return quantize(vectors, dtype)
    if not place.is_file():
        write_ranges(place, vectors)
    atomic.verify(place, advice)
    return quantize(vectors, dtype, np.load(place))


def write_ranges(place: Path, vectors: NDArray[np.float32]) -> None:
    """Write the ranges of vectors as a sealed file."""
    with atomic.sealed_file(place) as file:
        np.save(file, ranges_of(vectors))


def ranges_file(output: Path, part: int = 1) -> Path:
    """Return where the ranges of int8 and uint8 are that one part of a job uses."""
    return unfinished_of(output) / (f"ranges-{part:05}.npy" if part > 1 else "ranges.npy")


def rows_in(shards: Iterable[Path]) -> int:
    """Count the rows of shards."""
    return sum(len(np.load(shard, mmap_mode="r")) for shard in shards)


def shards_width(output: Path) -> int:
    """Return the width of the vectors of a finished output."""
    if not output.suffix:
        return int(json.loads((output / "manifest.json").read_text(encoding="utf-8"))["width"])
    if output.suffix == ".npy":
        return int(np.load(output, mmap_mode="r").shape[1])
    return int(_schema_of(output).field("vector").type.list_size)


def _schema_of(table: Path) -> Any:  # noqa: ANN401 - pyarrow has no types
    import pyarrow as pa  # where a matrix is written it is not needed
    from pyarrow import parquet

    return parquet.read_schema(table) if table.suffix == ".parquet" else pa.ipc.open_file(table).schema


def publish(output: Path, dtype: str, block: int) -> tuple[int, int]:
    """Make the output of the shards and put it in its place, as far as an earlier job did not; return its shape.

    Args:
        block: rows of a shard.
    """
    folder, whole = unfinished_of(output), whole_of(output)
    shape = shape_when_complete(output)
    if shape is None:
        shards = shards_of(output)
        shape = rows, width = rows_in(shards), np.load(shards[0], mmap_mode="r").shape[1]
        if output.suffix:
            with atomic.sealed_file(whole) as file:
                _write_whole(file, output.suffix, shards, shape, np.dtype(QUANTIZED.get(dtype, dtype)))
        else:
            facts = {"rows": rows, "width": width, "dtype": dtype, "rows_a_shard": block}
            digests = {shard.name: atomic.checksum_of(shard).read_text(encoding="utf-8") for shard in shards}
            atomic.write_sealed(whole / "manifest.json", {**facts, "shards": [*digests], "checksums": digests})
        atomic.write_sealed(folder / "complete.json", {"rows": rows, "width": width})
    if ranges_file(output).is_file():
        if whole.exists() and output.is_file():  # never old vectors beside new ranges
            atomic.remove(output)
        atomic.write_bytes(published_ranges(output), ranges_file(output).read_bytes())
    if whole.exists():
        for shard in [] if output.suffix else shards_of(output):
            atomic.remove(atomic.checksum_of(shard))  # it is in the manifest
        if output.is_dir():  # no rename replaces a folder that holds something
            atomic.rename(output, folder / "replaced")
        atomic.rename(whole, output)
    atomic.remove(folder)
    return shape


def published_ranges(output: Path) -> Path:
    """Return where the ranges of int8 and uint8 are written, beside the output."""
    return output.with_name(f"{output.stem}.ranges.npy")


def remove_damaged(output: Path, progress: Progress) -> None:
    """Remove the first shard that is missing or not what was written, and those behind it: they are made again."""
    row, found = 0, shards_of(output)
    for number in count():
        shard, rest = shard_file(output, number), found[number:]
        if shard not in rest:
            break
        try:
            atomic.verify(shard, "")
        except ResumeError:
            break
        row += len(np.load(shard, mmap_mode="r"))
    for shard in rest:
        atomic.remove(shard)
    if rest:
        progress.say(f"warning: {shard.parent} was changed: from row {row:,} on, texts are encoded again")


def require_no_ranges(output: Path, dtype: str, *, overwrite: bool) -> None:
    """Refuse to write ranges over those of another output; with ``overwrite`` those of this one are replaced.

    Raises:
        ConfigurationError: there are some, or another file of that name.
    """
    ranges = published_ranges(output)
    if needs_ranges(dtype) and ranges.exists() and not (overwrite and output.exists()):
        rest = "" if overwrite else ", or add --overwrite"
        raise ConfigurationError(f"{ranges} exists, where the ranges belong: choose another name{rest}")


def _write_header(file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Write the first bytes of an ``.npy`` file, as ``np.save`` does."""
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})


def _write_whole(
    file: BinaryIO, suffix: str, shards: Sequence[Path], shape: tuple[int, int], dtype: np.dtype[Any]
) -> None:
    """Write a matrix, or a table of row numbers and vectors with one record batch or row group a shard."""
    if suffix == ".npy":
        _write_header(file, shape, dtype)
        for shard in shards:
            file.write(np.load(shard).data)
        return
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([("row", pa.int64()), ("vector", pa.list_(pa.from_numpy_dtype(dtype), shape[1]))])
    if suffix == ".parquet":  # vectors do not compress
        writer = parquet.ParquetWriter(file, schema, compression="none", use_dictionary=False, write_statistics=["row"])
    else:
        writer = pa.ipc.new_file(file, schema)
    row = 0
    with writer:
        for vectors in map(np.load, shards):
            numbers = pa.array(np.arange(row, row + len(vectors)))
            flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=schema.field("vector").type)
            writer.write_batch(pa.record_batch([numbers, flat], schema=schema))
            row += len(vectors)
