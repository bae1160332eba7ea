"""selfsent prepare: what it says, what it refuses, and that training finds what it made."""

import json
import os
import sys

import numpy as np
import pytest
from tiny import TEXTS

from selfsent.__main__ import main

WORDS = sorted({word for text in TEXTS for word in text.split()})


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["selfsent", *map(str, words)])
        try:
            main()
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def text(tmp_path):
    draw = np.random.default_rng(0)
    lines = [" ".join(draw.choice(WORDS, 14)) for _ in range(300)]
    path = tmp_path / "text.txt"
    path.write_text("\n".join([*lines, *lines[:25]]), encoding="utf-8")
    return path


def test_it_says_what_is_kept_and_dropped_and_training_finds_the_corpus(command, bert, text, tmp_path):
    status, out, err = command("prepare", text, "--base", bert, "--set", "corpus.max_length=20")
    assert status == 0, err
    counts = {line.rsplit("  ")[0].strip(): line for line in out.splitlines()}
    assert "325" in counts["documents read"]
    assert any(line.strip().startswith("exact duplicates") and " 2" in line for line in out.splitlines())
    (folder,) = (tmp_path / "cache" / "corpora").glob("[0-9a-f]*")
    kept = json.loads((folder / "account.json").read_text())["kept"]
    assert kept == len(np.load(folder / "lengths.npy"))
    assert f"prepared: {folder}" in err
    assert (
        f"found in the cache: {folder}" in command("prepare", text, "--base", bert, "--set", "corpus.max_length=20")[2]
    )
    quick = ["train.steps=2", "train.batch_size=8", "hardware.threads=1", "corpus.max_length=20"]
    words = [word for setting in quick for word in ("--set", setting)]
    status, _, err = command("train", "simcse", "--base", bert, "--corpus", text, *words)
    assert status == 0, err
    assert f"reused from {folder}" in err.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.txt"], "nothing.txt"),
        (["--engine", "spark"], "unknown engine 'spark'"),
        (["--unit", "words"], "unknown unit 'words'"),
        (["--workers", "2"], "--workers is for --engine ray"),
        (["--set", "train.steps=2"], "no setting of a corpus"),
        (["--set", "corpus.max_lenght=2"], "max_length"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(command, text, words, message):
    status, out, err = command("prepare", *([text] if words[0].startswith("-") else []), *words)
    assert status != 0
    assert message in err.strip().splitlines()[-1]
    assert "Traceback" not in out + err
    assert not os.listdir("cache") if os.path.isdir("cache") else True  # noqa: PTH112, PTH208


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--part", "3/2"], "part '3/2' does not fit"),
        (["--part", "1/2", "--engine", "ray"], "--part is for other schedulers"),
        (["--workers", "2"], "--workers is for --engine ray"),
    ],
)
def test_encode_refuses_parts_and_engines_that_do_not_fit(command, bert, text, words, message):
    status, out, err = command("encode", bert, text, *words)
    assert status != 0
    assert message in err.strip().splitlines()[-1]
    assert "Traceback" not in out + err


def test_parts_by_the_command_line_say_which_are_missing(command, bert, text, tmp_path):
    status, _, err = command("encode", bert, text, "--output", "parts.npy", "--part", "2/2")
    assert (status, "when these are, too: 1" in err) == (0, True)
    status, _, err = command("encode", bert, text, "--output", "parts.npy", "--part", "1/2")
    assert (status, "wrote parts.npy: 325 texts" in err) == (0, True)
    command("encode", bert, text, "--output", "once.npy")
    assert (tmp_path / "parts.npy").read_bytes() == (tmp_path / "once.npy").read_bytes()
