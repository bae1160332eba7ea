"""Lines and rows of one file, whatever its format and compression; an error names the line.

No line, cell or row is longer than ``LONGEST``, and what must be unpacked as a whole has a limit, too, so that memory
does not grow with what a file holds.
"""

import codecs
import csv
import io
import lzma
import re
import tempfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import Any, Literal

from selfsent.corpus import json_values, limits, unpacking
from selfsent.corpus.remote import RemoteFile
from selfsent.errors import CorpusError, UserError, a_kind, first_line

DATABASES = (".db", ".sqlite", ".sqlite3")
TABLES = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".xlsx", *DATABASES)
FORMATS = (".txt", *TABLES, ".html", ".htm", ".md", ".mbox", ".eml", ".docx", ".pptx", ".pdf")
COMPRESSIONS = (".gz", ".xz", ".zst", ".bz2")
KNOWN = f"{', '.join(FORMATS)}, each also with {', '.join(COMPRESSIONS)}"
LONGEST = 1 << 21  # bytes of one line, cell or row; tokenising takes some 160 times as many
_BINARY = (b"\x89PNG", b"GIF8", b"%PDF", b"(\xb5/\xfd")  # binary files whose first line has no NUL byte

_MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_SAID = "save it as UTF-8, or say behind its name what it is, as NAME::cp1252 for Windows' text"
_ISO_2022 = (b"\x1b$B", b"\x1b$@", b"\x1b$)", b"\x1b(J")  # escapes that begin another character set
_GAP = re.compile(r"[ \t\r\n]*")
_SEPARATORS = (",", ";", "\t", "|")
_ROWS_TRIED = 100_000  # of a .tsv file, before its quotation marks are taken for text
_BATCH = 16  # rows of a Parquet file that are in memory together, each of which may have ``LONGEST`` bytes

Row = Mapping[str, Any]
Located = tuple[object, Row]  # (place in the file, for messages; the row)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Names of the columns that are read from a table; only the first must exist."""

    text: str | None  # None: it is found, by ``text_column``
    title: str | None
    summary: str | None
    positive: str | None = "positive"  # None: none is read
    id: str | None = None
    encoding: str | None = None
    asked: bool = False  # for this column of text: numbers and dates are read, too

    def names(self) -> tuple[str | None, ...]:
        """Return them in the order of the fields of ``Document``."""
        return self.text, self.title, self.summary, self.positive, self.id


@dataclass
class OpenFile:
    """A file that is being read; as a string, the line that was read last."""

    path: Path | RemoteFile
    part: str = ""  # the sheet of a workbook, TABLE.COLUMN of a database, or the encoding of text
    encoding: str | None = None  # None: UTF-8, or what the first bytes certainly are
    say: Callable[[str], None] = lambda message: None
    is_mail: bool = False  # each of whose messages says in what it is encoded
    line: int = 0
    packed: io.BufferedIOBase = field(init=False)
    stream: Any = field(init=False)  # its decompressed bytes

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}"

    def parts(self) -> Iterator[bytes]:
        """Yield lines as bytes; one that is longer than ``LONGEST`` comes in parts."""
        begins, stream = True, self._in_utf_8()
        while piece := self._next(stream):
            self.line += begins
            if self.line == 1 and piece == codecs.BOM_UTF8:  # an empty file
                return
            if b"\x1b" in piece and not self.is_mail and any(mark in piece for mark in _ISO_2022):
                raise CorpusError(f"{self} is ISO-2022, as old mail of East Asia: {_SAID}")
            if b"\0" in piece or (begins and self.line == 1 and piece.startswith(_BINARY)):
                raise CorpusError(f"{self} is not text but binary, or in an unknown encoding: {_SAID}, or give {KNOWN}")
            begins = piece.endswith(b"\n")
            if self.line == 1 and not begins and b"\r" in piece.rstrip(b"\r"):
                raise CorpusError(f"{self.path} ends its lines by CR alone, as old Macs did: save it with LF or CR LF")
            yield piece

    def _in_utf_8(self) -> Any:  # noqa: ANN401 - each library has its own type
        """Return the bytes as UTF-8, whatever they are in where that is certain or was said."""
        stream = self.stream if hasattr(self.stream, "peek") else io.BufferedReader(self.stream)
        head, encoding = stream.peek(1 << 12)[: 1 << 12], self.part or self.encoding
        if encoding is None:
            encoding = next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)
            zeros = head[::2].count(0), head[1::2].count(0)  # of UTF-16 without a mark, whose letters are Latin ones
            if encoding is None and min(zeros) == 0 and 4 * max(zeros) > len(head) > 3:
                encoding = "UTF-16-BE" if zeros[0] else "UTF-16-LE"
            if encoding:
                self.say(f"{self.path} is {encoding}, and is read as such")
        return io.BufferedReader(unpacking.Recoded(stream, encoding), 1 << 16) if encoding else stream

    def _next(self, stream: Any) -> bytes:  # noqa: ANN401
        try:
            return stream.readline(LONGEST + 1)
        except UnicodeError as error:
            raise CorpusError(f"{self.path} is not in the encoding it is read as ({error}): {_SAID}") from error

    def lines(self, parts: Iterable[bytes] | None = None) -> Iterator[str]:
        """Yield decoded lines."""
        for line in self.parts() if parts is None else parts:
            if len(line) > LONGEST:
                raise too_long(self)
            try:
                yield line.removeprefix(codecs.BOM_UTF8).decode()
            except UnicodeDecodeError as error:
                raise self.undecodable(error) from error

    def undecodable(self, error: UnicodeDecodeError) -> CorpusError:
        """Build the error for bytes that are not UTF-8."""
        return CorpusError(f"{self} is not UTF-8 (byte 0x{error.object[error.start]:02x}): {_SAID}")


