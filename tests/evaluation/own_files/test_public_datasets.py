"""Public sets in the files of their authors: read whole, or refused by name."""

import json
from pathlib import Path

import pytest

from selfsent.errors import DataError
from selfsent.evaluation.own_files import public_datasets


def read(name, data):
    return public_datasets.read_public_dataset(name, public_datasets.find_public_dataset(name, data))


def banking77(folder, train=10_003, test=3_080):
    for split, rows in (("train", train), ("test", test)):
        lines = [f'"text {split}, {i}",intent {i % 77}' for i in range(rows)]
        (folder / f"{split}.csv").write_text("\n".join(["text,category", *lines]) + "\n", encoding="utf-8")


def emotion(folder, train=16_000, test=2_000):
    for split, rows in (("train", train), ("test", test)):
        lines = [f"text; {split} {i};feeling {i % 6}" for i in range(rows)]
        (folder / f"{split}.txt").write_text("\n".join(["text;label_name", *lines]) + "\n", encoding="utf-8")


def clinc150(folder, train=15_000, test=4_500):
    content = {"oos_test": [["nothing of ours", "oos"]]}
    content |= {
        split: [[f"text {split} {i}", f"intent {i % 150}"] for i in range(rows)]
        for split, rows in (("train", train), ("test", test))
    }
    (folder / "data_full.json").write_text(json.dumps(content), encoding="utf-8")


def stackoverflow(folder, titles=20_000, labels=20_000):
    texts, numbers = [f"title {i}" for i in range(titles)], [str(i % 20 + 1) for i in range(labels)]
    for name, lines in (("title", texts), ("label", numbers)):
        (folder / f"{name}_StackOverflow.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    def make(name):
        place = tmp_path / "mteb" / public_datasets.TASKS[name]
        place.mkdir(parents=True)
        return place

    return make


@pytest.mark.parametrize(
    ("write", "shots", "classes", "first"),
    [
        (banking77, 8, 77, ("text train, 0", "intent 0")),
        (emotion, 16, 6, ("text; train 0", "feeling 0")),
        (clinc150, 8, 150, ("text train 0", "intent 0")),
    ],
)
def test_a_classification_set_is_read_whole(folder, tmp_path, write, shots, classes, first):
    name = write.__name__
    write(folder(name))
    task = read(name, tmp_path)
    assert (task.name, task.shots, len({label for _, label in task.train})) == (name, shots, classes)
    assert task.train[0] == first
    assert "oos" not in {label for _, label in task.test}


def test_titles_are_read_with_their_tags(folder, tmp_path):
    stackoverflow(folder("stackoverflow"))
    task = read("stackoverflow", tmp_path)
    assert (task.texts[19], task.labels[19], len(set(task.labels))) == ("title 19", "20", 20)


@pytest.mark.parametrize("write", [banking77, emotion, clinc150])
def test_a_truncated_set_is_refused_by_name(folder, tmp_path, write):
    write(folder(write.__name__), test=99)
    with pytest.raises(DataError, match=rf"has 99 test texts where {write.__name__} has .*: the file is not whole"):
        read(write.__name__, tmp_path)


def test_tags_without_their_titles_are_refused(folder, tmp_path):
    stackoverflow(folder("stackoverflow"), titles=19_999)
    with pytest.raises(DataError, match="has 19,999 titles where stackoverflow has 20,000"):
        read("stackoverflow", tmp_path)


def test_what_is_not_there_is_missing_and_what_is_something_else_is_named(folder, tmp_path):
    assert read("clinc150", tmp_path) == tmp_path / "mteb" / "clinc150"
    (folder("clinc150") / "data_full.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="is not what clinc150 publishes"):
        read("clinc150", tmp_path)
    folder("emotion")
    with pytest.raises(DataError, match=r"cannot read .*train\.txt"):
        read("emotion", tmp_path)


@pytest.mark.parametrize("name", public_datasets.TASKS)
def test_the_real_files_are_read(data, name):
    task = read(name, data)
    if isinstance(task, Path):
        pytest.skip(f"{name} is not in the evaluation data: looked for {task}")
    assert len(task.texts) == {"banking77": 13_083, "emotion": 18_000, "clinc150": 19_500}.get(name, 20_000)
