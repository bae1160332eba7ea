"""Read documents from files, folders, hub datasets, the demo corpus and memory, one at a time.

Files are read by plain generators and not by the streaming readers of ``datasets``, so that an error can name the
line; hub names go through ``datasets``.
"""

import errno
import json
import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import date
from difflib import get_close_matches
from itertools import islice
from pathlib import Path, PurePath
from typing import NamedTuple

from selfsent.corpus import documents, formats
from selfsent.corpus.formats import COMPRESSIONS as COMPRESSIONS
from selfsent.corpus.formats import FORMATS as FORMATS
from selfsent.corpus.formats import Columns as Columns
from selfsent.corpus.formats import Row
from selfsent.corpus.remote import HUB_NAME, RemoteFile, hub_revision, hub_rows, is_url, remote_files
from selfsent.corpus.text_column import text_column
from selfsent.errors import CorpusError, a_kind
from selfsent.progress import SILENT, Progress
from selfsent.storage import atomic

DEMO = "pydocs"

_ALSO_READ, _ALSO_NAMED = 1 << 26, 20  # bytes behind a file that is refused, and files


class Document(NamedTuple):
    """One row or line, uncleaned."""

    text: str
    title: str = ""
    summary: str = ""
    positive: str = ""
    id: str = ""  # what it is called where it came from


@dataclass(frozen=True)
class Source:
    """One file, hub dataset or the demo corpus."""

    name: str  # as given
    kind: str  # a file format with its dot, "hub" or the name of the demo corpus
    path: Path | None = None
    remote: RemoteFile | None = None
    part: str = ""  # of a workbook its sheet, of a database TABLE or TABLE.COLUMN, of text its encoding

    @property
    def size(self) -> int:
        """Return the bytes of the file, 0 if the source is no file."""
        if self.remote is not None:
            return self.remote.size
        return self.path.stat().st_size if self.path else 0

    def identity(self) -> list[object]:
        """Return what changes when the content does: a checksum, a revision, the installed packages."""
        if self.path is not None:
            log = self.path.with_name(f"{self.path.name}-wal")  # of a database, whose last rows are there alone
            logged = file_identity(log) if self.kind in formats.DATABASES and log.exists() else []
            return [*file_identity(self.path), *logged, *[self.part] * bool(self.part)]
        if self.remote is not None:
            return self.remote.identity()
        if self.kind == "hub":
            return [self.name, hub_revision(self.name)]
        from selfsent.corpus import python_docs

        return [self.name, python_docs.python_docs_identity()]

    def documents(
        self, columns: Columns, progress: Progress = SILENT, *, offset: int = 0, total: int | None = None
    ) -> Iterator[Document]:
        """Yield the documents of the source.

        Args:
            progress: the stage ``read`` counts the bytes of a file, from ``offset`` to ``total``.
        """
        columns = self._found(columns, progress)
        if self.kind == "hub":
            yield from (_document(row, self.name, columns) for row in hub_rows(self.name))
        elif self.kind == DEMO:
            from selfsent.corpus import python_docs

            yield from (Document(**row) for row in python_docs.python_documents())
        else:
            with _opened(self) as file:
                file.encoding, file.say = columns.encoding, progress.say
                for number, (where, row) in enumerate(documents.READERS[self.kind](file, columns)):
                    if total and not number % 256:
                        progress.report("read", offset + file.packed.tell(), total)
                    yield _document(row, where, columns)

    def _found(self, columns: Columns, progress: Progress) -> Columns:
        """Name the column of text where nobody did."""
        _, _, column = self.part.partition(".") if self.kind in formats.DATABASES else ("", "", "")
        if column or columns.text is not None:
            return replace(columns, text=column or columns.text, asked=bool(column) or columns.asked)
        usual = replace(columns, text="text")
        if self.kind == "hub":
            return replace(
                columns, text=text_column(((self.name, row) for row in hub_rows(self.name)), self.name, progress)
            )
        if self.kind not in formats.TABLES:
            return usual
        with _opened(self) as file:
            file.encoding = columns.encoding
            found = text_column(documents.READERS[self.kind](file, usual), self.name, progress)
        return replace(columns, text=found)


