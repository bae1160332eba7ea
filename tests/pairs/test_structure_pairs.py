"""The pairs that the structure of a document gives, by hand; and the file that the command writes of them."""

import json

import pytest
from commands import refused
from commands import run as run_main

from selfsent.errors import CorpusError, UserError
from selfsent.pairs.structure import structure_pairs
from selfsent.text.structure import pairs_of_document, passage

A, B, C, D, E = (
    "The grey ship left the old harbour.",  # 7 words
    "Its captain had followed the tide since noon.",  # 8
    "Bread was baked below the deck.",  # 6
    "Nobody on board slept that night.",  # 6
    "Yes.",
)


def texts(title, summary, sentences):
    return [(pair.text, pair.positive) for pair in pairs_of_document(title, summary, sentences)]


def test_the_pairs_of_a_document_are_those_found_by_hand():
    found = texts("An old ship", "A voyage begins at noon.", [A, B, C, D])
    assert found == [
        (A, B),
        (B, C),
        (C, D),
        ("A voyage begins at noon.", f"{A} {B} {C} {D}"),
        ("An old ship", f"{A} {B} {C} {D}"),
        (f"{A} {B}", f"{C} {D}"),
    ]


def test_without_a_summary_the_first_sentence_finds_what_follows_it():
    assert texts("", "", [A, B, C]) == [(A, B), (B, C), (A, f"{B} {C}")]
    assert texts("", A, [A, B, C]) == [(A, B), (B, C), (A, f"{B} {C}")]  # a summary that opens the text
    assert ("summary", f"{A} {B}", f"{C} {D}") in [
        *pairs_of_document("", f"{A} {B}", [A, B, C, D])
    ]  # with two sentences


def test_short_sentences_have_no_neighbours_and_short_texts_are_no_passages():
    assert texts("", "", [A, E, B]) == [(A, f"{E} {B}")]  # neither neighbours of E nor A and B
    assert texts("A title", "", [D, E]) == []  # 7 words in all: no passage of 8
    assert texts("A title", "", [A, E]) == [("A title", f"{A} {E}")]


def test_a_heading_that_the_text_repeats_is_not_its_own_answer():
    assert ("An old ship", f"{A} {B}") in texts("An old ship", "", ["An Old Ship.", A, B])
    assert "title" not in {pair.kind for pair in pairs_of_document(A, "", [A, E])}  # nothing else is left


def test_passages_end_before_sixty_words_are_exceeded():
    twenty = [f"s{number} " + "word " * 18 + "end." for number in range(5)]
    assert passage(twenty) == " ".join(twenty[:3])
    assert passage(["word " * 70]) == "word " * 70  # one long sentence stays whole
    assert texts("", "", twenty)[-1] == (" ".join(twenty[:2]), " ".join(twenty[2:]))


def test_each_pair_says_of_which_kind_it_is():
    kinds = [pair.kind for pair in pairs_of_document("An old ship", "", [A, B, C, D])]
    assert kinds == ["adjacent", "adjacent", "adjacent", "summary", "title", "halves"]


