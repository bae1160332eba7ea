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
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy import special

LEAST_SEEDS = 3  # below that the deviation over seeds is not known well enough for any conclusion
LEVEL = 0.05  # chance of a false conclusion in a whole sweep

Finding = Literal["better", "worse", "cannot tell", "reference"]


@dataclass(frozen=True, kw_only=True)
class SeedScores:
    """Held-out test scores of one setting, in points: a row for each seed, of the same seeds and queries everywhere."""

    values: Float[np.ndarray, " S"]
    replicates: Float[np.ndarray, "S R"]  # of the bootstrap over queries; replicate r draws the same queries everywhere


@dataclass(frozen=True, kw_only=True)
class Lead:
    """How far the first of two settings lies above the second; interval and p are None below three seeds."""

    value: float  # difference of the means over the seeds, in points
    low: float | None = None
    high: float | None = None
    p: float | None = None  # two-sided


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What a sweep shows; the lists follow the order of the settings."""

    best: int  # by the mean dev score
    finding: Finding  # the best against the reference; "reference": the reference is the best itself
    leads: list[Lead]  # over the reference; the intervals hold for all settings at once
    p_reference: list[float | None]  # corrected for the comparisons with the reference; None: not compared
    p_best: list[float | None]  # of the best against each, corrected for all pairs; None: not compared
    comparisons: int  # with the reference


def compare_settings(first: SeedScores, second: SeedScores, *, level: float = LEVEL) -> Lead:
    """Compare two settings by the seeds and the queries that they share.

    Args:
        level: the interval covers the true difference with probability 1 - level.

    Raises:
        ValueError: the settings have other numbers of seeds or of resamples.
    """
    if first.values.shape != second.values.shape or first.replicates.shape != second.replicates.shape:
        raise ValueError(
            f"settings with {first.replicates.shape} and {second.replicates.shape} seeds and resamples cannot be paired"
        )
    gaps = first.values - second.values
    value = float(gaps.mean())
    if len(gaps) < LEAST_SEEDS:
        return Lead(value=value)
    low, high, p = interval_over_seeds(gaps, first.replicates - second.replicates, level=level)
    return Lead(value=value, low=low, high=high, p=p)


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


def _all_pairs(settings: Sequence[SeedScores]) -> Float[np.ndarray, " N"]:
    """Return the p value of every pair of settings, in the order of ``np.triu_indices``."""
    one, other = np.triu_indices(len(settings), 1)
    values = np.stack([setting.values for setting in settings])
    drawn = np.stack([setting.replicates.mean(axis=0) for setting in settings])
    gaps, seeds = values[one] - values[other], values.shape[1]
    covariance = np.atleast_2d(np.cov(drawn))
    variances = covariance[one, one] + covariance[other, other] - 2 * covariance[one, other]
    of_queries = np.sqrt(np.maximum(variances, 0))
    return _p_values(gaps.mean(axis=1), gaps.std(axis=1, ddof=1) / np.sqrt(seeds), of_queries, seeds)


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


def judge_settings(
    dev: Sequence[Float[np.ndarray, " S"]],
    test: Sequence[SeedScores | None],
    *,
    reference: int = 0,
    given_up: int = 0,
) -> Judgement:
    """Choose the best setting by its dev scores, and decide by test scores whether it is better than the reference.

    Args:
        dev: scores of each setting, by seed.
        test: scores of each setting; None: there are none, and it is not compared.
        reference: the place of the setting that the others are compared with.
        given_up: settings that were pruned; they count as comparisons, or pruning would hide how many were tried.
    """
    best = int(np.argmax([scores.mean() for scores in dev]))
    comparisons = max(1, len(dev) - 1 + given_up)
    against, leads = test[reference], []
    for scores in test:
        if scores is None or against is None:
            leads.append(Lead(value=float("nan")))
        else:
            leads.append(compare_settings(scores, against, level=LEVEL / comparisons))
    others = {place: lead.p for place, lead in enumerate(leads) if place != reference}
    p_reference = _correct(others, len(dev), comparisons)
    return Judgement(
        best=best,
        finding=_finding(best, reference, leads, p_reference),
        leads=leads,
        p_reference=p_reference,
        p_best=_against_best(best, test, len(dev) + given_up),
        comparisons=comparisons,
    )


def _against_best(best: int, test: Sequence[SeedScores | None], settings: int) -> list[float | None]:
    """Compare the best with every other setting.

    The best was chosen by the models that are compared, so any pair could have been the one that is looked at: all
    pairs count as comparisons.
    """
    places = [place for place, scores in enumerate(test) if scores is not None]
    scored = [scores for scores in test if scores is not None]
    found: list[float | None] = [None] * len(test)
    if len(scored) < 2 or len(scored[0].values) < LEAST_SEEDS or best not in places:
        return found
    corrected = correct_holm(_all_pairs(scored).tolist(), settings * (settings - 1) // 2)
    for one, other, p in zip(*np.triu_indices(len(scored), 1), corrected, strict=True):
        if best in (places[one], places[other]):
            found[places[one] + places[other] - best] = p
    return found


def _correct(p_values: dict[int, float | None], settings: int, comparisons: int) -> list[float | None]:
    known = {place: p for place, p in p_values.items() if p is not None}
    corrected = dict(zip(known, correct_holm([*known.values()], comparisons), strict=True))
    return [corrected.get(place) for place in range(settings)]


def _finding(best: int, reference: int, leads: Sequence[Lead], p_reference: Sequence[float | None]) -> Finding:
    if best == reference:
        return "reference"
    p = p_reference[best]
    if p is None or p >= LEVEL:
        return "cannot tell"
    return "better" if leads[best].value > 0 else "worse"
