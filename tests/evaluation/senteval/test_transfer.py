"""SentEval's transfer files: what is read from them, in which order, and what is refused."""

import pytest
from labelled_files import write

from selfsent.errors import DataError
from selfsent.evaluation.senteval import transfer
from selfsent.evaluation.senteval.classifiers import CLASSIFIERS

FULL = CLASSIFIERS["senteval_full"]


@pytest.fixture
def files(tmp_path, monkeypatch):
    return write(tmp_path, monkeypatch)


def read(name, folder):
    return transfer.read_transfer(name, folder, FULL)


def binary(tmp_path, monkeypatch, positive, negative):
    monkeypatch.setitem(transfer.FILES, "mr", ("MR", {"all": {"pos": len(positive), "neg": len(negative)}}))
    (tmp_path / "MR").mkdir()
    (tmp_path / "MR" / "pos").write_bytes(b"".join(line + b"\n" for line in positive))
    (tmp_path / "MR" / "neg").write_bytes(b"".join(line + b"\n" for line in negative))
    return read("mr", tmp_path)


def test_rows_are_sorted_by_tokens_then_label_and_equals_stay_in_order(tmp_path, monkeypatch):
    task = binary(tmp_path, monkeypatch, [b"b b", b"a", b"a  c "], [b"z y", b"x", b"", b"k l"])
    found = task.splits["all"]
    # No token: "".  One: x (0), a (1).  Two: "z y", "k l" (0), then "b b", "a c" (1).
    assert found.left == ["", "x", "a", "z y", "k l", "b b", "a c"]
    assert found.labels == [0, 0, 1, 0, 0, 1, 1]


def test_binary_files_are_latin_1_whatever_their_bytes(tmp_path, monkeypatch):
    task = binary(tmp_path, monkeypatch, [b"caf\xe9"], [b"na\xc3\xafve te\x85xt"])
    # Two bytes of UTF-8 are two letters, and the next-line character parts tokens but not rows.
    assert task.texts == ["café", "naÃ¯ve te xt"]


def test_objective_sentences_are_class_1_and_positive_ones_too(files):
    for name in ("subj", "mr"):
        found = read(name, files).splits["all"]
        of_one = [text for text, label in zip(found.left, found.labels, strict=True) if label == 1]
        assert sum("label1" in text for text in of_one) > len(of_one) / 2
        assert not any("label0" in text for text in of_one)
    assert next(iter(transfer.FILES["subj"][1]["all"])) == "subj.objective"


def test_trec_keeps_the_coarse_label_and_drops_the_fine_one(tmp_path, monkeypatch):
    (tmp_path / "TREC").mkdir()
    files = {"train": "train_5500.label", "test": "TREC_10.label"}
    monkeypatch.setitem(transfer.FILES, "trec", ("TREC", {split: {file: 2} for split, file in files.items()}))
    for file in files.values():
        (tmp_path / "TREC" / file).write_bytes(b"NUM:dist How far is it ?\nABBR:exp What ` s \xf0 ?\n")
    task = read("trec", tmp_path)
    assert task.splits["test"].left == ["What ` s ð ?", "How far is it ?"]
    assert task.splits["test"].labels == [0, 5]
    assert set(task.splits) == {"train", "test"}


def test_sst_has_its_label_behind_a_tab_or_before_a_space(files):
    two, five = read("sst2", files), read("sst5", files)
    assert sorted(set(two.splits["train"].labels)) == [0, 1]
    assert sorted(set(five.splits["train"].labels)) == [0, 1, 2, 3, 4]
    assert {tuple(task.splits) for task in (two, five)} == {("train", "dev", "test")}
    assert all(not text[0].isdigit() for text in five.texts)


def test_mrpc_skips_its_header_and_sorts_by_both_texts(files):
    task = read("mrpc", files)
    for found in task.splits.values():
        keys = [
            (len(left.split()), len(right.split()), label)
            for left, right, label in zip(found.left, found.right, found.labels, strict=True)
        ]
        assert keys == sorted(keys)
    assert (task.kind, task.with_f1, tuple(task.splits)) == ("pair", True, ("train", "test"))
    assert not any("Quality" in text for text in task.texts)


def test_sick_numbers_its_labels_as_senteval_does(files):
    found = read("sick-e", files).splits["train"]
    # In the made file equal texts are ENTAILMENT, and label words name the rest.
    entailed = [
        label for left, right, label in zip(found.left, found.right, found.labels, strict=True) if left == right
    ]
    assert set(entailed) == {2}
    assert {label for right, label in zip(found.right, found.labels, strict=True) if "label1" in right} == {1}


