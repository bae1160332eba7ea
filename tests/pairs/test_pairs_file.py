"""The pairs file is replaced whole or not at all; pairs that exist become one, and errors name their line."""

import json
import lzma
import os

import pytest
from pyarrow import parquet

from selfsent.corpus.sources import Columns, resolve_sources
from selfsent.errors import ConfigurationError, CorpusError, UserError
from selfsent.pairs import mine_pairs, structure_pairs
from selfsent.pairs.convert import convert_pairs
from selfsent.pairs.write import COLUMNS, check_pairs_file, write_pairs

PAIRS = [(f"Text {n}.", f"Said otherwise, {n}.") for n in range(5)]


def write(path, pairs=PAIRS):
    rows = ((text, positive, "2026-01-02") for text, positive in pairs)
    write_pairs(path, rows, backend="given", digest="abc", settings={"files": ["é.txt"]})


@pytest.mark.parametrize("name", ["pairs.parquet", "pairs.jsonl"])
def test_a_corpus_reads_what_was_written_and_each_row_says_where_it_is_from(tmp_path, name):
    write(tmp_path / name)
    (source,) = resolve_sources([str(tmp_path / name)])
    found = source.documents(Columns(text="text", title="title", summary="summary"))
    assert [(document.text, document.positive) for document in found] == PAIRS
    lines = (tmp_path / name).read_text().splitlines() if name.endswith("l") else []
    rows = [json.loads(line) for line in lines] or parquet.read_table(tmp_path / name).to_pylist()
    assert [tuple(row) for row in rows] == [COLUMNS] * 5
    assert {(row["backend"], row["digest"], row["created"]) for row in rows} == {("given", "abc", "2026-01-02")}
    assert json.loads(rows[0]["settings"]) == {"files": ["é.txt"]}
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["pairs.parquet", "pairs.jsonl"])
def test_a_file_that_was_there_stays_until_the_new_one_is_whole(tmp_path, name):
    write(tmp_path / name)
    before = (tmp_path / name).read_bytes()

    def interrupted():
        yield "a", "b"
        raise KeyError

    with pytest.raises(KeyError):
        write(tmp_path / name, interrupted())
    assert (tmp_path / name).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [name]
    write(tmp_path / name, PAIRS[:1])
    assert (tmp_path / name).read_bytes() != before


@pytest.mark.parametrize("name", ["notes.parquet", "notes.jsonl", "notes.csv", "nowhere/pairs.parquet"])
def test_an_output_that_is_no_pairs_file_or_cannot_be_one_is_refused(tmp_path, name):
    for known in ("notes.parquet", "notes.jsonl"):
        (tmp_path / known).write_text('{"text": "mine"}\n')
    with pytest.raises(ConfigurationError, match=name):
        check_pairs_file(tmp_path / name)


def test_a_file_that_is_read_is_not_written(tmp_path):
    write(tmp_path / "pairs.jsonl")
    before = (tmp_path / "pairs.jsonl").read_bytes()
    with pytest.raises(ConfigurationError, match="is read, too, and would be lost: choose another --out"):
        convert_pairs(tmp_path / "pairs.jsonl", None, tmp_path.parent / tmp_path.name / "pairs.jsonl")
    for make in (mine_pairs, structure_pairs):
        with pytest.raises(ConfigurationError, match="is read, too, and would be lost"):
            make([tmp_path], tmp_path / "pairs.jsonl")  # a file of a folder
    assert (tmp_path / "pairs.jsonl").read_bytes() == before


def test_columns_of_two_files_are_refused(tmp_path):
    one, two = lines(tmp_path / "one.txt", "A text."), lines(tmp_path / "two.txt", "Another.")
    with pytest.raises(ConfigurationError, match="columns are those of one table, and two files are given"):
        given(one, two, column="x")


