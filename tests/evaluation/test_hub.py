"""Evaluation data by name: what a folder of the same rows gives, from a mirror of the hub on disk."""

import json
import time
from pathlib import Path

import datasets
import huggingface_hub
import numpy as np
import pytest
from labelled_files import shrink, write
from suite_scores import score_tasks

from selfsent.errors import UserError
from selfsent.evaluation import hub_data
from selfsent.evaluation.data_sets import SETS
from selfsent.evaluation.labelled_tasks import read_task
from selfsent.evaluation.senteval.cross_validation import CLASSIFIERS
from selfsent.evaluation.suite import read_suite
from selfsent.runs import tables

HUB = Path("hub")
TWO = ("train", "test")


def read(name, data=HUB, stop_on="pearson"):
    return read_task(name, data, CLASSIFIERS["senteval_fast"], stop_on)[0]


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """Write splits of data sets where the hub's are looked for: ``mirror("mteb/sts12-sts", test=rows)``."""
    monkeypatch.setattr(hub_data, "_ROOT", f"{tmp_path}/mirror/")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)

    def put(repository, config=None, **splits):
        folder = tmp_path / "mirror" / repository
        (folder / (config or "")).mkdir(parents=True, exist_ok=True)
        for split, rows in splits.items():
            table = rows if isinstance(rows, datasets.Dataset) else datasets.Dataset.from_list(rows)
            table.to_parquet(folder / (config or "") / f"{split}.parquet")
        if config:
            with (folder / "README.md").open("a") as file:
                if not file.tell():
                    file.write("---\nconfigs:\n---\n")
            head = (folder / "README.md").read_text().removesuffix("---\n")
            files = "".join(f"  - split: {split}\n    path: {config}/{split}.parquet\n" for split in splits)
            (folder / "README.md").write_text(f"{head}- config_name: {config}\n  data_files:\n{files}---\n")

    return put


def sts_rows(task):
    names = ("sentence1", "sentence2", "score")
    return [
        dict(zip(names, row, strict=True))
        for part in task.parts.values()
        for row in zip(part.left, part.right, part.labels, strict=True)
    ]


def stsb_mirror(mirror, senteval):
    rows = {name: sts_rows(read(task, senteval)) for task, name in (("stsb-dev", "validation"), ("stsb", "test"))}
    every = sts_rows(read("geometry", senteval))
    mirror("mteb/stsbenchmark-sts", train=every[: -sum(map(len, rows.values()))], **rows)


def test_sts_from_the_hub_is_that_of_a_folder_and_has_no_sub_files(senteval, encode, mirror):
    mirror("mteb/sts12-sts", test=sts_rows(read("sts12", senteval)))
    stsb_mirror(mirror, senteval)
    ours = score_tasks(encode, ["sts12", "stsb", "geometry-dev"], HUB, bootstrap=50)
    theirs = score_tasks(encode, ["sts12", "stsb", "geometry-dev"], senteval, bootstrap=50)
    for key in (("sts12", "spearman"), ("sts12", "pearson"), ("stsb", "spearman"), ("geometry-dev", "uniformity")):
        one, other = ours.get(*key), theirs.get(*key)
        assert (one.value, one.low, one.high, one.n) == (other.value, other.low, other.high, other.n)
    assert {score.aggregation for score in theirs.scores if score.task == "sts12"} == {"all", "mean", "wmean"}
    assert {score.aggregation for score in ours.scores if score.task == "sts12"} == {"all"}


def test_a_score_says_that_its_texts_are_the_hubs_and_shares_no_column_with_tokens_or_papers(senteval, encode, mirror):
    stsb_mirror(mirror, senteval)
    ours = score_tasks(encode, ["stsb"], HUB, bootstrap=0).get("stsb")
    theirs = score_tasks(encode, ["stsb"], senteval, bootstrap=0).get("stsb")
    assert ours.protocol["texts"] == "mteb/stsbenchmark-sts on the hub"
    assert theirs.protocol["texts"] == "SentEval tokens"
    assert tables.score_identity(ours) != tables.score_identity(theirs)
    columns = [tables.score_identity(score) for score in (ours, theirs)]
    assert tables.published_identity(("stsb", "test", "spearman", "all"), columns) == columns[1]


def test_relatedness_from_the_hub_is_that_of_a_folder(senteval, mirror):
    stsb_mirror(mirror, senteval)
    task = read("stsb-regression", stop_on="spearman")
    assert task.fingerprint == read_suite(["stsb-regression"], senteval).tasks[0].fingerprint
    assert task.stop_on == "spearman"


def labelled(path, form):
    return [form(line) for line in path.read_text(encoding="utf-8-sig").splitlines()]


