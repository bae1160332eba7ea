"""Averages, and the paired difference of two models."""

import numpy as np
import pytest
from suite_scores import score_tasks

from selfsent.errors import UserError
from selfsent.evaluation.score import Score, average, compare_results
from selfsent.evaluation.suite import read_suite


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


@pytest.fixture
def two(senteval, encode):
    """A model, and the same with a little noise."""
    suite = read_suite(["sts13", "stsb"], senteval)
    vectors = encode(suite.sentences)
    noise = np.random.default_rng(0).normal(size=vectors.shape).astype(np.float32)
    return suite.score(vectors, bootstrap=200), suite.score(vectors + 1.5 * noise, bootstrap=200)


def test_a_model_does_not_differ_from_itself(two):
    for difference in compare_results(two[0], two[0]):
        assert (difference.value, difference.low, difference.high, difference.above) == (0, 0, 0, 0)


def test_a_paired_interval_is_narrower_than_that_of_two_independent_models(two):
    first, second = two
    difference = next(d for d in compare_results(first, second) if d.task == "stsb")
    assert difference.value == first.get("stsb").value - second.get("stsb").value
    assert difference.low < difference.value < difference.high
    assert difference.above == 1.0
    spread = [result.get("stsb").replicates.std() for result in two]
    assert (difference.high - difference.low) / 3.92 < 0.95 * np.hypot(*spread)


def test_the_average_is_compared_too(two):
    assert compare_results(*two)[-1].task == "average of 2: sts13 stsb"


def test_other_data_and_other_draws_are_refused(senteval, encode, two):
    suite = read_suite(["stsb"], senteval)
    other = suite.score(encode(suite.sentences), bootstrap=200, seed=1)
    with pytest.raises(UserError, match="stsb cannot be compared: its bootstrap is 200 resamples, seed 0"):
        compare_results(two[0], other)


def test_nothing_in_common_is_refused(senteval, encode, two):
    other = score_tasks(encode, ["sickr-dev"], senteval, bootstrap=8)
    with pytest.raises(UserError, match="share no score with bootstrap replicates"):
        compare_results(two[0], other)


def test_a_score_that_was_not_measured_is_named(two):
    with pytest.raises(KeyError, match="no spearman of sts12"):
        two[0].get("sts12")
