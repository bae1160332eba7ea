"""Workbooks, databases, mailboxes, pages and PDF: what their own writers wrote is read back, and hostile ones end."""

import io
import mailbox
import sqlite3
import time
import tracemalloc
import zipfile
from datetime import date
from email.message import EmailMessage
from pathlib import Path

import pytest
from small_runs import Told

from selfsent.corpus import documents, formats, limits
from selfsent.corpus.sources import Columns, resolve_sources
from selfsent.errors import CorpusError
from selfsent.runtime.imports import without_package

COLUMNS = Columns(text="text", title="title", summary="summary")
ROWS = [("Über", 'A café, "quoted".\nSecond line.'), ("", "Plain words."), ("Third", "")]


def read(name, columns=COLUMNS):
    return [(d.title, d.text) for source in resolve_sources([str(name)]) for d in source.documents(columns)]


def workbook(path, **sheets):
    openpyxl = pytest.importorskip("openpyxl", reason="needs the extra documents")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def database(path, **tables):
    with sqlite3.connect(path) as base:
        for name, (header, *rows) in tables.items():
            base.execute(f'CREATE TABLE "{name}" ({", ".join(header)})')
            base.executemany(f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(header))})', rows)
    base.close()
    return path


TABLE = [("title", "text", "day"), *((*row, 7) for row in ROWS)]


def test_a_workbook_is_read_as_it_was_written_every_sheet_or_the_one_that_is_named(tmp_path):
    path = workbook(tmp_path / "a.xlsx", one=[*TABLE[:2], (None, None, None), *TABLE[2:]], two=[("text",), ("more",)])
    assert read(path) == [*ROWS, ("", "more")]
    assert read(f"{path}::two") == [("", "more")]
    with pytest.raises(CorpusError, match=r"has no sheet 'three': choose one of one, two"):
        read(f"{path}::three")


def test_a_database_is_read_by_table_and_column_and_stays_as_it_is(tmp_path):
    path = database(tmp_path / "a.db", one=TABLE, two=[("body", "text"), ("b", "t"), (None, "u")])
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert read(f"{path}::one") == ROWS
    assert read(f"{path}::one.title") == [(title, title) for title, _ in ROWS]
    assert read(f"{path}::two.body") == [("", "b"), ("", "")]
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    with pytest.raises(CorpusError, match=r"has several tables: name one of one, two, as .*a.db::TABLE.COLUMN"):
        read(path)
    with pytest.raises(CorpusError, match=r"has no table 'three': name one of one, two"):
        read(f"{path}::three")
    with pytest.raises(CorpusError, match=r"a.db::two, row 1 has no column 'day'"):
        read(f"{path}::two.day")


def test_rows_that_are_still_in_the_log_of_a_database_are_read_and_change_what_it_is(tmp_path):
    path = database(tmp_path / "a.sqlite", one=[("text",), ("first",)])
    (source,) = resolve_sources([str(path)])
    before = source.identity()
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    begun = source.identity()
    writer.execute("INSERT INTO one VALUES ('second')")
    assert read(path) == [("", "first"), ("", "second")]
    assert before != begun != source.identity()
    writer.close()


def mail(subject, plain="", markup="", attached=b""):
    message = EmailMessage()
    message["Subject"] = subject
    message.set_content(plain or "see the page")
    if markup:
        message.set_content(markup, subtype="html") if not plain else message.add_alternative(markup, subtype="html")
    if attached:
        message.add_attachment(attached, maintype="application", subtype="pdf", filename="a.pdf")
    return message


def test_a_mailbox_gives_the_text_of_every_message_under_its_subject(tmp_path):
    path = tmp_path / "a.mbox"
    box = mailbox.mbox(path)
    box.add(mail("Über uns", "Grüße\n\nFrom here on", "<p>other"))
    box.add(mail("Bill", "Attached.", attached=b"\0" * 1000))
    box.add(mail("Page", markup="<title>T</title><p>One <b>bold</b></p><p>Two &amp; three"))
    box.close()
    assert read(path) == [
        ("Über uns", "Grüße\n\nFrom here on"),
        ("Bill", "Attached."),
        ("Page", "One bold\nTwo & three"),
    ]


