"""The command line: errors are one sentence and a non-zero exit status, and output is what was asked for."""

import errno
import io
import json
import os
import sys
from contextlib import suppress

import numpy as np
import pytest
from commands import imported, refused
from small_runs import QUICK, WORDS, random_lines
from tiny import make_base

from selfsent.__main__ import main
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.evaluation.label_free import verdict
from selfsent.objectives import registry
from selfsent.runtime import hardware
from selfsent.storage import atomic, locks


@pytest.fixture
def text(tmp_path):
    return random_lines(tmp_path / "text.txt", 300)


def settings(*more):
    return [word for setting in (*QUICK, *more) for word in ("--set", setting)]


def test_a_disk_that_cannot_be_written_is_one_sentence_that_names_the_file(command, monkeypatch, text):
    def broken(operation, path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "ids.npy")

    monkeypatch.setattr(atomic, "fault", broken)
    refused(command, "cannot read or write ids.npy: Permission denied", "train", text, "--method", "simcse")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\x00\x01\x02binary\x00" * 200, "binary"),
        (b"a good line of text here\n" * 3 + b"caf\xe9 is latin-1\n", "line 4"),
        (b"the same old cat sat again and again\n" * 500, "duplicate"),
        (b"the cat sat on the mat\na dog barked all night\nrain fell on the town\n", "one batch of 8"),
    ],
)
def test_a_corpus_that_cannot_be_trained_on_is_refused_and_leaves_nothing(command, tmp_path, bert, content, message):
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    refused(command, message, "train", path, "--method", "simcse", "--base", bert, "--out", "run", *settings())
    assert not (tmp_path / "run").exists()
    assert path.read_bytes() == content


def test_an_output_folder_that_exists_is_not_touched(command, tmp_path, bert, text):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes").write_text("mine")
    words = ["train", text, "--method", "simcse", "--base", bert, "--out", "run", *settings()]
    for more in ([], ["--resume"]):
        refused(command, "output run exists", *words, *more)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes"]


def test_train_resume_evaluate_encode_and_search_follow_each_other(command, tmp_path, bert, text):
    words = ["train", text, "--method", "simcse", "--base", bert, "--out", "run", *settings()]
    status, out, err = command(*words)
    assert status == 0, err
    assert "trained" in out
    assert "texts kept" in err
    refused(command, "train.steps was 4 and is now 5", *words, "--set", "train.steps=5", "--resume")
    status, again, err = command(*words, "--resume")
    assert status == 0, err
    assert again == out
    assert "the run in run is finished" in err

    status, _, err = command("encode", text, "--model", "run/model", "--out", "vectors.npy")
    assert status == 0, err
    assert np.load("vectors.npy").shape == (300, 32)
    refused(command, "ends in .npy", "encode", text, "--model", "run/model", "--out", "vectors.csv")
    refused(command, "vectors.npy exists", "encode", text, "--model", "run/model", "--out", "vectors.npy")
    status, out, err = command("encode", text, text, "--model", "run/model", "--out", "vectors", "--dtype", "float16")
    assert status == 0, err
    assert "wrote vectors: 600 texts, 32 wide" in out
    first = np.load("vectors/vectors-000000.npy")[:300]
    np.testing.assert_allclose(first, np.load("vectors.npy"), atol=5e-3)

    line = text.read_text().splitlines()[7]
    for origin in ("encoded", "from the last search"):
        status, out, err = command("search", text, line, "--model", "run/model", "--top", "1")
        assert status == 0, err
        assert line in out.replace("\n", " ")
        assert out.startswith("1.000")
        assert origin in err

    status, out, err = command(
        "evaluate", "run/model", "--tasks", "retrieval", "--corpus", text, "--out", "scores.json"
    )
    assert status == 0, err
    written = json.loads((tmp_path / "scores.json").read_text())
    assert {"scores", "model", "versions"} <= set(written)
    with locks.reserved(tmp_path / "scores.json", "selfsent evaluate"):  # which the same command may replace
        pass
    assert written["model"] == "run/model"


