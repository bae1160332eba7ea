"""Lines and rows of one file, whatever its format and compression; an error names the line."""

import bz2
import csv
import gzip
import io
import json
import lzma
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from selfsent.errors import CorpusError

FORMATS = (".txt", ".jsonl", ".json", ".csv", ".tsv", ".parquet")
COMPRESSIONS = (".gz", ".xz", ".zst", ".bz2")
_BINARY = (
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"GIF8",
    b"%PDF",
    b"PK\x03\x04",
    b"\x1f\x8b",
    b"\xfd7zXZ",
    b"(\xb5/\xfd",
    b"PAR1",
)
_DAMAGE = (EOFError, OSError, lzma.LZMAError, zlib.error)

Row = Mapping[str, Any]
_Located = tuple[object, object]  # (place in the file, for messages; the parsed row)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Names of the columns that are read from a table; only the first must exist."""

    text: str
    title: str
    summary: str
    positive: str = "positive"

    def names(self) -> tuple[str, str, str, str]:
        """Return them in the order of the fields of ``Document``."""
        return self.text, self.title, self.summary, self.positive


class Place:
    """The line that is being read, for messages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}"


def known_formats() -> str:
    """List formats and compressions for a message."""
    return f"{', '.join(FORMATS)}, each also with {', '.join(COMPRESSIONS)}"


def compression_of(path: Path) -> str:
    """Return the compression that a name says, or ""."""
    return path.suffix.lower() if path.suffix.lower() in COMPRESSIONS else ""


def format_of(path: Path) -> str:
    """Return the format that a name says, or "" for an unknown one."""
    suffix = (path.with_suffix("") if compression_of(path) else path).suffix.lower()
    return suffix if suffix in FORMATS else ""


@contextmanager
def open_unpacked(path: Path, compression: str) -> Iterator[tuple[BinaryIO, io.BufferedIOBase, Place]]:
    """Open a file; yield it as it is, its decompressed bytes, and the place for messages."""
    where = Place(path)
    try:
        file = path.open("rb")
    except OSError as error:
        raise cannot_open(path, error) from error
    try:
        with file:
            yield file, _decompressed(file, compression), where
    except _DAMAGE as error:
        after = f" after line {where.line}" if where.line else ""
        raise CorpusError(
            f"{path} is damaged or cut short{after} ({str(error).rstrip('.')}): copy or download it again"
        ) from error


def cannot_open(path: Path, error: OSError) -> CorpusError:
    """Build the error for a file that is missing or not readable."""
    return CorpusError(f"{path} cannot be opened: {error.strerror}")


def _decompressed(file: BinaryIO, compression: str) -> io.BufferedIOBase:
    if compression == ".gz":
        return gzip.GzipFile(fileobj=file)
    if compression == ".bz2":
        return bz2.BZ2File(file)
    if compression == ".xz":  # buffered, because LZMAFile returns lines 8 KiB at a time
        return io.BufferedReader(cast(io.RawIOBase, lzma.LZMAFile(file)), 1 << 20)
    if compression == ".zst":
        import pyarrow as pa  # the reader of the package zstandard accepts a truncated file as whole

        stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")
        return io.BufferedReader(cast(io.RawIOBase, stream), 1 << 20)
    return cast(io.BufferedIOBase, file)


def decoded_lines(stream: io.BufferedIOBase, where: Place) -> Iterator[str]:
    """Yield decoded lines and keep ``where`` up to date."""
    for where.line, line in enumerate(stream, 1):
        if where.line == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise CorpusError(f"{where.path} is UTF-16: save it as UTF-8")
        if b"\0" in line or (where.line == 1 and line.startswith(_BINARY)):
            raise CorpusError(f"{where} is not text but binary: give a file of one of {known_formats()}")
        try:
            yield line.decode("utf-8-sig" if where.line == 1 else "utf-8")
        except UnicodeDecodeError as error:
            byte = line[error.start]
            raise CorpusError(f"{where} is not UTF-8 (byte 0x{byte:02x}): save the file as UTF-8") from error


def _json_rows(stream: io.BufferedIOBase, where: Place, columns: Columns | None) -> Iterator[_Located]:
    """Read objects line by line, or one list of objects, which is held in memory as a whole."""
    lines = (line for line in decoded_lines(stream, where) if not line.isspace())
    first = next(lines, "")
    if first.lstrip().startswith("["):
        rows = _parsed(first + "".join(lines), where)
        yield from ((f"{where.path}, item {n}", row) for n, row in enumerate(rows, 1))
    elif first:
        yield from ((where, _parsed(line, where)) for line in chain([first], lines))


def _parsed(line: str, where: Place) -> Any:  # noqa: ANN401 - JSON is anything
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise CorpusError(f"{where} is not valid JSON ({error.msg} at column {error.colno}): mend that line") from error


def _csv_rows(
    stream: io.BufferedIOBase,
    where: Place,
    columns: Columns | None,
    delimiter: str = ",",
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL,
) -> Iterator[_Located]:
    csv.field_size_limit(1 << 30)  # a cell may hold a whole document
    rows = csv.DictReader(decoded_lines(stream, where), delimiter=delimiter, quoting=quoting, strict=True)
    try:
        for row in rows:
            # Where columns belong together, a missing or surplus cell would pair texts that are not a pair.
            if (columns is None or columns.positive in row) and (None in row or None in row.values()):
                names = rows.fieldnames or ()
                cells = sum(row[name] is not None for name in names) + len(row.get(None) or ())
                counts = f"{cells} column{'s' * (cells != 1)} and the header {len(names)}"
                raise CorpusError(f"{where} has {counts}: mend that row")
            yield where, row
    except csv.Error as error:
        raise CorpusError(f"{where} is not valid CSV ({error}): mend that row") from error


def _parquet_rows(stream: io.BufferedIOBase, where: Place, columns: Columns | None) -> Iterator[_Located]:
    import pyarrow as pa
    from pyarrow import parquet

    with ExitStack() as stack:
        if compression_of(where.path):  # Parquet is read from its end, so the stream must be seekable
            unpacked = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(stream, unpacked)
            stream = cast(io.BufferedIOBase, unpacked)
        try:
            table = parquet.ParquetFile(stream)
        except pa.ArrowInvalid as error:
            raise CorpusError(f"{where.path} is no Parquet file: {str(error).splitlines()[0]}") from error
        names = list(table.schema_arrow.names)
        if columns is not None:
            if columns.text not in names:
                raise no_column(where.path, columns.text, names)
            names = [name for name in dict.fromkeys(columns.names()) if name in names]
        rows = (row for batch in table.iter_batches(batch_size=1024, columns=names) for row in batch.to_pylist())
        yield from ((f"{where.path}, row {n}", row) for n, row in enumerate(rows, 1))


# The last argument names the columns to read; None: all.
TABLES: dict[str, Callable[..., Iterator[_Located]]] = {
    ".jsonl": _json_rows,
    ".json": _json_rows,
    ".csv": _csv_rows,
    ".tsv": partial(_csv_rows, delimiter="\t"),
    ".parquet": _parquet_rows,
}


def no_column(where: object, name: str, existing: Iterable[object]) -> CorpusError:
    """Build the error for a table without a column."""
    names = ", ".join(str(column) for column in existing if column is not None)
    return CorpusError(f"{where} has no column {name!r}: set text_column to one of {names or 'none at all'}")
