"""Documents that are no lines of text: workbooks, databases, mail, web pages, Markdown, Word, PowerPoint and PDF.

The readers give (place, row) as those of ``formats`` do, and whatever is wrong with a file is one ``CorpusError``.
"""

import codecs
import logging
import re
import sqlite3
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from email import message_from_bytes, policy
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.parsers import expat

from selfsent.corpus import formats, limits
from selfsent.corpus.formats import Columns, Located, OpenFile
from selfsent.corpus.unpacking import encodings_of
from selfsent.errors import CorpusError, UserError, first_line

_WHOLE = 1 << 26  # bytes of a message with what is attached to it, or of a row of a sheet as XML
_PAGE = 1 << 23  # bytes of a page with its markup, which takes minutes where it was made to
_ROWS = 1 << 20  # of a sheet, as Excel has them; a row's number may say more, and those between would be made
_UNSEEN = frozenset(("script", "style", "template", "noscript", "svg"))
_INLINE = re.compile(
    "a|abbr|acronym|b|bdi|bdo|big|cite|code|del|dfn|em|font|i|img|ins|kbd|label|mark|q|s|samp|small|span|strike|strong|"
    "sub|sup|time|tt|u|var|wbr"
)
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([\w-]+)|<\?xml[^>]{0,200}encoding=[\"']([\w-]+)", re.IGNORECASE)
_FRONT_MATTER = re.compile(r"\A---\r?\n(?=\s*[\w.-]+\s*:).*?^---\r?$", re.DOTALL | re.MULTILINE)
# A tag that is named in Markdown and never ends: what follows is seen, as people see it where it is published.
_NAMED = re.compile(r"<(?=(script|style|title|textarea|template|noscript|svg|pre)\b)", re.IGNORECASE)
_SENT = re.compile(rb"\d:\d\d.*\d{4}")  # time and year of the line before a message, which no paragraph has
_SLIDE = re.compile(r"ppt/slides/slide(\d+)\.xml")
_UNREAD = ("Fallback", "fld")  # what is there once more for older programs; the number of a slide, or its date
_QUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)


@contextmanager
def _reading(file: OpenFile, what: str) -> Iterator[ExitStack]:
    """Make one sentence of any error of a library: a hostile file finds more of them than are documented."""
    try:
        with ExitStack() as stack:
            yield stack
    except (UserError, OSError, MemoryError):
        raise
    except Exception as error:
        reason = first_line(error)[:200].rstrip(".")
        raise CorpusError(f"{file.path} is no {what}, or damaged ({reason}): save it anew") from error


def _library(name: str, file: OpenFile) -> Any:  # noqa: ANN401 - a module
    try:
        return import_module(name)
    except ImportError as error:
        raise CorpusError(
            f"{file.path} needs the package {name}: pip install '.[documents]' in the checkout"
        ) from error


def _workbook_rows(file: OpenFile, columns: Columns | None) -> Iterator[Located]:
    """Read every sheet, or the one that is named; each has its own header."""
    openpyxl, unescape = _library("openpyxl", file), _library("openpyxl.utils.escape", file).unescape
    with _reading(file, "Excel workbook (.xlsx) without a password") as stack:
        stream = formats.seekable(file, stack)
        _require_bounded(file, zipfile.ZipFile(stream))
        with warnings.catch_warnings(action="ignore"):  # of styles and rules that are not read
            book = openpyxl.load_workbook(stream, read_only=True, data_only=True, keep_links=False)
        sheets = [sheet for sheet in book.worksheets if file.part in ("", sheet.title)]
        if not sheets:
            known = ", ".join(sheet.title for sheet in book.worksheets[:20])
            raise CorpusError(f"{file.path} has no sheet {file.part!r}: choose one of {known}")
        for sheet in sheets:
            sheet.reset_dimensions()  # what some programs say of them is wrong
            header: list[str] = []
            for number, values in enumerate(sheet.iter_rows(values_only=True), 1):
                cells = [unescape(value) if isinstance(value, str) and "_x" in value else value for value in values]
                where = f"{file.path}::{sheet.title}, row {number}"
                if number > _ROWS:
                    raise CorpusError(f"{where} is beyond the {_ROWS:,} rows that a sheet may have: save it anew")
                if all(cell is None for cell in cells):
                    continue
                if not header:
                    header = ["" if cell is None else str(cell).strip() for cell in cells]
                    formats.require_distinct(where, header, columns)
                    continue
                if any(cell is not None for cell in cells[len(header) :]):
                    raise CorpusError(f"{where} has a cell beyond the last of its header: mend it")
                row = dict(zip(header, [*cells, *[None] * (len(header) - len(cells))], strict=False))
                if any(isinstance(cell, str) and len(cell) > formats.LONGEST for cell in cells):
                    raise formats.too_long(where)
                yield where, row