@pytest.mark.parametrize("place", ["run", "no/scores.json", "text.txt/scores.json"])
@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "MODEL", "--tasks", "retrieval", "--corpus", "text.txt"],
        ["compare", "text.txt", "MODEL", "builtin"],
    ],
)
def test_a_file_of_scores_that_cannot_be_written_is_refused_before_scoring(
    command, tmp_path, text, monkeypatch, words, place
):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes").write_text("mine")
    monkeypatch.setattr(hardware, "choose_hardware", None)  # nothing is begun
    monkeypatch.setattr(verdict, "verdict", None)
    refused(command, f"cannot write {place}", *words, "--out", place)
    assert (tmp_path / "run" / "notes").read_text() == "mine"
    (tmp_path / "mine.json").write_text('{"scores": "mine"}')
    refused(command, "mine.json exists, and this command did not write it: name another", *words, "--out", "mine.json")
    assert (tmp_path / "mine.json").read_text() == '{"scores": "mine"}'
    with locks.exclusive(tmp_path / "scores.json", folder=False):
        refused(command, "is writing scores.json", *words, "--out", "scores.json")


def test_search_reads_queries_from_standard_input_and_skips_empty_ones(command, bert, text, monkeypatch):
    for given, status, message in ((b"\n \nthe cat\n", 0, "texts encoded"), (b"caf\xe9\n", 1, "line 1 is not UTF-8")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
        found, out, err = command("search", text, "--model", bert, "--top", "1")
        assert (found, len(out.splitlines()) > 0) == (status, not status)
        assert message in err
        assert "Traceback" not in err
    refused(command, "the query is empty", "search", text, " ", "--model", bert)


def test_a_line_of_unknown_words_does_not_end_the_searches_of_standard_input(command, bert, text, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("日本語日本\nthe cat\n".encode())))
    status, out, err = command("search", text, "--model", bert, "--top", "1")
    assert (status, len(out.splitlines())) == (0, 1)
    assert "warning: this encoder knows no word of the query '日本語日本'" in " ".join(err.split())


def test_a_terminal_of_another_encoding_gets_question_marks(bert, tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("the café\nrain fell\n", encoding="utf-8")
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setattr(
        sys, "argv", ["selfsent", "search", str(tmp_path / "text.txt"), "the café", "--model", str(bert)]
    )
    with suppress(SystemExit):
        main()
    shown.flush()
    assert b"the caf?" in shown.buffer.getvalue()


def test_an_error_that_quotes_control_characters_is_shown_without_them(command):
    status, _, err = command("encode", "\x1b[31mnone.txt")
    assert status == 1
    assert "�[31mnone.txt does not exist" in err


def test_encode_reads_standard_input_and_warns_that_it_cannot_be_resumed(command, tmp_path, bert, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the cat\n\nthe caf\xc3\xa9\r\n")))
    status, _, err = command("encode", "--model", bert, "--out", "vectors.npy", "--precision", "fp32")
    assert status == 0, err
    assert "standard input cannot be resumed" in err

    expected = encode(load_encoder(bert), ["the cat", "", "the café"], precision="fp32")
    np.testing.assert_allclose(np.load("vectors.npy"), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "nothing to encode"), (b"a\nb\xff\n", "line 2 is not UTF-8"), (b"%PDF-1.4\0", "binary")],
)
def test_encode_refuses_what_is_no_text_and_writes_nothing(command, tmp_path, bert, content, message):
    (tmp_path / "lines").write_bytes(content)
    refused(command, message, "encode", "lines", "--model", bert, "--out", "vectors.npy")
    assert not (tmp_path / "vectors.npy").exists()


def test_train_names_missing_evaluation_data_once(command, tmp_path, bert, text):
    (tmp_path / "data" / "STS").mkdir(parents=True)
    words = ["train", text, "--method", "simcse", "--base", bert, "--data", "data", "--out", "run", *settings()]
    status, _, err = command(*words)
    assert status == 0, err
    assert err.count("sts14 is missing") == 1


@pytest.mark.parametrize(("name", "advised"), [("train", True), ("compare", False)])
def test_ctrl_c_before_anything_is_saved_says_how_to_go_on(command, bert, text, monkeypatch, name, advised):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("selfsent.training.run._prepare_text", interrupted)
    monkeypatch.setattr("selfsent.evaluation.label_free.verdict.verdict", interrupted)
    words = ["--method", "simcse", "--base", bert] if name == "train" else [bert, bert]
    status, _, err = command(name, text, *words)
    assert status == 130
    assert err.rstrip().endswith(
        f"stopped; resume with: selfsent train {text} --method simcse --base {bert} --resume" if advised else "stopped"
    )