def write_documents(path, count=12, length=5):
    rows = [
        {"title": f"Title {n}", "text": " ".join(f"Sentence {m} of document {n} has words." for m in range(length))}
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_file_of_pairs_holds_every_kind_and_says_where_it_is_from(tmp_path):
    source = write_documents(tmp_path / "documents.jsonl")
    summary = structure_pairs(source, tmp_path / "pairs.jsonl")
    found = rows(tmp_path / "pairs.jsonl")
    assert summary.pairs == len(found) == 12 * (4 + 1 + 1 + 1)
    assert summary.texts == 12
    assert found[0]["text"] == "Sentence 0 of document 0 has words."
    assert found[0]["positive"] == "Sentence 1 of document 0 has words."
    assert {row["backend"] for row in found} == {"structure"}
    assert json.loads(found[0]["settings"])["kinds"] == ["adjacent", "summary", "title", "halves"]


def test_most_pairs_of_a_document_and_of_a_kind_do_not_depend_on_the_order(tmp_path):
    source = write_documents(tmp_path / "documents.jsonl")
    structure_pairs(source, tmp_path / "two.jsonl", kinds=["adjacent", "title"], max_adjacent=2)
    found = rows(tmp_path / "two.jsonl")
    by_document = [sum(f"document {n} " in row["text"] for row in found) for n in range(12)]
    assert by_document == [2] * 12
    assert sum(row["kind"] == "title" for row in found) == 12
    structure_pairs(source, tmp_path / "five.jsonl", max_pairs=5)
    five = rows(tmp_path / "five.jsonl")
    assert {kind: sum(row["kind"] == kind for row in five) for kind in ("adjacent", "summary", "title", "halves")} == {
        "adjacent": 5,
        "summary": 5,
        "title": 5,
        "halves": 5,
    }
    source.write_text("".join(reversed(source.read_text().splitlines(keepends=True))))
    structure_pairs(source, tmp_path / "again.jsonl", max_pairs=5)
    again = rows(tmp_path / "again.jsonl")
    assert {(row["text"], row["positive"]) for row in again} == {(row["text"], row["positive"]) for row in five}


def test_a_pair_that_a_document_makes_twice_is_written_once(tmp_path):
    verse = "Rain fell on the town. Nobody went out at all. " * 3
    (tmp_path / "song.jsonl").write_text(json.dumps({"text": verse}) + "\n")
    structure_pairs(tmp_path / "song.jsonl", tmp_path / "pairs.jsonl", kinds=["adjacent"], max_adjacent=1)
    structure_pairs(tmp_path / "song.jsonl", tmp_path / "all.jsonl", kinds=["adjacent"])
    both = ("Rain fell on the town.", "Nobody went out at all.")
    assert {(row["text"], row["positive"]) for row in rows(tmp_path / "all.jsonl")} == {both, both[::-1]}
    assert [len(rows(tmp_path / name)) for name in ("pairs.jsonl", "all.jsonl")] == [1, 2]


def test_a_footer_of_all_documents_takes_one_place_of_a_sample(tmp_path):
    footers = [f"This page was made at noon by hand {number}. Write to us about ship {number}." for number in range(20)]
    words = ["tide", "bread", "harbour", "captain", "deck", "board", "night", "soup"]
    texts = [
        f"The {words[n % 8]} of day {n} was grey and cold. Nobody saw ship number {n} leave. {footer}"
        for n in range(40)
        for footer in footers
    ]
    source = tmp_path / "pages.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    summary = structure_pairs(source, tmp_path / "pairs.jsonl", kinds=["adjacent"], max_pairs=30)
    found = [(row["text"], row["positive"]) for row in rows(tmp_path / "pairs.jsonl")]
    assert len(found) == len(set(found)) == 30
    assert summary.dropped["given twice"] > 0


def test_what_cannot_be_paired_is_said_in_a_sentence(tmp_path):
    (tmp_path / "lines.txt").write_text("Alone.\n")
    with pytest.raises(CorpusError, match="no document with two sentences"):
        structure_pairs(tmp_path / "lines.txt", tmp_path / "pairs.jsonl")
    assert not (tmp_path / "pairs.jsonl").exists()
    with pytest.raises(UserError, match="neighbours"):
        structure_pairs(tmp_path / "lines.txt", tmp_path / "pairs.jsonl", kinds=["neighbours"])


def test_the_command_writes_pairs_that_train_reads(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    write_documents(tmp_path / "documents.jsonl")
    words = ["pairs", "structure", "documents.jsonl", "--kind", "title", "--kind", "halves", "--out", "out.parquet"]
    status, out, err = run_main(monkeypatch, capsys, *words)
    assert status == 0, err
    assert "title 12; halves 12" in err
    assert "24 pairs, for `selfsent train out.parquet --method simcse`" in out.replace("\n", " ")
    refused(lambda *given: run_main(monkeypatch, capsys, *given), "unknown kind 'none'", *words[:3], "--kind", "none")
