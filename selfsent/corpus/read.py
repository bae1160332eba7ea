"""Read documents out of files, folders, hub datasets and the demo corpus, one at a time.

Files are read by plain generators and not by the streaming readers of ``datasets``, because only so can an
error name the line that it stands on; hub names go through ``datasets``.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import xxhash

from selfsent.errors import UserError

FORMATS = (".txt", ".jsonl", ".json", ".csv", ".tsv", ".parquet")
COMPRESSIONS = (".gz", ".xz", ".zst", ".bz2")
DEMO = "pydocs"
_HUB_NAME = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(?:/(?P<config>[\w.-]+))?(?::(?P<split>[\w.+%\[\]:-]+))?")
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
_Row = tuple[object, object]  # where it stands, and what stands there
_DAMAGE = (EOFError, OSError, lzma.LZMAError, zlib.error)


class Document(NamedTuple):
    """One row or line as it was found."""

    text: str
    title: str = ""
    summary: str = ""
    positive: str = ""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of a table that are looked at; only the first must exist."""

    text: str
    title: str
    summary: str
    positive: str = "positive"


@dataclass(frozen=True)
class Source:
    """One file, hub dataset or the demo corpus, ready to be read."""

    name: str  # as the user would write it
    kind: str  # a file format with its dot, "hub" or the name of the demo corpus
    path: Path | None = None
    compression: str = ""

    @property
    def size(self) -> int:
        """Return the bytes of the file, 0 if the source is no file."""
        return self.path.stat().st_size if self.path else 0

    def identity(self) -> list[object]:
        """Return what tells this source from another, or from itself before it changed."""
        if self.path is not None:
            return file_identity(self.path)
        if self.kind == "hub":
            return [self.name, _hub_revision(self.name)]
        from selfsent.builtin import pydocs

        return [self.name, pydocs.python_docs_identity()]

    def documents(self, columns: Columns, progress: Callable[[int], None]) -> Iterator[Document]:
        """Yield what the source holds; ``progress`` hears the position in the file, in bytes."""
        if self.kind == "hub":
            return (_document(row, self.name, columns) for row in _hub_rows(self.name))
        if self.path is None:
            from selfsent.builtin import pydocs

            return (Document(row["text"], row["title"], row["summary"]) for row in pydocs.python_documents())
        return _from_file(self, self.path, columns, progress)


def resolve_sources(names: Sequence[str]) -> list[Source]:
    """Find the sources behind what a user wrote.

    Raises:
        UserError: a name is no file, folder, hub dataset or demo corpus, or a file has an unknown format.
    """
    if not names:
        raise UserError("no text was given: name a file, a folder, a hub dataset or pydocs")
    return [source for name in names for source in _resolve(str(name))]


