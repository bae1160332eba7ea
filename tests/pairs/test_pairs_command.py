"""The commands write pairs, refuse in one sentence, and after a kill repeat nothing that was stored."""

import io
import json
import sqlite3
import time
from contextlib import closing

import pytest
from commands import imported, refused, run_silently
from commands import run as run_main
from rewriting_server import chat, serving
from tiny_marian import text, translated

from selfsent.corpus.prepare import prepare_corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.encoder.load import load_encoder


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *words: run_main(monkeypatch, capsys, *words)


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{text(7 * n)}\n" for n in range(120)))
    return path


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_back_translated_pairs_are_a_corpus(command, tmp_path, translators, lines, bert):
    words = ["pairs", "translate", lines, "--via", *translators, "--precision", "fp32", "--threads", 1]
    status, out, err = command(*words)
    assert status == 0, err
    assert "sentences/s there and back" in out
    assert f"  {text(0)}\n  {translated(text(0), 2)}\n" in out  # of the sample
    assert "120 pairs, for `selfsent train translate.parquet --method simcse`" in out.replace("\n", " ")
    tokenizer = load_encoder(bert).tokenizer
    settings = CorpusConfig(deduplicate="exact", held_out=0)
    found = prepare_corpus([str(tmp_path / "translate.parquet")], settings, tokenizer, cache=tmp_path)
    assert found.paired
    assert found.texts(range(120)) == lines.read_text().splitlines()
    assert found.positives([5])[0] == tokenizer(translated(text(35), 2))["input_ids"]
    status, out, err = command(*words)
    assert status == 0, err
    assert "texts: 120, of which 120 are in the cache" in err
    assert "sentences/s" not in out


def test_rows_of_tables_are_split_into_sentences_and_lines_are_not(command, tmp_path, translators):
    sentences = ["Apple bread chair dance eagle fruit.", "Grape house island juice kettle lemon."]
    (tmp_path / "a.jsonl").write_text(json.dumps({"body": " ".join([*sentences, "Too short."])}) + "\n")
    (tmp_path / "b.txt").write_text(" ".join(sentences) + "\n")
    words = ["--via", *translators, "--out", "out.jsonl", "--precision", "fp32", "--threads", 1]
    for source, more, count in (
        ("a.jsonl", ["--column", "body"], 2),
        ("b.txt", [], 1),
        ("b.txt", ["--split", "yes"], 2),
    ):
        status, _, err = command("pairs", "translate", source, *more, *words)
        assert status == 0, err
        assert f"texts: {count}," in err
    status, out, err = command("pairs", "translate", "a.jsonl", "--column", "body", *words)
    assert "of fewer than 5 words 1" in out + err
    status, _, err = command("pairs", "translate", "a.jsonl", "--column", "body", "--max-texts", 1, *words)
    assert "texts: 1," in err


REWRITE = ["rewrite", "lines.txt", "--endpoint", "http://localhost:1/v1", "--model", "m"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["translate", "none.txt", "--via", "a", "b", "--out", "x.csv"], "output x.csv must be"),
        (["translate", "none.txt", "--via", "./a", "./b"], "cannot open the translator ./a"),
        (["translate", "none.txt", "--via", "./a", "./b", "--precision", "fp8"], "unknown precision 'fp8'"),
        (["rewrite", "lines.txt", "--endpoint", "host", "--model", "m"], "endpoint 'host'"),
        ([*REWRITE, "--prompt", "p"], "the prompt p"),
        (["rewrite", "none.txt", *REWRITE[2:]], "none.txt does not exist"),
        (["rewrite", "empty.txt", *REWRITE[2:]], "there is no text"),
        (["convert", "none.jsonl"], "none.jsonl cannot be opened"),
    ],
)
def test_what_cannot_work_is_refused_by_name(command, lines, tmp_path, words, message):
    (tmp_path / "empty.txt").write_text("\n\n")
    refused(command, message, "pairs", *words)


