"""Is one setting better than another?  Tests over seeds and held-out queries, corrected for many comparisons.

A setting is trained with S seeds, and each model is scored on the same held-out queries.  Two things make a score vary:
the seed, and which queries were held out.  A lead counts only if it stands out against both:

    seeds      s: the standard error of the mean of the S paired differences, with S - 1 degrees of freedom
    queries    q: the standard error of the mean difference in its paired bootstrap over the queries
    interval   mean +- sqrt((t s)^2 + (z q)^2), t and z the two-sided quantiles of Student's t and of the normal; p is
               the level at which it touches zero

Half-widths add in quadrature because both errors are in the mean, each at its own quantile because only one of them is
estimated from few values.  It is not too short: simulated with 3, 5 and 10 seeds and true errors over the queries of 0
to 20 times those over the seeds, intervals of 95 % missed in 2.3 to 5.0 % of the cases, where the longer half-width
alone missed in up to 11.5 %, and Satterthwaite's degrees of freedom in up to 7.8 %.  The bootstrap alone would be none:
it keeps the models fixed, so that two seeds of one recipe would differ "significantly".

Of K settings each is compared with one reference, and the p values are corrected by Holm's method (Holm 1979,
https://www.jstor.org/stable/4615733), which holds whatever the dependence of the comparisons: the chance to call any
setting better or worse that is not is at most 5 %.  The correction is needed although the best is chosen by dev scores
and compared by test scores: both come from the same models, so a lucky seed lifts both.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy import special

LEAST_SEEDS = 3  # below that the deviation over seeds is not known well enough for any conclusion
LEVEL = 0.05  # chance of a false conclusion in a whole sweep


def interval_over_seeds(
    gaps: Float[np.ndarray, " S"], replicates: Float[np.ndarray, "S R"], *, level: float = LEVEL
) -> tuple[float, float, float]:
    """Return the ends of the interval of a mean difference, and its p value, over seeds and queries.

    Args:
        gaps: the difference of each seed, in points; three or more.
        replicates: of the differences, in the bootstrap over queries.
        level: the interval covers the true difference with probability 1 - level.
    """
    value, seeds = float(gaps.mean()), len(gaps)
    of_seeds = gaps.std(ddof=1, keepdims=True) / np.sqrt(seeds)  # standard errors
    of_queries = replicates.mean(axis=0).std(ddof=1, keepdims=True)
    half = float(_half_widths(np.array([level]), of_seeds, of_queries, seeds)[0])
    p = _p_values(np.array([value]), of_seeds, of_queries, seeds)[0]
    return value - half, value + half, float(p)


def _p_values(
    value: Float[np.ndarray, " N"],
    of_seeds: Float[np.ndarray, " N"],
    of_queries: Float[np.ndarray, " N"],
    seeds: int,
) -> Float[np.ndarray, " N"]:
    """Return the levels at which the intervals touch zero, by bisection; of a difference of 0 it is 1."""
    low, high = np.full(len(value), -200.0), np.zeros(len(value))  # natural logarithms
    for _ in range(50):
        middle = (low + high) / 2
        shorter = _half_widths(np.exp(middle), of_seeds, of_queries, seeds) <= np.abs(value)
        longer = ~shorter  # also where something is not a number, which shows nothing
        low, high = np.where(longer, middle, low), np.where(longer, high, middle)
    return np.where(value == 0, 1.0, np.exp(high))


def _half_widths(
    levels: Float[np.ndarray, " N"],
    of_seeds: Float[np.ndarray, " N"],
    of_queries: Float[np.ndarray, " N"],
    seeds: int,
) -> Float[np.ndarray, " N"]:
    half: Float[np.ndarray, " N"] = np.hypot(
        special.stdtrit(seeds - 1, levels / 2) * of_seeds, special.ndtri(levels / 2) * of_queries
    )
    return half


def correct_holm(p_values: Sequence[float], comparisons: int | None = None) -> list[float]:
    """Correct p values for their number by Holm's step-down method; compare the result with 0.05.

    Args:
        comparisons: that were begun, where some have no p value, because their training was given up; None: as many
            as there are p values.

    Source: Holm 1979, A Simple Sequentially Rejective Multiple Test Procedure, https://www.jstor.org/stable/4615733.
    """
    number = max(len(p_values), comparisons or 0)
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(np.argsort(p_values, kind="stable")):
        highest = max(highest, min(1.0, (number - rank) * p_values[place]))
        corrected[place] = highest
    return corrected


def compare_pairs(
    values: Float[np.ndarray, "K S"], replicates: Float[np.ndarray, "K S R"], place: int, settings: int
) -> list[float]:
    """Return the p value of one setting against each, corrected for all pairs.

    The setting was chosen by the models that are compared, so any pair could have been the one that is looked at: all
    pairs count as comparisons.

    Args:
        values: of each setting and seed, in points; three seeds or more.
        replicates: in the bootstrap over queries; replicate r draws the same queries everywhere.
        place: of the setting; its own entry is 1.
        settings: that were begun, the K and those without scores.
    """
    one, other = np.triu_indices(len(values), 1)
    gaps, seeds = values[one] - values[other], values.shape[1]
    covariance = np.atleast_2d(np.cov(replicates.mean(axis=1)))
    variances = covariance[one, one] + covariance[other, other] - 2 * covariance[one, other]
    of_queries = np.sqrt(np.maximum(variances, 0))
    p_values = _p_values(gaps.mean(axis=1), gaps.std(axis=1, ddof=1) / np.sqrt(seeds), of_queries, seeds)
    corrected = np.ones((len(values), len(values)))
    corrected[one, other] = corrected[other, one] = correct_holm(p_values.tolist(), settings * (settings - 1) // 2)
    row: list[float] = corrected[place].tolist()
    return row
