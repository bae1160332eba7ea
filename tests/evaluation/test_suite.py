"""Tasks by name, texts encoded once, what is missing, what is wrong."""

import json

import numpy as np
import pytest
from suite_scores import score_tasks

from selfsent.errors import UserError
from selfsent.evaluation.suite import read_suite, resolve_tasks, task_names

HELD_OUT = (["sun rain cat", "old boat", "red tree"], ["rain cat", "boat music", "tree stone"])


def of_task(results, task):
    return [score for score in results.scores if score.task == task]


def test_a_group_is_expanded_and_nothing_is_asked_twice():
    assert resolve_tasks(["stsb-dev", "sts", "sts12"]) == [
        *["stsb-dev", "sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"]
    ]


def test_every_name_that_is_listed_resolves():
    groups = {"sts", "transfer", "probing", "downstream"}
    assert set(resolve_tasks(task_names())) == set(task_names()) - groups


def test_an_unknown_task_suggests_the_nearest():
    with pytest.raises(UserError, match="unknown task 'sts17': did you mean 'sts1"):
        resolve_tasks(["sts17"])


def test_each_different_text_is_encoded_once_over_all_tasks(senteval, encode):
    score_tasks(encode, ["sts", "geometry-dev", "retrieval"], senteval, held_out=HELD_OUT, bootstrap=0)
    (texts,) = encode.calls
    assert len(texts) == len(set(texts))
    suite = read_suite(["sts", "geometry-dev"], senteval)
    assert set(texts) == {*HELD_OUT[0], *HELD_OUT[1], *(t for task in suite.tasks for t in task.texts)}


def test_a_missing_set_is_named_with_its_place_and_the_average_says_of_what_it_is(senteval, encode):
    results = score_tasks(encode, ["sts"], senteval.parent, bootstrap=0)
    place = senteval / "STS" / "STS16-en-test"
    assert results.missing == {"sts16": place}
    assert read_suite(["sts"], senteval.parent).notes[0] == f"sts16 is missing: looked for {place}"
    assert results.average().task == "average of 6: sts12 sts13 sts14 sts15 stsb sickr"
    tested = [results.get(task) for task in ("sts12", "sts13", "sts14", "sts15", "stsb", "sickr")]
    assert {score.aggregation for score in tested} == {"all"}
    assert results.average().value == pytest.approx(np.mean([round(score.value, 2) for score in tested]), abs=1e-9)


def test_development_sets_enter_no_average(senteval, encode):
    results = score_tasks(encode, ["stsb-dev", "stsb", "sickr-dev"], senteval, bootstrap=0)
    assert results.average() is None
    assert [score.split for score in results.scores[::2]] == ["dev", "test", "dev"]


def test_scores_say_how_they_were_made(senteval, encode):
    results = score_tasks(
        encode, ["sickr-dev"], senteval, bootstrap=16, seed=5, protocol={"pooling": "mean", "max_length": 64}
    )
    score = results.get("sickr-dev")
    assert score.protocol == {
        "similarity": "cosine",
        "texts": "SentEval tokens",
        "data": read_suite(["sickr-dev"], senteval).tasks[0].fingerprint,
        "bootstrap": "16 resamples, seed 5",
        "pooling": "mean",
        "max_length": 64,
    }
    assert score.low < score.value < score.high
    assert json.loads(json.dumps(results.as_dict()))["scores"][0]["value"] == score.value


def test_an_interval_does_not_depend_on_the_other_tasks(senteval, encode):
    alone = score_tasks(encode, ["sickr-dev"], senteval, bootstrap=32)
    among = score_tasks(encode, ["stsb-dev", "sickr-dev"], senteval, bootstrap=32)
    assert of_task(alone, "sickr-dev") == of_task(among, "sickr-dev")


def test_without_resamples_there_is_no_interval(senteval, encode):
    results = score_tasks(encode, ["stsb-dev", "geometry-dev"], senteval, bootstrap=0)
    assert {(score.low, score.high) for score in results.scores} == {(None, None)}


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_vectors_that_are_not_finite_are_refused_with_the_task_and_the_text(senteval, encode, poison):
    def broken(texts):
        vectors = encode(texts)
        vectors[[text == "boat music" for text in texts], 3] = poison
        return vectors

    with pytest.raises(UserError, match="NaN or infinity for 1 texts of retrieval, first for 'boat music'"):
        score_tasks(broken, ["stsb-dev", "retrieval"], senteval, held_out=HELD_OUT)


def test_a_vector_too_few_is_the_callers_mistake(senteval):
    suite = read_suite(["sickr-dev"], senteval)
    with pytest.raises(ValueError, match=r"expected \d+ vectors, got an array of shape \(3, 4\)"):
        suite.score(np.ones((3, 4)))


def test_a_transform_sees_the_vectors_of_one_task_at_a_time(senteval, encode):
    suite = read_suite(["sickr-dev", "stsb-dev"], senteval)
    seen = []

    def halved(vectors):
        seen.append(len(vectors))
        return vectors[:, :4]

    vectors = encode(suite.sentences)
    cut = suite.score(vectors, bootstrap=0, transform=halved)
    assert seen == [1000, 3000]
    assert cut.scores == suite.score(vectors[:, :4], bootstrap=0).scores


def test_what_cannot_be_evaluated_is_refused_before_anything_is_encoded(senteval, tmp_path, encode):
    (tmp_path / "STS").mkdir()
    with pytest.raises(UserError, match="no task was asked for"):
        score_tasks(encode, [], senteval)
    with pytest.raises(UserError, match="stsb needs evaluation data"):
        score_tasks(encode, ["stsb"], None)
    with pytest.raises(UserError, match="retrieval needs held-out queries"):
        score_tasks(encode, ["retrieval"], None)
    with pytest.raises(UserError, match=r"no task has data: stsb: looked for .*sts-test\.csv"):
        score_tasks(encode, ["stsb"], tmp_path)
    assert encode.calls == []