def test_encode_reports_on_ctrl_c_what_is_kept_and_resumes(command, tmp_path, monkeypatch):
    lines, shards = tmp_path / "lines.txt", []
    lines.write_text("rain fell\n" * 40_000)

    def interrupted(operation, path):
        shards.extend([path] * (operation == "rename" and path.parent.name == "shards"))
        if len(shards) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(atomic, "fault", interrupted)
        status, _, err = command("encode", lines, "--model", "builtin-static", "--out", "vectors.npy")
    assert status == 130
    assert "stopped with 32,768 texts kept: run the same command again to resume" in err
    status, out, err = command("encode", lines, "--model", "builtin-static", "--out", "vectors.npy")
    assert status == 0, err
    assert "32,768 of them before" in out


def test_settings_lists_every_method_and_every_key_with_default_and_meaning(command):
    _, listed, _ = command("settings")
    for name in registry.method_names():
        kind = registry.load_method(name)
        assert name in listed
        _, shown, _ = command("settings", name)
        for key in kind.Config.__dataclass_fields__:
            (line,) = [line for line in shown.split("\nKeys, ")[1].splitlines() if line.split()[:1] == [key]]
            default = getattr(kind.Config(), key)
            assert ("none" if default is None else str(default)) in line
            assert len(line.split()) > 3, f"{name}.{key} has no description"
        for preset in kind.presets:
            assert f"preset {preset}" in command("settings", preset)[1]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["settings"], "whitenedcse"),
        (["settings", "scd_released"], "self-contrast"),
        (["train", "--method", "scd+simce"], "unknown method 'simce': did you mean 'simcse'"),
    ],
)
def test_light_commands_and_early_refusals_do_not_import_torch(words, answer):
    assert answer in imported(*words, none_of=("torch", "sentence_transformers", "datasets"))


def test_a_base_without_dropout_is_refused_with_the_setting_that_helps(command, tmp_path, text):
    base = make_base(tmp_path / "base", dropout=0.0)
    words = ["train", text, "--method", "simcse", "--base", base, "--out", "run", *settings()]
    refused(command, "set encoder.dropout=0.1", *words)


@pytest.fixture
def many_words(tmp_path):
    """Lines of made-up words, enough for a vocabulary."""
    draw = np.random.default_rng(0)
    words = ["".join(draw.choice(list("abcdefghijklmnop"), 4)) for _ in range(200)]
    path = tmp_path / "words.txt"
    path.write_text("\n".join(" ".join(draw.choice(words, 14)) for _ in range(300)), encoding="utf-8")
    return path


STATIC = ["--size", "static", "--set", "factors.width=16", "--set", "corpus.deduplicate=exact"]


def test_pretrain_static_leaves_a_folder_that_opens(command, many_words, tmp_path):
    status, out, _ = command("pretrain", many_words, *STATIC, "--vocabulary", 150, "--out", tmp_path / "run")
    assert status == 0
    assert f"model: {tmp_path / 'run' / 'model'}" in out.replace("\n", "")
    from sentence_transformers import SentenceTransformer

    assert SentenceTransformer(str(tmp_path / "run" / "model")).encode(["anything"]).shape == (1, 16)


def test_pretrain_says_how_fast_it_was_and_where_the_model_is(command, many_words, tmp_path):
    settings = ["length=16", "batch_size=4", "corpus.deduplicate=exact", "hardware.threads=1"]
    words = [word for setting in settings for word in ("--set", setting)]
    given = ("--size", "nano", "--vocabulary", 150, "--tokens", 500, "--out", tmp_path / "run")
    status, out, _ = command("pretrain", many_words, *given, *words)
    assert status == 0
    assert "4 steps" in out
    assert "a second" in out
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


def test_pretrain_reads_vectors_that_exist(command, tmp_path):
    (tmp_path / "vectors.txt").write_text("ship 1 0\nsoup 0 1\n", encoding="utf-8")
    status, out, err = command("pretrain", "--size", "static", "--vectors", tmp_path / "vectors.txt", "--out", "run")
    assert status == 0
    assert "2 words" in err
    assert "model: run/model" in out