def _require_bounded(file: OpenFile, archive: zipfile.ZipFile) -> None:
    """Refuse what is made to fill the memory: members packed too well, a row or a shared string without end."""
    for member in archive.infolist():
        what = f"{member.filename[:80]!r} of {file.path}"
        limits.require_bounded(what, member.file_size, member.compress_size)
        end = b"si>" if "sharedStrings" in member.filename else b"row>" if "sheet" in member.filename else b""
        with archive.open(member) as packed:
            held = 0
            while end and (block := packed.read(1 << 20)):
                held = len(block) - cut if (cut := block.rfind(end)) >= 0 else held + len(block)
                if held > _WHOLE:
                    raise CorpusError(f"{what} has a row or text of more than {_WHOLE >> 20} MiB: split it")


def _database_rows(file: OpenFile, columns: Columns | None) -> Iterator[Located]:
    """Read the table that is named, or the only one; nothing is ever written, nor any code of the file run."""
    with _reading(file, "SQLite database") as stack:
        path = file.path
        if not isinstance(path, Path) or file.stream is not file.packed:
            path = Path(stack.enter_context(TemporaryDirectory()), "copy.db")
            with path.open("wb") as copy:
                formats.copy_bounded(file, copy)
        base = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        stack.callback(base.close)
        base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.AT_ONCE)
        base.executescript("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON")
        listed = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT GLOB 'sqlite_*'"
        tables = [name for (name,) in base.execute(listed)]
        table = file.part.partition(".")[0] or (tables[0] if len(tables) == 1 else "")
        if table not in tables:
            known = ", ".join(name[:80] for name in tables[:20]) or "none at all"
            raise CorpusError(
                f"{file.path} has {f'no table {table!r}' if table else 'several tables'}: name one of {known}, as "
                f"{file.path}::TABLE or {file.path}::TABLE.COLUMN"
            )
        quoted = table.replace('"', '""')
        names = [column[0] for column in base.execute(f'SELECT * FROM "{quoted}" LIMIT 0').description]
        if columns is not None and columns.text in names:
            names = [name for name in names if name in columns.names()]
        chosen = ", ".join('"{}"'.format(name.replace('"', '""')) for name in names)
        for number, cells in enumerate(base.execute(f'SELECT {chosen} FROM "{quoted}"'), 1):
            where = f"{file.path}::{table}, row {number}"
            if any(isinstance(cell, str) and len(cell) > formats.LONGEST for cell in cells):
                raise formats.too_long(where)
            yield where, dict(zip(names, cells, strict=True))


def _messages(file: OpenFile, columns: Columns | None) -> Iterator[Located]:
    """Read a mailbox message by message; ``mailbox.mbox`` would hold a line of any length."""
    held, number, blank = bytearray(), 0, True
    file.is_mail = True
    for piece in file.parts():
        begins = blank and piece.startswith(b"From ") and (not number or _SENT.search(piece) is not None)
        blank = not piece.strip()
        if begins:
            if number:
                yield _message(f"{file.path}, message {number}", file, bytes(held), columns)
            held.clear()
            number += 1
        elif number:
            held += piece
        elif not blank:
            raise CorpusError(f"{file} is no mailbox (.mbox): its first line must begin with 'From '")
        if len(held) > _WHOLE:
            raise CorpusError(f"{file.path}, message {number}, is longer than {_WHOLE >> 20} MiB: take it out")
    if number:
        yield _message(f"{file.path}, message {number}", file, bytes(held), columns)


def _mail(file: OpenFile, columns: Columns | None) -> Iterator[Located]:
    held, file.is_mail = bytearray(), True
    for piece in file.parts():
        held += piece
        if len(held) > _WHOLE:
            raise CorpusError(f"{file.path} is longer than {_WHOLE >> 20} MiB: take out what is attached")
    yield _message(str(file.path), file, bytes(held.removeprefix(codecs.BOM_UTF8)), columns)


def _message(where: str, file: OpenFile, raw: bytes, columns: Columns | None) -> Located:
    with _reading(file, f"mail that can be read{where.removeprefix(str(file.path))}"):
        mail: Any = message_from_bytes(_QUOTED_FROM.sub(rb"\1", raw), policy=policy.default)
        texts = filter(None, map(_text_of, _parts(mail)))
        return where, _row(where, "\n".join(texts), str(mail["subject"] or ""), columns)


