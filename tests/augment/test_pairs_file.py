"""The pairs file is whole or as it was, and is what a corpus is read from."""

import json

import pytest
from pyarrow import parquet

from selfsent.augment.pairs_file import COLUMNS, PairsFile, check_pairs_file
from selfsent.corpus.read import Columns, resolve_sources
from selfsent.errors import UserError

PAIRS = [(f"Text {n}.", f"Said otherwise, {n}.") for n in range(5)]


def write(path, pairs=PAIRS):
    with PairsFile(path, "given", "abc", {"files": ["é.txt"]}) as file:
        for text, positive in pairs:
            file.add(text, positive, "2026-01-02")


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
    with pytest.raises(KeyError), PairsFile(tmp_path / name, "given", "abc", {}) as file:
        file.add("a", "b", "2026-01-02")
        raise KeyError
    assert (tmp_path / name).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [name]
    write(tmp_path / name, PAIRS[:1])
    assert (tmp_path / name).read_bytes() != before


@pytest.mark.parametrize("name", ["notes.parquet", "notes.jsonl"])
def test_a_file_that_is_none_of_ours_is_never_overwritten(tmp_path, name):
    (tmp_path / name).write_text('{"text": "mine"}\n')
    with pytest.raises(UserError, match=f"{name} exists and holds no pairs of ours: choose another --out"):
        check_pairs_file(tmp_path / name)


def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path):
    with pytest.raises(UserError, match=r"unknown format: give a name that ends in \.parquet or \.jsonl"):
        check_pairs_file(tmp_path / "pairs.csv")
    with pytest.raises(UserError, match=r"there is no folder .*nowhere that you may write to"):
        check_pairs_file(tmp_path / "nowhere" / "pairs.parquet")
