"""Scores of one recipe over its seeds, and two recipes compared over theirs (``significance`` says how)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from selfsent.errors import ConfigurationError
from selfsent.evaluation.score import Difference, Results, Score, compare_results, require_comparable
from selfsent.evaluation.significance import LEAST_SEEDS, SeedScores, compare_settings


def over_seeds(results: Sequence[Results]) -> Results:
    """Average the results of one recipe's seeds, with an interval over seeds and rows from three seeds on.

    Raises:
        ValueError: none is given.
    """
    if not results:
        raise ValueError("no results to join")
    if len(results) == 1:
        return results[0]
    joined = []
    for score in results[0].scores:
        same = _same(score, results)
        if len(same) < len(results):
            continue
        scores = _seed_scores(same, len(same))
        nothing = SeedScores(values=0 * scores.values, replicates=0 * scores.replicates)
        mean = compare_settings(scores, nothing)
        protocol = {**score.protocol, "seeds": len(same), "spread over seeds": float(scores.values.std(ddof=1))}
        joined.append(
            replace(score, value=mean.value, low=mean.low, high=mean.high, protocol=protocol, replicates=None)
        )
    return replace(results[0], scores=joined)


def compare_seeds(first: Sequence[Results], second: Sequence[Results]) -> list[Difference]:
    """Compare two recipes, each by the results of its seeds: how far the mean of the first lies above the second's.

    One result of each is compared as ``compare_results`` does, over the rows alone.  One against several, such as an
    encoder that was not trained, counts with each of them.

    Raises:
        ConfigurationError: too few seeds or different numbers of them, or as ``compare_results``.
    """
    require_seeds(len(first), len(second))
    seeds = max(len(first), len(second))
    if seeds == 1:
        return compare_results(first[0], second[0])
    differences = []
    for score in first[0].scores:
        sides = [_same(score, results) for results in (first, second)]
        if len(sides[0]) < len(first) or len(sides[1]) < len(second):
            continue
        everyone = [*sides[0], *sides[1]]
        if any(one.replicates is None for one in everyone):
            continue
        for other in everyone:
            require_comparable(score, other)
        lead = compare_settings(*(_seed_scores(side, seeds) for side in sides))
        assert lead.low is not None
        assert lead.high is not None
        differences.append(Difference(*score.key, lead.value, lead.low, lead.high))
    if not differences:
        raise ConfigurationError(
            "no score with bootstrap replicates is one of every seed of both: evaluate all of them on the same tasks, "
            "in one process, with bootstrap above 0"
        )
    return differences


def require_seeds(first: int, second: int) -> None:
    """Refuse numbers of seeds that show nothing.

    Raises:
        ConfigurationError: the message says which numbers do.
    """
    seeds = max(first, second)
    if not first or not second or not (seeds == 1 or (seeds >= LEAST_SEEDS and {first, second} <= {1, seeds})):
        raise ConfigurationError(
            f"{first} and {second} models cannot be compared: give as many seeds of both, {LEAST_SEEDS} or more, one "
            f"model against {LEAST_SEEDS} or more, or one of each"
        )


def _same(score: Score, results: Sequence[Results]) -> list[Score]:
    return [other for result in results for other in result.scores if other.key == score.key]


def _seed_scores(scores: Sequence[Score], seeds: int) -> SeedScores:
    """Return the scores of as many seeds; a single one is the same with each, and one without resamples has zeros."""
    drawn = [one.replicates for one in scores]
    known = [one for one in drawn if one is not None]
    replicates = np.stack(known) if len(known) == len(drawn) else np.zeros((len(drawn), 2))
    values = np.array([one.value for one in scores])
    if len(scores) == 1:
        values, replicates = np.repeat(values, seeds), np.repeat(replicates, seeds, axis=0)
    return SeedScores(values=values, replicates=replicates)
