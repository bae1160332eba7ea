"""--json: one object on standard output, with the figures of the Python result; all else on standard error."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer
from small_runs import QUICK, WORDS

import selfsent
from selfsent.cli import app
from selfsent.runtime.printed import plain

SEEN = ["--documents", 60, "--no-static", "--bootstrap", 100]
VERDICT = {"documents": 60, "static": False, "bootstrap": 100}
SET = [word for setting in QUICK for word in ("--set", setting)]


@pytest.fixture
def text(tmp_path):
    draw = np.random.default_rng(0)
    sentences = [" ".join(draw.choice(WORDS, 9)).capitalize() for _ in range(600)]
    documents = [f"{first}. {second}." for first, second in zip(sentences[::2], sentences[1::2], strict=True)]
    (tmp_path / "text.txt").write_text("\n".join(documents), encoding="utf-8")
    vectors = "\n".join(f"{word} {place} 1.0 2.0" for place, word in enumerate(WORDS))
    (tmp_path / "vectors.txt").write_text(vectors, encoding="utf-8")
    rows = [json.dumps({"text": document}) for document in documents]
    labelled = [f"{document},{place % 2}" for place, document in enumerate(documents[:20])]
    (tmp_path / "labelled.csv").write_text("\n".join(["text,label", *labelled]), encoding="utf-8")
    (tmp_path / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    return "text.txt"


def same(result):
    return lambda said: said == json.loads(json.dumps(plain(result())))


def cases(bert):
    """Of every command: its words, and what must hold of the object."""
    bert, read = str(bert), lambda path: json.loads(Path(path).read_text())
    return {
        "search": (
            ["text.txt", "the cat", "--model", bert, "--top", 3],
            lambda said: said["hits"] == plain(selfsent.search(bert, "text.txt", "the cat", top=3)),
        ),
        "encode": (
            ["text.txt", "--model", bert, "--out", "x.npy"],
            lambda said: (said["rows"], said["width"]) == np.load("x.npy").shape and said["output"] == "x.npy",
        ),
        "index": (
            ["text.txt", "--model", bert, "--out", "x.index"],
            lambda said: said["documents"] == said["added"] == len(selfsent.Index.open("x.index")),
        ),
        "classify": (
            ["builtin-static", "labelled.csv", "--out", "kept.joblib"],
            lambda said: (
                said["kept"] in [each["name"] for each in said["scores"]]
                and said["classes"] == ["0", "1"]
                and Path(said["out"]).is_file()
            ),
        ),
        "topics": (
            ["builtin-static", "text.txt", "--topics", 3],
            lambda said: (
                sum(topic["size"] for topic in said["topics"]) == said["texts"] == 300 and Path(said["page"]).is_file()
            ),
        ),
        "evaluate": (
            [bert, "--tasks", "retrieval", "--corpus", "text.txt", "--bootstrap", 0],
            same(lambda: selfsent.evaluate(bert, ["retrieval"], corpus="text.txt", bootstrap=0)),
        ),
        "compare": (
            ["text.txt", bert, "builtin-static", *SEEN],
            same(lambda: selfsent.verdict(bert, "builtin-static", "text.txt", **VERDICT)),
        ),
        "pretrain": (
            ["--size", "static", "--vectors", "vectors.txt", "--out", "new"],
            lambda said: said["model"] == "new/model" and Path("new/model/modules.json").is_file(),
        ),
        "train": (
            ["text.txt", "--method", "simcse", "--base", bert, "--out", "run", *SET],
            lambda said: said["model"] == "run/model" and said["outcome"]["steps"] == 4 and Path("run/model").is_dir(),
        ),
        "sweep": (
            [
                "text.txt",
                "--method",
                "simcse",
                "--base",
                bert,
                "--out",
                "swept",
                *SET,
                "--set",
                "objective.temperature=0.1,0.2",
            ],
            lambda said: said["decision"] == read("swept/sweep.json")["decision"] and len(said["trials"]) == 3,
        ),
        "settings": (["simcse"], lambda said: "temperature" in {each["key"] for each in said["settings"]}),
        "pairs structure": (
            ["rows.jsonl", "--out", "pairs.jsonl", "--kind", "adjacent"],
            lambda said: said["pairs"] == len(Path("pairs.jsonl").read_text().splitlines()) > 0,
        ),
        "reproduce": (
            ["scd-table-3", "--scale", "small", "--plan"],
            lambda said: list(said) == ["scd-table-3"] and said["scd-table-3"]["trainings"] > 0,
        ),
    }


@pytest.mark.parametrize("name", cases(""))
def test_one_object_is_printed_and_it_is_the_result(command, bert, text, name):
    words, holds = cases(bert)[name]
    status, out, err = command(*name.split(), *words, "--json")
    assert status == 0, err
    assert len(out.splitlines()) == 1
    said = json.loads(out)
    assert isinstance(said, dict)
    assert holds(said), said
    assert err  # what a person reads


def test_every_command_but_serve_has_it():
    commands = typer.main.get_command(app).commands
    flat = commands | {f"pairs {name}": one for name, one in commands.pop("pairs").commands.items()}
    lacking = {
        name for name, one in flat.items() if "--json" not in [word for each in one.params for word in each.opts]
    }
    assert lacking == {"serve"}


def test_an_error_leaves_standard_output_empty(command, text):
    status, out, err = command("search", text, "cat", "--model", "no/such", "--json")
    assert (status, out) == (1, "")
    assert err.splitlines()[-1].startswith("error: ")


def test_the_last_line_of_train_is_a_command_that_runs(command, bert, tmp_path):
    draw = np.random.default_rng(0)
    lines = [f'"it\'s $HOME" {" ".join(draw.choice(WORDS, 12))}' for _ in range(300)]
    (tmp_path / "my text.txt").write_text("\n".join(lines))
    status, out, err = command("train", "my text.txt", "--method", "simcse", "--base", bert, "--out", "a run", *SET)
    assert status == 0, err
    first, *words = shlex.split(out.splitlines()[-1])
    assert (first, words[:2]) == ("selfsent", ["search", "my text.txt"])
    status, out, err = command(*words)
    assert status == 0, err
    assert out[:5] > "1.000" or out.splitlines()[0].startswith(("1.0", "0."))
