"""Resampling by counts against resampling by hand."""

import numpy as np
import pytest
from scipy import stats

from selfsent.evaluation import bootstrap
from selfsent.evaluation.score import measured


def correlated(rows, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    return x, np.round(x + rng.normal(size=rows))  # rounded: many ties


@pytest.mark.parametrize(
    ("ours", "theirs"), [(bootstrap.spearman, stats.spearmanr), (bootstrap.pearson, stats.pearsonr)]
)
def test_every_resample_is_correlated_as_scipy_correlates_the_drawn_rows(ours, theirs):
    x, y = correlated(60)
    for counts in bootstrap.bootstrap_draws(60, 200, seed=3, name="a"):
        drawn = [np.repeat(np.arange(60), column) for column in counts.T.astype(int)]
        expected = [theirs(x[rows], y[rows]).statistic for rows in drawn]
        np.testing.assert_allclose(ours(x, y, counts), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("ours", [bootstrap.spearman, bootstrap.pearson])
def test_a_resample_of_equal_values_has_correlation_zero(ours):
    x, y = np.array([0.3, 0.3, 0.9]), np.array([1.0, 2.0, 3.0])
    counts = np.array([[2.0, 1.0], [1.0, 1.0], [0.0, 1.0]])
    assert ours(x, y, counts)[0] == 0
    assert ours(x, y, counts)[1] > 0.5


def test_every_resample_draws_as_many_rows_as_there_are():
    counts = np.concatenate(list(bootstrap.bootstrap_draws(50, 300, seed=0, name="a")), axis=1)
    assert counts.shape == (50, 300)
    assert (counts.sum(axis=0) == 50).all()
    assert counts.sum(axis=1).min() > 230  # every row has its turn: 300 expected, 17 the deviation
    # Counts of one row are binomial(50, 1/50): mean 1, variance 0.98.
    assert counts.var() == pytest.approx(0.98, abs=0.05)


def test_draws_depend_on_seed_and_name_alone():
    def first(**changes):
        return next(bootstrap.bootstrap_draws(20, 5, **{"seed": 0, "name": "a", **changes}))

    assert np.array_equal(first(), first())
    assert not np.array_equal(first(), first(seed=1))
    assert not np.array_equal(first(), first(name="b"))


def test_resampled_means_spread_by_the_standard_error():
    values = np.random.default_rng(0).normal(3, 2, size=(400, 1))
    drawn = bootstrap.means(values, 2000, seed=0, name="a")
    assert drawn.mean() == pytest.approx(values.mean(), abs=0.02)
    assert drawn.std() == pytest.approx(values.std() / 20, rel=0.06)


def test_a_rank_interval_covers_the_truth_about_as_often_as_it_says():
    # Bivariate normal, r = 0.6: Spearman's rho is 6/pi asin(r/2).
    truth, inside = 6 / np.pi * np.arcsin(0.3), 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=120)
        y = 0.6 * x + 0.8 * rng.normal(size=120)
        drawn = [bootstrap.spearman(x, y, c) for c in bootstrap.bootstrap_draws(120, 256, seed=seed, name="a")]
        low, high = np.quantile(np.concatenate(drawn), (0.025, 0.975))
        inside += low < truth < high
    assert 0.89 < inside / 200 < 0.99


def test_without_resamples_there_are_no_replicates_and_no_interval():
    values = np.random.default_rng(0).normal(size=(9, 2))
    drawn = bootstrap.means(values, 0, seed=0, name="a")
    assert drawn.shape == (2, 0)
    score = measured("a", "test", "accuracy", 1.0, 100 * drawn[0], 9, {})
    assert (score.low, score.high, score.replicates) == (None, None, None)


def test_means_of_drawn_clusters_are_those_of_their_rows():
    values = np.random.default_rng(0).normal(size=(7, 2))
    clusters = np.array([0, 2, 1, 2, 2, 0, 1])
    found = bootstrap.means(values, 30, seed=3, name="n", clusters=clusters)
    (counts,) = bootstrap.bootstrap_draws(3, 30, seed=3, name="n")
    for place in range(30):
        rows = [row for row in range(7) for _ in range(int(counts[clusters[row], place]))]
        np.testing.assert_allclose(found[:, place], values[rows].mean(axis=0))
    alone = bootstrap.means(values, 30, seed=3, name="n", clusters=np.arange(7))
    np.testing.assert_allclose(alone, bootstrap.means(values, 30, seed=3, name="n"))
