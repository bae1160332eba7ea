"""What is read of each labelled set, in which order; which copies are the known ones; and what is refused."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from labelled_files import shrink, write

from selfsent.errors import UserError
from selfsent.evaluation import data_sets, labelled_tasks
from selfsent.evaluation.comparison import compare_results
from selfsent.evaluation.data_sets import PROBING, PUBLIC, SETS, TASKS, YEARS
from selfsent.evaluation.labelled_tasks import find_folder
from selfsent.evaluation.senteval.cross_validation import CLASSIFIERS
from selfsent.evaluation.suite import read_suite
from selfsent.runs import tables

# As others publish them: MRPC in GLUE's metadata; the intents beside their repositories at 57ec275 and 828f809.
PUBLISHED = {
    "MRPC/msr_paraphrase_train.txt": "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89",
    "MRPC/msr_paraphrase_test.txt": "a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784",
    "banking77/train.csv": "b06e26ac675513959a63135f11b94ea7786ed02da65db93a5650d8838cbc664b",
    "banking77/test.csv": "d12d6e3bc4c3103966ae786dc435913c0c563dfa328f5a3646d0e62cfeeb474d",
    "clinc150/data_full.json": "36923c3705a59e08fe9c3883d8bc2dd966ef93e22cb78ac41171782a698d56e0",
}
STSB, STS13, SICK = "STS/STSBenchmark/sts-dev.csv", "STS/STS13-en-test/STS.", "SICK/SICK_trial.txt"


def read(name, folder, classifier="senteval_full"):
    return labelled_tasks.read_task(name, folder, CLASSIFIERS[classifier], "pearson")[0]


@pytest.fixture
def files(tmp_path, monkeypatch):
    return write(tmp_path / "downstream", monkeypatch)


@pytest.fixture
def copy(senteval, tmp_path):
    """A copy of the made STS-B and SICK, and of STS12 and STS13, with scores of SICK from 1 on."""
    folder = shutil.copytree(senteval, tmp_path / "copy", ignore=shutil.ignore_patterns("STS14*", "STS15*"))
    for path in (folder / "SICK").glob("*.txt"):
        rows = [row.split("\t") for row in path.read_text().splitlines()]
        rows[1:] = [[*row[:3], f"{max(1.0, float(row[3]))}", row[4]] for row in rows[1:]]
        path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def public(tmp_path, monkeypatch):
    """The public sets with few rows, of their known forms."""
    small = {"train": (6,), "test": (3,)}
    for name in ("banking77", "emotion", "clinc150"):
        shrink(monkeypatch, name, small)
    shrink(monkeypatch, "stackoverflow", {"all": (6,)})
    for name in PUBLIC:
        (tmp_path / "mteb" / SETS[name].folder).mkdir(parents=True)
    content = {"oos_test": [["nothing of ours", "oos"]]}
    for split, (count,) in small.items():
        rows = [(f"text; {split}, {i}", f"label {i % 3}") for i in range(count)]
        content[split] = [[text, label] for text, label in rows]
        table = "".join(f'"{text}",{label}\n' for text, label in rows)
        (tmp_path / f"mteb/banking77/{split}.csv").write_text(f"text,category\n{table}", encoding="utf-8")
        lines = "".join(f"{text};{label}\n" for text, label in rows)
        (tmp_path / f"mteb/emotion/{split}.txt").write_text(f"text;label_name\n{lines}", encoding="utf-8")
    (tmp_path / "mteb/clinc150/data_full.json").write_text(json.dumps(content), encoding="utf-8")
    for side in ("title", "label"):
        lines = "".join(f"{side} {i if side == 'title' else i % 2}\n" for i in range(6))
        path = tmp_path / f"mteb/stackoverflow_short_text/{side}_StackOverflow.txt"
        path.write_text(lines, encoding="utf-8")
    return tmp_path


def tense(folder, extra=(), leave_out=""):
    rows = ["tr\tPRES\tIt is .", "te\tPAST\tIt was it .", "tr\tPAST\tWas .", "va\tPRES\tx\tIs it ?", "te\tPRES\tIs ."]
    return probing(folder, "past_present", [row for row in rows if row[:2] != leave_out] + [*extra])


def probing(folder, file, rows):
    (folder / "probing").mkdir(exist_ok=True)
    (folder / "probing" / f"{file}.txt").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return folder


# What is read.


def test_a_set_has_the_known_number_of_pairs(senteval):
    sizes = {name: sum(SETS[name].splits["test"].values()) for name in YEARS}
    assert sizes == {"sts12": 3108, "sts13": 1500, "sts14": 3750, "sts15": 3000, "sts16": 1186}
    known = {name: sizes[name] for name in ("sts12", "sts13", "sts14", "sts15")}
    known |= {"stsb": 1379, "stsb-dev": 1500, "sickr": 4927, "sickr-dev": 500}
    for name, count in known.items():
        task = read(name, senteval)
        assert (len(task.gold), len(task.texts)) == (count, 2 * count)


def test_rows_without_a_gold_score_are_dropped_and_the_others_keep_theirs(senteval):
    task = read("sts15", senteval)
    assert "left out" not in task.texts
    lines = (senteval / "STS/STS15-en-test/STS.input.belief.txt").read_text().splitlines()
    gold = (senteval / "STS/STS15-en-test/STS.gs.belief.txt").read_text().splitlines()
    expected = [(*line.split("\t"), float(score)) for line, score in zip(lines, gold, strict=True) if score]
    belief = task.parts["belief"]
    assert list(zip(belief.left, belief.right, belief.labels, strict=True)) == expected


def test_pairs_keep_case_and_line_separators_and_join_tokens_by_single_spaces(copy):
    path = copy / SICK
    lines = path.read_text().split("\n")
    lines[1] = "7\tA  Man sings\tNobody   Sings \t3.5\tNEUTRAL"
    path.write_text("\r\n".join(lines))
    part = read("sickr-dev", copy).parts["SICK_trial.txt"]
    assert (part.left[0], part.right[0], part.labels[0]) == ("A Man sings", "Nobody Sings", 3.5)
    (copy / STSB).write_text((copy / STSB).read_text().replace("sun", "sun\u2028moon", 1), encoding="utf-8")
    assert len(read("stsb-dev", copy).gold) == 1500


def test_binary_rows_are_latin_1_and_sorted_by_tokens_then_label_and_equals_stay_in_order(tmp_path, monkeypatch):
    positive, negative = [b"b b", b"a", b"a  c "], [b"z y", b"x", b"", b"k l", b"na\xc3\xafve te\x85xt caf\xe9"]
    monkeypatch.setitem(SETS, "mr", replace(SETS["mr"], splits={"all": {"pos": 3, "neg": 5}}))
    (tmp_path / "MR").mkdir()
    for file, rows in (("pos", positive), ("neg", negative)):
        (tmp_path / "MR" / file).write_bytes(b"".join(line + b"\n" for line in rows))
    examples = read("mr", tmp_path).splits["all"]
    # No token: "".  One: x (0), a (1).  Two: "z y", "k l" (0), then "b b", "a c" (1).
    # Two bytes of UTF-8 are two letters, and the next-line character parts tokens but not rows.
    assert examples.left == ["", "x", "a", "z y", "k l", "b b", "a c", "naÃ¯ve te xt café"]
    assert examples.labels == [0, 0, 1, 0, 0, 1, 1, 0]


def test_objective_sentences_are_class_1_and_positive_ones_too(files):
    for name in ("subj", "mr"):
        examples = read(name, files).splits["all"]
        of_one = [text for text, label in zip(examples.left, examples.labels, strict=True) if label == 1]
        assert sum("label1" in text for text in of_one) > len(of_one) / 2
        assert not any("label0" in text for text in of_one)
    assert next(iter(SETS["subj"].splits["all"])) == "subj.objective"


def test_trec_keeps_the_coarse_label_and_drops_the_fine_one(tmp_path, monkeypatch):
    (tmp_path / "TREC").mkdir()
    for ((file, _),) in map(dict.items, shrink(monkeypatch, "trec", {"train": (2,), "test": (2,)}).values()):
        (tmp_path / "TREC" / file).write_bytes(b"NUM:dist How far is it ?\nABBR:exp What ` s \xf0 ?\n")
    task = read("trec", tmp_path)
    assert (task.splits["test"].left, task.splits["test"].labels) == (["What ` s ð ?", "How far is it ?"], [0, 5])
    assert set(task.splits) == {"train", "test"}


def test_sst_has_its_label_behind_a_tab_or_before_a_space(files):
    two, five = read("sst2", files), read("sst5", files)
    assert [sorted(set(task.splits["train"].labels)) for task in (two, five)] == [[0, 1], [0, 1, 2, 3, 4]]
    assert {tuple(task.splits) for task in (two, five)} == {("train", "dev", "test")}
    assert all(not text[0].isdigit() for text in five.texts)


@pytest.mark.parametrize("name", ["mrpc", "sick-e", "stsb-regression"])
def test_pairs_are_sorted_by_the_tokens_of_both_texts_and_by_label(files, senteval, name):
    task = read(name, senteval if name == "stsb-regression" else files)
    for examples in task.splits.values():
        rows = zip(examples.left, examples.right, examples.labels, strict=True)
        keys = [(len(left.split()), len(right.split()), label) for left, right, label in rows]
        assert keys == sorted(keys)
    assert not any("Quality" in text for text in task.texts)
    if name == "mrpc":
        assert (task.kind, task.with_f1, tuple(task.splits)) == ("pair", True, ("train", "test"))


def test_sick_numbers_its_labels_as_senteval_does(files):
    examples = read("sick-e", files).splits["train"]
    rows = list(zip(examples.left, examples.right, examples.labels, strict=True))
    # In the made file equal texts are ENTAILMENT, and label words name the rest.
    assert {label for left, right, label in rows if left == right} == {2}
    assert {label for _, right, label in rows if "label1" in right} == {1}


def test_snli_is_sorted_by_the_second_text_and_by_the_words_of_its_labels(tmp_path, monkeypatch):
    (tmp_path / "SNLI").mkdir()
    rows = [("a b", "x", "neutral"), ("a", "x", "entailment"), ("a", "y", "contradiction"), ("a b c", "", "neutral")]
    for split in shrink(monkeypatch, "snli", dict.fromkeys(("train", "dev", "test"), (4,))):
        for column, file in enumerate(("s1", "s2", "labels")):
            (tmp_path / "SNLI" / f"{file}.{split}").write_text("".join(f"{row[column]}\n" for row in rows))
    task = read("snli", tmp_path)
    examples = task.splits["dev"]
    expected = [("a b c", "", 1), ("a", "y", 2), ("a", "x", 0), ("a b", "x", 1)]
    assert list(zip(examples.left, examples.right, examples.labels, strict=True)) == expected
    ((_, learner),) = task.classifier.learners
    assert (learner.grid, learner.passes, learner.max_passes, task.kind) == ((1e-9,), 1, 15, "entailment")


@pytest.mark.parametrize(("name", "shots"), [("banking77", 8), ("emotion", 16), ("clinc150", 8)])
def test_an_intent_set_is_read_whole(public, name, shots):
    task = read(name, public)
    assert (task.name, task.shots, len(task.train), len(task.test)) == (name, shots, 6, 3)
    assert task.train[1] == ("text; train, 1", "label 1")
    assert "oos" not in {label for _, label in task.test}


def test_titles_are_read_with_their_tags(public):
    task = read("stackoverflow", public)
    assert (task.texts[3], task.labels[3], len(set(task.labels))) == ("title 3", "label 1", 2)


def test_probing_labels_are_numbered_by_the_alphabet_and_the_text_is_the_last_column(tmp_path, monkeypatch):
    task = read("past_present", tense(tmp_path))
    assert {split: (examples.left, examples.labels) for split, examples in task.splits.items()} == {
        "train": (["Was .", "It is ."], [0, 1]),
        "dev": (["Is it ?"], [1]),
        "test": (["Is .", "It was it ."], [1, 0]),
    }
    assert task.facts == {"rows": "2/1/2 of 100000/10000/10000"}
    monkeypatch.setattr(labelled_tasks, "PROBING_SPLITS", {"train": ("tr", 2), "dev": ("va", 1), "test": ("te", 2)})
    assert read("past_present", tmp_path).facts == {}


def test_a_probing_file_is_found_under_its_other_name_and_1000_classes_stay_linear(tmp_path):
    assert [classes for classes, _ in PROBING.values()] == [6, 1000, 8, 20, 2, 2, 2, 2, 2, 2]
    assert read("sentence_length", tmp_path) == tmp_path / "probing" / "sentence_length.txt"
    for name, file, classes, learners in (("sentence_length", "sent_len", 6, 9), ("word_content",) * 2 + (1000, 1)):
        rows = [f"{split}\tw{label}\ta w{label}" for split in ("tr", "va", "te") for label in range(classes)]
        task = read(name, probing(tmp_path, file, rows), "senteval_mlp")
        assert (len(task.texts), len(task.classifier.learners)) == (3 * classes, learners)


@pytest.mark.parametrize("name", TASKS)
def test_what_is_not_there_is_a_place_and_no_error(name, tmp_path):
    (tmp_path / "COCO").mkdir()
    place = read(name, tmp_path)
    assert tmp_path in place.parents
    if name.startswith(("stsb", "sickr", "geometry")):  # the splits are of use alone
        assert place.suffix in (".csv", ".txt")


def test_the_folder_is_found_from_itself_and_from_two_above(senteval):
    for folder in (senteval, senteval.parent, senteval.parent.parent):
        assert find_folder(folder) == senteval


# What is refused: a task, its file, what becomes of the file, and what is said.


def cut(count):
    return lambda text: "".join(text.splitlines(keepends=True)[:-count])


def line_8(line):
    def change(text):
        lines = text.splitlines()
        lines[7] = line
        return "".join(f"{kept}\n" for kept in lines)

    return change


GONE = None
REFUSED = {
    "copy": [
        ("stsb-dev", STSB, cut(1), r"sts-dev\.csv has 1499 labelled rows where 1500 are known"),
        ("sts13", f"{STS13}gs.FNWN.txt", lambda text: "\n" + text.split("\n", 1)[1], "FNWN.* has 188 labelled rows"),
        ("sts13", f"{STS13}gs.OnWN.txt", cut(1), r"input\.OnWN\.txt has 561 lines and STS\.gs\.OnWN\.txt .* 560"),
        ("sts13", f"{STS13}gs.OnWN.txt", GONE, r"STS13-en-test is incomplete: .*STS\.gs\.OnWN\.txt is missing"),
        ("stsb-dev", STSB, line_8("one text and no tab"), r"line 8 of .*sts-dev\.csv is not four columns, a score and"),
        ("stsb-dev", STSB, line_8("a\tb\tc\td\thigh\tone text\tanother"), r"line 8 of .*sts-dev\.csv is not"),
        ("sickr-dev", SICK, lambda text: b"caf\xe9\n", r"SICK_trial\.txt is not UTF-8 at byte 3"),
        ("stsb-regression", STSB, line_8("g\tf\ty\t1\t5.2\ta\tb"), "score 5.2 in dev, .* from 0 to 5"),
        ("stsb-regression", STSB, line_8("g\tf\ty\t1\tnan\ta\tb"), "score nan in dev"),
        ("sickr-regression", SICK, line_8("7\ta\tb\t0.5\tNEUTRAL"), "score 0.5 in dev, .* from 1 to 5"),
    ],
    "files": [
        ("mr", "MR/rt-polarity.neg", cut(1), r"rt-polarity\.neg has 69 labelled rows where 70 are known"),
        ("mrpc", "MRPC/msr_paraphrase_test.txt", cut(1), r"test\.txt has 44 labelled rows where 45 are known"),
        ("sst5", "SST/fine/sentiment-dev", GONE, r"fine is incomplete: .*sentiment-dev is missing"),
        ("sst2", "SST/binary/sentiment-dev", line_8("no label"), "line 8 .* a text, a tab and its label: 'no label'"),
        ("sst2", "SST/binary/sentiment-dev", line_8("text\t2"), "line 8 .* is not a text, a tab and its label"),
        ("sst5", "SST/fine/sentiment-dev", line_8("5 text"), "line 8 .* is not a label, a space and its text"),
        ("trec", "TREC/TREC_10.label", line_8("WHO:ind Who ?"), "line 8 .* the label one of ABBR, DESC"),
        ("trec", "TREC/TREC_10.label", line_8("Who was it ?"), "line 8 .* is not a label such as LOC:city"),
        ("mrpc", "MRPC/msr_paraphrase_train.txt", line_8("\t1\t2\ta\tb"), "line 8 .* is not a label 0 or 1"),
        ("sick-e", "SICK/SICK_train.txt", line_8("1\ta\tb\t3.0"), "line 8 .* one of CONTRADICTION, NEUTRAL"),
    ],
    "public": [
        ("banking77", "mteb/banking77/test.csv", cut(1), r"test\.csv has 2 labelled rows where 3 are known"),
        ("banking77", "mteb/banking77/test.csv", lambda text: "a,b\nc,d\n", "is not a table with the columns text"),
        ("emotion", "mteb/emotion/train.txt", cut(1), r"train\.txt has 5 labelled rows where 6 are known"),
        ("emotion", "mteb/emotion/train.txt", GONE, r"emotion is incomplete: .*train\.txt is missing"),
        ("clinc150", "mteb/clinc150/data_full.json", lambda text: "{}", "json is not an object that has texts with"),
        ("stackoverflow", "mteb/stackoverflow_short_text/title_StackOverflow.txt", cut(1), "has 5 lines and label_"),
    ],
}


@pytest.mark.parametrize(
    ("made", "name", "file", "change", "message"), [(made, *row) for made, rows in REFUSED.items() for row in rows]
)
def test_a_damaged_file_is_refused_by_name(request, made, name, file, change, message):
    path = request.getfixturevalue(made) / file
    folder = path.parents[len(Path(file).parts) - 1]
    read(name, folder)
    if change is GONE:
        path.unlink()
    else:
        encoding = "latin-1" if SETS[TASKS[name][0]].encoding == "latin-1" else "utf-8"
        changed = change(path.read_text(encoding=encoding))
        path.write_bytes(changed if isinstance(changed, bytes) else changed.encode(encoding))
    with pytest.raises(UserError, match=message):
        read(name, folder)


@pytest.mark.parametrize(
    ("extra", "leave_out", "message"),
    [
        (["te\tPAST"], "", "line 6 of .* is not a split"),
        (["te\t\tNo label ."], "", "line 6 of .* is not a split"),
        (["xx\tPAST\tWhere ?"], "", "line 6 of .* is not a split"),
        (["te\tFUTURE\tWill ."], "", "rows of label 'FUTURE' in va or te and none in tr"),
        (["tr\tFUTURE\tWill ."], "", "has 3 classes in tr where past_present has 2"),
        ([], "te", r"past_present\.txt has no rows for test"),
    ],
)
def test_a_broken_probing_file_is_refused(tmp_path, extra, leave_out, message):
    with pytest.raises(UserError, match=message):
        read("past_present", tense(tmp_path, extra, leave_out))


def test_a_folder_without_data_is_refused_by_name(tmp_path):
    with pytest.raises(UserError, match="holds no SentEval data: expected the folders STS and SICK"):
        find_folder(tmp_path)
    for name in ("cr", "past_present"):
        with pytest.raises(UserError, match="nowhere does not exist"):
            read(name, tmp_path / "nowhere")


# Which copies are the known ones.


def test_checksums_are_those_that_others_publish_and_rows_those_that_are_asked_for():
    assert {path: data_sets.known_files()[path]["sha256"] for path in PUBLISHED} == PUBLISHED
    asked = {
        f"{data_set.folder}/{path.format(file)}": (data_set, count)
        for data_set in SETS.values()
        for files in data_set.splits.values()
        for file, count in files.items()
        for path in data_set.files
    }
    for path, known in data_sets.known_files().items():
        data_set, count = asked[path]
        if data_set is SETS["sts15"]:  # with rows that nobody scored
            assert known["rows"] > count
        elif data_set is not SETS["clinc150"]:
            assert known["rows"] == count, path


@pytest.fixture
def known(files, monkeypatch):
    """Small files of SUBJ and MR that are the known ones."""
    entries = {}
    for path in sorted(path for place in ("SUBJ", "MR") for path in (files / place).iterdir()):
        content = path.read_bytes()
        facts = {"last": len(content.splitlines()[-1]), "sha256": hashlib.sha256(content).hexdigest()}
        entries[f"{path.parent.name}/{path.name}"] = facts
    monkeypatch.setattr(labelled_tasks, "known_files", lambda: entries)
    return files


def score(folder, encode, *tasks):
    suite = read_suite(tasks, folder, classifier="senteval_fast")
    return suite, suite.score(encode(suite.sentences), bootstrap=20)


def test_another_file_with_as_many_rows_is_scored_and_its_scores_say_so(known, encode):
    suite, before = score(known, encode, "subj")
    assert suite.notes == []
    assert "differs" not in before.scores[0].protocol
    path = known / "SUBJ" / "subj.objective"
    path.write_text(path.read_text().replace("label1", "Label1", 1))
    suite, results = score(known, encode, "subj")
    assert suite.notes == ["SUBJ/subj.objective differs from the known file: its scores may not compare"]
    for after, first in zip(results.scores, before.scores, strict=True):
        assert after.protocol["differs"] == "SUBJ/subj.objective"
        assert after.protocol["data"] != first.protocol["data"]
    with pytest.raises(UserError, match="subj cannot be compared: its data is"):
        compare_results(results, before)


def test_a_copy_that_reads_the_same_keeps_its_column_and_compares(known, encode):
    _, before = score(known, encode, "subj")
    path = known / "SUBJ" / "subj.subjective"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n").removesuffix(b"\r\n"))
    suite, results = score(known, encode, "subj")
    assert suite.notes == ["SUBJ/subj.subjective differs from the known file: its scores may not compare"]
    after, first = results.scores[0], before.scores[0]
    assert after.protocol["data"] == first.protocol["data"]
    assert tables.score_identity(after) == tables.score_identity(first)
    assert compare_results(results, before)[0].value == pytest.approx(0.0, abs=1e-9)


def test_a_file_that_ends_within_its_last_row_is_refused_by_name(known):
    path = known / "SUBJ" / "subj.subjective"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(UserError, match=r"SUBJ.subj\.subjective is cut short: its last row ends after \d+ bytes"):
        read("subj", known)


def test_an_average_over_other_files_says_so(known, encode):
    for name in ("rt-polarity.pos", "rt-polarity.neg"):
        path = known / "MR" / name
        path.write_text(path.read_text().replace("label", "Label", 1))
    suite, results = score(known, encode, "subj", "mr", "cr")
    differing = "MR/rt-polarity.neg (and 1 beside it)"
    assert suite.notes == [f"{differing} differs from the known file: its scores may not compare"]
    average = results.average("accuracy")
    assert np.isfinite(average.value)
    assert average.protocol["differs"] == differing


def test_the_tables_travel_with_the_package():
    assert '"evaluation/*.toml"' in (Path(__file__).parents[2] / "pyproject.toml").read_text()


# The data at hand.


@pytest.mark.parametrize("name", [name for name in TASKS if not name.endswith(("-dev", "-regression"))])
def test_the_real_files_are_the_known_ones(data, name):
    task, differs = labelled_tasks.read_task(name, data, CLASSIFIERS["senteval_full"], "pearson")
    if isinstance(task, Path):
        pytest.skip(f"{name} is not in the evaluation data: looked for {task}")
    assert differs == ""
    if name in PUBLIC:
        assert len(task.texts) == {"banking77": 13_083, "emotion": 18_000, "clinc150": 19_500}.get(name, 20_000)
    elif SETS[TASKS[name][0]].protocol == "transfer":
        for examples in task.splits.values():
            assert set(examples.labels) == set(range(len(SETS[name].labels)))
            sizes = [len(text.split()) for text in examples.left]
            assert sizes == sorted(sizes)


def test_real_sub_samples_are_read(data):
    task = read("bigram_shift", data)
    assert [len(examples.labels) for examples in task.splits.values()] == [9600, 1200, 1200]