def compression_of(path: PurePath) -> str:
    """Return the compression that a name says, or ""."""
    return path.suffix.lower() if path.suffix.lower() in COMPRESSIONS else ""


def format_of(path: PurePath) -> str:
    """Return the format that a name says, or "" for an unknown one."""
    suffix = (path.with_suffix("") if compression_of(path) else path).suffix.lower()
    return suffix if suffix in FORMATS else ""


def is_encoding(name: str) -> bool:
    """Return whether Python reads text in the encoding of this name."""
    try:
        "".encode(name)
    except (LookupError, ValueError):
        return False
    return True


@contextmanager
def open_unpacked(path: Path | RemoteFile, part: str = "") -> Iterator[OpenFile]:
    """Open a file, decompressed as its name says."""
    file = OpenFile(path, part)
    compression = compression_of(path.name if isinstance(path, RemoteFile) else path)
    try:
        if isinstance(path, Path):
            require_regular(path)
            if compression and not path.stat().st_size:  # gzip and zstd would call that a whole file
                raise EOFError("it has no bytes")
        with path.open() if isinstance(path, RemoteFile) else path.open("rb") as file.packed:
            file.stream = unpacking.decompressed(file.packed, compression)
            yield file
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise unreadable(path, error, file.line) from error
    except UserError:
        raise
    except Exception as error:
        if isinstance(path, Path) or type(error).__module__ == "builtins":
            raise
        raise unreadable(path, error, file.line) from error  # of the client of a file system


