"""Topics: hand-made groups are found, counted and named, on one page and in a table."""

import csv

import numpy as np
import pytest
from commands import refused
from page_reader import Page
from three_subjects import SUBJECTS, sentences

import selfsent
from selfsent.errors import CorpusError
from selfsent.labels.topics import _best_number, _describe
from selfsent.progress import SILENT


def made(sizes, spread=0.02):
    """Rows near one corner for each group."""
    rng = np.random.default_rng(0)
    rows = np.repeat(np.eye(8)[: len(sizes)], sizes, axis=0) + spread * rng.standard_normal((sum(sizes), 8))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_groups_are_found_named_by_their_own_words_and_the_largest_comes_first():
    pairs = [*sentences(20), *[pair for pair in sentences(30, seed=1) if pair[1] == "music"]]
    found = selfsent.topics("builtin-static", [text for text, _ in pairs], number=3)
    assert [topic.size for topic in found.topics] == [50, 20, 20]
    for topic in range(3):
        (subject,) = {subject for (_, subject), label in zip(pairs, found.labels, strict=True) if label == topic}
        assert {*found.topics[topic].words} <= {*SUBJECTS[subject]}
    assert {*found.topics[0].words} <= {*SUBJECTS["music"]}


@pytest.mark.parametrize("sizes", [(30, 30, 30), (25, 20, 15, 10)])
def test_the_number_of_topics_is_that_of_the_groups_that_are_there(sizes):
    rows = made(sizes)
    assert _best_number(rows, len(rows), SILENT) == len(sizes)


def test_typical_texts_are_the_nearest_to_the_centre_and_differ():
    texts = ["far", "Near", "nearer", "near", "nearest", "other"]
    (topic, _) = _describe(texts, np.array([0, 0, 0, 0, 0, 1]), np.array([0.9, 0.3, 0.2, 0.25, 0.1, 0.0]))
    assert topic.typical == ["nearest", "nearer", "near"]
    assert topic.size == 5


def test_the_page_stands_alone_and_the_table_has_every_text(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = [f"<b>{text}</b>" for text, _ in sentences(15)]
    (tmp_path / "texts.txt").write_text("\n".join(["", *texts, " "]) + "\n", encoding="utf-8")
    for _ in range(2):  # its own files are replaced, and are no texts
        status, out, err = command("topics", "builtin-static", ".", "--topics", 3)
        assert status == 0, err
        assert len(out.splitlines()) <= 12
    page = Page((tmp_path / "topics.html").read_text(encoding="utf-8"))
    assert page.external() == []
    assert page.scripts == 0
    assert "<b>the" not in page.html
    assert sum(tag == "path" and name == "transform" for tag, name, _ in page.attributes) == len(texts)
    with (tmp_path / "topics.csv").open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [(row["text"], row["row"]) for row in rows] == [(text, f"{row}") for row, text in enumerate(texts, 2)]
    sizes = [sum(row["topic"] == str(topic) for row in rows) for topic in (1, 2, 3)]
    assert sizes == [15, 15, 15]
    assert all(f"{row['topic']}. {row['words']}" in page.text for row in rows)


def test_few_texts_have_a_page_without_a_map(tmp_path):
    selfsent.topics("builtin-static", [text for text, _ in sentences(5)], number=3, out=tmp_path / "few.html")
    assert "<h2>Map</h2>" not in (tmp_path / "few.html").read_text(encoding="utf-8")


def test_what_cannot_work_is_refused_in_one_sentence_and_nothing_is_lost(command, tmp_path):
    text = tmp_path / "texts.txt"
    text.write_text("\n".join(text for text, _ in sentences(5)), encoding="utf-8")
    (tmp_path / "mine.csv").write_text("mine", encoding="utf-8")
    refused(command, "did not write it", "topics", "builtin-static", text, "--out", tmp_path / "mine.html")
    assert (tmp_path / "mine.csv").read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / "mine.html").exists()
    table = write_rows(tmp_path / "mine.csv", [text for text, _ in sentences(5)])
    said = "mine.csv is read, too, and would be lost: choose another --out"
    refused(command, said, "topics", "builtin-static", table, "--out", tmp_path / "mine.html", "--overwrite")
    refused(command, "is an .html file", "topics", "builtin-static", text, "--out", tmp_path / "x.pdf")
    refused(command, "no text", "topics", "builtin-static", _empty(tmp_path), "--out", tmp_path / "x.html")
    with pytest.raises(CorpusError, match="2 texts have 1 different vectors"):
        selfsent.topics("builtin-static", ["a cat", "a cat"])


def write_rows(path, texts):
    path.write_text("\n".join(["text", *texts]), encoding="utf-8")
    return path


def _empty(folder):
    (folder / "empty.txt").write_text("\n \n", encoding="utf-8")
    return folder / "empty.txt"


def test_a_table_in_memory_is_read_by_its_column():
    rows = [{"body": text, "title": "the same"} for text, _ in sentences(5)]
    assert selfsent.topics("builtin-static", rows, column="body", number=3).texts == 15