def test_transfer_tasks_from_the_hub_are_those_of_a_folder(tmp_path, monkeypatch, mirror):
    folder = write(tmp_path / "downstream", monkeypatch)

    def of(file, label, name="label"):
        return [{"text": line.strip(), name: label} for line in (folder / file).read_text().splitlines()]

    tomatoes = of("MR/rt-polarity.pos", 1) + of("MR/rt-polarity.neg", 0)
    mirror(
        "cornell-movie-review-data/rotten_tomatoes",
        train=tomatoes[:90],
        validation=tomatoes[90:100],
        test=tomatoes[100:],
    )
    opinions = of("SUBJ/subj.objective", 0) + of("SUBJ/subj.subjective", 1)  # the copy's labels, not SentEval's
    mirror("SetFit/subj", train=opinions[:100], test=opinions[100:])

    place = folder / "SST" / "binary"
    sst2 = {
        split: [
            {"sentence": text, "label": int(label)}
            for text, label in labelled(place / f"sentiment-{split}", lambda line: line.split("\t"))
        ]
        for split in ("train", "dev", "test")
    }
    mirror("nyu-mll/glue", "sst2", train=sst2["train"], validation=sst2["dev"])
    mirror("SetFit/sst2", test=[{"text": row["sentence"], "label": row["label"]} for row in sst2["test"]])
    place = folder / "SST" / "fine"
    sst5 = {
        split: [
            {"text": text, "label": int(label)}
            for label, text in labelled(place / f"sentiment-{split}", lambda line: line.split(" ", 1))
        ]
        for split in ("train", "dev", "test")
    }
    mirror("SetFit/sst5", train=sst5["train"], validation=sst5["dev"], test=sst5["test"])

    def question(line):
        label, text = line.split(" ", 1)
        return {"text": text, "label": 3, "label_coarse": 1, "label_coarse_original": label.split(":")[0]}

    trec = {split: labelled(folder / "TREC" / file, question) for split, (file,) in SETS["trec"].splits.items()}
    mirror("SetFit/TREC-QC", **trec)

    pairs = {}
    for split, (file,) in SETS["mrpc"].splits.items():
        cells = labelled(folder / "MRPC" / file, lambda line: line.split("\t"))[1:]
        names = ("sentence1", "sentence2", "label", "idx")
        pairs[split] = [
            dict(zip(names, (row[3], row[4], int(row[0]), place), strict=True)) for place, row in enumerate(cells)
        ]
    cut = [row for row in pairs["train"] if row["idx"] % 7 == 0]  # GLUE's development set, out of the middle
    rest = [row for row in pairs["train"] if row["idx"] % 7]
    mirror("nyu-mll/glue", "mrpc", train=rest, validation=cut, test=pairs["test"])

    for name in ("mr", "subj", "sst2", "sst5", "trec", "mrpc"):
        ours, theirs = read(name), read(name, folder)
        assert dict(ours.splits) == dict(theirs.splits), name
        assert (ours.kind, ours.with_f1) == (theirs.kind, theirs.with_f1)
        assert ours.facts["texts"].endswith("on the hub")
    assert read("sst2").facts["texts"] == "nyu-mll/glue and SetFit/sst2 on the hub"


def test_pairs_without_agreement_are_left_out_of_snli(monkeypatch, mirror):
    shrink(monkeypatch, "snli", {"train": (3,), "dev": (1,), "test": (1,)})
    row = {"premise": "a man runs", "hypothesis": "a man moves"}
    train = [row | {"label": label} for label in (0, -1, 2, 1)]
    mirror("stanfordnlp/snli", train=train, validation=[row | {"label": 2}], test=[row | {"label": 0}])
    task = read("snli")
    assert sorted(task.splits["train"].labels) == [0, 1, 2]
    assert task.kind == "entailment"
    assert task.splits["train"].left == ["a man runs"] * 3


def test_intents_keep_their_names_and_what_is_out_of_scope_is_left_out(monkeypatch, mirror):
    shrink(monkeypatch, "clinc150", {"train": (4,), "test": (2,)})
    shrink(monkeypatch, "banking77", {"train": (2,), "test": (1,)})
    features = datasets.Features(
        text=datasets.Value("string"), intent=datasets.ClassLabel(names=["balance", "oos", "weather"])
    )

    def of(*intents):
        rows = [{"text": f"text {number}", "intent": intent} for number, intent in enumerate(intents)]
        return datasets.Dataset.from_list(rows, features=features)

    mirror("clinc/clinc_oos", "plus", train=of(0, 1, 2, 0, 2), test=of(2, 1, 0, 1))
    task = read("clinc150")
    assert [label for _, label in task.train] == ["balance", "weather", "balance", "weather"]
    assert task.test == [("text 0", "weather"), ("text 2", "balance")]
    rows = [{"text": " a\n b ", "label": 5, "label_text": "x"}, {"text": "c", "label": 6, "label_text": "y"}]
    mirror("mteb/banking77", train=rows, test=rows[:1])
    assert read("banking77").train == [(" a\n b ", "x"), ("c", "y")]


