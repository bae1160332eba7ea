"""selfsent index and selfsent search over what it made; selfsent serve refuses what it cannot serve."""

import json
import sys

import pytest
from tiny import TEXTS

from selfsent.__main__ import main


@pytest.fixture
def run(monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["selfsent", *map(str, words)])
        status = 0
        try:
            main()
        except SystemExit as ended:
            status = ended.code or 0
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return status, out, err

    return run


def write(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def test_an_index_is_made_searched_updated_and_its_changed_corpus_said(run, bert, tmp_path):
    corpus, index = tmp_path / "corpus.jsonl", tmp_path / "index"
    write(corpus, TEXTS[:5])
    status, out, err = run("index", corpus, "--model", bert, "--out", index)
    assert (status, "5 documents added" in err, "searched exactly" in out) == (0, True, True)
    status, out, err = run("search", index, TEXTS[2], "--top", 1, "--mode", "dense")
    assert (status, TEXTS[2] in out, "changed" in err) == (0, True, False)
    assert out.startswith("1.00")
    both = [line.split()[0] for line in run("search", index, TEXTS[2], "--mode", "hybrid")[1].splitlines()]
    assert both[0] == f"{2 / 61:.3f}"  # what ranks them: first by meaning and by words
    assert both == sorted(both, reverse=True)
    write(corpus, TEXTS[1:])
    status, _, err = run("search", index, TEXTS[2])
    assert (status, "warning: the corpus changed since" in err) == (0, True)
    status, _, err = run("index", "--update", "--out", index)
    assert (status, "1 documents added, 1 deleted, 4 kept" in err) == (0, True)


def test_hits_carry_the_ids_of_their_rows_and_are_printed_as_lines_of_json(run, bert, tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    corpus, index = tmp_path / "corpus.jsonl", tmp_path / "index"
    rows = [{"id": 100 + row, "key": f"k{row}", "title": f"t{row}", "text": text} for row, text in enumerate(TEXTS[:5])]

    def put():
        corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def hits(*words):
        status, out, err = run("search", *words, TEXTS[2], "--top", 2, "--jsonl")
        assert status == 0, err
        return [json.loads(line) for line in out.splitlines()]

    put()
    assert run("index", corpus, "--model", bert, "--out", index, "--set", "mode=dense")[0] == 0
    for found in hits(index), hits(bert, corpus):
        assert [hit["rank"] for hit in found] == [1, 2]
        assert found[0]["cosine"] == pytest.approx(1, abs=1e-3)
        expected = {"query": TEXTS[2], "document": 2, "id": "102", "title": "t2", "text": TEXTS[2]}
        assert expected.items() <= found[0].items()
    assert "[102] t2: " in run("search", index, TEXTS[2])[1]
    assert hits(bert, corpus, "--id-column", "key")[0]["id"] == "k2"
    rows[2]["id"] = "new"  # the same text under another id is another document
    put()
    assert "1 documents added, 1 deleted, 4 kept" in run("index", "--update", "--out", index)[2]
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
    assert "2 documents added, 0 deleted, 5 kept" in run("index", corpus, other, "--update", "--out", index)[2]


def test_what_does_not_fit_is_one_sentence(run, bert, tmp_path):
    corpus, index = tmp_path / "corpus.jsonl", tmp_path / "index"
    write(corpus, TEXTS)
    other = tmp_path / "other.jsonl"
    write(other, ["A text of another corpus."])
    assert run("index", corpus, "--model", bert, "--out", index)[0] == 0
    for words, sentence in (
        (("index",), "no corpus was given"),
        (("index", corpus, "--out", index, "--model", bert), "is an index already: add --update"),
        (("index", "--update", "--out", tmp_path), "is no index"),
        (("index", "--update", "--out", index, "--set", "mode=dense"), "--set does not fit --update"),
        (("index", "--update", "--out", index, "--model", "builtin"), "--model does not fit --update"),
        (("index", "--update", "--out", index, other), "name that, too, to add to it"),
        (("index", "--update", "--out", index, "--id-column", "key"), "--id-column does not fit --update"),
        (("index", corpus, "--out", tmp_path / "x", "--set", "mode=magic"), "unknown mode 'magic'"),
        (("search", index, "a", "b"), "is an index, which has its model and corpus"),
        (("search", bert), "no corpus was given"),
        (("search", bert, corpus, "rain", "--mode", "bm25"), "--mode is for an index"),
        (("search", index, "rain", "--mode", "magic"), "unknown mode 'magic'"),
        (("search", index, " "), "the query is empty"),
        (("serve", "--port", "0"), "no model was given"),
        (("serve", "--port", "99999"), "between 0 and 65535"),
        (("serve", bert, "--port", "0", "--api-key", " "), "the API key is empty"),
        (("serve", bert, "--port", "0", "--set", "deadline=0"), "deadline"),
        (("serve", "--port", "0", "--index", tmp_path), "is no index"),
    ):
        status, out, err = run(*words)
        assert (status, out) == (1, ""), words
        assert sentence in err, err


def test_the_settings_are_listed(run):
    assert "exact_vectors" in run("settings", "index")[1]
    assert "max_batch_tokens" in run("settings", "serve")[1]


def test_columns_of_an_index_that_is_there_are_refused(run, bert, tmp_path):
    corpus, index = tmp_path / "corpus.jsonl", tmp_path / "index"
    write(corpus, TEXTS[:5])
    run("index", corpus, "--model", bert, "--out", index)
    status, _, err = run("index", corpus, "--out", index, "--update", "--text-column", "body")
    assert (status, "--text-column does not fit --update" in err) == (1, True)
    for option in ("--text-column", "--id-column"):
        status, _, err = run("search", index, TEXTS[0], option, "body")
        assert (status, "do not fit" in err) == (1, True)