def test_a_message_that_says_that_it_is_japanese_is_read(tmp_path):
    head = b"From a\nSubject: x\nContent-Type: text/plain; charset=iso-2022-jp\n\n"
    (tmp_path / "a.mbox").write_bytes(head + "\u65e5\u672c\u8a9e".encode("iso-2022-jp") + b"\n")
    assert read(tmp_path / "a.mbox") == [("x", "\u65e5\u672c\u8a9e")]


def test_a_cell_beyond_the_header_is_no_lost_text(tmp_path):
    with pytest.raises(CorpusError, match=r"a.xlsx::one, row 2 has a cell beyond the last of its header: mend it"):
        read(workbook(tmp_path / "a.xlsx", one=[("text",), ("words", "more")]))


def test_a_message_in_a_character_set_that_nobody_knows_is_read(tmp_path):
    (tmp_path / "a.mbox").write_bytes(b"From a\nSubject: x\nContent-Type: text/plain; charset=klingon\n\nplain words\n")
    assert read(tmp_path / "a.mbox") == [("x", "plain words")]


def test_every_part_of_a_message_that_is_its_text_is_read(tmp_path):
    parts = "Content-Type: text/{}; charset={}\n\n{}\n--b\n"
    body = parts.format("html", "utf-8", "<p>The body") + "Content-Type: image/png\n\nxx\n--b\n"
    body += parts.format("plain", "utf-8", "The footer").replace("--b\n", "--b--\n")
    (tmp_path / "a.eml").write_text(f"Subject: x\nContent-Type: multipart/mixed; boundary=b\n\n--b\n{body}")
    assert read(tmp_path / "a.eml") == [("x", "The body\nThe footer")]


@pytest.mark.parametrize(("said", "encoding"), [("", "utf-8"), ("", "cp1252"), ("; charset=iso-8859-1", "cp1252")])
def test_a_message_that_says_too_little_of_its_letters_is_read(tmp_path, said, encoding):
    head = f"From a\nSubject: x\nContent-Type: text/plain{said}\n\n".encode()
    (tmp_path / "a.mbox").write_bytes(head + "don\u2019t grüßen".encode(encoding))
    assert read(tmp_path / "a.mbox") == [("x", "don\u2019t grüßen")]


def test_a_paragraph_that_begins_with_from_begins_no_message(tmp_path):
    later = "From b@c.d Sat Jan  3 01:05:34 2026\nSubject: y\n\nTwo"
    (tmp_path / "a.mbox").write_text(f"From a\nSubject: x\n\nHello,\n\nFrom now on we use it.\n\nBye\n\n{later}")
    assert read(tmp_path / "a.mbox") == [("x", "Hello,\n\nFrom now on we use it.\n\nBye"), ("y", "Two")]


def test_a_cell_with_two_line_ends_is_read_without_their_codes(tmp_path):
    path = workbook(tmp_path / "a.xlsx", one=[("text",), ("first_x000D_\nsecond",)])
    assert read(path) == [("", "first\r\nsecond")]


PAGE = """<!doctype html><html><head><title>The\n page</title><style>p {color: red}</style>
<script>if (a < b) x()</script>
</head><body><nav>Home</nav><h1>Head</h1><p>One <em>two</em>,\nthree<br>four &lt;five&gt;</p><!-- gone <p>no</p> -->
<table><tr><td>left</td><td>right</td></tr></table><pre>  a = 1\n  b = 2</pre><svg><title>no</title></svg><p>last"""


