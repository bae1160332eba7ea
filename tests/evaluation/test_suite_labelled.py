"""Labelled tasks in a suite: names, one classifier for each result, averages, progress, vectors that are not finite."""

import re

import numpy as np
import pytest
from labelled_files import write
from small_runs import Told
from suite_scores import score_tasks

from selfsent.errors import UserError
from selfsent.evaluation import score
from selfsent.evaluation.comparison import compare_results
from selfsent.evaluation.senteval import relatedness
from selfsent.evaluation.senteval.declutr_averages import DOWNSTREAM, PROBING
from selfsent.evaluation.suite import read_suite, resolve_tasks

SEVEN = ["mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc"]


@pytest.fixture
def files(tmp_path, monkeypatch):
    return write(tmp_path / "downstream", monkeypatch)


def run(encode, tasks, files, **changes):
    return score_tasks(encode, tasks, files, **{"classifier": "senteval_fast", "bootstrap": 20, **changes})


def test_the_groups_are_those_of_the_literature():
    assert resolve_tasks(["transfer"]) == SEVEN
    assert resolve_tasks(["downstream"]) == list(DOWNSTREAM)
    assert resolve_tasks(["probing"]) == list(PROBING)
    assert len(DOWNSTREAM) == 18


def test_transfer_scores_each_task_and_their_average_is_named_after_the_seven(files, encode):
    results = run(encode, ["transfer"], files)
    values = [results.get(task, "accuracy") for task in SEVEN]
    assert all(score.split == "test" and score.low <= score.value <= score.high for score in values)
    assert np.mean([score.value for score in values]) > 60
    average = results.average("accuracy")
    assert average.task == "average of 7: mr cr subj mpqa sst2 trec mrpc"
    assert average.value == pytest.approx(np.mean([score.value for score in values]), abs=1e-9)
    assert average.protocol["classifier"] == "senteval_fast"
    assert "regulariser" not in average.protocol
    assert results.average() is None
    assert results.get("mrpc", "f1").n == 45
    assert {score.task for score in results.scores if score.split == "dev"} == set(SEVEN)


def test_the_average_has_the_order_of_the_literature_and_names_what_it_is_of(files, encode):
    results = run(encode, ["trec", "sick-e", "cr", "sst5"], files, bootstrap=0)
    assert results.average("accuracy").task == "average of 2: cr trec"


def test_texts_of_labelled_tasks_are_encoded_once(files, encode):
    run(encode, ["sick-e", "sickr-regression", "sickr"], files, bootstrap=0)
    (texts,) = encode.calls
    assert len(texts) == len(set(texts))


def test_progress_counts_tasks_and_fits(files, encode):
    told = Told()
    run(encode, ["trec", "sickr-dev", "cr"], files, bootstrap=0, progress=told)
    assert ("task 1 of 3, trec: classifiers trained", 21, 21) in told.reports
    assert told.reports[-1] == ("task 3 of 3, cr: classifiers trained", 105, 105)


def test_each_score_names_classifier_folds_seeds_and_data(files, encode):
    protocol = run(encode, ["cr"], files).get("cr", "accuracy").protocol
    expected = {"classifier": "senteval_fast", "folds": 5, "classifier_seed": 1111, "fits": 105}
    assert {what: protocol[what] for what in expected} == expected
    assert protocol["bootstrap"] == "20 resamples, seed 0"
    assert re.fullmatch("[0-9a-f]{16}", protocol["data"])


def test_results_of_different_classifiers_are_never_compared_or_averaged(files, encode):
    fast, plain = run(encode, ["trec"], files), run(encode, ["trec"], files, classifier="sklearn")
    assert compare_results(fast, fast)[0].value == 0
    with pytest.raises(UserError, match="its classifier is senteval_fast in one result and sklearn in the other"):
        compare_results(fast, plain)
    with pytest.raises(ValueError, match="different classifiers have no average: senteval_fast, sklearn"):
        score.average([fast.get("trec", "accuracy"), plain.get("trec", "accuracy")])


def test_vectors_that_are_not_finite_are_refused_with_the_task(files, encode):
    def broken(texts):
        vectors = encode(texts)
        vectors[3, 0] = np.nan
        return vectors

    with pytest.raises(UserError, match="NaN or infinity for 1 texts of cr, first for"):
        run(broken, ["cr"], files)


def test_unknown_classifiers_and_stopping_are_refused_before_anything_is_read(tmp_path):
    with pytest.raises(UserError, match="unknown classifier 'senteval_ful': did you mean 'senteval_full'"):
        read_suite(["cr"], tmp_path, classifier="senteval_ful")


def test_the_regressions_stop_by_what_was_asked_for(files, encode, monkeypatch):
    monkeypatch.setattr(relatedness, "PASSES", 5)
    results = run(encode, ["sickr-regression"], files, bootstrap=0, stop_on="spearman")
    assert results.get("sickr-regression").protocol["classifier"] == "regression stopped by spearman"


def test_probing_is_found_beside_downstream_and_sub_samples_are_said(files, encode):
    place = files.parent / "probing"
    place.mkdir()
    rng = np.random.default_rng(0)
    for name in ("past_present", "bigram_shift"):
        rows = [
            f"{split}\t{label}\tword{label} {rng.integers(9)}"
            for split in ("tr", "va", "te")
            for label in ("A", "B") * 20
        ]
        (place / f"{name}.txt").write_text("".join(f"{row}\n" for row in rows))
    for data in (files, files.parent):
        results = run(encode, ["past_present", "bigram_shift"], data, bootstrap=0)
        notes = read_suite(["past_present", "bigram_shift"], data).notes
        assert notes[0].startswith("warning: past_present is sub-sampled, 40/40/40 of")
        assert results.get("past_present", "accuracy").protocol["rows"] == "40/40/40 of 100000/10000/10000"
        assert not [score for score in results.scores if score.task.startswith("average")]
    assert read_suite(["past_present"], files.parent).tasks[0].name == "past_present"


def test_what_is_missing_of_downstream_is_named(files):
    tasks = [task for task in DOWNSTREAM if task not in SEVEN and not task.endswith("regression")]
    read = read_suite(tasks, files)
    assert {"snli", "captions", "sts12"} <= set(read.missing)
    assert f"snli is missing: looked for {files / 'SNLI'}" in read.notes
