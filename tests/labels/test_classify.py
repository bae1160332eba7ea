"""A classifier on kept vectors: its scores against slow loops, its folds, what it keeps, and labels that do not fit."""

import csv
import json
import pickle
from collections import Counter

import joblib
import numpy as np
import pytest
from commands import refused
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from three_subjects import SUBJECTS, sentences

import selfsent
from selfsent.encoder.quantize import unit
from selfsent.errors import DataError, EncoderError
from selfsent.labels.classify import make_folds
from selfsent.labels.vectors import TextVectors


def write(path, pairs):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *pairs])
    return path


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "labelled.csv", sentences())


def test_the_scores_are_those_of_a_loop_over_the_folds(tmp_path):
    """Nearest neighbours counted by hand, logistic regression of scikit-learn; every fifth label is another."""
    different = {frozenset(text.split()): (text, label) for text, label in sentences()}.values()
    pairs = [(text, label if row % 5 else "food") for row, (text, label) in enumerate(different)]
    result = selfsent.classify("builtin-static", write(tmp_path / "labelled.csv", pairs))
    assert all(score.accuracy[1] > 1 for score in result.scores)
    rows = unit(selfsent.encode(selfsent.load("builtin-static"), [text for text, _ in pairs])).astype(np.float32)
    labels = np.array([label for _, label in pairs])
    folds, _ = make_folds(pairs)
    found = {"logistic": [], "neighbours": []}
    for learned, held in folds:
        model = LogisticRegression(C=10, max_iter=1000).fit(rows[learned], labels[learned])
        found["logistic"].append((labels[held], model.predict(rows[held])))
        votes = []
        for row in held:
            distances = np.linalg.norm(rows[learned] - rows[row], axis=1)
            total = Counter()
            for near in np.argsort(distances)[:5]:
                total[labels[learned][near]] += 1 / distances[near]
            votes.append(max(total, key=total.get))
        found["neighbours"].append((labels[held], np.array(votes)))
    for score, of_folds in zip(result.scores, found.values(), strict=True):
        accuracies = [100 * np.mean(truth == said) for truth, said in of_folds]
        assert score.accuracy == pytest.approx((np.mean(accuracies), np.std(accuracies, ddof=1)))
        f1 = [100 * f1_score(truth, said, average="macro") for truth, said in of_folds]
        assert score.macro_f1 == pytest.approx((np.mean(f1), np.std(f1, ddof=1)))
    assert result.kept == max(result.scores, key=lambda score: score.macro_f1[0]).name
    assert result.classes == sorted(SUBJECTS)


def test_every_text_is_tested_once_and_equal_texts_are_in_one_fold():
    pairs = [(text.upper() if copy else text, label) for text, label in sentences(6) for copy in range(3)]
    folds, _ = make_folds(pairs)
    assert len(folds) == 5
    assert sorted(np.concatenate([held for _, held in folds])) == list(range(len(pairs)))
    for learned, held in folds:
        assert not {pairs[row][0].lower() for row in learned} & {pairs[row][0].lower() for row in held}
        assert {pairs[row][1] for row in held} == {*SUBJECTS}


def test_a_class_of_one_text_is_learned_in_every_fold_and_tested_in_none():
    pairs = [*sentences(5), ("my old dog", "pets"), ("My old  dog", "pets"), ("rain", "weather"), ("snow", "weather")]
    folds, notes = make_folds(pairs)
    for learned, held in folds:
        assert {15, 16} <= {*learned}
        assert not {15, 16} & {*held}
    assert notes == [
        "one text, learned and never tested, in 1 of 5 classes (pets): give more",
        "two different texts in 1 of 5 classes (weather): give more",
    ]


def test_a_text_with_two_labels_is_told():
    pairs = [*sentences(5), (sentences(5)[0][0], "food")]
    assert make_folds(pairs)[1] == ["texts with another label, too, which no classifier can get right: 1"]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("a cat", "x"), ("a dog", "x")], "every text has the label 'x': give texts of two or more classes"),
        ([("a cat", "x"), ("a dog", "x"), ("rain", "y")], "fewer than two classes have two different texts"),
        ([("a cat", "3.75"), ("a dog", "1.2"), ("rain", "2")], "most labels are different numbers, such as 1.2"),
    ],
    ids=["one class", "one text", "measurements"],
)
def test_labels_that_no_classifier_can_learn_are_refused(pairs, message):
    with pytest.raises(DataError, match=message):
        make_folds(pairs)