def test_a_page_gives_what_is_seen_of_it_by_blocks(tmp_path):
    (tmp_path / "a.html").write_text(PAGE)
    seen = ["Home", "Head", "One two, three", "four <five>", "left", "right", "a = 1", "b = 2", "last"]
    assert read(tmp_path / "a.html") == [("The page", "\n".join(seen))]
    (tmp_path / "b.html").write_text('<p>One</p><script>var a = "<!--";</script><p>Two</p><!-- never closed <p>no')
    assert read(tmp_path / "b.html") == [("", "One\nTwo")]
    (tmp_path / "c.html").write_text('<p>One</p><a href="x>link</a> and the rest <p>Two</p>')  # a quote that never ends
    assert read(tmp_path / "c.html")[0][1].endswith("link and the rest\nTwo")


@pytest.mark.parametrize("head", ['<meta charset="cp1252">', "<META content='text/html; charset=windows-1252'>"])
def test_a_page_is_decoded_as_it_says_and_otherwise_refused(tmp_path, head):
    (tmp_path / "a.htm").write_bytes(f"{head}<p>café".encode("cp1252"))
    assert read(tmp_path / "a.htm") == [("", "café")]
    (tmp_path / "b.htm").write_bytes("<p>café".encode("cp1252"))
    with pytest.raises(CorpusError, match=r"b\.htm, line 1 is not UTF-8"):
        read(tmp_path / "b.htm")


MARKDOWN = """---
author: me
---
# The *head*

One [link](http://a.b "t") and `code`,
two lines.

```python
x = 1
```

- first
- second &amp; third

| a | b |
|---|---|
| c | d |
"""


def test_markdown_gives_its_text_without_markup_and_blocks_of_code(tmp_path):
    (tmp_path / "a.md").write_text(MARKDOWN)
    seen = ["The head", "One link and code, two lines.", "first", "second & third", "a", "b", "c", "d"]
    assert read(tmp_path / "a.md") == [("The head", "\n".join(seen))]
    (tmp_path / "b.md").write_text("---\n\n# Slide\n\n---\n\nPut a <script> tag there.\n\nThen go on.\n")
    assert read(tmp_path / "b.md") == [("Slide", "Slide\nPut a <script> tag there.\nThen go on.")]


def pdf(path, *pages, password=None):
    """Write a PDF whose pages show one line of text each, in objects written by hand."""
    pypdf = pytest.importorskip("pypdf", reason="needs the extra documents")
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = pypdf.PdfWriter()
    kinds = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    font = DictionaryObject({NameObject(key): NameObject(kind) for key, kind in kinds.items()})
    for text in pages:
        page = writer.add_blank_page(300, 300)
        fonts = DictionaryObject({NameObject("/F1"): writer._add_object(font)})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET".encode())
        page[NameObject("/Contents")] = writer._add_object(stream)
    writer.add_metadata({"/Title": "The title"})
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    writer.write(path)
    return path


def test_a_pdf_is_one_document_with_its_title(tmp_path):
    assert read(pdf(tmp_path / "a.pdf", "First page.", "Second page.")) == [("The title", "First page.\nSecond page.")]