def test_snli_is_sorted_by_the_second_text_and_by_the_words_of_its_labels(tmp_path, monkeypatch):
    (tmp_path / "SNLI").mkdir()
    rows = [("a b", "x", "neutral"), ("a", "x", "entailment"), ("a", "y", "contradiction"), ("a b c", "", "neutral")]
    splits = ("train", "dev", "test")
    monkeypatch.setitem(transfer.FILES, "snli", ("SNLI", {split: {f"s1.{split}": len(rows)} for split in splits}))
    for split in splits:
        for column, file in enumerate(("s1", "s2", "labels")):
            (tmp_path / "SNLI" / f"{file}.{split}").write_text("".join(f"{row[column]}\n" for row in rows))
    task = read("snli", tmp_path)
    found = task.splits["dev"]
    assert list(zip(found.left, found.right, found.labels, strict=True)) == [
        ("a b c", "", 1),
        ("a", "y", 2),
        ("a", "x", 0),
        ("a b", "x", 1),
    ]
    assert task.classifier.learners[0][1].grid == (1e-9,)
    assert task.kind == "entailment"


@pytest.mark.parametrize("name", transfer.TASKS)
def test_what_is_not_there_is_a_place_and_no_error(name, tmp_path):
    assert tmp_path in read(name, tmp_path).parents


@pytest.mark.parametrize(
    ("name", "file", "message"),
    [
        ("mr", "MR/rt-polarity.neg", r"rt-polarity\.neg has 69 rows where 70 are known"),
        ("sst2", "SST/binary/sentiment-train", r"sentiment-train has 99 rows where 100 are known"),
        ("trec", "TREC/TREC_10.label", r"TREC_10\.label has 39 rows where 40 are known"),
        ("mrpc", "MRPC/msr_paraphrase_test.txt", r"msr_paraphrase_test\.txt has 44 rows where 45 are known"),
        ("sick-e", "SICK/SICK_trial.txt", r"SICK_trial\.txt has 39 rows where 40 are known"),
    ],
)
def test_a_truncated_file_is_refused_by_name(files, name, file, message):
    text = (files / file).read_text()
    (files / file).write_text("".join(text.splitlines(keepends=True)[:-1]))
    with pytest.raises(DataError, match=message):
        read(name, files)


def test_a_file_missing_beside_others_is_refused_by_name(files):
    (files / "SST" / "fine" / "sentiment-dev").unlink()
    with pytest.raises(DataError, match=r"fine is incomplete: .*sentiment-dev is missing"):
        read("sst5", files)


@pytest.mark.parametrize(
    ("name", "file", "line", "message"),
    [
        ("sst2", "SST/binary/sentiment-dev", "no label here", "not a text, a tab and its label: 'no label here'"),
        ("sst2", "SST/binary/sentiment-dev", "text\t2", "not a text, a tab and its label"),
        ("sst5", "SST/fine/sentiment-dev", "5 text", "not a label, a space and its text"),
        ("trec", "TREC/TREC_10.label", "WHO:ind Who ?", "the label one of ABBR, DESC"),
        ("trec", "TREC/TREC_10.label", "Who was it ?", "not a label such as LOC:city"),
        ("mrpc", "MRPC/msr_paraphrase_train.txt", "\t1\t2\ta\tb", "not a label 0 or 1"),
        ("sick-e", "SICK/SICK_train.txt", "1\ta\tb\t3.0", "one of CONTRADICTION, NEUTRAL, ENTAILMENT"),
    ],
)
def test_a_row_without_its_label_is_refused_with_its_line(files, name, file, line, message):
    lines = (files / file).read_text().splitlines()
    lines[7] = line
    (files / file).write_text("".join(f"{kept}\n" for kept in lines))
    with pytest.raises(DataError, match=rf"line 8 of .*{message}"):
        read(name, files)


def test_real_files_have_the_known_rows_and_classes(data):
    folder = data / "senteval" / "downstream"
    classes = {"mr": 2, "cr": 2, "subj": 2, "mpqa": 2, "sst2": 2, "sst5": 5, "trec": 6, "mrpc": 2, "sick-e": 3}
    for name, count in classes.items():
        task = read(name, folder)
        for found in task.splits.values():
            assert set(found.labels) == set(range(count)), name
            sizes = [len(text.split()) for text in found.left]
            assert sizes == sorted(sizes)
