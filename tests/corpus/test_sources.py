"""Every format gives the same documents; errors name file and line; texts in memory become a file."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import tracemalloc
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path

import datasets
import huggingface_hub
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from small_runs import Told

from selfsent.corpus import formats, limits, sources
from selfsent.corpus.in_memory import spool_texts, strings_of
from selfsent.corpus.sources import Columns, file_identity, read_rows, read_sources, resolve_sources
from selfsent.errors import ConfigurationError, CorpusError
from selfsent.progress import Progress
from selfsent.runtime.imports import without_package
from selfsent.storage import atomic

COLUMNS = Columns(text="text", title="title", summary="summary")
ROWS = [
    {"title": "Über", "text": 'A café, "quoted".\nSecond line.'},
    {"title": "", "text": "Plain words."},
    {"title": "Third", "text": ""},
]


def as_jsonl(rows):
    return "".join(json.dumps(row) + "\n\n" for row in rows).encode()


def as_json(rows):
    return json.dumps(rows, indent=1).encode()


def as_csv(rows, delimiter=","):
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, ["title", "text"], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def as_tsv(rows):
    return as_csv(rows, "\t")


def as_parquet(rows, **options):
    file = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), file, **options)
    return file.getvalue()


def read(*names):
    return [d for source in resolve_sources([str(n) for n in names]) for d in source.documents(COLUMNS)]


def write(path, data):
    path.write_bytes(data)
    return path


def as_zst(data):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


PACKERS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress, ".zst": as_zst}


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("form", [as_jsonl, as_json, as_csv, as_tsv, as_parquet])
def test_every_format_gives_the_same_documents(tmp_path, form, suffix):
    name = f"rows.{form.__name__.removeprefix('as_')}{suffix}"
    found = read(write(tmp_path / name, PACKERS[suffix](form(ROWS))))
    assert [(d.title, d.text) for d in found] == [(r["title"], r["text"]) for r in ROWS]


def test_lines_of_txt_are_documents_without_their_line_ends_and_byte_order_mark(tmp_path):
    path = write(tmp_path / "a.txt", "\ufeffone\r\n\n\ufefftwo é".encode())  # of files that were joined
    assert [d.text for d in read(path)] == ["one", "", "two é"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_utf_16_is_read_with_and_without_a_mark_and_said(tmp_path, encoding, suffix):
    content = 'id;text\r\n1;"café\r\n“x”"\r\n2;\r\n'  # a line end in quotes, and an empty cell
    (source,) = resolve_sources([str(write(tmp_path / f"a.csv{suffix}", PACKERS[suffix](content.encode(encoding))))])
    told = Told()
    assert [d.text for d in source.documents(COLUMNS, told)] == ["café\r\n“x”", ""]
    assert [line for line in told.said if "and is read as such" in line] == told.said != []


def test_an_8_bit_encoding_is_read_where_it_is_said_and_otherwise_refused_with_the_option(tmp_path):
    path = write(tmp_path / "a.csv", "id;text\n1;café “x”\n".encode("cp1252"))
    (source,) = resolve_sources([str(path)])
    assert [d.text for d in source.documents(replace(COLUMNS, encoding="cp1252"))] == ["café “x”"]
    with pytest.raises(CorpusError, match=r"not UTF-8 \(byte 0xe9\): .*NAME::cp1252"):
        read(path)
    with pytest.raises(CorpusError, match=r"a\.csv is not in the encoding it is read as"):
        list(source.documents(replace(COLUMNS, encoding="ascii")))


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("encoding", ["cp1252", "cp1251", "shift_jis"])
def test_the_encoding_of_a_file_is_said_behind_its_name(tmp_path, encoding, suffix):
    text = {"cp1252": "Größe „x“", "cp1251": "Привет, мир", "shift_jis": "日本語の文"}[encoding]
    content = PACKERS[suffix](f"id;text\n1;{text}\n".encode(encoding))
    path = write(tmp_path / f"a.csv{suffix}", content)
    (source,) = resolve_sources([f"{path}::{encoding}"])
    assert [d.text for d in source.documents(replace(COLUMNS, text=None))] == [text]
    (beside,) = resolve_sources([f"{tmp_path}::{encoding}"])  # of all files of a folder
    assert (beside.part, beside.identity()) == (encoding, source.identity())
    (other,) = resolve_sources([f"{path}::latin-1"])
    assert source.identity() != other.identity()  # its vectors in the cache are others
    with pytest.raises(CorpusError, match="does not exist"):
        resolve_sources([f"{path}::cp12520"])
    write(path, PACKERS[suffix](b"id;text\n1;\0\x01\n"))
    with pytest.raises(CorpusError, match="binary"):
        list(source.documents(COLUMNS))


TABLE = [
    {"id": f"T-{n}", "day": "12 March 2024", "link": "https://a.b", "subject": "No login", "body": "I cannot log in."}
    for n in range(5)
]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_the_column_that_reads_like_prose_is_taken_and_said(tmp_path, suffix):
    frame, path = pd.DataFrame(TABLE), tmp_path / f"a{suffix}"
    if suffix == ".csv":
        frame.to_csv(path, sep=";", index=False)
    elif suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)
    (source,) = resolve_sources([str(path)])
    told = Told()
    assert [d.text for d in source.documents(replace(COLUMNS, text=None), told)] == ["I cannot log in."] * 5
    assert "read is 'body'" in told.said[0]
    assert [line.split(":")[0].strip() for line in told.said[1:]] == ["body"] * 3 + ["subject"] * 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id^body\n1^I cannot log in\n", "has one column, .*which is a whole row: part its columns"),
        ("I cannot log in after the update,1\nPlease help me now,2\n", "has no header, or a text in it"),
        ("day,amount\n2024-01-02,3\n", "has no column 'text': name the one .*day, amount"),
    ],
)
def test_a_table_without_a_column_of_prose_is_refused(tmp_path, content, message):
    (source,) = resolve_sources([str(write(tmp_path / "a.csv", content.encode()))])
    with pytest.raises(CorpusError, match=message):
        list(source.documents(replace(COLUMNS, text=None)))


def test_numbers_and_days_are_text_where_they_are_asked_for_by_name(tmp_path):
    path = write(tmp_path / "a.parquet", as_parquet([{"day": date(2026, 1, 2)}]))
    (source,) = resolve_sources([str(path)])
    for more in ({}, {"title": "day", "summary": "day", "positive": None}):  # as encode, which reads no other column
        asked = replace(COLUMNS, text="day", asked=True, **more)
        assert [d.text for d in source.documents(asked)] == ["2026-01-02"]
    with pytest.raises(CorpusError, match="holds a date"):
        list(source.documents(replace(COLUMNS, text="day")))


def frames():
    rows = [{"body": "one"}, {"body": "two"}]
    pl = pytest.importorskip("polars")
    yield from (pd.DataFrame(rows), pl.DataFrame(rows), pa.Table.from_pylist(rows), datasets.Dataset.from_list(rows))


def test_tables_in_memory_give_the_column_that_is_named_and_say_what_they_need(tmp_path):
    for table in frames():
        assert [*strings_of(table, "body")] == [*strings_of(table["body"])] == ["one", "two"]
        for column in (None, "text"):
            with pytest.raises(CorpusError, match=r"with the columns body: add column= .*as table\['body'\]"):
                strings_of(table, column)
    assert [*strings_of(iter([{"body": "one"}]), "body")] == ["one"]
    with pytest.raises(CorpusError, match="a column 'positive', which is read from files"):
        spool_texts(pd.DataFrame({"body": ["one"], "positive": ["two"]}), tmp_path, "body")
    path = spool_texts(pd.DataFrame({"body": ["one"]}), tmp_path, "body")
    assert [d.text for s in resolve_sources([str(path)]) for d in s.documents(replace(COLUMNS, text="body"))] == ["one"]


@pytest.mark.parametrize("suffix", formats.COMPRESSIONS)
def test_archives_that_were_joined_are_read_to_their_end(tmp_path, suffix):
    joined = PACKERS[suffix](b"one\n") + PACKERS[suffix](b"two\n")
    assert [d.text for d in read(write(tmp_path / f"a.txt{suffix}", joined))] == ["one", "two"]


DAMAGES = {
    "half": lambda packed: packed[: len(packed) // 2],
    "nearly all": lambda packed: packed[: int(0.999 * len(packed))],
    "empty": lambda packed: b"",
    "second stream": lambda packed: packed + b"?" + packed[1:],
    "not packed": lambda packed: b"plain text\n" * 10,
}


@pytest.mark.parametrize("suffix", formats.COMPRESSIONS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_an_archive_that_was_damaged_or_cut_short_is_refused(tmp_path, suffix, damage):
    lines = "".join(f"{number} {number**7 % 9973} bottles\n" for number in range(30_000)).encode()
    with pytest.raises(CorpusError, match=r"damaged or cut short( after line \d+)? \(.+\): copy or download it again"):
        read(write(tmp_path / f"a.txt{suffix}", DAMAGES[damage](PACKERS[suffix](lines))))


def test_a_folder_is_read_in_order_of_names_without_hidden_and_foreign_files(tmp_path):
    for name in ("b.txt", "a.txt", "deep/c.txt", ".hidden.txt", "notes.doc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, name.encode())
    assert [d.text for d in read(tmp_path)] == ["a.txt", "b.txt", "deep/c.txt"]


def test_a_file_that_is_refused_is_named_with_those_behind_it_that_are_too(tmp_path, monkeypatch):
    broken = {"b.csv": 'text\n"no end', "c.pdf": "no pdf", "d.html": "<p>a page", "e.jsonl": "{", "f.docx": "no zip"}
    for name, data in {"a.txt": "a line", **broken}.items():
        write(tmp_path / name, data.encode())
    texts, documents = [], read_sources(resolve_sources([str(tmp_path)]), COLUMNS)
    with pytest.raises(CorpusError) as refused:
        texts += [document.text for _, document in documents]
    first, _, others = str(refused.value).partition("; refused, too: ")
    assert f"{tmp_path / 'b.csv'}, the row that begins in line 2, is not valid CSV" in first
    assert others.split(", ") == [str(tmp_path / name) for name in ("c.pdf", "e.jsonl", "f.docx")]
    monkeypatch.setattr(sources, "_ALSO_READ", 6 + 8)  # c.pdf and d.html; e.jsonl would be beyond
    with pytest.raises(CorpusError, match=r"; refused, too: \S+c\.pdf$"):
        [*read_sources(resolve_sources([str(tmp_path)]), COLUMNS)]
    for name in ("b.csv", "c.pdf", "e.jsonl"):
        (tmp_path / name).unlink()
    with pytest.raises(CorpusError, match=r"f\.docx .+") as refused:
        [*read_sources(resolve_sources([str(tmp_path)]), COLUMNS)]
    assert "refused, too" not in str(refused.value)


@pytest.mark.parametrize("target", ["outside/secret.txt", "outside", "nowhere.txt", ".", "corpus/link.txt"])
def test_a_link_that_leads_out_of_a_folder_is_refused_and_no_other(tmp_path, target):
    for name in ("outside/secret.txt", "corpus/a.txt"):
        (tmp_path / name).parent.mkdir()
        write(tmp_path / name, b"text")
    folder = tmp_path / "corpus"
    (folder / "b.txt").symlink_to(folder / "a.txt")
    (folder / f"link{'.txt' * target.endswith('.txt')}").symlink_to(folder if target == "." else tmp_path / target)
    if target == ".":
        assert [d.text for d in read(folder)] == ["text", "text"]
    else:
        wrong = "cannot be opened: Too many" if "link" in target else "links to .*, out of .*corpus: remove it"
        with pytest.raises(CorpusError, match=f"corpus/link.* {wrong}"):
            read(folder)


def test_a_folder_that_cannot_be_opened_is_named(tmp_path, monkeypatch):
    (tmp_path / "open.txt").write_text("text")
    (tmp_path / "closed").mkdir()
    genuine = os.scandir

    def scandir(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return genuine(path)

    monkeypatch.setattr(os, "scandir", scandir)  # permissions do not bind root, under whom tests may run
    with pytest.raises(CorpusError, match="closed cannot be opened: Permission denied"):
        read(tmp_path)


@pytest.mark.parametrize("inside", [False, True])
def test_a_pipe_is_refused_instead_of_being_waited_for(tmp_path, inside):
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(CorpusError, match=r"a\.txt is a pipe or a device"):
        read(tmp_path if inside else tmp_path / "a.txt")


@pytest.mark.parametrize("name", ["", " ", "a" * 300 + ".txt", "a\0.txt", "~no.such.user/a.txt"])
def test_a_name_that_no_file_can_have_is_refused(name):
    with pytest.raises(CorpusError):
        read(name)


TABLES = [
    *(("a.csv", f'"id"{sep} text\r\n1{sep}"one, ""2"";\t|\r\nthree"\r\n{sep}\r\n'.encode()) for sep in ",;\t|"),
    ("a.tsv", b'id;text\n1;"one, ""2"";\t|\r\nthree"\n;\n'),
    ("a.csv", b'sep=;\r\nid;text\r\n1;"one, ""2"";\t|\r\nthree"\r\n;'),
    ("a.csv", b'\xef\xbb\xbfsep=|\nid|text\n1|"one, ""2"";\t|\r\nthree"\n|'),
]


@pytest.mark.parametrize(("name", "data"), TABLES, ids=range(len(TABLES)))
def test_the_separator_of_a_table_is_found(tmp_path, name, data):
    path = write(tmp_path / name, data)
    assert [d.text for d in read(path)] == ['one, "2";\t|\r\nthree', ""]
    assert [[*row] for _, row in read_rows(path)] == [["id", "text"]] * 2


@pytest.mark.parametrize(
    ("data", "columns"),
    [
        (b"name, first;text;date\na, b;one;2\n", {"name, first": "a, b", "text": "one", "date": "2"}),
        (b'text,"a;b;c"\none,2\n', {"text": "one", "a;b;c": "2"}),
        (b"a;b;c,text\n2,one\n", {"a;b;c": "2", "text": "one"}),
        (b"text\none\n", {"text": "one"}),
    ],
)
def test_the_separator_is_the_one_that_finds_the_column_of_text(tmp_path, data, columns):
    path = write(tmp_path / "a.csv", data)
    assert [d.text for d in read(path)] == ["one"]
    if b"c,text" not in data:  # without a name to look for, what parts the header into more is taken
        assert [row for _, row in read_rows(path)] == [columns]
    else:
        with pytest.raises(CorpusError, match="line 2 has 1 cells and the header 3: mend"):
            list(read_rows(path))


NAMES = [f"a{form}{packing}" for form in (".txt", *formats.TABLES[:5]) for packing in ("", *formats.COMPRESSIONS)]
BITS = [
    b'"text"',
    b"\n",
    b"\r",
    b"\t",
    b"\0",
    b"\\ud800",
    b"\xff",
    b"text",
    b"PAR1",
    b"false",
    b'{"text": "a"}',
    b"1e999",
]
BITS += [b"[" * 50_000, b'{"text":' * 50_000, b"9" * 5_000, b'"n":']
BITS += ["\ufeff".encode(), *(bytes([byte]) for byte in b'{}[]:,"\\0')]


@pytest.fixture(scope="module")
def packed():
    """A valid file of every format."""
    forms = {".txt": lambda rows: b"one\ntwo\n", ".jsonl": as_jsonl, ".json": as_json, ".csv": as_csv}
    forms |= {".tsv": as_tsv, ".parquet": partial(as_parquet, compression="none")}
    rows = [*ROWS, {"title": "long", "text": " ".join(str(number**3) for number in range(300))}]
    return {
        name: PACKERS[formats.compression_of(Path(name))](forms[formats.format_of(Path(name))](rows)) for name in NAMES
    }


def read_or_refuse(path):
    """Rows of text, or one sentence."""
    for reader in (read, lambda path: list(read_rows(path))):
        try:
            for row in reader(path):
                assert isinstance(row[0], str) or reader is not read
        except CorpusError:
            pass


@given(
    st.sampled_from(NAMES),
    st.binary(max_size=99) | st.lists(st.sampled_from(BITS), max_size=30).map(b"".join),
    st.booleans(),
)
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_under_any_name_give_rows_or_one_sentence(tmp_path, name, content, pack_them):
    suffix = formats.compression_of(Path(name))
    read_or_refuse(write(tmp_path / name, PACKERS[suffix](content) if pack_them else content))


@given(
    st.sampled_from(NAMES),
    st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), max_size=4),
    st.just(1.0) | st.floats(0, 1),
)
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_damaged_file_gives_rows_or_one_sentence(tmp_path, packed, name, changes, left):
    content = bytearray(packed[name])
    for place, byte in changes:
        content[int(place * len(content))] = byte
    read_or_refuse(write(tmp_path / name, bytes(content[: round(left * len(content))])))


def test_what_selfsent_wrote_below_a_folder_is_no_text(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    for mark, inner in ((atomic.LOCK_NAME, "runs/one"), (atomic.CHECKSUMS, "saved/model")):
        (tmp_path / inner / "deeper").mkdir(parents=True)
        (tmp_path / inner / mark).write_text("")
        (tmp_path / inner / "config.json").write_text("{}")
        (tmp_path / inner / "deeper" / "vocab.txt").write_text("[CLS]")
    assert [source.path.name for source in resolve_sources([str(tmp_path)])] == ["a.txt"]
    named = resolve_sources([str(tmp_path / "runs" / "one")])  # by its name it is what was asked for
    assert [source.path.name for source in named] == ["config.json", "vocab.txt"]


def test_the_summary_of_a_row_is_kept(tmp_path):
    path = write(tmp_path / "a.jsonl", b'{"text": "body", "summary": "short"}')
    assert read(path)[0].summary == "short"


def test_a_missing_path_suggests_its_neighbour(tmp_path):
    write(tmp_path / "wikipedia.jsonl.xz", b"")
    with pytest.raises(CorpusError, match=r"wikipedja\.jsonl\.xz does not exist: did you mean wikipedia\.jsonl\.xz\?"):
        read(tmp_path / "wikipedja.jsonl.xz")
    with pytest.raises(CorpusError, match="did you mean pydocs"):
        read("pydoc")


def test_a_column_of_numbers_is_refused_though_it_is_the_title_s_too(tmp_path):
    path = write(tmp_path / "a.jsonl", as_jsonl([{"title": 3}]))
    with pytest.raises(CorpusError, match="column 'title' holds an int: it must hold text"):
        list(resolve_sources([str(path)])[0].documents(replace(COLUMNS, text="title")))


def test_a_folder_without_text_lists_what_was_looked_for(tmp_path):
    with pytest.raises(CorpusError, match=r"holds no text: known files are \.txt"):
        read(tmp_path)


def test_a_quotation_mark_that_is_not_closed_is_named_by_the_line_of_its_row(tmp_path, monkeypatch):
    lines = [f"row {number}" if number != 10 else '"row 10' for number in range(500)]
    path = write(tmp_path / "a.csv", "\n".join(["text", *lines]).encode())
    with pytest.raises(CorpusError, match=r"the row that begins in line 12, is not valid CSV .*: close its quotation"):
        read(path)
    monkeypatch.setattr(formats, "LONGEST", 1000)
    with pytest.raises(CorpusError, match="the row that begins in line 12 is longer than"):
        read(path)


@pytest.mark.parametrize("indent", [None, 1])
def test_a_list_of_objects_longer_than_one_line_may_be_is_read_item_by_item(tmp_path, monkeypatch, indent):
    monkeypatch.setattr(formats, "LONGEST", 64)
    rows = [{"text": f"né [1] {number}"} for number in range(50)]
    assert [d.text for d in read(write(tmp_path / "a.json", json.dumps(rows, indent=indent).encode()))] == [
        row["text"] for row in rows
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", b"a" * 65),
        ("a.txt.gz", gzip.compress(b"a" * 65, mtime=0)),
        ("a.jsonl", b'{"text": "' + b"a" * 65 + b'"}'),
        ("a.json", b'[{"text": "a"}, {"text": "' + b"a" * 200 + b'"}]'),
        ("a.csv", b'text\n"' + b"a\n" * 40 + b'"\n'),
        ("a.csv", b"text\n" + b'"a\n",' * 40),
        ("a.parquet", as_parquet([{"text": "b"}, {"text": "a" * 65}])),
        ("a.parquet", as_parquet([{"text": "a" * 1000}])),
    ],
)
def test_a_text_that_is_too_long_is_refused_before_it_is_read_whole(tmp_path, monkeypatch, name, content):
    monkeypatch.setattr(formats, "LONGEST", 64)
    with pytest.raises(CorpusError, match=rf"{name}.* is longer than .*, the most that one text may have: split it"):
        read(write(tmp_path / name, content))


def in_parquet(rows, *, names=("text",), **options):
    file = io.BytesIO()
    parquet.write_table(pa.table(dict.fromkeys(names, rows)), file, **options)
    return file.getvalue()


def test_what_is_packed_too_well_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    """Pages of a Parquet file are unpacked as a whole, and one that is packed again goes to the disk first."""
    rows = ["a" * 1000] * 400
    one_page = in_parquet(rows, use_dictionary=False, compression="zstd")
    assert len(one_page) < 5000
    wrong = r"a\.parquet.* unpacks to more than 100 times its size and 0 MiB, the most that is unpacked at once: write"
    for at_once, refused in ((1 << 18, True), (1 << 20, False)):
        monkeypatch.setattr(limits, "AT_ONCE", at_once)
        for name, content in (
            ("a.parquet", one_page),
            ("a.parquet.gz", gzip.compress(in_parquet(rows, use_dictionary=False, compression="none"))),
        ):
            path = write(tmp_path / name, content)
            if refused:
                with pytest.raises(CorpusError, match=wrong):
                    read(path)
            else:
                assert [document.text for document in read(path)] == rows
    groups = in_parquet(rows, use_dictionary=False, compression="zstd", row_group_size=100)  # each below the limit
    monkeypatch.setattr(limits, "AT_ONCE", 1 << 18)
    assert len(read(write(tmp_path / "b.parquet", groups))) == 400


def test_a_parquet_file_of_too_many_columns_is_refused_before_they_are_listed(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet", in_parquet(["a"], names=["text", *(f"c{number}" for number in range(30))]))
    assert len(read(path)) == 1
    monkeypatch.setattr(limits, "_FOOTER", 1000)
    with pytest.raises(
        CorpusError, match=r"a\.parquet has 0 MiB that describe its columns .* write it anew with fewer"
    ):
        read(path)


def test_a_column_of_lists_is_refused_before_a_list_is_unpacked(tmp_path):
    path = write(tmp_path / "a.parquet", in_parquet([["a" * 1000] * 100_000]))
    assert path.stat().st_size < 10_000
    tracemalloc.start()
    with pytest.raises(CorpusError, match=r"a\.parquet: column 'text' holds a list<.*>: it must hold text"):
        read(path)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000  # unpacked it has 100 million bytes
    tracemalloc.stop()


def test_columns_without_end_make_no_message_without_end(tmp_path):
    path = write(tmp_path / "a.jsonl", as_jsonl([dict.fromkeys(["n" * 5000, *map(str, range(9000))], 1)]))
    with pytest.raises(
        CorpusError, match=r"no column 'text': .* n{80}, 0, 1, .*, 18 and 8,981 more \(--column"
    ) as said:
        read(path)
    assert len(str(said.value)) < 1000


def test_a_text_in_memory_that_is_too_long_is_refused_by_its_number(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "LONGEST", 64)
    with pytest.raises(CorpusError, match="item 1 of the texts is longer"):
        spool_texts(["a", "b" * 65], tmp_path)


def twice_in_parquet():
    file = io.BytesIO()
    parquet.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]), file)
    return file.getvalue()


def not_utf_8_in_parquet():
    buffers, file = [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")], io.BytesIO()
    parquet.write_table(pa.table({"text": pa.Array.from_buffers(pa.string(), 1, buffers)}), file)
    return file.getvalue()


HUGE_XZ = lzma.compress(b"good\n", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 29}])  # asks for half a GB
UNKNOWN = r"unknown format: known are \.txt, \.jsonl"
BY_CR = "ends its lines by CR alone"
REFUSALS = [
    *((name, b"x", UNKNOWN) for name in ("a.doc", "a.txt.zip", "a")),
    *(
        ("a.txt", data, "is not text but binary")
        for data in (b"GIF89a\x01\x02", b"line\nab\0c\n", b"\x89PNG\r\n\x1a\n")
    ),
    ("a.txt", "a line\n日本語\n".encode("iso2022_jp"), "line 2 is ISO-2022, as old mail of East Asia: save it"),
    ("a.csv", "id;text\n1;café “x”\n".encode("cp1252"), r"line 2 is not UTF-8 \(byte 0xe9\): save it as UTF-8"),
    ("a.csv", b"id;text\n1;one;two\n", r"line 2 has 3 cells and the header 2: mend"),
    ("a.csv", b"id^text\n1^x\n", r"no column 'text': name the one that holds the text, of id\^text"),
    ("a.csv", b"sep=^\nid^text\n1^x\n", r"no column 'text': name the one that holds the text, of sep=\^"),
    ("a.jsonl", b'{"text": "a"}\n{"text": 3.5}\n', r"line 2: column 'text' holds a float: it must hold text"),
    ("a.parquet", as_parquet([{"text": date(2024, 1, 31)}]), r"column 'text' holds a date: it must hold text"),
    *((name, b"one\rtwo\rthree\r", BY_CR) for name in ("a.txt", "a.jsonl", "a.csv")),
    *(
        (f"a.txt{suffix}", pack(b"good\n" * 70_000 + b"caf\xe9\n"), r"line 70001 is not UTF-8 \(byte 0xe9\): save")
        for suffix, pack in PACKERS.items()
    ),
    ("a.txt.xz", HUGE_XZ, r"a\.txt\.xz is missing, damaged"),
    (
        "a.json",
        b'{\n  "data": [\n    {"text": "a"}\n  ]\n}\n',
        "one object over many lines: write an object a line, or a list",
    ),
    ("a.parquet", not_utf_8_in_parquet(), "text after row 0 that is not UTF-8"),
    ("a.parquet", twice_in_parquet(), "has the column 'text' twice"),
    (
        "a.parquet",
        as_parquet([{"body": "x", "id": 1}]),
        r"no column 'text': name the one that holds the text, of body, id",
    ),
    ("a.jsonl", b'{"text": "a"}\n{"text": \n', r"a\.jsonl, line 2 is not valid JSON"),
    ("a.jsonl", b'{"text": "a"}\n["b"]\n', r"line 2 holds a list: every row must be an object"),
    (
        "a.jsonl",
        b'{"id": 1, "body": "a"}\n',
        r"line 1 has no column 'text': name the one that holds the text, of id, body",
    ),
    ("a.jsonl", b'{"text": "a", "positive": 0}\n', r"line 1: column 'positive' holds an int"),
    ("a.jsonl", b'{"text": "a", "summary": []}\n', r"column 'summary' holds a list"),
    ("a.jsonl", b'{"text": "a", "text": "b"}\n', r"line 1 is not valid JSON \('text' is there twice\)"),
    ("a.jsonl", b'{"text": ' + b"[" * 100_000, r"line 1 is not valid JSON \(it is nested too deeply\)"),
    ("a.json", b"[" * 100_000, r"item 1 is not valid JSON \(it is nested too deeply\)"),
    ("a.jsonl", b'{"text": "a", "n": ' + b"9" * 5000 + b"}", r"line 1 .*\(a number has too many digits\)"),
    ("a.json", b'[{"text": "a"}', r"a\.json is cut short after item 1"),
    ("a.json", b'[{"text": "a"},', r"a\.json is cut short after item 1"),
    ("a.json", b'[{"text": "a"}]\n[{"text": "b"}]', r"item 2 is not valid JSON"),
    ("a.csv", b"text,id,text\na,1,b\n", r"line 1 has the column 'text' twice: rename one"),
    ("a.csv", b"id,text\n1,one, two\n", r"line 2 has 3 cells and the header 2: mend"),
    ("a.tsv", b"id\ttext\n1\n", r"line 2 has 1 cells and the header 2: mend"),
    ("a.json", b'[{"text": "a"}, {"b": 1}]', r"a\.json, item 2 has no column 'text'"),
    ("a.csv", b"id,body\n1,x\n", r"line 2 has no column 'text': name the one that holds the text, of id, body"),
    ("a.csv", b'text\n"x"y\n', r"line 2, is not valid CSV"),
    ("a.parquet", b"PAR1 nonsense", r"a\.parquet is no Parquet file"),
    *(
        ("a.jsonl", as_jsonl([{"text": value}]), f"column 'text' holds an? {type(value).__name__}: it must hold text")
        for value in (3, 0, False, [], {"a": 1})
    ),
]


@pytest.mark.parametrize(("name", "data", "message"), REFUSALS, ids=range(len(REFUSALS)))
def test_a_file_that_cannot_be_read_says_where_and_why(tmp_path, name, data, message):
    with pytest.raises(CorpusError, match=message):
        read(write(tmp_path / name, data))


def test_a_hub_dataset_is_streamed_by_name_config_and_split(monkeypatch):
    calls = []

    def load_dataset(*args, **kwargs):
        calls.append((args, kwargs))
        return datasets.IterableDataset.from_generator(lambda: iter(ROWS))

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert [d.text for d in read("someone/articles/2020.en:validation")] == [r["text"] for r in ROWS]
    read("someone/articles")
    assert calls == [
        (("someone/articles", "2020.en"), {"split": "validation", "streaming": True}),
        (("someone/articles", None), {"split": "train", "streaming": True}),
    ]


def test_an_error_of_the_hub_becomes_one_sentence(monkeypatch):
    def load_dataset(*args, **kwargs):
        raise ValueError('Bad split: dev. Available splits: ["train"]\nmore')

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(CorpusError, match=r"someone/articles:dev cannot be read \(Bad split: dev.*\]\): write it as"):
        read("someone/articles:dev")


def test_a_hub_dataset_without_the_package_names_its_extra():
    with (
        without_package("datasets"),
        pytest.raises(ConfigurationError, match=r"someone/articles needs .*\.\[datasets\]"),
    ):
        read("someone/articles")


def test_a_name_that_is_neither_a_file_nor_on_the_hub_is_refused(monkeypatch):
    def dataset_info(*args, **kwargs):
        raise RuntimeError("no connection")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    with pytest.raises(CorpusError, match="nobody/nothing is neither a file here nor a dataset"):
        resolve_sources(["nobody/nothing"])[0].identity()


def test_a_file_is_known_by_its_content_wherever_it_lies_and_whenever_it_was_touched(tmp_path):
    first = tmp_path / "a.txt"
    first.write_text("x" * 300_000)
    (tmp_path / "elsewhere").mkdir()
    copy = tmp_path / "elsewhere" / "a.txt"
    copy.write_text("x" * 300_000)
    os.utime(copy, (1, 1))
    assert file_identity(first) == file_identity(copy)
    copy.write_text("x" * 150_000 + "y" + "x" * 149_999)  # neither its size nor its ends differ
    assert file_identity(first) != file_identity(copy)


@pytest.mark.parametrize("form", [as_jsonl, as_json, as_csv, as_tsv, as_parquet])
def test_rows_of_a_table_are_read_with_all_columns(tmp_path, form):
    path = write(tmp_path / f"rows.{form.__name__.removeprefix('as_')}", form(ROWS))
    assert [dict(row) for _, row in read_rows(path)] == ROWS


@pytest.mark.parametrize("name", ["a.txt", "a.pdf"])
def test_a_file_that_is_no_table_is_refused(tmp_path, name):
    with pytest.raises(CorpusError, match=name):
        list(read_rows(write(tmp_path / name, b"x")))


@pytest.mark.parametrize(
    ("rows", "texts"),
    [
        ('"Yes" she said\t1\n"open\t0\n', ['"Yes" she said', '"open']),  # as in GLUE
        ('"a ""b""\tc\nd"\t1\nsays "e"\t0\n', ['a "b"\tc\nd', 'says "e"']),  # as Excel and pandas write
        ('"x"\t1\n"y\tz\n"w"\t0\n', ['"x"', '"y', '"w"']),
    ],
)
def test_quotation_marks_of_a_tsv_file_are_those_of_csv_where_all_are(tmp_path, rows, texts):
    path = write(tmp_path / "a.tsv", f"text\tlabel\n{rows}".encode())
    assert [row["text"] for _, row in read_rows(path)] == texts
    assert [document.text for document in read(path)] == texts


def test_a_number_among_the_first_values_of_the_column_that_is_found_is_shown(tmp_path):
    bodies = ["a text of words", 5, "another text", None, " "]
    rows = [{"n": 0, "body": body, "mostly": 0 if number else "some words"} for number, body in enumerate(bodies)]
    (source,), said, progress = resolve_sources([str(write(tmp_path / "a.jsonl", as_jsonl(rows)))]), [], Progress()
    progress.say = said.append
    with pytest.raises(CorpusError, match="line 3: column 'body' holds an int: it must hold text"):
        list(source.documents(Columns(text=None, title=None, summary=None), progress))
    assert said[1:] == ["  body: a text of words", "  body: 5", "  body: another text"]


TEXTS = ["One café.", "Two\nlines.", "lone \ud800 surrogate", "", "One café."]


@pytest.mark.parametrize(
    "collect",
    [list, tuple, iter, lambda texts: (text for text in texts), lambda texts: pd.Series(texts, dtype=object), np.array],
    ids=["list", "tuple", "iterator", "generator", "pandas", "numpy"],
)
def test_texts_in_memory_are_read_back_as_they_are(tmp_path, collect):
    path = spool_texts(collect(TEXTS), tmp_path)
    assert [document.text for document in read(path)] == TEXTS
    assert path == spool_texts(TEXTS, tmp_path)  # the name is that of the content
    assert path != spool_texts(TEXTS[:-1], tmp_path)


def test_a_column_of_datasets_is_texts(tmp_path):
    dataset = datasets.Dataset.from_dict({"text": ["one", "two"], "n": [1, 2]})
    assert [document.text for document in read(spool_texts(dataset["text"], tmp_path))] == ["one", "two"]
    with pytest.raises(CorpusError, match="item 0 of the texts is a dict"):
        spool_texts(iter(dataset), tmp_path)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a", "b", 3], "item 2 of the texts is an int"),
        (pd.Series(["a", None], dtype=object), "item 1 of the texts is a NoneType, a missing value: it must"),
        (pd.Series(["a", float("nan")], dtype=object), "item 1 of the texts is a float, a missing value: it must"),
        (pd.DataFrame({"id": [1], "text": ["a"]}), r"columns id, text: .* as table\['text'\]"),
        ("one string", "texts is a str"),
        (pd.DataFrame({"text": ["a"]}), "texts is a DataFrame"),
    ],
)
def test_what_is_not_texts_is_refused_and_leaves_nothing(tmp_path, texts, message):
    with pytest.raises(CorpusError, match=message):
        spool_texts(texts, tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_memory_does_not_grow_with_the_texts(tmp_path):
    peaks = []
    for count in (20_000, 60_000):
        tracemalloc.start()
        spool_texts((f"text {number} " * 20 for number in range(count)), tmp_path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] + 100_000