def read_sources(
    sources: Sequence[Source], columns: Columns, progress: Progress = SILENT, total: int | None = None
) -> Iterator[tuple[Source, Document]]:
    """Yield every document beside its source.

    Args:
        total: bytes of the sources; None: the stage ``read`` is not counted.

    Raises:
        CorpusError: a source cannot be read; the sentence names files behind it that cannot be read either.
    """
    offset = 0
    for place, source in enumerate(sources, 1):
        try:
            for document in source.documents(columns, progress, offset=offset, total=total):
                yield source, document
        except CorpusError as error:
            others = ", ".join(islice(_refused(sources[place:], columns), _ALSO_NAMED))
            raise CorpusError(f"{error}{others and f'; refused, too: {others}'}") from error
        offset += source.size if total else 0


def _refused(sources: Sequence[Source], columns: Columns) -> Iterator[str]:
    """Name those of the next files on this machine, not so large that the sentence would be long in coming."""
    read = 0
    for source in sources:
        try:
            read += source.size
            if source.path is None or read > _ALSO_READ:
                return
            deque(source.documents(columns), maxlen=0)
        except (CorpusError, OSError):
            yield source.name


def resolve_sources(names: Sequence[str], progress: Progress = SILENT) -> list[Source]:
    """Find the sources that the names stand for.

    Args:
        progress: told which files of a folder are of no known format.

    Raises:
        CorpusError: a name is no file, folder, hub dataset or demo corpus, or a file has an unknown format.
    """
    if not names:
        raise CorpusError("no text was given: name a file, a folder, a hub dataset or pydocs")
    return [source for name in names for source in _resolve(str(name), progress)]


def at_home(name: str | Path) -> Path:
    """Return a path whose ``~`` is the user's folder; ``~x`` may also be the name of a file."""
    try:
        return Path(name).expanduser()
    except RuntimeError:  # there is no such user
        return Path(name)


def _resolve(name: str, progress: Progress) -> list[Source]:
    if not name.strip():  # which would be the current folder
        raise CorpusError("the name of a source of text is empty: name a file, a folder, a hub dataset or pydocs")
    if is_url(name):
        listed = [Source(file.url, formats.format_of(file.name), remote=file) for file in remote_files(name)]
        readable = [source for source in listed if source.kind]
        if not readable:
            raise CorpusError(f"{name} holds no text: known files are {formats.KNOWN}")
        _say_left_out(name, (source.remote.name for source in listed if source.remote and not source.kind), progress)
        return readable
    path = at_home(name)
    try:
        path.lstat()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise formats.unreadable(path, error) from error
    except ValueError as error:  # a NUL byte
        raise CorpusError(f"{name!r} is no name of a file: name one that exists") from error
    if path.is_dir():
        _require_no_model(path)
        files = [_file(p) for p in sorted(_files(path, progress))]
        if not files:
            raise CorpusError(f"{path} holds no text: known files are {formats.KNOWN}")
        return files
    if path.exists():
        return [_file(path)]
    whole, _, part = name.rpartition("::")
    kind = formats.format_of(Path(whole)) if part and at_home(whole).is_file() else ""
    if kind == ".xlsx" or kind in formats.DATABASES or (kind and formats.is_encoding(part)):
        return [replace(_file(at_home(whole)), name=name, part=part)]
    if part and formats.is_encoding(part) and at_home(whole).is_dir():
        parted = (".xlsx", *formats.DATABASES)  # of which it would be the name of a sheet or table
        return [each if each.kind in parted else replace(each, part=part) for each in _resolve(whole, progress)]
    if path.is_symlink():
        raise CorpusError(f"{name} is a link, and what it names does not exist: name the file itself")
    if name == DEMO:
        return [Source(DEMO, DEMO)]
    if HUB_NAME.fullmatch(name) and not formats.format_of(path) and not path.parent.exists():
        return [Source(name, "hub")]
    siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    near = get_close_matches(path.name, [*siblings, DEMO], n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else "name a file, a folder, a hub dataset (owner/name) or pydocs"
    raise CorpusError(f"{name} does not exist: {hint}")


def _require_no_model(folder: Path) -> None:
    """Refuse the folder of a model, or of a run that trained one, whose JSON would be read as text."""
    trained = (folder / "model" / "modules.json").is_file() and (folder / atomic.LOCK_NAME).is_file()
    if trained or (folder / "modules.json").is_file() or any(folder.glob("*.safetensors")):
        raise CorpusError(
            f"{folder} is a model and no text: name a text, and the model with --model or --base; "
            f"selfsent index TEXT --model {folder} makes an index to search"
        )


def _files(folder: Path, progress: Progress) -> Iterator[Path]:
    """Yield the files of a known format in a folder and below, without what is hidden; say which others there are.

    Raises:
        CorpusError: a folder cannot be opened, or a link leads out of ``folder``, where nobody chose the text.
    """

    def refuse(error: OSError) -> None:
        raise formats.unreadable(Path(error.filename), error) from error

    home, others = folder.resolve(), list[Path]()
    for above, folders, files in os.walk(folder, onerror=refuse):
        if Path(above) != folder and {atomic.LOCK_NAME, atomic.CHECKSUMS} & {*files}:
            folders.clear()  # a run, a model or a checkpoint: what we wrote ourselves is no text
            continue
        folders[:] = [name for name in folders if not name.startswith(".")]
        seen = [name for name in files if not name.startswith(".")]
        readable = [name for name in seen if formats.format_of(Path(name))]
        others += [Path(name) for name in {*seen} - {*readable}]
        for path in (Path(above, name) for name in [*folders, *readable]):
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(home):  # resolve() fails on a loop
                raise CorpusError(
                    f"{path} links to {path.resolve()}, out of {folder}: remove it, or name what is meant"
                )
        yield from (Path(above, name) for name in readable)
    _say_left_out(folder, others, progress)


def _say_left_out(folder: str | Path, files: Iterable[PurePath], progress: Progress) -> None:
    suffixes = Counter(file.suffix.lower() or "without a suffix" for file in files)
    if suffixes:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in suffixes.most_common(5))
        progress.say(f"{folder}: files of no known format are left out ({kinds}{', ...' * (len(suffixes) > 5)})")