PAIR = {"sentence1": "a", "sentence2": "b", "score": 1.0}
REFUSED = {  # the task, its repository and the rows there, and what is said
    "rows": ("stsb-dev", "mteb/stsbenchmark-sts", {"validation": [PAIR]}, "has 1 rows where 1,500 are known"),
    "column": (
        *("stsb-dev", "mteb/stsbenchmark-sts", {"validation": [{"sentence1": "a", "gold": 1.0}]}),
        "stsbenchmark-sts:validation on the hub has no column 'sentence2' but sentence1, gold: it is not the known set",
    ),
    "score": (
        *("sts16", "mteb/sts16-sts", {"test": [PAIR, PAIR | {"score": None}]}),
        "row 1 of mteb/sts16-sts:test on the hub does not hold sentence1",
    ),
    "label": (
        *("sst5", "SetFit/sst5", {"train": [{"text": "good", "label": 5}]}),
        "SetFit/sst5:train on the hub has a row of label 5: known are 0, 1, 2, 3, 4",
    ),
    "classes": (
        *("subj", "SetFit/subj", {split: [{"text": "x", "label": int(split == "test")}] * 2 for split in TWO}),
        "SetFit/subj:train on the hub and .*, its class 1, has 2 rows where 1 are known",
    ),
}


@pytest.mark.parametrize(("name", "repository", "splits", "message"), REFUSED.values(), ids=REFUSED)
def test_a_copy_that_is_not_the_known_set_is_refused_by_name(monkeypatch, mirror, name, repository, splits, message):
    shrink(monkeypatch, "subj", {"all": (1, 3)})
    mirror(repository, **splits)
    with pytest.raises(UserError, match=message):
        read(name)


def test_what_the_hub_has_no_fitting_copy_of_is_named(senteval, encode, mirror):
    stsb_mirror(mirror, senteval)
    suite = read_suite(["stsb", "sickr", "cr"], HUB)
    assert suite.missing == dict.fromkeys(("sickr", "cr"), hub_data.ABSENT)
    assert "sickr is missing: no copy on the hub is known to hold its rows: give a folder" in suite.notes
    results = suite.score(encode(suite.sentences), bootstrap=0)
    assert json.loads(json.dumps(results.as_dict()))["missing"]["cr"] == hub_data.ABSENT
    with pytest.raises(
        UserError, match=r"no task has data: sickr: no copy on the hub .*; mpqa: no copy on the hub .* give a folder"
    ):
        read_suite(["sickr", "mpqa"], HUB)


def test_a_folder_of_that_name_goes_before_the_hub(mirror, tmp_path):
    assert hub_data.hub_requested(HUB)
    (tmp_path / "hub").mkdir()
    assert not hub_data.hub_requested(HUB)
    assert not hub_data.hub_requested(None)


def test_without_data_both_ways_are_named():
    with pytest.raises(
        UserError, match="stsb needs evaluation data: give a folder in SentEval's layout with --data, or"
    ):
        read_suite(["stsb"], None)


def test_a_hub_that_cannot_be_reached_is_said_at_once_in_one_sentence(monkeypatch, tmp_path):
    def dataset_info(self, name, timeout=None):
        assert timeout <= 10
        raise OSError("[Errno -2] Name or service not known")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    hub_data._answers.cache_clear()
    before = datasets.config.HF_HUB_OFFLINE, huggingface_hub.constants.HF_HUB_OFFLINE
    sleeps = []
    monkeypatch.setattr(time, "sleep", sleeps.append)
    with pytest.raises(
        UserError,
        match=r"mteb/sts16-sts:test on the hub cannot be read \(the hub does not answer, .*: connect to the hub, or",
    ):
        read_suite(["sts16"], HUB)
    hub_data._answers.cache_clear()
    assert sleeps == []  # no retries
    assert before == (datasets.config.HF_HUB_OFFLINE, huggingface_hub.constants.HF_HUB_OFFLINE)


def test_every_pinned_revision_is_a_commit_and_every_known_set_has_the_splits_of_its_folder():
    copies = [copy for data_set in SETS.values() for splits in data_set.hub.values() for copy in splits]
    assert all(len(copy.revision) == 40 for copy in copies if copy.repository.startswith("mteb/"))
    for data_set in SETS.values():
        assert set(data_set.hub) in (set(), set(data_set.splits))
        assert np.isin([*data_set.classes.values()], range(len(data_set.labels))).all()