def require_regular(path: Path) -> None:
    """Refuse a pipe or a device, which may never end and cannot be read twice."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise CorpusError(f"{path} is a pipe or a device: write its text to a file, and give that")


def unreadable(path: Path | RemoteFile, error: Exception, line: int = 0) -> CorpusError:
    """Build the error for a file that is missing or damaged; ``line`` is the last that was read."""
    if isinstance(error, OSError) and error.strerror:
        return CorpusError(f"{path} cannot be opened: {error.strerror}")
    after = f" after line {line}" if line else ""
    reason = str(error).rstrip(".")
    return CorpusError(f"{path} is missing, damaged or cut short{after} ({reason}): copy or download it again")


def too_long(where: object) -> CorpusError:
    """Build the error for a line, cell or row that is longer than ``LONGEST``."""
    return CorpusError(f"{where} is longer than {LONGEST >> 20} MiB, the most that one text may have: split it")


def _text_rows(file: OpenFile, columns: Columns | None) -> Iterator[Located]:
    assert columns is not None
    assert columns.text is not None
    return ((file, {columns.text: line.rstrip("\r\n")}) for line in file.lines())


def _json_rows(file: OpenFile, columns: Columns | None) -> Iterator[Located]:
    """Read objects line by line, or one list of objects."""
    parts = (piece for piece in file.parts() if not piece.isspace())
    first = next(parts, b"")
    every = chain([first] * bool(first), parts)
    if first.strip() == b"{":
        raise CorpusError(f"{file} holds one object over many lines: write an object a line, or a list of objects")
    rows: Iterator[tuple[object, Any]] = ((file, json_values.parsed(line, file)) for line in file.lines(every))
    if first.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"["):
        rows = _json_items(file, every)
    for where, row in rows:
        if not isinstance(row, Mapping):
            raise CorpusError(f"{where} holds {a_kind(row)}: every row must be an object with a column of text")
        yield where, row


def _json_items(file: OpenFile, parts: Iterable[bytes]) -> Iterator[tuple[object, Any]]:
    """Read the items of a list, of which one is held in memory at a time."""
    decode = codecs.getincrementaldecoder("utf-8-sig")().decode
    text, failed, number, expected = "", 0, 1, "["
    for piece in chain(parts, [b""]):
        try:
            text += decode(piece, not piece)
        except UnicodeDecodeError as error:
            raise file.undecodable(error) from error
        at = 0
        if piece and len(text) < 2 * failed:  # or an item of many lines would be tried with each of them
            continue
        while (at := _end_of_gap(text, at)) < len(text):
            where, character = f"{file.path}, item {number}", text[at]
            if expected == "item":
                try:
                    item, at = json_values.JSON.raw_decode(text, at)
                except (ValueError, RecursionError) as error:
                    if len(text) - at > LONGEST:
                        raise too_long(f"{where} is not valid JSON, or it") from error
                    if piece:
                        break  # there may be more of it
                    raise json_values.invalid(where, error) from error
                yield where, item
                number, expected = number + 1, ","
            elif character == "]" and expected in ("]", ","):
                at, expected = at + 1, ""
            elif expected == "]":
                expected = "item"
            elif character == expected:
                at, expected = at + 1, "]" if character == "[" else "item"
            else:
                raise json_values.invalid(where, ValueError(f"{character!r} before it"))
        text = text[at:]
        failed = len(text)
    if expected:
        raise CorpusError(f"{file.path} is cut short after item {number - 1}: copy or download it again")


def _end_of_gap(text: str, start: int) -> int:
    gap = _GAP.match(text, start)
    return gap.end() if gap else start


def require_distinct(where: object, header: Sequence[str], columns: Columns | None) -> None:
    """Refuse a header that names a column that is read twice."""
    read = [name for name in header if columns is None or name in columns.names()]
    if name := json_values.doubled(read):
        raise CorpusError(f"{where} has the column {name!r} twice: rename one of them")


def _separator(line: str, usual: str, quoting: Literal[0, 3], columns: Columns | None) -> str:
    """Return what parts the names of a header: what finds the column of text, otherwise most names."""

    def names(separator: str) -> tuple[bool, bool, int]:
        cells = [cell.strip() for cell in next(csv.reader([line], delimiter=separator, quoting=quoting), [])]
        return columns is not None and columns.text in cells, '"' not in "".join(cells), len(cells)

    return max((usual, *_SEPARATORS), key=names)


def _csv_rows(
    file: OpenFile, columns: Columns | None, delimiter: str = ",", quoting: Literal[0, 3] = csv.QUOTE_MINIMAL
) -> Iterator[Located]:
    csv.field_size_limit(LONGEST)
    held, begins = 0, 1  # characters of a row, whose cells may have line ends, and its first line

    def lines() -> Iterator[str]:
        nonlocal held
        for line in file.lines():
            held += len(line)
            if held > LONGEST:
                raise too_long(f"{file.path}, the row that begins in line {begins}")
            yield line

    every = lines()
    try:
        first = next(every, "")
        told = first[4:].strip("\r\n") if first.startswith("sep=") else ""  # to Excel
        if told not in _SEPARATORS:
            told, every = _separator(first, delimiter, quoting, columns), chain([first], every)
        rows = csv.reader(every, delimiter=told, quoting=quoting, strict=True)
        header = [name.strip() for name in next(rows, [])]
        held, begins = 0, file.line + 1
        require_distinct(file, header, columns)
        for cells in rows:
            held, begins = 0, file.line + 1
            if not cells:
                continue
            if len(cells) != len(header):  # a delimiter inside a text, or columns that moved
                raise CorpusError(f"{file} has {len(cells)} cells and the header {len(header)}: mend that row")
            yield file, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        row = f"{file.path}, the row that begins in line {begins}"
        raise CorpusError(f"{row}, is not valid CSV ({error}): close its quotation mark, or mend it") from error


def _tsv_rows(file: OpenFile, columns: Columns | None) -> Iterator[Located]:
    """Take quotation marks as those of CSV where the first rows can be read so, otherwise as part of the text."""
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL
    with open_unpacked(file.path, file.part) as again:
        again.encoding = file.encoding
        try:
            deque(islice(_csv_rows(again, columns, "\t"), _ROWS_TRIED), maxlen=0)
        except CorpusError:
            quoting = csv.QUOTE_NONE
    return _csv_rows(file, columns, "\t", quoting)


def _parquet_rows(file: OpenFile, columns: Columns | None) -> Iterator[Located]:
    import pyarrow as pa
    from pyarrow import parquet

    number = 0
    with ExitStack() as stack:
        try:
            if file.stream is not file.packed and file.stream.peek(4)[:4] != b"PAR1":
                raise pa.ArrowInvalid("its first bytes are others")
            stream = seekable(file, stack)
            limits.require_short_footer(file.path, stream)
            table = parquet.ParquetFile(stream, page_checksum_verification=True)
            names = list(table.schema_arrow.names)
            if columns is not None and columns.text in names:
                names = [name for name in names if name in columns.names()]
            require_distinct(file.path, names, columns)
            if columns is not None and columns.text in names:
                limits.require_flat(file.path, table.schema_arrow, names, columns.id)
            _require_short(file.path, table.metadata)
            for batch in table.iter_batches(batch_size=_BATCH, columns=names):
                for row in batch.to_pylist():
                    number += 1
                    where = f"{file.path}, row {number}"
                    if any(isinstance(value, str) and len(value) > LONGEST for value in row.values()):
                        raise too_long(where)
                    yield where, row
        except UnicodeDecodeError as error:
            raise CorpusError(f"{file.path} has text after row {number} that is not UTF-8: write it anew") from error
        except pa.ArrowException as error:
            if number:
                raise unreadable(file.path, error) from error
            raise CorpusError(f"{file.path} is no Parquet file: {first_line(error)}") from error


def seekable(file: OpenFile, stack: ExitStack) -> Any:  # noqa: ANN401 - TemporaryFile has no type
    """Return the unpacked bytes of a file that is read from its end."""
    if file.stream is file.packed:
        return file.stream
    copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    copy_bounded(file, copy)
    copy.seek(0)
    return copy


def copy_bounded(file: OpenFile, target: Any) -> None:  # noqa: ANN401 - TemporaryFile has no type
    """Unpack a file, unless it is made to fill the disk."""
    size = 0
    while block := file.stream.read(1 << 20):
        size += len(block)
        limits.require_bounded(file.path, size, file.packed.tell())
        target.write(block)


def _require_short(path: Path | RemoteFile, metadata: Any) -> None:  # noqa: ANN401 - pyarrow has no types
    """Refuse a Parquet file whose values are too long on average, or packed too well, before they are unpacked."""
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            if chunk.total_uncompressed_size > (chunk.num_values + 1) * LONGEST:
                raise too_long(f"a value of {path}")
            what = f"column {chunk.path_in_schema[:80]!r} of {path}"
            limits.require_bounded(what, chunk.total_uncompressed_size, chunk.total_compressed_size)


# The last argument names the columns to read; None: all.
READERS: dict[str, Callable[..., Iterator[Located]]] = {
    ".txt": _text_rows,
    ".jsonl": _json_rows,
    ".json": _json_rows,
    ".csv": _csv_rows,
    ".tsv": _tsv_rows,
    ".parquet": _parquet_rows,
}