def _parts(mail: Any) -> list[Any]:  # noqa: ANN401 - of email
    """Return the parts of a message that are its text: of each, plain text before HTML, and nothing attached."""
    if mail.get_content_maintype() != "multipart" or mail.get_content_subtype() in ("alternative", "related"):
        part = mail.get_body(("plain", "html"))
        return [] if part is None else [part]
    shown = [part for part in mail.iter_parts() if not part.is_attachment() and not part.get_filename()]
    return [own for part in shown if part.get_content_maintype() in ("text", "multipart") for own in _parts(part)]


def _text_of(part: Any) -> str:  # noqa: ANN401
    raw, names = part.get_payload(decode=True), ["utf-8"]  # where nobody knows the character set
    with suppress(LookupError):
        names = encodings_of(part.get_content_charset() or "ascii")
    text = raw.decode(names[0], errors="replace")
    for name in reversed(names):
        with suppress(UnicodeDecodeError):
            text = raw.decode(name)
    return (_Page(text).text() if part.get_content_subtype() == "html" else str(text)).strip()


class _Page(HTMLParser):
    """The visible text of a page, a line a block, and its title, or its first heading where it has none."""

    def __init__(self, page: str, unseen: frozenset[str] = _UNSEEN) -> None:
        super().__init__()
        self.title, self.heading, self._blocks, self._open, self._unseen = "", "", [""], [""], unseen
        # A comment or tag that never ends is no text, and the parser would take the square of many of them.
        begun = page.find("<", page.rfind(">") + 1)
        self.feed(page if begun < 0 else page[:begun])
        if not self.rawdata.startswith("<!--"):
            self.close()

    def text(self) -> str:
        """Return the blocks."""
        return "\n".join(line for block in self._blocks if (line := " ".join(block.split())))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a block, a title, or what is not seen."""
        if self._open[-1] not in self._unseen and tag in (*self._unseen, "title", "h1", "pre"):
            self._open.append(tag)
        if not _INLINE.fullmatch(tag):
            self._blocks.append("")

    def handle_endtag(self, tag: str) -> None:
        """End them."""
        if tag == self._open[-1]:
            self._open.pop()
            self.heading = self.heading or (" ".join(self._blocks[-1].split()) if tag == "h1" else "")
        if not _INLINE.fullmatch(tag):
            self._blocks.append("")

    def handle_data(self, data: str) -> None:
        """Take text."""
        inside = self._open[-1]
        if inside == "title":
            self.title = self.title or " ".join(data.split())
        elif inside not in self._unseen:
            first, *lines = data.split("\n") if inside == "pre" else [data]
            self._blocks[-1] += first
            self._blocks += lines


def _page_rows(file: OpenFile, columns: Columns | None) -> Iterator[Located]:
    with _reading(file, "page of HTML"):
        page = _Page(_decoded(file))
        yield file.path, _row(file.path, page.text(), page.title or page.heading, columns)


def _markdown_rows(file: OpenFile, columns: Columns | None) -> Iterator[Located]:
    """Read text without markup, front matter and blocks of code."""
    from markdown_it import MarkdownIt

    with _reading(file, "page of Markdown"):
        text = _FRONT_MATTER.sub("", _decoded(file))
        rendered = MarkdownIt("commonmark").enable("table").render(text)
        ended = {match[1].lower(): match.start() for match in re.finditer(r"</(\w+)", rendered)}
        seen = _NAMED.sub(lambda tag: tag[0] if tag.start() < ended.get(tag[1].lower(), -1) else "&lt;", rendered)
        page = _Page(seen, _UNSEEN | {"pre"})
        yield file.path, _row(file.path, page.text(), page.heading, columns)


def _decoded(file: OpenFile) -> str:
    """Return a page as text: UTF-8, or what it says that it is."""
    raw = bytearray()
    for piece in file.parts():
        raw += piece
        if len(raw) > _PAGE:
            raise CorpusError(f"{file.path} is longer than {_PAGE >> 20} MiB, the most that a page may have: split it")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if said := _CHARSET.search(raw[:2048]):
            with suppress(LookupError):
                for name in encodings_of((said[1] or said[2]).decode()):
                    with suppress(UnicodeDecodeError):
                        return raw.decode(name)
        raise file.undecodable(error) from error


def _pdf_rows(file: OpenFile, columns: Columns | None) -> Iterator[Located]:
    pypdf = _library("pypdf", file)
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it warns of every fault that it gets over
    with _reading(file, "PDF that can be read") as stack:
        reader = pypdf.PdfReader(formats.seekable(file, stack))
        if reader.is_encrypted and not reader.decrypt(""):
            raise CorpusError(f"{file.path} opens with a password only: save it without one")
        text = ""
        for page in reader.pages:
            text += page.extract_text() + "\n"
            if len(text) > formats.LONGEST:
                raise formats.too_long(file.path)
        title = reader.metadata.title if reader.metadata else ""
        yield file.path, _row(file.path, text.strip(), str(title or ""), columns)


class _Office:
    """The text of a Word or PowerPoint document, a line a paragraph, and its first title or first-level heading."""

    def __init__(self, file: OpenFile, archive: zipfile.ZipFile) -> None:
        self.title, self._file, self._pieces = "", file, [""]
        self._tops: set[str] = set()  # ids of styles, which are in the language of the program; their names are not
        self._style, self._heading, self._text, self._begun, self._unseen, self._length = "", False, False, 0, 0, 0
        slides = sorted((int(found[1]), found[0]) for found in map(_SLIDE.fullmatch, archive.namelist()) if found)
        written = [*{"word/styles.xml"} & {*archive.namelist()}, "word/document.xml"]
        for name in [name for _, name in slides] or written:
            member = archive.getinfo(name)
            limits.require_bounded(f"{name} of {file.path}", member.file_size, member.compress_size)
            parser = expat.ParserCreate(namespace_separator=" ")
            parser.StartElementHandler, parser.EndElementHandler = self._begin, self._end
            parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = self._take, _refuse_doctype
            with archive.open(member) as part:
                parser.ParseFile(part)

    def text(self) -> str:
        """Return the paragraphs."""
        lines = "".join(self._pieces).split("\n")
        return "\n".join(line for each in lines if (line := " ".join(each.split())))

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        tag, of = name.rpartition(" ")[2], {key.rpartition(" ")[2]: value for key, value in attributes.items()}
        if tag == "style":
            self._style = of.get("styleId", "")
        elif tag == "name" and of.get("val", "").lower() in ("title", "heading 1"):
            self._tops.add(self._style)
        elif tag == "pStyle":
            self._heading = of.get("val") in self._tops
        elif tag == "ph":
            self._heading = of.get("type") in ("title", "ctrTitle")
        elif tag in _UNREAD:
            self._unseen += 1
        elif tag in ("p", "tab", "br", "cr"):
            self._space("\n" if tag == "p" else " ")
        self._begun = len(self._pieces) if tag == "p" else self._begun
        self._text = tag == "t" and not self._unseen

    def _end(self, name: str) -> None:
        tag, self._text = name.rpartition(" ")[2], False
        if tag == "style":
            self._style = ""  # what has a name behind it is no style
        elif tag in _UNREAD:
            self._unseen -= 1
        elif tag == "p":
            if self._heading:
                self.title = self.title or " ".join("".join(self._pieces[self._begun :]).split())
            self._heading = False
            self._space("\n")

    def _space(self, space: str) -> None:
        if self._pieces[-1] != space:
            self._add(space)

    def _take(self, text: str) -> None:
        if self._text:
            self._add(text)

    def _add(self, piece: str) -> None:
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length > formats.LONGEST:
            raise formats.too_long(self._file.path)


def _refuse_doctype(*_: object) -> None:
    raise ValueError("it declares entities, which no Office document does")


def _office_rows(file: OpenFile, columns: Columns | None) -> Iterator[Located]:
    with _reading(file, "Word or PowerPoint document (.docx, .pptx) without a password") as stack:
        office = _Office(file, zipfile.ZipFile(formats.seekable(file, stack)))
        yield file.path, _row(file.path, office.text(), office.title, columns)


def _row(where: object, text: str, title: str, columns: Columns | None) -> dict[Any, str]:
    if len(text) > formats.LONGEST:
        raise formats.too_long(where)
    names = columns or Columns(text="text", title="title", summary="summary")
    return {names.id: str(where), names.title: title, names.text: text}


# As ``formats.READERS``.
READERS: dict[str, Callable[..., Iterator[Located]]] = {
    **formats.READERS,
    ".xlsx": _workbook_rows,
    **dict.fromkeys(formats.DATABASES, _database_rows),
    ".mbox": _messages,
    ".eml": _mail,
    ".html": _page_rows,
    ".htm": _page_rows,
    ".md": _markdown_rows,
    ".docx": _office_rows,
    ".pptx": _office_rows,
    ".pdf": _pdf_rows,
}