def test_rewriting_reports_the_cost_first_and_the_tokens_last(command, tmp_path, lines):
    with serving(lambda text, number: chat(f"Rather {text}")) as server:
        words = ["pairs", "rewrite", lines, "--endpoint", server.url, "--model", "m", "--out", "out.jsonl"]
        status, out, err = command(*words, "--price", "1", "2", "--max-texts", 30)
    assert status == 0, err
    assert "cost: 30 requests of about" in err
    assert "at the prices given" in err
    assert "300 tokens in, 150 out" in out
    found = rows(tmp_path / "out.jsonl")
    assert [row["positive"] for row in found] == [f"Rather {text(7 * n)}" for n in range(30)]
    assert {row["backend"] for row in found} == {"rewrite"}
    assert json.loads(found[0]["settings"])["model"] == "m"


def test_rewriting_asks_before_it_spends_anything(command, lines, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with serving(lambda text, number: chat(f"Rather {text}")) as server:
        words = ["pairs", "rewrite", lines, "--endpoint", server.url, "--model", "m", "--max-texts", 3]
        for answer, more, status, requests in (("n\n", [], 1, 0), ("y\n", [], 0, 3), ("", ["--yes"], 0, 3)):
            monkeypatch.setattr("sys.stdin", Terminal(answer))
            assert command(*words, *more)[0] == status
            assert server.asked.total() == requests


def test_ctrl_c_reports_what_is_stored_and_how_to_resume(command, lines, translators, monkeypatch):
    from selfsent.pairs.translate import BackTranslation

    batches = []

    def stop(self, texts):
        if batches:
            raise KeyboardInterrupt
        batches.append(texts)
        return back_translate(self, texts)

    back_translate = BackTranslation._back_translate
    monkeypatch.setattr(BackTranslation, "_back_translate", stop)
    words = ["pairs", "translate", lines, "--via", *translators, "--precision", "fp32", "--threads", 1]
    status, _, err = command(*words)
    assert status == 130
    assert "stopped with 32 of 120 texts done: run the same command again to resume" in err


def test_given_pairs_become_a_pairs_file(command, tmp_path):
    (tmp_path / "a.source.txt").write_text("One thing.\nTwo things.\n")
    (tmp_path / "a.target.txt").write_text("A thing.\nTwo things.\n")
    status, out, err = command("pairs", "convert", "a.source.txt", "--out", "out.jsonl")
    assert status == 0, err
    assert [(row["text"], row["positive"]) for row in rows(tmp_path / "out.jsonl")] == [("One thing.", "A thing.")]
    assert "identical to their text" in out


def test_help_imports_neither_torch_nor_the_client():
    said = imported("pairs", "rewrite", "--help", none_of=("torch", "openai", "transformers"))
    assert "--concurrency" in said


def test_each_text_is_translated_and_stored_once_though_the_process_is_killed_twice(
    tmp_path, translators, lines, cache_folder, forkserver
):
    words = ["pairs", "translate", str(lines), "--via", *map(str, translators), "--out", str(tmp_path / "out.jsonl")]
    words += ["--batch-size", "2", "--threads", "1", "--precision", "fp32"]
    path = cache_folder / "pairs" / "outputs.sqlite"

    def stored():
        if not path.exists():
            return 0
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            try:
                return database.execute("SELECT count(*) FROM outputs").fetchone()[0]
            except sqlite3.OperationalError:  # the tables are not there yet
                return 0

    def start():
        process = forkserver.Process(target=run_silently, args=(words, {"SELFSENT_CACHE": str(cache_folder)}))
        process.start()
        return process

    for goal in (6, 30):
        process = start()
        deadline = time.monotonic() + 120
        while stored() < goal and process.is_alive() and time.monotonic() < deadline:
            process.join(0.005)
        assert process.is_alive(), "it ended before it could be killed"
        process.kill()
        process.join()
        assert goal <= stored() < 120
        assert not (tmp_path / "out.jsonl").exists()
    last = start()
    last.join()
    assert last.exitcode == 0
    found = rows(tmp_path / "out.jsonl")
    assert [row["text"] for row in found] == lines.read_text().splitlines()
    assert [row["positive"] for row in found] == [translated(row["text"], 2) for row in found]
    with closing(sqlite3.connect(path)) as database:
        asked, kept, runs = database.execute("SELECT sum(asked), sum(stored), count(*) FROM runs").fetchone()
    assert (kept, runs) == (120, 3)
    assert 120 <= asked <= 120 + 2 * 2  # a kill loses the batch of 2 that is under way, and nothing else
