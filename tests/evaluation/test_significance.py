"""What may be concluded from a sweep: simulated sweeps whose truth is known."""

import numpy as np
import pytest
from scipy import stats

from selfsent.evaluation import comparison, significance
from selfsent.evaluation.bootstrap import means
from selfsent.evaluation.comparison import compare_settings, compare_with_best
from selfsent.evaluation.score import Score
from selfsent.evaluation.significance import correct_holm, interval_over_seeds

QUERIES, RESAMPLES = 100, 100


def simulated_sweep(draw, truth, seeds, *, luck=1.0):
    """Dev and test scores of settings: what they are worth, the luck of each model, and noise of the queries.

    A model's luck lifts dev and test alike, as a lucky seed does; the difficulty of a query is shared by all models.
    """
    settings = len(truth)
    quality = 50 + np.asarray(truth)[:, None] + luck * draw.normal(size=(settings, seeds))
    dev = quality + draw.normal(scale=0.5, size=quality.shape)
    difficulty = 10 * draw.normal(size=QUERIES)
    queries = quality[..., None] + difficulty + 5 * draw.normal(size=(settings, seeds, QUERIES))
    columns = queries.reshape(-1, QUERIES).T
    drawn = means(columns, RESAMPLES, seed=0, name="test").reshape(settings, seeds, RESAMPLES)
    values = queries.mean(axis=2)
    return [*dev], [scores(values[k], drawn[k]) for k in range(settings)]


def scores(values, drawn):
    """Scores of one setting, one of each seed."""
    named = {"task": "retrieval", "split": "held-out", "metric": "mrr@10", "n": QUERIES}
    return [Score(**named, value=value, replicates=of) for value, of in zip(values.tolist(), drawn, strict=True)]


def judge(dev, test, given_up=0):
    """Choose by dev, and compare the choice with the first setting."""
    best = int(np.argmax([of_seeds.mean() for of_seeds in dev]))
    compared = compare_settings(test, given_up=given_up)
    return best, "reference" if best == 0 else compared[best].decision, compared


def false_findings(sweeps, settings, seeds):
    """How often a sweep of one recipe under many names calls a setting better than the recipe: the best, and any."""
    draw = np.random.default_rng(0)
    winners = anything = 0
    for _ in range(sweeps):
        _, finding, compared = judge(*simulated_sweep(draw, np.zeros(settings), seeds))
        winners += finding == "better"
        anything += any(setting.decision != "cannot tell" for setting in compared)
    return winners / sweeps, anything / sweeps


@pytest.mark.parametrize("seeds", [3, 5])
def test_one_recipe_under_sixteen_names_has_a_winner_in_at_most_5_percent_of_sweeps(seeds):
    winners, anything = false_findings(200, 16, seeds)
    assert winners <= 0.05
    assert anything <= 0.05


def test_without_the_correction_it_would_have_a_winner_far_more_often(monkeypatch):
    monkeypatch.setattr(comparison, "correct_holm", lambda p_values, comparisons=None: [*p_values])
    winners, anything = false_findings(60, 16, 3)
    assert winners > 0.05
    assert anything > 0.1


def test_the_bootstrap_over_queries_alone_would_find_differences_between_seeds(monkeypatch):
    monkeypatch.setattr(significance.special, "stdtrit", lambda freedom, level: 0 * level)
    assert false_findings(100, 10, 3)[0] > 0.05


@pytest.mark.parametrize(("seeds", "lead", "least"), [(3, 12.0, 0.8), (5, 5.0, 0.9), (10, 2.5, 0.9)])
def test_a_real_lead_is_found(seeds, lead, least):
    draw = np.random.default_rng(1)
    judged = [judge(*simulated_sweep(draw, [0, 0, 0, lead, 0], seeds)) for _ in range(60)]
    assert np.mean([best == 3 and finding == "better" for best, finding, _ in judged]) >= least


