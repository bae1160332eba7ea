"""Is A better than B?  One record, one decision and one sentence, for every command that asks.

Two models are compared by the paired bootstrap over the rows that both were scored on; two recipes by the scores of
their seeds, over seeds and rows (``significance``).  Where the whole 95 % interval of the difference lies above zero
the decision is "better", where it lies below "worse", and otherwise "cannot tell".  A command that knows why the
interval must not decide withholds the decision with ``Comparison.undecided``, which keeps the figures:

    comparison = compare_scores(after.get("score", "mean"), before.get("score", "mean"))
    if not structured:
        comparison = comparison.undecided("single lines have no structure to judge by", unless="worse")
    print(comparison.sentence("Over 7 tests"))
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from selfsent.errors import ConfigurationError
from selfsent.evaluation.score import Key, Results, Score, require_comparable
from selfsent.evaluation.significance import LEAST_SEEDS, LEVEL, compare_pairs, correct_holm, interval_over_seeds
from selfsent.runtime.printed import Printed, Shown

Decision = Literal["better", "worse", "cannot tell"]
_OPENINGS = {"better": "Better", "worse": "Worse, do not use it", "cannot tell": "Cannot tell"}


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Printed):
    """How one score of B, ``after``, differs from that of A, ``before``, and what follows from it."""

    task: str  # what was measured, as of ``Score``
    metric: str
    split: str = ""
    aggregation: str = ""
    before: float  # points; of several seeds the mean
    after: float
    value: float  # after less before
    low: float | None  # 95 % interval, of several comparisons for all of them at once; None: nothing gives one
    high: float | None
    n: int  # queries, pairs or sentences behind each score
    seeds: int = 1  # of the recipes; 1 of two models
    deviation: float | None = None  # of ``after`` over the seeds
    p: float | None = None  # two-sided, corrected where there were several comparisons; None of two models
    above: float | None = None  # fraction of resamples in which B scores strictly higher; None over seeds
    decision: Decision
    reason: str = ""  # why the interval does not decide

    @property
    def key(self) -> Key:
        """What was measured, as ``Score.key``."""
        return self.task, self.split, self.metric, self.aggregation

    @property
    def interval(self) -> str:
        """The interval as it is written, ``+1.0 to +3.2``; empty where there is none."""
        return "" if self.low is None or self.high is None else f"{self.low:+.1f} to {self.high:+.1f}"

    @property
    def cell(self) -> str:
        """The difference and its interval as tables show them, ``+2.13 [+1.0, +3.2]``."""
        if self.low is None or self.high is None:
            return f"{self.value:+.2f}"
        return f"{self.value:+.2f} [{self.low:+.1f}, {self.high:+.1f}]"

    def undecided(self, reason: str, *, unless: Decision | None = None) -> "Comparison":
        """Return the same figures with the decision "cannot tell", for a reason.

        Args:
            unless: the decision that stays: "worse" where a test can show damage and nothing else.
        """
        if self.reason or self.decision == unless:  # the first reason stands
            return self
        return replace(self, decision="cannot tell", reason=reason)

    def figures(self, after: str = "after", before: str = "before") -> str:
        """Write the scores, their difference and its interval.

        Args:
            after: what follows the score of B.
            before: what follows that of A.
        """
        text = f"{self.after:.1f} {after}".rstrip() + f" against {self.before:.1f} {before}".rstrip()
        if self.seeds > 1:
            spread = "" if self.deviation is None else f" (deviation {self.deviation:.1f})"
            text += f", mean of {self.seeds} seeds{spread}"
        text += f", a difference of {self.value:+.1f}"
        return text + (f" (95 % interval {self.interval})" if self.interval else "")

    def sentence(self, what: str = "", names: tuple[str, str] | None = None) -> str:
        """Say the decision, its reason and the figures.

        Args:
            what: was measured on what: "Over 7 tests made of 300 documents".
            names: of B and A; default: "after" and "before".
        """
        if names is None:
            opening, figures = _OPENINGS[self.decision], self.figures()
        else:
            opening, figures = self._between(*names), self.figures("", "")
        reason = f": {self.reason}" if self.reason else ""
        return f"{opening}{reason}. {f'{what}: ' if what else ''}{figures}."

    def shown(self) -> Shown:
        """Return the decision as a sentence."""
        return Shown([self.sentence(" ".join(part for part in self.key if part))])

    def _between(self, after: str, before: str) -> str:
        if self.decision == "cannot tell":
            return f"Cannot tell whether {after} is better than {before}"
        return f"{after} is {self.decision} than {before}"


def show_differences(differences: Sequence[Comparison], sentences: Sequence[str] = ()) -> Shown:
    """Return sentences and a table of differences."""
    rows = [
        [" ".join(part for part in each.key if part), f"{each.before:.2f}", f"{each.after:.2f}", each.cell]
        for each in differences
    ]
    return Shown(sentences, ["score", "before", "after", "difference"], rows)


class _Compared(NamedTuple):
    after: Results
    before: Results
    differences: list[Comparison]


class Compared(Printed, _Compared):
    """The scores of two models or recipes, and how much the first lies above the second."""

    def shown(self) -> Shown:
        """Return a table of the differences."""
        return show_differences(self.differences)


def decision_of(low: float | None, high: float | None) -> Decision:
    """Decide by the interval of a difference; None: there is none."""
    if low is None or high is None:
        return "cannot tell"
    return "better" if low > 0 else "worse" if high < 0 else "cannot tell"


def compare_scores(
    after: Score | Sequence[Score], before: Score | Sequence[Score], *, level: float = LEVEL
) -> Comparison:
    """Compare two models by one score of each, or two recipes by one score of each of their seeds.

    A list asks about the recipe: below three seeds nothing can be told.  One score against several, such as that of an
    encoder without training, counts with each of them.

    Args:
        level: the interval covers the true difference with probability 1 - level.

    Raises:
        ConfigurationError: data, classifier or resamples of the scores differ.
        ValueError: numbers of seeds that cannot be paired, such as 3 and 2.
    """
    of_models = isinstance(after, Score) and isinstance(before, Score)
    sides = [[side] if isinstance(side, Score) else [*side] for side in (after, before)]
    seeds = max(map(len, sides))
    for other in (*sides[0][1:], *sides[1]):
        require_comparable(sides[0][0], other)
    values, replicates = zip(*(_of_seeds(side, seeds) for side in sides), strict=True)
    drawn = None if replicates[0] is None or replicates[1] is None else replicates[0] - replicates[1]
    means = float(values[0].mean()), float(values[1].mean())
    score, gaps = sides[0][0], values[0] - values[1]
    compared = Comparison(
        task=score.task,
        split=score.split,
        metric=score.metric,
        aggregation=score.aggregation,
        after=means[0],
        before=means[1],
        value=float(gaps.mean()),
        low=None,
        high=None,
        n=score.n,
        seeds=seeds,
        deviation=float(values[0].std(ddof=1)) if seeds > 1 else None,
        decision="cannot tell",
    )
    if not of_models and seeds < LEAST_SEEDS:
        return replace(compared, reason=f"{LEAST_SEEDS} seeds are needed, and there {_are(seeds)}")
    if drawn is None:
        return replace(compared, reason="the scores have no bootstrap resamples")
    if of_models:
        low, high = (float(end) for end in np.quantile(drawn[0], (level / 2, 1 - level / 2)))
        return replace(compared, low=low, high=high, above=float(np.mean(drawn > 0)), decision=decision_of(low, high))
    low, high, p = interval_over_seeds(gaps, drawn, level=level)
    return replace(compared, low=low, high=high, p=p, decision=decision_of(low, high))


def _are(seeds: int) -> str:
    return "is one" if seeds == 1 else f"are {seeds}"


def _of_seeds(scores: Sequence[Score], seeds: int) -> tuple[Float[np.ndarray, " S"], Float[np.ndarray, "S R"] | None]:
    """Return values and replicates of as many seeds; a single score is the same with each.

    Raises:
        ValueError: there are fewer.
    """
    if len(scores) not in (1, seeds):
        raise ValueError(f"{seeds} and {len(scores)} seeds cannot be paired")
    scores = [*scores] * (seeds // len(scores))
    drawn = [score.replicates for score in scores if score.replicates is not None]
    return np.array([score.value for score in scores]), np.stack(drawn) if len(drawn) == seeds else None


def compare_results(after: Results | Sequence[Results], before: Results | Sequence[Results]) -> list[Comparison]:
    """Compare two models, or two recipes by the results of their seeds, in every score that has replicates.

    The resamples of a task depend only on the seed and the task, so replicate r of both models is computed on the same
    rows, and the difference of the replicates is paired.  Recipes with one result each are compared as models.

    Raises:
        ConfigurationError: numbers of seeds that show nothing, data, classifier or resamples of a score differ between
            the results, or they share none.
    """
    sides = [[side] if isinstance(side, Results) else side for side in (after, before)]
    require_seeds(len(sides[0]), len(sides[1]))
    comparisons = []
    for score in sides[0][0].scores:
        same = [[other for result in side for other in result.scores if other.key == score.key] for side in sides]
        whole = all(len(scores) == len(side) for scores, side in zip(same, sides, strict=True))
        if not whole or any(one.replicates is None for scores in same for one in scores):
            continue
        models = len(same[0]) == len(same[1]) == 1
        comparisons.append(compare_scores(same[0][0], same[1][0]) if models else compare_scores(same[0], same[1]))
    if not comparisons:
        raise ConfigurationError(
            "no score with bootstrap replicates is one of all these results: evaluate all models on the same tasks, in "
            "one process, with bootstrap above 0"
        )
    return comparisons


def average_seeds(results: Sequence[Results]) -> Results:
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
        same = [other for result in results for other in result.scores if other.key == score.key]
        if len(same) < len(results):
            continue
        values, drawn = _of_seeds(same, len(same))
        interval: tuple[float | None, float | None] = None, None
        if len(same) >= LEAST_SEEDS:
            # Without resamples of the rows the interval is over the seeds alone.
            low, high, _ = interval_over_seeds(values, np.zeros((len(same), 2)) if drawn is None else drawn)
            interval = low, high
        protocol = {**score.protocol, "seeds": len(same), "spread over seeds": float(values.std(ddof=1))}
        mean = float(values.mean())
        joined.append(replace(score, value=mean, low=interval[0], high=interval[1], protocol=protocol, replicates=None))
    return replace(results[0], scores=joined)


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


def compare_settings(
    settings: Sequence[Sequence[Score] | None], *, reference: int = 0, given_up: int = 0
) -> list[Comparison | None]:
    """Compare each of several settings of a recipe with one of them, by a score of each seed, corrected for all.

    The intervals hold for all settings at once (Bonferroni), and p is corrected by Holm's method, which is stronger and
    decides.

    Args:
        settings: None: it has no scores, and is not compared.
        reference: the place of the setting that the others are compared with; it is compared with itself.
        given_up: settings that were pruned; they count as comparisons, or pruning would hide how many were tried.

    Raises:
        ConfigurationError, ValueError: as ``compare_scores``.
    """
    against = settings[reference]
    number = max(1, len(settings) - 1 + given_up)
    compared = [
        None if scores is None or against is None else compare_scores(scores, against, level=LEVEL / number)
        for scores in settings
    ]
    p_values = {place: comparison.p for place, comparison in enumerate(compared) if comparison and place != reference}
    known = {place: p for place, p in p_values.items() if p is not None}
    corrected = dict(zip(known, correct_holm([*known.values()], number), strict=True))
    for place, comparison in enumerate(compared):
        if comparison is not None:
            p = corrected.get(place)
            decision: Decision = "cannot tell"
            if p is not None and p < LEVEL:
                decision = "better" if comparison.value > 0 else "worse"
            compared[place] = replace(comparison, p=p, decision=decision)
    return compared


def compare_with_best(
    best: int, settings: Sequence[Sequence[Score] | None], *, given_up: int = 0
) -> list[float | None]:
    """Return the p value of the best setting against each other one, corrected for all pairs; None: not compared.

    Args:
        best: its place, chosen by other scores of the same models.
        settings: as of ``compare_settings``.
        given_up: as of ``compare_settings``.
    """
    places = [place for place, scores in enumerate(settings) if scores is not None]
    scored = [_of_seeds(scores, len(scores)) for scores in settings if scores is not None]
    drawn = [replicates for _, replicates in scored if replicates is not None]
    p_values: list[float | None] = [None] * len(settings)
    if len(scored) < 2 or len(drawn) < len(scored) or len(scored[0][0]) < LEAST_SEEDS or best not in places:
        return p_values
    values = np.stack([of_seeds for of_seeds, _ in scored])
    row = compare_pairs(values, np.stack(drawn), places.index(best), len(settings) + given_up)
    for place, p in zip(places, row, strict=True):
        p_values[place] = None if place == best else p
    return p_values