def _file(path: Path) -> Source:
    formats.require_regular(path)
    if not formats.format_of(path):
        raise CorpusError(f"{path} has an unknown format: known are {formats.KNOWN}")
    return Source(str(path), formats.format_of(path), path)


def file_identity(path: Path) -> list[object]:
    """Return name, size and checksum of a file.

    Neither its time stamp nor its folder: a copied or remounted file must still fit the run that was made of it.
    """
    try:
        size, digest = atomic.file_digest(path).split(":")
    except OSError as error:
        raise formats.unreadable(path, error) from error
    return [path.name, int(size), digest]


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file of any name, plain or compressed, without their line ends."""
    with formats.open_unpacked(path) as file:
        yield from (line.rstrip("\r\n") for line in file.lines())


def read_rows(table: Source | Path) -> Iterator[tuple[object, Row]]:
    """Yield (place in the file, row) of a table on disk, with all its columns.

    Raises:
        CorpusError: the file is no table or is damaged, or a row does not fit; the message names the line.
    """
    source = table if isinstance(table, Source) else _file(table)
    if source.kind not in formats.TABLES:
        raise CorpusError(f"{source.name} is not a table: give a {', '.join(formats.TABLES)}")
    with _opened(source) as file:
        yield from documents.READERS[source.kind](file, None)


def _opened(source: Source) -> AbstractContextManager[formats.OpenFile]:
    file = source.remote or source.path
    assert file is not None
    return formats.open_unpacked(file, source.part)


def _document(row: Row, where: object, columns: Columns) -> Document:
    if columns.text not in row:
        names = ", ".join(str(name)[:80] for name in islice(row, 20)) or "none at all"
        names += f" and {len(row) - 20:,} more" if len(row) > 20 else ""
        sheet = ", or one sheet, as BOOK.xlsx::SHEET" if ".xlsx::" in str(where) else ""
        raise CorpusError(
            f"{where} has no column {columns.text!r}: name the one that holds the text, of {names} (--column NAME)"
            f"{sheet}"
        )
    cells = [None if name is None else row.get(name) for name in columns.names()]
    texts = ["" if cell is None else cell for cell in cells]
    if columns.asked and isinstance(texts[0], int | float | date) and not isinstance(texts[0], bool):
        said = str(texts[0])  # which may be the title's and the summary's, too
        texts = [said if name == columns.text else text for name, text in zip(columns.names(), texts, strict=True)]
    if not all(isinstance(text, str) for text in texts):
        for column in (0, 2, 3):  # text, summary and positive, one of which may be the title's column, too
            if not isinstance(texts[column], str):
                what = f"column {columns.names()[column]!r} holds {a_kind(texts[column])}"
                raise CorpusError(f"{where}: {what}: it must hold text")
        texts[1] = str(texts[1])  # a number or a date
        texts[4] = texts[4] if isinstance(texts[4], str) else json.dumps(texts[4], default=str, ensure_ascii=False)
    return Document(*texts)
