"""Probing files: columns, classes, sub-samples, and what is refused."""

import pytest

from selfsent.errors import DataError
from selfsent.evaluation.senteval import probing
from selfsent.evaluation.senteval.classifiers import CLASSIFIERS
from selfsent.evaluation.senteval.probing import ROWS

FULL, MLP = CLASSIFIERS["senteval_full"], CLASSIFIERS["senteval_mlp"]


def write(folder, name, rows):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return folder


def tense(tmp_path, extra=()):
    rows = ["tr\tPRES\tIt is .", "te\tPAST\tIt was it .", "tr\tPAST\tWas .", "va\tPRES\tx\tIs it ?", "te\tPRES\tIs ."]
    return write(tmp_path, "past_present.txt", [*rows, *extra])


def test_labels_are_numbered_by_the_alphabet_and_the_text_is_the_last_column(tmp_path):
    task = probing.read_probing("past_present", tense(tmp_path), FULL)
    assert {split: (found.left, found.labels) for split, found in task.splits.items()} == {
        "train": (["Was .", "It is ."], [0, 1]),
        "dev": (["Is it ?"], [1]),
        "test": (["Is .", "It was it ."], [1, 0]),
    }
    assert task.kind == "text"


def test_a_sub_sampled_file_says_so(tmp_path, monkeypatch):
    task = probing.read_probing("past_present", tense(tmp_path), FULL)
    assert task.facts == {"rows": "2/1/2 of 100000/10000/10000"}
    monkeypatch.setattr(probing, "ROWS", {"train": 2, "dev": 1, "test": 2})
    whole = probing.read_probing("past_present", tense(tmp_path), FULL)
    assert whole.facts == {}
    assert ROWS == {"train": 100_000, "dev": 10_000, "test": 10_000}


def test_sentence_length_is_found_under_its_other_name(tmp_path):
    rows = [f"{split}\t{label}\ttext {label}" for split in ("tr", "va", "te") for label in range(6)]
    assert len(probing.read_probing("sentence_length", write(tmp_path, "sent_len.txt", rows), FULL).texts) == 18
    assert (
        probing.read_probing("sentence_length", tmp_path / "empty", FULL) == tmp_path / "empty" / "sentence_length.txt"
    )


def test_word_content_stays_linear(tmp_path):
    rows = [f"{split}\tw{label}\ta w{label}" for split in ("tr", "va", "te") for label in range(1000)]
    task = probing.read_probing("word_content", write(tmp_path, "word_content.txt", rows), MLP)
    ((_, learner),) = task.classifier.learners
    assert learner.hidden == 0
    assert len(probing.read_probing("past_present", tense(tmp_path), MLP).classifier.learners) == 9


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("te\tPAST", "line 6 of .* is not a split"),
        ("te\t\tNo label .", "line 6 of .* is not a split"),
        ("xx\tPAST\tWhere ?", "line 6 of .* is not a split"),
        ("te\tFUTURE\tWill .", "rows of label 'FUTURE' in va or te and none in tr"),
        ("tr\tFUTURE\tWill .", "has 3 classes in tr where past_present has 2"),
    ],
)
def test_a_broken_row_is_refused(tmp_path, row, message):
    with pytest.raises(DataError, match=message):
        probing.read_probing("past_present", tense(tmp_path, [row]), FULL)


def test_a_file_cut_off_before_its_test_rows_is_refused(tmp_path):
    rows = ["tr\tPRES\tIt is .", "tr\tPAST\tIt was .", "va\tPRES\tIs it ?"]
    with pytest.raises(DataError, match=r"past_present\.txt has no rows for test"):
        probing.read_probing("past_present", write(tmp_path, "past_present.txt", rows), FULL)


def test_every_task_has_as_many_classes_as_its_paper_says():
    classes = [classes for classes, _ in probing.TASKS.values()]
    assert classes == [6, 1000, 8, 20, 2, 2, 2, 2, 2, 2]


def test_real_sub_samples_are_read(data):
    found = probing.read_probing("bigram_shift", data / "probing", FULL)
    assert {split: len(part.labels) for split, part in found.splits.items()} == {
        "train": 9600,
        "dev": 1200,
        "test": 1200,
    }
