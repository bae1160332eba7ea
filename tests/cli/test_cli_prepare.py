"""selfsent train --prepare-only: what it says, and that training finds what it made; parts of selfsent encode."""

import json

import numpy as np
import pytest
from tiny import TEXTS

WORDS = sorted({word for text in TEXTS for word in text.split()})


@pytest.fixture
def text(tmp_path):
    draw = np.random.default_rng(0)
    lines = [" ".join(draw.choice(WORDS, 14)) for _ in range(300)]
    path = tmp_path / "text.txt"
    path.write_text("\n".join([*lines, *lines[:25]]), encoding="utf-8")
    return path


def test_it_says_what_is_kept_and_dropped_and_training_finds_the_corpus(command, bert, text, tmp_path):
    prepare = ["train", text, "--method", "simcse", "--base", bert, "--set", "corpus.max_length=20", "--prepare-only"]
    status, out, err = command(*prepare)
    assert status == 0, err
    counts = {line.rsplit("  ")[0].strip(): line for line in out.splitlines()}
    assert "325" in counts["documents read"]
    assert any(line.strip().startswith("exact duplicates") and " 2" in line for line in out.splitlines())
    (folder,) = (tmp_path / "cache" / "corpora").glob("[0-9a-f]*")
    kept = json.loads((folder / "account.json").read_text())["kept"]
    assert kept == len(np.load(folder / "lengths.npy"))
    assert f"prepared: {folder}" in err
    assert f"found in the cache: {folder}" in command(*prepare)[2]
    quick = ["train.steps=2", "train.batch_size=8", "hardware.threads=1", "corpus.max_length=20"]
    words = [word for setting in quick for word in ("--set", setting)]
    status, _, err = command("train", text, "--method", "simcse", "--base", bert, *words)
    assert status == 0, err
    assert f"reused from {folder}" in err.replace("\n", " ")


def test_parts_by_the_command_line_say_which_are_missing(command, bert, text, tmp_path):
    status, out, _ = command("encode", text, "--model", bert, "--out", "parts.npy", "--part", "2/2")
    assert (status, "when these are, too: 1" in out) == (0, True)
    status, out, _ = command("encode", text, "--model", bert, "--out", "parts.npy", "--part", "1/2")
    assert (status, "wrote parts.npy: 325 texts" in out) == (0, True)
    command("encode", text, "--model", bert, "--out", "once.npy")
    assert (tmp_path / "parts.npy").read_bytes() == (tmp_path / "once.npy").read_bytes()


def test_the_unit_is_the_method_s(command, bert, tmp_path):
    draw = np.random.default_rng(0)
    documents = [". ".join(" ".join(draw.choice(WORDS, 14)).capitalize() for _ in range(9)) for _ in range(80)]
    rows = [json.dumps({"text": document}) for document in documents]
    (tmp_path / "long.jsonl").write_text("\n".join(rows), encoding="utf-8")
    words = ["train", "long.jsonl", "--base", bert, "--set", "corpus.max_length=200", "--prepare-only"]
    kept = {}
    for method in ("simcse", "declutr"):
        status, _, err = command(*words, "--method", method)
        assert status == 0, err
        kept[method] = max(np.load(err.split("prepared: ")[1].strip() + "/lengths.npy"))
    assert 2 * kept["simcse"] < kept["declutr"]
