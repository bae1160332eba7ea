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
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, BinaryIO, Literal

from selfsent.errors import CorpusError

FORMATS = (".txt", ".jsonl", ".json", ".csv", ".tsv", ".parquet")
COMPRESSIONS = (".gz", ".xz", ".zst", ".bz2")
KNOWN = f"{', '.join(FORMATS)}, each also with {', '.join(COMPRESSIONS)}"
_BINARY = (b"\x89PNG", b"GIF8", b"%PDF", b"(\xb5/\xfd")  # binary files whose first line has no NUL byte

Row = Mapping[str, Any]
_Located = tuple[object, Row]  # (place in the file, for messages; the row)


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


@dataclass
class OpenFile:
    """A file that is being read; as a string, the line that was read last."""

    path: Path
    line: int = 0
    packed: BinaryIO = field(init=False)
    stream: Any = field(init=False)  # its decompressed bytes

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}"

    def lines(self) -> Iterator[str]:
        """Yield decoded lines."""
        for line in self.stream:
            self.line += 1
            if self.line == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise CorpusError(f"{self.path} is UTF-16: save it as UTF-8")
            if b"\0" in line or (self.line == 1 and line.startswith(_BINARY)):
                raise CorpusError(f"{self} is not text but binary: give a file of one of {KNOWN}")
            try:
                yield line.decode("utf-8-sig" if self.line == 1 else "utf-8")
            except UnicodeDecodeError as error:
                byte = line[error.start]
                raise CorpusError(f"{self} is not UTF-8 (byte 0x{byte:02x}): save the file as UTF-8") from error


def compression_of(path: Path) -> str:
    """Return the compression that a name says, or ""."""
    return path.suffix.lower() if path.suffix.lower() in COMPRESSIONS else ""


def format_of(path: Path) -> str:
    """Return the format that a name says, or "" for an unknown one."""
    suffix = (path.with_suffix("") if compression_of(path) else path).suffix.lower()
    return suffix if suffix in FORMATS else ""


@contextmanager
def open_unpacked(path: Path) -> Iterator[OpenFile]:
    """Open a file, decompressed as its name says."""
    file = OpenFile(path)
    try:
        with path.open("rb") as file.packed:
            file.stream = _decompressed(file.packed, compression_of(path))
            yield file
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise unreadable(path, error, file.line) from error


def unreadable(path: Path, error: Exception, line: int = 0) -> CorpusError:
    """Build the error for a file that is missing or damaged; ``line`` is the last that was read."""
    if isinstance(error, OSError) and error.strerror:
        return CorpusError(f"{path} cannot be opened: {error.strerror}")
    after = f" after line {line}" if line else ""
    reason = str(error).rstrip(".")
    return CorpusError(f"{path} is missing, damaged or cut short{after} ({reason}): copy or download it again")


def _decompressed(file: BinaryIO, compression: str) -> Any:  # noqa: ANN401 - each library has its own type
    if not compression:
        return file
    if compression == ".zst":
        import pyarrow as pa  # the reader of the package zstandard accepts a truncated file as whole

        unpacked: Any = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")
    else:
        unpacked = (gzip if compression == ".gz" else bz2 if compression == ".bz2" else lzma).open(file)
    return io.BufferedReader(unpacked, 1 << 20)  # LZMAFile reads 8 KiB at a time


def _text_rows(file: OpenFile, columns: Columns | None) -> Iterator[_Located]:
    assert columns is not None
    return ((file, {columns.text: line.rstrip("\r\n")}) for line in file.lines())


def _json_rows(file: OpenFile, columns: Columns | None) -> Iterator[_Located]:
    """Read objects line by line, or one list of objects, which is held in memory as a whole."""
    lines = (line for line in file.lines() if not line.isspace())
    first = next(lines, "")
    rows: Iterator[tuple[object, Any]] = ((file, _parsed(line, file)) for line in chain([first] * bool(first), lines))
    if first.lstrip().startswith("["):
        items = _parsed(first + "".join(lines), file)
        rows = ((f"{file.path}, item {n}", item) for n, item in enumerate(items, 1))
    for place, row in rows:
        if not isinstance(row, Mapping):
            kind = type(row).__name__
            raise CorpusError(f"{place} holds a {kind}: every row must be an object with a column of text")
        yield place, row


def _parsed(line: str, file: OpenFile) -> Any:  # noqa: ANN401 - JSON is anything
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise CorpusError(f"{file} is not valid JSON ({error.msg} at column {error.colno}): mend that line") from error


def _csv_rows(
    file: OpenFile, columns: Columns | None, delimiter: str = ",", quoting: Literal[0, 3] = csv.QUOTE_MINIMAL
) -> Iterator[_Located]:
    csv.field_size_limit(1 << 30)  # a cell may hold a whole document
    rows = csv.reader(file.lines(), delimiter=delimiter, quoting=quoting, strict=True)
    try:
        header = next(rows, [])
        for cells in filter(None, rows):
            # Where columns belong together, a missing or surplus cell would pair texts that are not a pair.
            if len(cells) != len(header) and (columns is None or columns.positive in header):
                raise CorpusError(f"{file} has {len(cells)} cells and the header {len(header)}: mend that row")
            yield file, dict(zip_longest(header, cells[: len(header)]))
    except csv.Error as error:
        raise CorpusError(f"{file} is not valid CSV ({error}): mend that row") from error


def _parquet_rows(file: OpenFile, columns: Columns | None) -> Iterator[_Located]:
    import pyarrow as pa
    from pyarrow import parquet

    with ExitStack() as stack:
        stream = file.stream
        if stream is not file.packed:  # Parquet is read from its end, so the stream must be seekable
            stream = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(file.stream, stream)
        try:
            table = parquet.ParquetFile(stream)
        except pa.ArrowInvalid as error:
            raise CorpusError(f"{file.path} is no Parquet file: {str(error).splitlines()[0]}") from error
        names = list(table.schema_arrow.names)
        if columns is not None and columns.text in names:
            names = [name for name in names if name in columns.names()]
        rows = (row for batch in table.iter_batches(batch_size=1024, columns=names) for row in batch.to_pylist())
        yield from ((f"{file.path}, row {n}", row) for n, row in enumerate(rows, 1))


# The last argument names the columns to read; None: all.
READERS: dict[str, Callable[..., Iterator[_Located]]] = {
    ".txt": _text_rows,
    ".jsonl": _json_rows,
    ".json": _json_rows,
    ".csv": _csv_rows,
    ".tsv": partial(_csv_rows, delimiter="\t"),
    ".parquet": _parquet_rows,
}