def test_a_name_that_is_not_utf8_is_written_with_question_marks(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9.jsonl")
    path.write_bytes(b'{"text": "A ship sails.", "positive": "A vessel is at sea."}\n')
    assert given(path)[0] == [("A ship sails.", "A vessel is at sea.")]
    assert "caf?.jsonl" in json.loads((tmp_path / "out.jsonl").read_text())["settings"]


def given(first, second=None, **columns):
    out = first.parent / "out.jsonl"
    summary = convert_pairs(first, second, out, **columns)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return [(row["text"], row["positive"]) for row in rows], summary


def lines(path, *texts):
    data = "".join(f"{text}\n" for text in texts).encode()
    path.write_bytes(lzma.compress(data) if path.suffix == ".xz" else data)
    return path


def table(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_aligned_lines_are_pairs_and_the_counterpart_is_found_by_name(tmp_path):
    source = lines(tmp_path / "train.source.xz", "One.", "Two &amp; more.", "Same.", "")
    target = lines(tmp_path / "train.target.xz", "First.", "Second.", "SAME.", "Third.")
    found, summary = given(source)
    assert found == [("One.", "First."), ("Two & more.", "Second.")]
    assert (summary.texts, summary.dropped["identical to their text"], summary.dropped["empty"], summary.pairs) == (
        4,
        1,
        1,
        2,
    )
    assert given(source, target)[0] == found
    assert given(lines(tmp_path / "a.txt", "One."), lines(tmp_path / "b.txt", "First."))[0] == found[:1]


def test_two_tables_are_not_read_as_lines(tmp_path):
    lines, table = tmp_path / "lines.txt", tmp_path / "table.jsonl"
    lines.write_text("one\n")
    table.write_text('{"text": "two"}\n')
    for first, second in ((lines, table), (table, lines)):
        with pytest.raises(CorpusError, match=r"table\.jsonl is a table: of two aligned files each line is a text"):
            convert_pairs(first, second, tmp_path / "pairs.parquet")
    assert not (tmp_path / "pairs.parquet").exists()


@pytest.mark.parametrize(("more", "longer"), [("source", "target"), ("target", "source")])
def test_the_first_line_without_a_counterpart_is_named(tmp_path, more, longer):
    lines(tmp_path / f"{more}.txt", "one", "two", "three")
    lines(tmp_path / f"{longer}.txt", "one", "two")
    message = rf"{more}\.txt, line 3 has no counterpart"
    with pytest.raises(UserError, match=message):
        given(tmp_path / "source.txt", tmp_path / "target.txt")
    assert not list(tmp_path.glob("*out*"))


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"text": "a b", "positive": "c d"}, {}),
        ({"sent0": "a b", "sent1": "c d"}, {}),
        ({"q1": "a b", "q2": "c d", "label": 1}, {"column": "q1", "positive_column": "q2"}),
        ({"src_text": "a b", "tgt_texts": ["c d", "C  d", "", None, "A B"]}, {}),
    ],
)
def test_tables_hold_a_text_or_a_list_of_texts_a_row(tmp_path, row, columns):
    found, summary = given(table(tmp_path / "t.jsonl", row), **columns)
    assert found == [("a b", "c d")]
    if "src_text" in row:
        # "C  d" stands twice but for case and space, None and "" are one empty text given twice.
        assert (
            summary.dropped["given twice"],
            summary.dropped["empty"],
            summary.dropped["identical to their text"],
        ) == (2, 1, 1)


def test_pairs_that_differ_in_figures_alone_or_match_a_pattern_are_left_out_on_request(tmp_path):
    figures = [("In 1990 it had 1,200 rooms.", "In 2000 it had 7 rooms.")]
    rows = [*figures, ("Left at 7.", "Gone at 8."), ("x formula_1", "y")]
    path = table(tmp_path / "t.jsonl", *({"text": text, "positive": positive} for text, positive in rows))
    assert given(path)[0] == rows
    found, summary = given(path, ignore_figures=True, drop="formula_")
    assert found == rows[1:2]
    assert (summary.dropped["equal but for figures"], summary.dropped["matched by drop"]) == (1, 1)
    with pytest.raises(ConfigurationError, match="no regular expression"):
        given(path, drop="(")


def test_many_paraphrases_of_a_text_are_as_many_pairs(tmp_path):
    found, _ = given(
        table(tmp_path / "t.jsonl", {"text": "a", "positive": ["b", "c", "d"]}, {"text": "e", "positive": "f"})
    )
    assert found == [("a", "b"), ("a", "c"), ("a", "d"), ("e", "f")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.jsonl", '{"text": "a", "positive": "b"}\n{"text": "a"}\n', "line 2 has no column 'positive'"),
        ("t.jsonl", '{"x": "a", "positive": "b"}\n', "line 1 has no column 'text': name one of x, positive"),
        (
            "t.jsonl",
            '{"text": "a", "positive": "b"}\n{"text": 1, "positive": "b"}\n',
            "line 2: 'text' and 'positive' must hold text, not 1",
        ),
        ("t.jsonl", '{"text": "a", "positive": ["b", 2]}\n', "line 1: .* must hold text, not 2"),
        ("t.jsonl", '{"text": "a", "positive": "b"}\n{"text":\n', "line 2 is not valid JSON"),
        ("t.jsonl", "[1, 2]\n", "item 1 holds an int"),
        ("t.tsv", "text\tpositive\na\tb\na\tb\tc\n", "line 3 has 3 cells and the header 2"),
        ("t.csv", "text,positive\na\n", "line 2 has 1 cells and the header 2"),
        ("t.jsonl", '{"text": "a", "positive": "A"}\n', "no pairs: texts 1; identical to their text 1; pairs 0"),
        ("t.txt", "one\n", "t.txt is not a table"),
        ("t.source", "one\n", r"t\.target cannot be opened"),
        ("t.jsonl", "", "no pairs"),
    ],
)
def test_what_is_no_pair_is_refused_with_its_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        given(tmp_path / name)
    assert not (tmp_path / "out.jsonl").exists()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CorpusError, match=r"b\.txt"):
        given(lines(tmp_path / "a.txt", "one"), tmp_path / "b.txt")
    with pytest.raises(UserError, match=r"none\.jsonl"):
        given(tmp_path / "none.jsonl")


def test_the_pairs_that_were_given_by_others_are_read_whole(data, tmp_path):
    summaries = []
    for name in ("hwu64/back-translations.jsonl", "quora_paws_msr/val.source.xz"):
        if not (data / "pairs" / name).exists():
            pytest.skip(f"no pairs at {data / 'pairs' / name}")
        summaries.append(convert_pairs(data / "pairs" / name, None, tmp_path / "out.parquet"))
    hwu64, quora = summaries
    assert hwu64.texts == 11_036
    assert (
        hwu64.pairs + hwu64.dropped["identical to their text"] + hwu64.dropped["empty"] + hwu64.dropped["given twice"]
        == 5 * 11_036
    )
    assert quora.pairs + quora.dropped["identical to their text"] + quora.dropped["empty"] == quora.texts