WORDS = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def word(path, *paragraphs, styles="", head=""):
    """Write a Word document of paragraphs, each a piece of XML."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        if styles:
            archive.writestr("word/styles.xml", f'<w:styles xmlns:w="{WORDS}">{styles}</w:styles>')
        body = "".join(f"<w:p>{paragraph}</w:p>" for paragraph in paragraphs)
        archive.writestr(
            "word/document.xml", f'{head}<w:document xmlns:w="{WORDS}"><w:body>{body}</w:body></w:document>'
        )
    return path


def test_a_word_document_is_its_paragraphs_under_its_first_heading(tmp_path):
    styles = "".join(
        f'<w:style w:styleId="{key}"><w:name w:val="{name}"/></w:style>'
        for key, name in (("berschrift1", "heading 1"), ("berschrift2", "heading 2"))
    )
    box = "<w:p><w:r><w:t>a box</w:t></w:r></w:p>"
    path = word(
        tmp_path / "a.docx",
        '<w:ffData><w:name w:val="title"/></w:ffData><w:pPr><w:pStyle w:val="berschrift2"/></w:pPr>'
        "<w:r><w:t>Before</w:t></w:r>",
        '<w:pPr><w:tabs><w:tab/></w:tabs><w:pStyle w:val="berschrift1"/></w:pPr>'
        "<w:r><w:t>The </w:t></w:r><w:r><w:t>title</w:t></w:r>",
        "",
        "<w:r><w:t>one</w:t><w:tab/><w:t>two</w:t><w:br/><w:t>three</w:t></w:r>",
        "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>",
        "<w:r><w:instrText>PAGEREF</w:instrText></w:r><w:hyperlink><w:r><w:t>a link</w:t></w:r></w:hyperlink>",
        "<w:sdt><w:sdtContent><w:r><w:t>a field</w:t></w:r></w:sdtContent></w:sdt>",
        f'<w:r><m:AlternateContent xmlns:m="m"><m:Choice>{box}</m:Choice><m:Fallback>{box}</m:Fallback>'
        "</m:AlternateContent><w:t>behind it</w:t></w:r>",
        '<w:pPr><w:pStyle w:val="berschrift1"/></w:pPr><w:r><w:t>Second</w:t></w:r>',
        styles=styles,
    )
    text = "Before\nThe title\none two three\na link\na field\na box\nbehind it\nSecond"
    assert read(path) == [("The title", text)]


def test_a_presentation_is_its_slides_in_their_order_under_its_title(tmp_path):
    shape = '<p:sp><p:nvPr><p:ph type="%s"/></p:nvPr><a:p><a:r><a:t>%s</a:t></a:r>%s</a:p></p:sp>'
    number = '<a:fld type="slidenum"><a:t>7</a:t></a:fld>'
    slides = {
        "slide10.xml": shape % ("title", "Last", number),
        "slide2.xml": shape % ("body", "a list", "<a:br/><a:r><a:t>of words</a:t></a:r>")
        + shape % ("title", "Top", ""),
        "slide1.xml": shape % ("subTitle", "Before", ""),
        "slide1.xml.rels": shape % ("title", "no slide", ""),
    }
    with zipfile.ZipFile(tmp_path / "a.pptx", "w") as archive:
        for name, shapes in slides.items():
            archive.writestr(f"ppt/slides/{name}", f'<p:sld xmlns:p="p" xmlns:a="a">{shapes}</p:sld>')
    assert read(tmp_path / "a.pptx") == [("Top", "Before\na list of words\nTop\nLast")]


def test_a_file_of_mail_is_one_message(tmp_path, monkeypatch):
    mail = EmailMessage()
    mail["subject"] = "Printer on fire"
    mail.set_content("It burns.\n\nFrom the top.\n")
    mail.add_attachment(b"x" * 100, maintype="image", subtype="png")
    path = tmp_path / "a.eml"
    path.write_bytes(b"\xef\xbb\xbf" + mail.as_bytes())
    assert read(path) == [("Printer on fire", "It burns.\n\nFrom the top.")]
    monkeypatch.setattr(documents, "_WHOLE", 200)
    with pytest.raises(CorpusError, match=r"a\.eml is longer than"):
        read(path)


def test_a_word_document_that_is_made_to_fill_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "AT_ONCE", 100_000)
    monkeypatch.setattr(formats, "LONGEST", 1000)
    path, run = tmp_path / "a.docx", "<w:r><w:t>%s</w:t></w:r>"
    with pytest.raises(CorpusError, match=r"a\.docx is no Word or PowerPoint document .*declares entities"):
        read(word(path, run % "&i;", head=ENTITIES.decode()))
    with pytest.raises(CorpusError, match=r"word/document.xml of .*a\.docx unpacks to more"):
        read(word(path, "<w:br/>" * 50_000))
    with pytest.raises(CorpusError, match=r"a\.docx is longer than"):
        read(word(path, run % "a" * 1001))
    with pytest.raises(CorpusError, match=r"a\.docx is longer than"):
        read(word(path, *["<w:br/>"] * 1001))


def test_a_folder_of_all_of_them_is_read_in_order_of_names(tmp_path):
    workbook(tmp_path / "a.xlsx", one=TABLE)
    database(tmp_path / "b.db", one=TABLE)
    (tmp_path / "c.md").write_text("words")
    pdf(tmp_path / "d.pdf", "Page.")
    (tmp_path / "e.txt").write_text("line\n")
    word(tmp_path / "f.docx", "<w:r><w:t>paragraph</w:t></w:r>")
    for unknown in ("g.odt", "h.odt", "i.rtf", ".j.odt"):
        (tmp_path / unknown).write_text("unknown")
    assert read(tmp_path) == [*ROWS, *ROWS, ("", "words"), ("The title", "Page."), ("", "line"), ("", "paragraph")]
    said = Told()
    resolve_sources([str(tmp_path)], said)
    assert said.said == [f"{tmp_path}: files of no known format are left out (2 .odt, 1 .rtf)"]


@pytest.mark.parametrize("suffix", [".xlsx", ".db", ".mbox", ".html", ".md"])
def test_packed_ones_are_read_too(tmp_path, suffix):
    import gzip

    path = tmp_path / f"a{suffix}"
    if suffix == ".xlsx":
        workbook(path, one=TABLE)
    elif suffix == ".db":
        database(path, one=TABLE)
    else:
        path.write_text("From a\nSubject: x\n\nwords\n" if suffix == ".mbox" else "words")
    Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert read(f"{path}.gz") == read(path) != []


def test_an_absent_package_is_named_with_what_installs_it(tmp_path):
    for name, package in (("a.xlsx", "openpyxl"), ("a.pdf", "pypdf")):
        (tmp_path / name).write_bytes(b"")
        with without_package(package), pytest.raises(CorpusError, match=rf"{package}: pip install '\.\[documents\]'"):
            read(tmp_path / name)


def edited(packed, name, change):
    """Return a zip file with one member changed."""
    made = io.BytesIO()
    with zipfile.ZipFile(packed) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.namelist():
            new.writestr(member, change(old.read(member)) if member == name else old.read(member))
    return made.getvalue()


SHEET = "xl/worksheets/sheet1.xml"
ENTITIES = (
    b'<!DOCTYPE x [<!ENTITY a "'
    + b"a" * 50
    + b'">%s]>' % b"".join(b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 50) for n in range(8))
)
BOMBS = {
    "rows": (lambda data: data.replace(b"</sheetData>", b"<row/>" * 50_000_000 + b"</sheetData>"), "unpacks to more"),
    "a row": (
        lambda data: data.replace(b"<c ", b"<c r='B1' t='str'><v>%s</v></c><c " % (b"a" * 70_000_000), 1),
        "a row or text of more than 64 MiB",
    ),
    "a number": (lambda data: data.replace(b'<row r="2"', b'<row r="99999999999"'), "beyond the 1,000 rows"),
    "entities": (lambda data: ENTITIES + data.replace(b"</v>", b"&i;</v>", 1), "no Excel workbook"),
    "broken": (lambda data: data[:-30], "no Excel workbook"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_workbook_that_is_made_to_fill_the_memory_is_refused(tmp_path, monkeypatch, bomb):
    monkeypatch.setattr(documents, "_ROWS", 1000)
    change, said = BOMBS[bomb]
    path = workbook(tmp_path / "a.xlsx", one=TABLE)
    path.write_bytes(edited(path, SHEET, change))
    tracemalloc.start()
    with pytest.raises(CorpusError, match=said):
        read(path)
    assert tracemalloc.get_traced_memory()[1] < 60_000_000
    tracemalloc.stop()


def test_a_cell_or_row_that_is_too_long_is_refused_in_its_place(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "LONGEST", 64)
    long = [("text",), ("a",), ("b" * 65,)]
    places = {
        workbook(tmp_path / "a.xlsx", one=long): "a.xlsx::one, row 3",
        database(tmp_path / "a.db", one=long): "a.db::one, row 2",
        tmp_path / "a.md": "a.md",
        pdf(tmp_path / "a.pdf", "c" * 65): "a.pdf",
    }
    (tmp_path / "a.md").write_text("d " * 65)
    for path, where in places.items():
        with pytest.raises(CorpusError, match=f"{where} is longer than"):
            read(path)


@pytest.mark.parametrize("unclosed", ["<!--", "<!-- > ", "<a ", '<a b="c" ', "<a b='"])
def test_markup_that_is_never_closed_takes_no_square_of_time(tmp_path, unclosed):
    (tmp_path / "a.html").write_text("<p>words" + unclosed * 100_000)
    begun = time.process_time()  # the square of it took minutes
    assert read(tmp_path / "a.html") == [("", "words")]
    assert time.process_time() - begun < 20


def test_tags_that_markdown_only_names_take_no_square_of_time(tmp_path):
    (tmp_path / "a.md").write_text("words <script> " * 30_000)
    begun = time.process_time()
    assert read(tmp_path / "a.md")[0][1].count("<script>") == 30_000
    assert time.process_time() - begun < 20


@pytest.mark.parametrize("name", ["a.xlsx", "a.db", "a.mbox", "a.pdf", "a.docx"])
@pytest.mark.parametrize("damage", ["text", "empty", "half"])
def test_a_broken_one_is_one_sentence(tmp_path, name, damage):
    whole = {
        "a.xlsx": lambda path: workbook(path, one=TABLE).read_bytes(),
        "a.db": lambda path: database(path, one=[("text",), *[("words " * 50,)] * 500]).read_bytes(),
        "a.mbox": lambda path: b"no mail\n",
        "a.pdf": lambda path: pdf(path, "words").read_bytes(),
        "a.docx": lambda path: word(path, "<w:r><w:t>words</w:t></w:r>").read_bytes(),
    }[name](tmp_path / f"whole-{name}")
    data = {"text": b"only words\n" * 100, "empty": b"", "half": whole[: len(whole) // 2]}[damage]
    (tmp_path / name).write_bytes(data)
    if (name, damage) == ("a.mbox", "empty"):
        assert read(tmp_path / name) == []  # which is a mailbox without messages
        return
    with pytest.raises(CorpusError, match=rf"{name}[^\n]*(save it anew|must begin with 'From '|several tables)[^\n]*$"):
        read(tmp_path / name)


def test_a_page_is_called_by_its_file_so_that_a_hit_names_it(tmp_path):
    (tmp_path / "a.html").write_text("<p>words")
    (source,) = resolve_sources([str(tmp_path)])
    columns = Columns(text=None, title="title", summary="summary", id="id")
    assert [each.id for each in source.documents(columns)] == [str(tmp_path / "a.html")]


def test_a_pdf_with_a_password_is_refused(tmp_path):
    with pytest.raises(CorpusError, match=r"a\.pdf opens with a password only: save it without one"):
        read(pdf(tmp_path / "a.pdf", "secret", password="x"))


def test_a_message_without_end_is_refused_before_it_is_held(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "_WHOLE", 1000)
    (tmp_path / "a.mbox").write_bytes(b"From a\n\n" + b"words\n" * 300)
    with pytest.raises(CorpusError, match=r"a\.mbox, message 1, is longer than"):
        read(tmp_path / "a.mbox")


def test_days_and_numbers_of_a_workbook_are_no_text(tmp_path):
    path = workbook(tmp_path / "a.xlsx", one=[("text",), (date(2026, 1, 2),)])
    with pytest.raises(CorpusError, match=r"a\.xlsx::one, row 2: column 'text' holds a datetime: it must hold text"):
        read(path)