def test_evaluate_trains_the_classifier_that_was_asked_for_and_says_so(command, tmp_path, bert):
    draw = np.random.default_rng(0)
    rows = [
        f"{split}\t{label}\t{' '.join(draw.choice(WORDS, 4))}"
        for split, count in (("tr", 60), ("va", 20), ("te", 20))
        for label in ("PAST", "PRES") * (count // 2)
    ]
    (tmp_path / "data" / "probing").mkdir(parents=True)
    (tmp_path / "data" / "probing" / "past_present.txt").write_text("\n".join(rows) + "\n")
    words = ["evaluate", bert, "--tasks", "probing", "--data", "data", "--classifier", "senteval_fast"]
    status, out, err = command(*words, "--out", "scores.json")
    assert status == 0, err
    assert "past_present test accuracy (senteval_fast)" in " ".join(out.split())
    assert "probing none (0 of 10 tasks); missing:" in " ".join(out.split())
    assert "warning: past_present is sub-sampled, 60/20/20 of" in err
    assert "word_content is missing" in err
    written = json.loads((tmp_path / "scores.json").read_text())
    assert written["scores"][0]["protocol"]["classifier"] == "senteval_fast"
    assert "word_content" in written["declutr_averages"]["missing"]


@pytest.fixture
def labelled(tmp_path):
    """Texts of two classes that share no words."""
    words = np.array_split(np.array(WORDS), 2)
    draw = np.random.default_rng(0)
    rows = [{"text": " ".join(draw.choice(words[i % 2], 8)), "label": "ab"[i % 2]} for i in range(60)]
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_own_files_are_evaluated_beside_each_other(command, labelled, tmp_path):
    base = make_base(tmp_path / "base")
    tasks = f"classification:{labelled},clustering:{labelled}"
    status, out, err = command("evaluate", base, "--tasks", tasks, "--out", tmp_path / "scores.json")
    assert status == 0, err
    scores = json.loads((tmp_path / "scores.json").read_text())["scores"]
    assert [(score["metric"], score["n"]) for score in scores] == [
        ("accuracy", 30),
        ("macro f1", 30),
        ("v-measure", 60),
    ]
    assert scores[0]["protocol"]["parting"] == "half of each class, drawn with seed 0"
    assert f"{scores[0]['value']:.2f}" in out


def test_a_model_does_not_differ_from_itself_and_seeds_are_joined(command, labelled, tmp_path):
    base, other = make_base(tmp_path / "base"), make_base(tmp_path / "other", seed=1)
    words = ["--tasks", f"classification:{labelled}", "--bootstrap", "100"]
    status, out, err = command("compare", base, base, *words)
    assert status == 0, err
    assert "+0.00 [+0.0, +0.0]" in out
    assert "after ahead" in out
    assert " 0 %" in out
    status, out, err = command("compare", f"{base},{other},{base}", f"{other},{base},{base}", *words)
    assert status == 0, err
    assert "+0.00 [" in out
    refused(command, "give as many seeds of both, 3 or more", "compare", f"{base},{other}", f"{base},{other}", *words)


def test_sweep_prints_its_table_and_decision_and_resumes(command, tmp_path, bert, text):
    quick = [word for one in QUICK if "temperature" not in one for word in ("--set", one)]
    words = ["sweep", text, "--method", "simcse", "--base", bert, "--out", "s", *quick]
    words += ["--set", "objective.temperature=0.05,0.5"]
    status, out, err = command(*words)
    assert status == 0, err
    assert "trial 2 of 2: objective.temperature=0.5" in err
    assert "No setting is better" in out or "3 seeds are needed, and there is one" in " ".join(out.split())
    refused(command, "output s exists", *words)
    status, again, err = command(*words, "--resume")
    assert status == 0, err
    assert again == out
    refused(command, "its seeds was 1 and is now 2", *words, "--resume", "--seeds", "2")


def test_train_with_seeds_prints_each_seed_their_mean_and_the_verdict(command, tmp_path, bert, text):
    words = ["train", text, "--method", "simcse", "--base", bert, "--out", "runs", "--seeds", "2", *settings()]
    status, out, err = command(*words)
    assert status == 0, err
    for part in ("42", "43", "mean", "deviation", "3 seeds are needed"):
        assert part in out
    assert err.count("machine:") == 1  # the second run says nothing that the first did
    assert (tmp_path / "runs" / "seed-43" / "model").is_dir()
    status, again, err = command(*words, "--resume")
    assert status == 0, err
    assert again == out
