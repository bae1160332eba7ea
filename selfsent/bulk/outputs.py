"""The forms of an output on this machine: a matrix, a table, or a folder of shards."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from selfsent.corpus.remote import is_url
from selfsent.encoder.quantize import QUANTIZED
from selfsent.errors import ConfigurationError, first_line

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
        or (output.is_dir() if output.suffix else output.is_file())
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
            others = sorted({*_columns_of(output)} ^ {"row", "vector"})
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        others = others or [first_line(error)]
    if others:
        raise ConfigurationError(
            f"output {output} is of something else ({others[0]}): choose another name, or remove it"
        )


def _columns_of(table: Path) -> Sequence[str]:
    import pyarrow as pa  # where a matrix is written it is not needed
    from pyarrow import parquet

    schema = parquet.read_schema(table) if table.suffix == ".parquet" else pa.ipc.open_file(table).schema
    return list(schema.names)


def ranges_beside(output: Path) -> Path:
    """Return where the ranges of int8 and uint8 are written."""
    return output.with_name(f"{output.stem}.ranges.npy")


def write_whole(file: BinaryIO, suffix: str, shards: Sequence[Path], facts: Mapping[str, Any]) -> None:
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
            numbers = pa.array(np.arange(row, row + len(vectors)))
            flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=schema.field("vector").type)
            writer.write_batch(pa.record_batch([numbers, flat], schema=schema))
            row += len(vectors)
