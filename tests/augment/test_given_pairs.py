"""Pairs that exist are taken as they are, and what does not fit together is named with its line."""

import json
import lzma

import pytest

from selfsent.augment.given_pairs import gather_pairs
from selfsent.errors import UserError


def pairs(first, second=None, **columns):
    out = first.parent / "out.jsonl"
    outcome = gather_pairs(first, second, out, report=lambda *said: None, **columns)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return [(row["text"], row["positive"]) for row in rows], outcome


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
    found, outcome = pairs(source)
    assert found == [("One.", "First."), ("Two & more.", "Second.")]
    assert (outcome.texts, outcome.identical, outcome.empty, outcome.pairs) == (4, 1, 1, 2)
    assert pairs(source, target)[0] == found
    assert pairs(lines(tmp_path / "a.txt", "One."), lines(tmp_path / "b.txt", "First."))[0] == found[:1]


@pytest.mark.parametrize(("more", "longer"), [("source", "target"), ("target", "source")])
def test_the_first_line_without_a_counterpart_is_named(tmp_path, more, longer):
    lines(tmp_path / f"{more}.txt", "one", "two", "three")
    lines(tmp_path / f"{longer}.txt", "one", "two")
    message = rf"{more}\.txt, line 3 has no counterpart: .*{longer}\.txt ends after line 2"
    with pytest.raises(UserError, match=message):
        pairs(tmp_path / "source.txt", tmp_path / "target.txt")
    assert not list(tmp_path.glob("*out*"))


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"text": "a b", "positive": "c d"}, {}),
        ({"sent0": "a b", "sent1": "c d"}, {}),
        ({"q1": "a b", "q2": "c d", "label": 1}, {"text_column": "q1", "positive_column": "q2"}),
        ({"src_text": "a b", "tgt_texts": ["c d", "C  d", "", None, "A B"]}, {}),
    ],
)
def test_tables_hold_a_text_or_a_list_of_texts_a_row(tmp_path, row, columns):
    found, outcome = pairs(table(tmp_path / "t.jsonl", row), **columns)
    assert found == [("a b", "c d")]
    if "src_text" in row:
        # "C  d" stands twice but for case and space, None and "" are one empty text given twice.
        assert (outcome.repeated, outcome.empty, outcome.identical) == (2, 1, 1)


def test_many_paraphrases_of_a_text_are_as_many_pairs(tmp_path):
    found, _ = pairs(
        table(tmp_path / "t.jsonl", {"text": "a", "positive": ["b", "c", "d"]}, {"text": "e", "positive": "f"})
    )
    assert found == [("a", "b"), ("a", "c"), ("a", "d"), ("e", "f")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.jsonl", '{"text": "a", "positive": "b"}\n{"text": "a"}\n', r"line 2 has no column 'positive': set --posi"),
        (
            "t.jsonl",
            '{"x": "a", "positive": "b"}\n',
            r"line 1 has no column 'text': set --text-column to one of x, pos",
        ),
        (
            "t.jsonl",
            '{"text": "a", "positive": "b"}\n{"text": 1, "positive": "b"}\n',
            "line 2: column 'text' holds a int",
        ),
        (
            "t.jsonl",
            '{"text": "a", "positive": ["b", 2]}\n',
            "line 1: column 'positive' holds a int: it must hold text",
        ),
        ("t.jsonl", '{"text": "a", "positive": "b"}\n{"text":\n', "line 2 is not valid JSON"),
        ("t.jsonl", "[1, 2]\n", "item 1 holds a int"),
        ("t.tsv", "text\tpositive\na\tb\na\tb\tc\n", "line 3 has 3 columns and the header 2: mend that row"),
        ("t.csv", "text,positive\na\n", "line 2 has 1 column and the header 2"),
        ("t.jsonl", '{"text": "a", "positive": "A"}\n', "holds no pairs: texts 1; identical to their text 1; pairs 0"),
        ("t.txt", "one\n", "is no table of pairs: give a .jsonl"),
        ("t.source", "one\n", r"t\.source has no counterpart t\.target beside it"),
        ("t.jsonl", "", "holds no pairs"),
    ],
)
def test_what_is_no_pair_is_named_with_its_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        pairs(tmp_path / name)
    assert not (tmp_path / "out.jsonl").exists()


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"there is no file .*b\.txt: give two files"):
        pairs(lines(tmp_path / "a.txt", "one"), tmp_path / "b.txt")
    with pytest.raises(UserError, match="does not exist"):
        pairs(tmp_path / "none.jsonl")


def test_the_pairs_that_were_given_by_others_are_read_whole(data, tmp_path):
    outcomes = []
    for name in ("hwu64/back-translations.jsonl", "quora_paws_msr/val.source.xz"):
        if not (data / "pairs" / name).exists():
            pytest.skip(f"no pairs at {data / 'pairs' / name}")
        outcomes.append(gather_pairs(data / "pairs" / name, None, tmp_path / "out.parquet", report=lambda *said: None))
    hwu64, quora = outcomes
    assert hwu64.texts == 11_036
    assert hwu64.pairs + hwu64.identical + hwu64.empty + hwu64.repeated == 5 * 11_036
    assert quora.pairs + quora.identical + quora.empty == quora.texts
