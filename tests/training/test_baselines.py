"""What needs no training beside base and trained encoder: counted in what training saw, said where it wins."""

import json
from pathlib import Path

import numpy as np
import pytest
from commands import run as command
from small_runs import QUICK, WORDS, Told, random_lines, train

from selfsent.corpus.dataset import Corpus
from selfsent.corpus.held_out import HeldOutPairs
from selfsent.evaluation.label_free.verdict import judge_held_out
from selfsent.evaluation.suite import read_suite
from selfsent.runs import read
from selfsent.training import final_scores
from selfsent.training import train as training

HELD_OUT = ["corpus.held_out=40", "corpus.held_out_share=0.4"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The folder of the cache, the text, and the finished run."""
    with pytest.MonkeyPatch.context() as patched:
        home = tmp_path_factory.mktemp("baselines")
        patched.setenv("SELFSENT_CACHE", str(home / "cache"))
        yield home


@pytest.fixture(scope="module")
def text(home):
    """Lines of sixteen words, two of which are the line's own and stand in both of its halves."""
    draw = np.random.default_rng(0)
    syllables = ["ka", "lo", "mi", "ter", "sun", "pra", "vel", "dor", "gin", "fa"]
    path = home / "text.txt"
    with path.open("w", encoding="utf-8") as file:
        for _ in range(400):
            own = ["".join(draw.choice(syllables, 3)) for _ in range(2)]
            halves = ([*draw.choice(WORDS, 6).tolist(), *own] for _ in range(2))
            file.write(" ".join(" ".join(draw.permutation(half)) for half in halves) + "\n")
    return path


@pytest.fixture(scope="module")
def finished(bert, text, home):
    return train(bert, text, home / "run", *HELD_OUT)


@pytest.fixture(scope="module")
def corpus(finished, home):
    return Corpus(
        home / "cache" / "corpora" / json.loads((home / "run" / "config.json").read_text())["corpus"]["fingerprint"]
    )


def test_what_word_matching_finds_is_in_table_folder_and_verdict(finished):
    written = json.loads((finished.folder / "scores.json").read_text())
    assert list(finished.baselines) == list(written["baselines"]) == ["bm25", "static"]
    for name, results in finished.baselines.items():
        assert results.get("retrieval", "mrr@10").value == written["baselines"][name]["scores"][0]["value"]
        assert results.fingerprint == finished.before.fingerprint  # the same queries and passages
    bm25, base = finished.baselines["bm25"].get("retrieval", "mrr@10"), finished.before.get("retrieval", "mrr@10")
    assert bm25.value > 90 > base.value
    assert finished.verdict.startswith("Cannot tell: single lines have no structure to judge by: ")
    assert f" against {base.value:.1f} before, " in finished.verdict
    assert "Word" not in finished.verdict


def test_the_verdict_on_pairs_says_that_word_matching_is_better(bert, text, tmp_path):
    halves = [line.split() for line in text.read_text(encoding="utf-8").splitlines()]
    rows = [{"text": " ".join(words[:8]), "positive": " ".join(words[8:])} for words in halves]
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    finished = train(bert, pairs, tmp_path / "run", *HELD_OUT)
    bm25, base, trained = (
        results.get("retrieval", "mrr@10").value
        for results in (finished.baselines["bm25"], finished.before, finished.after)
    )
    assert bm25 > 90 > base
    assert (
        "Word matching (BM25) is better than both here, at finding the right text (MRR@10): "
        f"{bm25:.1f} against {trained:.1f} trained and {base:.1f} base." in finished.verdict
    )


def test_word_vectors_are_counted_in_what_training_kept_and_in_nothing_else(corpus, home, text):
    counted = corpus.texts(range(len(corpus)))
    spooled = [path.read_text(encoding="utf-8") for path in (home / "cache" / "texts").glob("*/texts.jsonl")]
    assert "".join(json.dumps({"text": one}) + "\n" for one in counted) in spooled
    held_out = corpus.held_out
    for pairs in (held_out.dev, held_out.test):
        assert len(pairs) == 40
        for query, passage in zip(pairs.queries, pairs.passages, strict=True):
            assert f"{query} {passage}" in text.read_text(encoding="utf-8").splitlines()
            assert f"{query} {passage}" not in counted


def test_no_more_texts_are_counted_than_allowed_and_they_are_drawn_from_all(corpus, monkeypatch):
    seen = []
    monkeypatch.setattr(final_scores, "COUNTED", 10)
    monkeypatch.setattr(final_scores, "cached_static_vectors", lambda sources, *_: seen.extend(sources))
    final_scores.count_training_vectors(corpus, "en")
    monkeypatch.setattr(final_scores, "_PIECES", 5 * int(corpus.lengths.mean()) + 5)
    final_scores.count_training_vectors(corpus, "en")
    assert len(Path(seen[1]).read_text(encoding="utf-8").splitlines()) == 5  # long texts are fewer
    counted = [json.loads(line)["text"] for line in Path(seen[0]).read_text(encoding="utf-8").splitlines()]
    every = corpus.texts(range(len(corpus)))
    places = [every.index(one) for one in counted]
    assert len(places) == 10
    assert (places[0], places[-1]) == (0, len(every) - 1)
    assert max(np.diff(places)) - min(np.diff(places)) <= 1


def test_vectors_are_counted_once_and_a_finished_run_reads_them_back(bert, finished, text, tmp_path):
    told = Told()
    train(bert, text, tmp_path / "second", *HELD_OUT, seed=3, progress=told)
    assert not any("are computed" in line for line in told.said)
    again = train(bert, text, finished.folder, *HELD_OUT, resume=True)
    assert again == finished
    assert again.baselines["bm25"].scores


def test_they_can_be_left_out(bert, text, tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    result = train(bert, text, tmp_path / "run", *HELD_OUT, "train.baselines=false")
    assert result.baselines == {}
    assert "BM25" not in result.verdict
    assert not (tmp_path / "cache" / "static").exists()


def test_text_too_small_for_word_vectors_leaves_them_out_with_one_line(bert, home, tmp_path):
    told, path = Told(), random_lines(tmp_path / "few.txt", 400)
    result = train(bert, path, tmp_path / "run", *HELD_OUT, progress=told)
    assert set(result.baselines) == {"bm25"}
    (line,) = [line for line in told.said if line.startswith("left out: word vectors")]
    assert "tokens: give more text" in line


def test_one_pair_cannot_be_ranked():
    assert final_scores.score_baselines(HeldOutPairs(["a query"], ["a passage"], [""]), None) == {}


def results(right, share=0):
    """Scores of an encoder that finds 200 answers from ``share`` on, ``right`` of them."""
    texts, eye = [f"text {i}" for i in range(200)], np.eye(200)
    found = {(share + i) % 200 for i in range(right)}
    answers = {f"answer {i}": eye[i if i in found else (i + 1) % 200] for i in range(200)}
    suite = read_suite(["retrieval"], None, held_out=(texts, list(answers)))
    vectors = dict(zip(texts, eye, strict=True)) | answers
    return suite.score(np.stack([vectors[text] for text in suite.sentences]))


@pytest.mark.parametrize(
    ("right", "share", "words"),
    [
        (190, 100, "are better than both here, at finding the right text (MRR@10): "),
        (130, 100, "are better than the trained encoder here"),
        # sixteen found and ten missed of what training finds
        (66, 110, "and the trained encoder cannot be told apart"),
        (54, 110, "and the trained encoder cannot be told apart"),
        (10, 100, "are behind the trained encoder at finding the right text (MRR@10)."),
    ],
)
def test_the_verdict_says_by_the_paired_interval_how_word_vectors_compare(right, share, words):
    before, after = results(150), results(60, share=100)
    said = judge_held_out(before, after, {"static": results(right, share)})
    assert f"Word vectors counted in the training text {words}" in said
    assert ("`selfsent fit` starts from them" in said) == ("better than" in words)


def test_the_command_shows_a_column_each_and_nothing_where_there_is_no_score(bert, text, tmp_path, monkeypatch, capsys):
    words = [word for setting in (*QUICK, *HELD_OUT) for word in ("--set", setting)]
    monkeypatch.setenv("COLUMNS", "120")
    status, out, err = command(
        monkeypatch, capsys, "train", text, "--method", "simcse", "--base", bert, "--out", tmp_path / "run", *words
    )
    assert status == 0, err
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    rows = {row[0]: row[1:] for row in rows}
    saved = json.loads((tmp_path / "run" / "scores.json").read_text())
    beside = [{one["metric"]: one["value"] for one in found["scores"]} for found in saved["baselines"].values()]
    assert rows["retrieval held-out mrr@10"][2:4] == [f"{found['mrr@10']:.2f}" for found in beside]
    assert rows["retrieval held-out alignment"][2:4] == ["", f"{beside[1]['alignment']:.2f}"]
    assert "BM25" in out


def test_the_curve_has_what_they_score_on_the_same_held_out_half(finished, corpus):
    record = read.read_run(finished.folder)
    expected = final_scores.score_baselines(corpus.held_out.dev, None)["bm25"].get("retrieval", "mrr@10").value
    assert record.levels["retrieval"]["bm25"] == expected
    assert set(record.levels["retrieval"]) == {"bm25", "static"}


def test_the_baselines_are_scored_after_training_and_steer_nothing(bert, text, tmp_path):
    one, two = (
        train(bert, text, tmp_path / name, *HELD_OUT, f"train.baselines={name}", "train.steps=2")
        for name in ("true", "false")
    )
    name = "model.safetensors"
    assert (one.model / name).read_bytes() == (two.model / name).read_bytes()
    assert training.resolve("simcse").train.baselines
