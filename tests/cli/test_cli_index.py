"""selfsent index and selfsent search over what it made."""

import json
import shlex

import pytest
from tiny import TEXTS, make_base

from selfsent.cli.search import search_line
from selfsent.searching.index import Index
from selfsent.storage.atomic import write_sealed
from selfsent.storage.run_folder import PLAN


@pytest.fixture
def run(command):
    return command


def write(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def test_an_index_is_made_searched_updated_and_its_changed_corpus_said(run, bert, tmp_path):
    corpus, index = tmp_path / "corpus.jsonl", tmp_path / "index"
    write(corpus, TEXTS[:5])
    status, out, err = run("index", corpus, "--model", bert, "--out", index)
    assert (status, "5 documents added" in out, "searched exactly" in out) == (0, True, True)
    status, out, err = run("search", index, TEXTS[2], "--top", 1, "--mode", "dense")
    assert (status, TEXTS[2] in out, "changed" in err) == (0, True, False)
    assert out.startswith("1.00")
    both = [line.split()[0] for line in run("search", index, TEXTS[2], "--mode", "hybrid")[1].splitlines()]
    assert both[0] == "1.000"  # what ranks them: the largest cosine and the best score by words
    assert both == sorted(both, reverse=True)
    write(corpus, TEXTS[1:])
    status, _, err = run("search", index, TEXTS[2])
    assert (status, "warning: the corpus changed since" in err) == (0, True)
    status, out, err = run("index", "--update", "--out", index)
    assert (status, "1 document added, 1 deleted, 4 kept" in out) == (0, True)


def test_hits_carry_the_ids_of_their_rows_and_are_printed_as_lines_of_json(run, bert, tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    corpus, index = tmp_path / "corpus.jsonl", tmp_path / "index"
    rows = [{"id": 100 + row, "key": f"k{row}", "title": f"t{row}", "text": text} for row, text in enumerate(TEXTS[:5])]

    def put():
        corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def hits(*words):
        place, *more = words
        status, out, err = run("search", place, TEXTS[2], *more, "--top", 2, "--jsonl")
        assert status == 0, err
        return [json.loads(line) for line in out.splitlines()]

    put()
    assert run("index", corpus, "--model", bert, "--out", index, "--set", "mode=dense")[0] == 0
    for found in hits(index), hits(corpus, "--model", bert):
        assert [hit["rank"] for hit in found] == [1, 2]
        assert found[0]["cosine"] == pytest.approx(1, abs=1e-3)
        expected = {"query": TEXTS[2], "document": 2, "id": "102", "title": "t2", "text": TEXTS[2]}
        assert expected.items() <= found[0].items()
    assert "[102] t2: " in run("search", index, TEXTS[2])[1]
    assert hits(corpus, "--model", bert, "--id-column", "key")[0]["id"] == "k2"
    rows[2]["id"] = "new"  # the same text under another id is another document
    put()
    assert "1 document added, 1 deleted, 4 kept" in run("index", "--update", "--out", index)[1]
    assert hits(index)[0]["id"] == "new"


def test_a_corpus_without_ids_has_none_in_its_hits(run, bert, tmp_path):
    corpus, index = tmp_path / "corpus.jsonl", tmp_path / "index"
    write(corpus, TEXTS[:5])
    assert run("index", corpus, "--model", bert, "--out", index, "--set", "mode=dense")[0] == 0
    status, out, _ = run("search", index, TEXTS[2], "--top", 1)
    assert (status, out.split("  ")[1].startswith(TEXTS[2][:20])) == (0, True)


def test_a_second_file_is_added_beside_the_first(run, bert, tmp_path):
    corpus, other, index = tmp_path / "corpus.jsonl", tmp_path / "other.jsonl", tmp_path / "index"
    write(corpus, TEXTS[:5])
    write(other, ["A text of another corpus.", "And a second one."])
    assert run("index", corpus, "--model", bert, "--out", index)[0] == 0
    assert "2 documents added, 0 deleted, 5 kept" in run("index", corpus, other, "--update", "--out", index)[1]


def test_the_settings_are_listed(run):
    assert "exact_vectors" in run("settings", "index")[1]
    assert "max_batch_tokens" in run("settings", "serve")[1]


def test_an_index_that_is_given_another_model_is_embedded_again_by_it(run, bert, tmp_path):
    corpus, index, other = tmp_path / "corpus.jsonl", tmp_path / "index", make_base(tmp_path / "other", seed=1)
    write(corpus, TEXTS[:5])
    assert run("index", corpus, "--model", bert, "--out", index)[0] == 0
    status, out, _ = run("index", "--update", "--model", other, "--out", index)
    assert (status, "5 documents added, 5 deleted, 0 kept" in out) == (0, True)
    assert Index.open(index).facts["model"] == str(other)
    assert run("index", "--update", "--out", index)[0] == 0


def test_the_search_that_a_selection_prints_can_be_run_on_text_in_another_encoding(run, bert, tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text("\n".join(["", "the caf\xe9 was on the mat .", *TEXTS]), encoding="cp1252")
    for name in (texts, texts / "a.txt"):
        asked = {"sources": [str(name)], "settings": {"corpus": {"encoding": "cp1252"}}}
        write_sealed(tmp_path / PLAN, {"asked": asked})
        line = search_line(tmp_path, bert)
        assert f"{name}::cp1252" in line
        status, out, err = run(*shlex.split(line)[1:])
        assert (status, "caf\xe9" in out) == (0, True), err
