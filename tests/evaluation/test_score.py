"""Scores and their averages."""

import pytest
from suite_scores import score_tasks

from selfsent.evaluation.score import Score, average


def score(value, task="sts12"):
    return Score(task=task, split="test", metric="spearman", aggregation="all", value=value, n=10)


def test_an_average_rounds_each_score_first():
    # 10.006 and 20.006 round to 10.01 and 20.01; their plain mean is 15.006.
    assert average([score(10.006), score(20.006, "sts13")]).value == pytest.approx(15.01, abs=1e-9)


def test_an_average_of_independent_tasks_has_a_narrower_interval_than_each(senteval, encode):
    results = score_tasks(encode, ["sts12", "sts13", "sts14"], senteval, bootstrap=200)
    each = [results.get(task) for task in ("sts12", "sts13", "sts14")]
    variance = sum(s.replicates.var() for s in each) / 9
    assert results.average().replicates.var() == pytest.approx(variance, rel=0.35)
    assert results.average().high - results.average().low < min(s.high - s.low for s in each)


def test_a_score_that_was_not_measured_is_named(senteval, encode):
    with pytest.raises(KeyError, match="no spearman of sts12"):
        score_tasks(encode, ["stsb"], senteval, bootstrap=8).get("sts12")