def test_numbers_of_few_kinds_are_names_of_classes():
    pairs = [(text, str(sorted(SUBJECTS).index(label))) for text, label in sentences(5)]
    assert make_folds(pairs)[1] == ["the labels are numbers, taken as names of classes without an order"]


def test_what_is_kept_is_a_pipeline_that_takes_texts(table, tmp_path, monkeypatch):
    result = selfsent.classify("builtin-static", table, out=tmp_path / "kept.joblib")
    monkeypatch.chdir(tmp_path)
    opened = joblib.load("kept.joblib")
    new = ["the soup and the bread", "a concert with violin and piano"]
    assert [*opened.predict(new)] == [*result.classifier.predict(new)] == ["food", "music"]
    assert np.array_equal(opened.predict_proba(new), result.classifier.predict_proba(new))
    selfsent.classify("builtin-static", table, out=tmp_path / "kept.joblib")  # its own file is replaced


def test_another_encoder_under_the_same_name_is_refused():
    step = pickle.loads(pickle.dumps(TextVectors("builtin-static", "of another one")))
    with pytest.raises(EncoderError, match="builtin-static is not the encoder that the classifier was fitted on"):
        step.transform(["a text"])


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_every_new_text_gets_a_label_and_a_probability(command, table, tmp_path, suffix):
    new = ["the soup, and the bread", "", "a concert with violin\x85 and piano", "the soup, and the bread"]
    (tmp_path / "new.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in new), encoding="utf-8")
    out = tmp_path / f"labels{suffix}"
    for _ in range(2):  # its own file is replaced
        status, _, err = command("classify", "builtin-static", table, "--texts", tmp_path / "new.jsonl", "--out", out)
        assert status == 0, err
    with out.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)] if suffix == ".csv" else [*map(json.loads, file)]
    assert [row["text"] for row in rows] == new
    assert [row["label"] for row in rows] == ["food", "", "music", "food"]
    expected = selfsent.classify("builtin-static", table).classifier.predict_proba(new).max(axis=1)
    assert [float(row["probability"] or expected[1]) for row in rows] == pytest.approx(expected, abs=6e-5)
    assert rows[1]["probability"] == ""


def test_what_cannot_work_is_refused_in_one_sentence_and_nothing_is_lost(command, table, tmp_path):
    before = table.read_bytes()
    for options in ((), ("--texts", table), ("--texts", f"{table}::cp1252", "--overwrite")):
        out = table.with_suffix(".joblib") if not options else table
        if not options:
            out.symlink_to(table)
        said = "is read, too, and would be lost: choose another --out"
        refused(command, said, "classify", "builtin-static", table, *options, "--out", out)
    assert table.read_bytes() == before
    refused(command, "name one with --out", "classify", "builtin-static", table, "--texts", table)
    refused(command, "kept as a .joblib file", "classify", "builtin-static", table, "--out", tmp_path / "x.csv")
    refused(command, "there is no file or folder", "classify", "builtin-static", tmp_path / "none.csv")
    (tmp_path / "mine.joblib").write_bytes(b"mine")
    refused(command, "did not write it", "classify", "builtin-static", table, "--out", tmp_path / "mine.joblib")
    empty = write(tmp_path / "empty.csv", [("a text", "x"), ("another", "")])
    refused(command, "has no label: give every text one", "classify", "builtin-static", empty)
    write(empty, [("a text", "x"), (" ", "x"), ("another", "y"), ("", "y")])
    refused(
        command, "line 3 has nothing in 'text' (and 1 more): leave such rows out", "classify", "builtin-static", empty
    )


def test_the_column_that_is_asked_for_is_learned_from(command, table, tmp_path):
    pairs, path, new = sentences(), tmp_path / "wide.csv", tmp_path / "new.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("title", "body", "label"), *(("the same", *pair) for pair in pairs)])
    assert selfsent.classify("builtin-static", path, column="body").scores[0].accuracy[0] > 90
    _, out, err = command("classify", "builtin-static", path)
    assert "its texts are those of the column 'title'" in out + err
    refused(
        command,
        "has no column 'text': it has 'title', 'body', 'label'",
        "classify",
        "builtin-static",
        path,
        "--column",
        "text",
    )
    new.write_text("other\nsoup\n", encoding="utf-8")  # --column may be that of the new texts alone
    status, _, err = command(
        "classify", "builtin-static", table, "--texts", new, "--column", "other", "--out", tmp_path / "x.csv"
    )
    assert status == 0, err
