"""Which evaluation files are known, and what is said of a copy that is not one of them."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from labelled_files import write

from selfsent.errors import UserError
from selfsent.evaluation import manifest, sts
from selfsent.evaluation.comparison import compare_results
from selfsent.evaluation.own_files import public_datasets
from selfsent.evaluation.senteval import transfer
from selfsent.evaluation.suite import read_suite, task_names
from selfsent.runs import tables

# As others publish them: MRPC in GLUE's metadata; the intents beside their repositories at 57ec275 and 828f809.
PUBLISHED = {
    "MRPC/msr_paraphrase_train.txt": "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89",
    "MRPC/msr_paraphrase_test.txt": "a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784",
    "banking77/train.csv": "b06e26ac675513959a63135f11b94ea7786ed02da65db93a5650d8838cbc664b",
    "banking77/test.csv": "d12d6e3bc4c3103966ae786dc435913c0c563dfa328f5a3646d0e62cfeeb474d",
    "clinc150/data_full.json": "36923c3705a59e08fe9c3883d8bc2dd966ef93e22cb78ac41171782a698d56e0",
}


def test_the_checksums_are_those_that_others_publish():
    assert {path: manifest.known_files()[path]["sha256"] for path in PUBLISHED} == PUBLISHED


def test_the_rows_are_those_that_the_readers_ask_for():
    known = {path: file["rows"] for path, file in manifest.known_files().items()}
    for year, place in (("sts12", "STS/STS12-en-test"), ("sts13", "STS/STS13-en-test"), ("sts14", "STS/STS14-en-test")):
        for part, rows in sts.YEARS[year].items():
            assert known[f"{place}/STS.input.{part}.txt"] == known[f"{place}/STS.gs.{part}.txt"] == rows
    for part in sts.YEARS["sts15"]:  # with rows that nobody scored
        texts, scores = (known[f"STS/STS15-en-test/STS.{kind}.{part}.txt"] for kind in ("input", "gs"))
        assert texts == scores > sts.YEARS["sts15"][part]
    assert {split: known[f"STS/STSBenchmark/sts-{split}.csv"] for split in sts.STSB} == sts.STSB
    for name in set(transfer.FILES) - {"sick-e", "snli"}:
        folder, splits = transfer.FILES[name]
        for files in splits.values():
            assert {file: known[f"{folder}/{file}"] for file in files} == files
    assert [known[f"banking77/{split}.csv"] for split in ("train", "test")] == [
        *public_datasets.FEW_SHOT["banking77"][:2]
    ]


def test_every_known_file_belongs_to_a_task_and_every_task_exists():
    assert set(manifest.FILES) <= set(task_names())
    assert all(any(path.startswith(start) for start in manifest.FILES.values()) for path in manifest.known_files())


def test_the_data_at_hand_is_the_known_one(data):
    places = [data / "senteval" / "downstream", data / "mteb"]
    found = 0
    for task, start in manifest.FILES.items():
        for place in places:
            if any((place / path).is_file() for path in manifest.known_files() if path.startswith(start)):
                assert manifest.differing(task, place) == ""
                found += 1
    assert found > 10


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Small files of SUBJ and MR that are the known ones."""
    folder = write(tmp_path / "downstream", monkeypatch)
    entries = {}
    for place in ("SUBJ", "MR"):
        for path in sorted((folder / place).iterdir()):
            content = path.read_bytes()
            entries[f"{place}/{path.name}"] = {
                "last": len(content.splitlines()[-1]),
                "sha256": hashlib.sha256(content).hexdigest(),
            }
    monkeypatch.setattr(manifest, "known_files", lambda: entries)
    return folder


def score(folder, task, encode):
    suite = read_suite([task], folder, classifier="senteval_fast")
    return suite, suite.score(encode(suite.sentences), bootstrap=20)


def test_of_the_known_file_nothing_is_said(folder, encode):
    suite, results = score(folder, "subj", encode)
    assert suite.notes == []
    assert "differs" not in results.scores[0].protocol


def test_another_file_with_as_many_rows_is_scored_and_its_scores_say_so(folder, encode):
    _, before = score(folder, "subj", encode)
    path = folder / "SUBJ" / "subj.objective"
    path.write_text(path.read_text().replace("label1", "Label1", 1))
    suite, results = score(folder, "subj", encode)
    assert suite.notes == ["SUBJ/subj.objective differs from the known file: its scores may not compare"]
    for one, other in zip(results.scores, before.scores, strict=True):
        assert one.protocol["differs"] == "SUBJ/subj.objective"
        assert one.protocol["data"] != other.protocol["data"]
    with pytest.raises(UserError, match="subj cannot be compared: its data is"):
        compare_results(results, before)


def test_a_copy_that_reads_the_same_keeps_its_column_and_compares(folder, encode):
    _, before = score(folder, "subj", encode)
    path = folder / "SUBJ" / "subj.subjective"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n").removesuffix(b"\r\n"))
    suite, results = score(folder, "subj", encode)
    assert suite.notes == ["SUBJ/subj.subjective differs from the known file: its scores may not compare"]
    one, other = results.scores[0], before.scores[0]
    assert one.protocol["data"] == other.protocol["data"]
    assert tables.score_identity(one) == tables.score_identity(other)
    assert compare_results(results, before)[0].value == pytest.approx(0.0, abs=1e-9)


def test_a_file_that_ends_within_its_last_row_is_refused_by_name(folder):
    path = folder / "SUBJ" / "subj.subjective"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(UserError, match=r"SUBJ/subj\.subjective is cut short: its last row ends after \d+ bytes"):
        read_suite(["subj"], folder)


def test_a_file_with_fewer_rows_is_refused_by_name(folder):
    path = folder / "SUBJ" / "subj.subjective"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(UserError, match=r"SUBJ/subj\.subjective has 59 rows where 60 are known"):
        read_suite(["subj"], folder)


def test_an_average_over_other_files_says_so(folder, encode):
    for name in ("rt-polarity.pos", "rt-polarity.neg"):
        path = folder / "MR" / name
        path.write_text(path.read_text().replace("label", "Label", 1))
    suite = read_suite(["subj", "mr", "cr"], folder, classifier="senteval_fast")
    assert suite.notes == [
        "MR/rt-polarity.neg (and 1 beside it) differs from the known file: its scores may not compare"
    ]
    results = suite.score(encode(suite.sentences), bootstrap=0)
    average = results.average("accuracy")
    assert np.isfinite(average.value)
    assert average.protocol["differs"] == "MR/rt-polarity.neg (and 1 beside it)"


def test_the_manifest_travels_with_the_package():
    pyproject = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert '"evaluation/manifest.toml"' in pyproject
