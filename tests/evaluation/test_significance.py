"""What may be concluded from a sweep: simulated sweeps whose truth is known."""

import numpy as np
import pytest
from scipy import stats

from selfsent.evaluation import significance
from selfsent.evaluation.bootstrap import means
from selfsent.evaluation.significance import SeedScores, compare_settings, correct_holm, judge_settings

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
    return [*dev], [SeedScores(values=values[k], replicates=drawn[k]) for k in range(settings)]


def false_findings(sweeps, settings, seeds):
    """How often a sweep of one recipe under many names calls a setting better than the recipe: the best, and any."""
    draw = np.random.default_rng(0)
    winners = anything = 0
    for _ in range(sweeps):
        judged = judge_settings(*simulated_sweep(draw, np.zeros(settings), seeds))
        winners += judged.finding == "better"
        anything += any(p is not None and p < significance.LEVEL for p in judged.p_reference)
    return winners / sweeps, anything / sweeps


@pytest.mark.parametrize("seeds", [3, 5])
def test_one_recipe_under_sixteen_names_has_a_winner_in_at_most_5_percent_of_sweeps(seeds):
    winners, anything = false_findings(200, 16, seeds)
    assert winners <= 0.05
    assert anything <= 0.05


def test_without_the_correction_it_would_have_a_winner_far_more_often(monkeypatch):
    monkeypatch.setattr(significance, "correct_holm", lambda p_values, comparisons=None: [*p_values])
    winners, anything = false_findings(60, 16, 3)
    assert winners > 0.05
    assert anything > 0.1


def test_the_bootstrap_over_queries_alone_would_find_differences_between_seeds(monkeypatch):
    monkeypatch.setattr(significance.special, "stdtrit", lambda freedom, level: 0 * level)
    assert false_findings(100, 10, 3)[0] > 0.05


@pytest.mark.parametrize(("seeds", "lead", "least"), [(3, 12.0, 0.8), (5, 5.0, 0.9), (10, 2.5, 0.9)])
def test_a_real_lead_is_found(seeds, lead, least):
    draw = np.random.default_rng(1)
    found = [judge_settings(*simulated_sweep(draw, [0, 0, 0, lead, 0], seeds)) for _ in range(60)]
    assert np.mean([judged.best == 3 and judged.finding == "better" for judged in found]) >= least


def test_settings_that_were_given_up_count_as_comparisons():
    dev, test = simulated_sweep(np.random.default_rng(2), [0, 6, 0], 5)
    few, many = judge_settings(dev, test), judge_settings(dev, test, given_up=37)
    assert many.comparisons == few.comparisons + 37
    assert many.p_reference[1] == pytest.approx(min(1, few.p_reference[1] / 2 * 39))


@pytest.mark.parametrize("seeds", [1, 2])
def test_nothing_is_concluded_from_fewer_than_three_seeds(seeds):
    judged = judge_settings(*simulated_sweep(np.random.default_rng(3), [0, 50], seeds))
    assert judged.best == 1
    assert judged.finding == "cannot tell"
    assert judged.leads[1].p is None


def test_the_reference_that_is_best_itself_is_named_so():
    assert judge_settings(*simulated_sweep(np.random.default_rng(4), [50, 0], 3)).finding == "reference"


def test_seeds_are_compared_by_the_paired_t_test_where_queries_hardly_vary():
    draw = np.random.default_rng(5)
    first, second = draw.normal(size=(2, 6))
    still = np.zeros((6, 50))
    lead = compare_settings(
        SeedScores(values=first, replicates=still), SeedScores(values=second, replicates=still), level=0.1
    )
    known = stats.ttest_rel(first, second)
    interval = known.confidence_interval(0.9)
    assert lead.p == pytest.approx(known.pvalue)
    assert (lead.low, lead.high) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize("ratio", [0.5, 1, 2])
def test_an_interval_holds_where_seeds_and_queries_vary_alike(ratio):
    draw = np.random.default_rng(11)
    seeds, runs, of_queries = 10, 1000, ratio / np.sqrt(10)
    shared = draw.normal(0, of_queries, (runs, 1))  # every seed is scored on the same queries
    values = draw.normal(size=(runs, seeds)) + shared
    drawn = np.tile(of_queries * draw.permutation(stats.norm.ppf((np.arange(400) + 0.5) / 400)), (seeds, 1))
    nothing = SeedScores(values=np.zeros(seeds), replicates=np.zeros_like(drawn))
    leads = [compare_settings(SeedScores(values=one, replicates=drawn), nothing) for one in values]
    assert np.mean([lead.low > 0 or lead.high < 0 for lead in leads]) < 0.06
    for lead in leads[:20]:  # p is the level at which the interval touches zero
        assert (lead.low > 0 or lead.high < 0) == (lead.p < 0.05)


def test_what_is_not_a_number_shows_nothing():
    values, replicates = np.array([2.0, 2.1, 2.2]), np.full((3, 9), np.nan)
    nothing = SeedScores(values=np.zeros(3), replicates=np.zeros((3, 9)))
    assert compare_settings(SeedScores(values=values, replicates=replicates), nothing).p == 1


def test_queries_decide_where_seeds_hardly_vary():
    draw = np.random.default_rng(6)
    replicates = np.tile(draw.normal(size=400), (3, 1))
    values = np.array([1.0, 1.0, 1.0])
    lead = compare_settings(
        SeedScores(values=values, replicates=replicates), SeedScores(values=0 * values, replicates=0 * replicates)
    )
    assert lead.p == pytest.approx(2 * stats.norm.sf(1 / replicates[0].std(ddof=1)))


def test_all_pairs_are_compared_as_each_pair_would_be():
    dev, test = simulated_sweep(np.random.default_rng(7), [0, 3, 1, 9], 4)
    judged = judge_settings(dev, test)
    pairs = [(one, other) for one in range(4) for other in range(one + 1, 4)]
    known = correct_holm([compare_settings(test[one], test[other]).p for one, other in pairs])
    for (one, other), p in zip(pairs, known, strict=True):
        if 3 in (one, other):
            assert judged.p_best[one + other - 3] == pytest.approx(p)
    assert judged.best == 3
    assert judged.p_best[3] is None


def test_equal_settings_do_not_differ():
    scores = SeedScores(values=np.ones(3), replicates=np.ones((3, 10)))
    lead = compare_settings(scores, scores)
    assert (lead.value, lead.p) == (0.0, 1.0)


def test_settings_of_other_numbers_of_seeds_cannot_be_paired():
    one = SeedScores(values=np.ones(3), replicates=np.ones((3, 10)))
    other = SeedScores(values=np.ones(2), replicates=np.ones((2, 10)))
    with pytest.raises(ValueError, match="cannot be paired"):
        compare_settings(one, other)


def test_holm_corrects_as_worked_out_by_hand():
    assert correct_holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert correct_holm([0.01, 0.04], comparisons=10) == pytest.approx([0.1, 0.36])
    assert correct_holm([0.9, 0.8]) == [1.0, 1.0]
    assert correct_holm([]) == []