def test_settings_that_were_given_up_count_as_comparisons():
    dev, test = simulated_sweep(np.random.default_rng(2), [0, 6, 0], 5)
    few, many = (judge(dev, test, given_up=number)[2][1] for number in (0, 37))
    assert many.p == pytest.approx(min(1, few.p / 2 * 39))
    assert many.high - many.low > few.high - few.low


@pytest.mark.parametrize("seeds", [1, 2])
def test_nothing_is_concluded_from_fewer_than_three_seeds(seeds):
    best, finding, compared = judge(*simulated_sweep(np.random.default_rng(3), [0, 50], seeds))
    assert (best, finding) == (1, "cannot tell")
    assert compared[1].p is None


def test_seeds_are_compared_by_the_paired_t_test_where_queries_hardly_vary():
    draw = np.random.default_rng(5)
    first, second = draw.normal(size=(2, 6))
    low, high, p = interval_over_seeds(first - second, np.zeros((6, 50)), level=0.1)
    known = stats.ttest_rel(first, second)
    interval = known.confidence_interval(0.9)
    assert p == pytest.approx(known.pvalue)
    assert (low, high) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize("ratio", [0.5, 1, 2])
def test_an_interval_holds_where_seeds_and_queries_vary_alike(ratio):
    draw = np.random.default_rng(11)
    seeds, runs, of_queries = 10, 1000, ratio / np.sqrt(10)
    shared = draw.normal(0, of_queries, (runs, 1))  # every seed is scored on the same queries
    values = draw.normal(size=(runs, seeds)) + shared
    drawn = np.tile(of_queries * draw.permutation(stats.norm.ppf((np.arange(400) + 0.5) / 400)), (seeds, 1))
    intervals = [interval_over_seeds(gaps, drawn) for gaps in values]
    assert np.mean([low > 0 or high < 0 for low, high, _ in intervals]) < 0.06
    for low, high, p in intervals[:20]:  # p is the level at which the interval touches zero
        assert (low > 0 or high < 0) == (p < 0.05)


def test_what_is_not_a_number_shows_nothing():
    assert interval_over_seeds(np.array([2.0, 2.1, 2.2]), np.full((3, 9), np.nan))[2] == 1


def test_queries_decide_where_seeds_hardly_vary():
    draw = np.random.default_rng(6)
    replicates = np.tile(draw.normal(size=400), (3, 1))
    p = interval_over_seeds(np.ones(3), replicates)[2]
    assert p == pytest.approx(2 * stats.norm.sf(1 / replicates[0].std(ddof=1)))


def test_all_pairs_are_compared_as_each_pair_would_be():
    dev, test = simulated_sweep(np.random.default_rng(7), [0, 3, 1, 9], 4)
    values = [np.array([score.value for score in setting]) for setting in test]
    drawn = [np.stack([score.replicates for score in setting]) for setting in test]
    pairs = [(one, other) for one in range(4) for other in range(one + 1, 4)]
    known = correct_holm(
        [interval_over_seeds(values[one] - values[other], drawn[one] - drawn[other])[2] for one, other in pairs]
    )
    assert judge(dev, test)[0] == 3
    p_best = compare_with_best(3, [*test, None])
    for (one, other), p in zip(pairs, known, strict=True):
        if 3 in (one, other):
            assert compare_with_best(3, test)[one + other - 3] == pytest.approx(p)
    assert p_best[3:] == [None, None]
    assert max(filter(None, p_best)) <= 1


def test_equal_settings_do_not_differ():
    low, high, p = interval_over_seeds(np.zeros(3), np.zeros((3, 10)))
    assert (low, high, p) == (0.0, 0.0, 1.0)


def test_holm_corrects_as_worked_out_by_hand():
    assert correct_holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert correct_holm([0.01, 0.04], comparisons=10) == pytest.approx([0.1, 0.36])
    assert correct_holm([0.9, 0.8]) == [1.0, 1.0]
    assert correct_holm([]) == []