def _resolve(name: str) -> list[Source]:
    path = Path(name).expanduser()
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file() and _format(p) and not _hidden(p, path))
        if not files:
            raise UserError(f"{path} holds no text: known files are {_known()}")
        return [_file(p) for p in files]
    if path.exists():
        if not _format(path):
            raise UserError(f"{path} has an unknown format: known are {_known()}")
        return [_file(path)]
    if name == DEMO:
        return [Source(DEMO, DEMO)]
    if _HUB_NAME.fullmatch(name) and not _format(path) and not path.parent.exists():
        return [Source(name, "hub")]
    siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    near = get_close_matches(path.name, [*siblings, DEMO], n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else "name a file, a folder, a hub dataset (owner/name) or pydocs"
    raise UserError(f"{name} does not exist: {hint}")


def _hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def _known() -> str:
    return f"{', '.join(FORMATS)}, each also with {', '.join(COMPRESSIONS)}"


def _compression(path: Path) -> str:
    return path.suffix.lower() if path.suffix.lower() in COMPRESSIONS else ""


def _format(path: Path) -> str:
    suffix = (path.with_suffix("") if _compression(path) else path).suffix.lower()
    return suffix if suffix in FORMATS else ""


def _file(path: Path) -> Source:
    return Source(str(path), _format(path), path, _compression(path))


def file_identity(path: Path) -> list[object]:
    """Return what tells a file from another, or from itself before it changed: its content, wherever it lies.

    Not its time stamp or its place: a copy of a file, or a disk mounted anew, must not lose a run its text.
    """
    digest = xxhash.xxh3_128()
    with _opened(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
        return [path.name, file.tell(), digest.hexdigest()]


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(f"{path} cannot be opened: {error.strerror}") from error


class _Where:
    """The place that is being read, for messages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}"


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file of any name, plain or compressed, without their ends."""
    where = _Where(path)
    with _damage_named(where), _opened(path) as raw:
        for line in _lines(_unpacked(raw, _compression(path)), where):
            yield line.rstrip("\r\n")


def read_rows(source: Source) -> Iterator[tuple[object, Mapping[str, Any]]]:
    """Yield (where it stands, row) of a table on disk, with all its columns."""
    assert source.path is not None
    where = _Where(source.path)
    with _damage_named(where), _opened(source.path) as raw:
        for place, row in _TABLES[source.kind](_unpacked(raw, source.compression), where, None):
            yield place, _mapping(row, place)


def _from_file(source: Source, path: Path, columns: Columns, progress: Callable[[int], None]) -> Iterator[Document]:
    where = _Where(path)
    with _damage_named(where), _opened(path) as raw:
        stream = _unpacked(raw, source.compression)
        if source.kind == ".txt":
            found = (Document(line.rstrip("\r\n")) for line in _lines(stream, where))
        else:
            found = (_document(row, place, columns) for place, row in _TABLES[source.kind](stream, where, columns))
        for number, document in enumerate(found):
            if not number % 256:
                progress(raw.tell())
            yield document


@contextmanager
def _damage_named(where: _Where) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        after = f" after line {where.line}" if where.line else ""
        raise UserError(
            f"{where.path} is damaged or cut short{after} ({str(error).rstrip('.')}): copy or download it again"
        ) from error


def _unpacked(raw: BinaryIO, compression: str) -> io.BufferedIOBase:
    if compression == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if compression == ".bz2":
        return bz2.BZ2File(raw)
    if compression == ".xz":  # buffered, because it hands out lines 8 KiB at a time
        return io.BufferedReader(cast(io.RawIOBase, lzma.LZMAFile(raw)), 1 << 20)
    if compression == ".zst":
        import pyarrow as pa  # the reader of zstandard takes a file that was cut short for a whole one

        unpacked = pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd")
        return io.BufferedReader(cast(io.RawIOBase, unpacked), 1 << 20)
    return cast(io.BufferedIOBase, raw)


def _lines(stream: io.BufferedIOBase, where: _Where) -> Iterator[str]:
    """Yield decoded lines and keep ``where`` up to date."""
    for where.line, line in enumerate(stream, 1):
        if where.line == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise UserError(f"{where.path} is UTF-16: save it as UTF-8")
        if b"\0" in line or (where.line == 1 and line.startswith(_BINARY)):
            raise UserError(f"{where} is not text but binary: give a file of one of {_known()}")
        try:
            yield line.decode("utf-8-sig" if where.line == 1 else "utf-8")
        except UnicodeDecodeError as error:
            byte = line[error.start]
            raise UserError(f"{where} is not UTF-8 (byte 0x{byte:02x}): save the file as UTF-8") from error


def _from_json(stream: io.BufferedIOBase, where: _Where, columns: Columns | None) -> Iterator[_Row]:
    """Read objects line by line, or one list of objects, which is held in memory as a whole."""
    lines = (line for line in _lines(stream, where) if not line.isspace())
    first = next(lines, "")
    if first.lstrip().startswith("["):
        rows = _parsed(first + "".join(lines), where)
        yield from ((f"{where.path}, item {n}", row) for n, row in enumerate(rows, 1))
    elif first:
        yield from ((where, _parsed(line, where)) for line in chain([first], lines))


def _parsed(line: str, where: _Where) -> Any:  # noqa: ANN401 - JSON is anything
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"{where} is not valid JSON ({error.msg} at column {error.colno}): mend that line") from error


def _from_csv(
    stream: io.BufferedIOBase, where: _Where, columns: Columns | None, delimiter: str = ","
) -> Iterator[_Row]:
    csv.field_size_limit(1 << 30)  # a whole document in a cell is no error
    rows = csv.DictReader(_lines(stream, where), delimiter=delimiter, strict=True)
    try:
        for row in rows:
            # Where columns belong together, a cell too few or too many would pair what is none.
            if (columns is None or columns.positive in row) and (None in row or None in row.values()):
                names = rows.fieldnames or ()
                cells = sum(row[name] is not None for name in names) + len(row.get(None) or ())
                told = f"{cells} column{'s' * (cells != 1)} and the header {len(names)}"
                raise UserError(f"{where} has {told}: mend that row")
            yield where, row
    except csv.Error as error:
        raise UserError(f"{where} is not valid CSV ({error}): mend that row") from error


def _from_parquet(stream: io.BufferedIOBase, where: _Where, columns: Columns | None) -> Iterator[_Row]:
    import pyarrow as pa
    from pyarrow import parquet

    with ExitStack() as stack:
        if _compression(where.path):  # the format must be read from its end
            unpacked = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(stream, unpacked)
            stream = cast(io.BufferedIOBase, unpacked)
        try:
            table = parquet.ParquetFile(stream)
        except pa.ArrowInvalid as error:
            raise UserError(f"{where.path} is no Parquet file: {str(error).splitlines()[0]}") from error
        names = list(table.schema_arrow.names)
        if columns is not None:
            if columns.text not in names:
                raise _no_column(where.path, columns.text, names)
            names = [name for name in dict.fromkeys(_names(columns)) if name in names]
        rows = (row for batch in table.iter_batches(batch_size=1024, columns=names) for row in batch.to_pylist())
        yield from ((f"{where.path}, row {n}", row) for n, row in enumerate(rows, 1))


# Columns are those that will be looked at; None: all.
_TABLES: dict[str, Callable[[io.BufferedIOBase, _Where, Columns | None], Iterator[_Row]]] = {
    ".jsonl": _from_json,
    ".json": _from_json,
    ".csv": _from_csv,
    ".tsv": partial(_from_csv, delimiter="\t"),
    ".parquet": _from_parquet,
}


def _names(columns: Columns) -> tuple[str, str, str, str]:
    return columns.text, columns.title, columns.summary, columns.positive


def _mapping(row: object, where: object) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise UserError(f"{where} holds a {type(row).__name__}: every row must be an object with a column of text")
    return row


def _document(row: object, where: object, columns: Columns) -> Document:
    row = _mapping(row, where)
    if columns.text not in row:
        raise _no_column(where, columns.text, row)
    text, title, summary, positive = (row.get(name) or "" for name in _names(columns))
    for name, value in ((columns.text, text), (columns.positive, positive)):
        if not isinstance(value, str):
            raise UserError(f"{where}: column {name!r} holds a {type(value).__name__}: it must hold text")
    return Document(text, str(title), str(summary), positive)


def _no_column(where: object, name: str, existing: Iterable[object]) -> UserError:
    names = ", ".join(str(column) for column in existing if column is not None)
    return UserError(f"{where} has no column {name!r}: set text_column to one of {names or 'none at all'}")


def _hub_rows(name: str) -> Iterator[Mapping[str, Any]]:
    import datasets

    parts = cast(re.Match[str], _HUB_NAME.fullmatch(name))
    datasets.disable_progress_bars()
    try:
        rows = datasets.load_dataset(parts["name"], parts["config"], split=parts["split"] or "train", streaming=True)
        yield from rows
    except Exception as error:  # not found, no such split or config, no connection: each layer has its own
        reason = str(error).splitlines()[0].rstrip(".")
        raise UserError(
            f"the hub dataset {name} cannot be read ({reason}): write it as owner/name, owner/name/config or "
            "owner/name:split"
        ) from error


def _hub_revision(name: str) -> str:
    from huggingface_hub import HfApi

    dataset = cast(re.Match[str], _HUB_NAME.fullmatch(name))["name"]
    try:
        return str(HfApi().dataset_info(dataset).sha)
    except Exception as error:  # not found or no connection, in the words of whichever HTTP client it uses
        raise UserError(f"{name} is neither a file here nor a dataset that the hub answers for") from error
