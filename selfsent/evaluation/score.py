"""What an evaluation says: scores that carry their own protocol, and how two models differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from selfsent.errors import UserError

Key = tuple[str, str, str, str]  # task, split, metric, aggregation


@dataclass(frozen=True, kw_only=True)
class Score:
    """One number, and everything needed to know what it is a number of."""

    task: str  # "sts12"
    split: str  # "test"
    metric: str  # "spearman"
    aggregation: str = ""  # over sub-files: "all" (one correlation), "mean", "wmean" (by size)
    value: float  # correlations, MRR and recall in points, 0-100
    low: float | None = None  # 95 % bootstrap interval; None where none was drawn
    high: float | None = None
    n: int  # pairs, queries or sentences behind the number
    protocol: Mapping[str, object] = field(default_factory=dict)
    replicates: Float[np.ndarray, " R"] | None = field(default=None, repr=False, compare=False)

    @property
    def key(self) -> Key:
        """Name what was measured: two scores may be compared only where this is equal."""
        return self.task, self.split, self.metric, self.aggregation

    def as_dict(self) -> dict[str, object]:
        """Return what belongs into a JSON file: everything but the replicates."""
        return {
            "task": self.task,
            "split": self.split,
            "metric": self.metric,
            "aggregation": self.aggregation,
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "n": self.n,
            "protocol": dict(self.protocol),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Score":
        """Return what ``as_dict`` gave; the replicates are gone."""
        return cls(**content)


@dataclass(frozen=True, kw_only=True)
class Results:
    """The scores of one model, what was not found, and which data was read."""

    scores: list[Score]
    missing: dict[str, Path | str] = field(default_factory=dict)  # task -> where it was looked for, or why it cannot be
    fingerprint: str = ""  # of all texts and gold scores that were read

    def get(self, task: str, metric: str = "spearman", aggregation: str | None = None) -> Score:
        """Return one score; of several aggregations, the first, which is ``all``.

        Raises:
            KeyError: nothing of that name was measured.
        """
        for score in self.scores:
            if (score.task, score.metric) == (task, metric) and aggregation in (None, score.aggregation):
                return score
        raise KeyError(f"no {metric} of {task} here: measured were {sorted({s.task for s in self.scores})}")

    @property
    def average(self) -> Score | None:
        """The average over the STS test sets that were read, named after them; None below two sets."""
        return self._average("spearman")

    @property
    def transfer_average(self) -> Score | None:
        """The average over the transfer tasks that were read, named after them; None below two tasks."""
        return self._average("accuracy")

    def _average(self, metric: str) -> Score | None:
        averages = (score for score in self.scores if score.task.startswith("average of "))
        return next((score for score in averages if score.metric == metric), None)

    def as_dict(self) -> dict[str, object]:
        """Return what belongs into a JSON file."""
        return {
            "scores": [score.as_dict() for score in self.scores],
            "missing": {task: str(path) for task, path in self.missing.items()},
            "fingerprint": self.fingerprint,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Results":
        """Return what ``as_dict`` gave, without replicates."""
        scores = [Score.from_dict(score) for score in content["scores"]]
        return cls(scores=scores, missing=dict(content["missing"]), fingerprint=content["fingerprint"])


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How much the first of two models scores above the second on the same rows."""

    task: str
    split: str
    metric: str
    aggregation: str
    value: float
    low: float  # 95 % interval of the paired bootstrap
    high: float
    above: float  # share of resamples in which the first scores strictly above the second


def interval(replicates: Float[np.ndarray, " R"] | None) -> tuple[float | None, float | None]:
    """Return the 95 % percentile interval of bootstrap replicates, or two Nones without any."""
    if replicates is None or not len(replicates):
        return None, None
    low, high = np.quantile(replicates, (0.025, 0.975))
    return float(low), float(high)


def average(scores: Sequence[Score]) -> Score:
    """Average scores the way the literature does: each is first rounded to two decimals.

    The name lists the tasks, so that an average of six is never read as the average of seven.  Its protocol is what
    theirs have in common.

    Raises:
        ValueError: they come from different classifiers, whose numbers differ by points.
    """
    classifiers = {str(score.protocol.get("classifier")) for score in scores}
    if len(classifiers) > 1:
        raise ValueError(f"scores of different classifiers have no average: {', '.join(sorted(classifiers))}")
    drawn = [score.replicates for score in scores if score.replicates is not None]
    # Tasks are resampled independently, so replicate r of the average averages their replicates r.
    replicates = np.mean(drawn, axis=0) if len(drawn) == len(scores) else None
    low, high = interval(replicates)
    first = scores[0]
    parts = {str(score.protocol.get("data", "")) for score in scores}
    differing = [str(score.protocol["differs"]) for score in scores if "differs" in score.protocol]
    common = {
        what: value
        for what, value in first.protocol.items()
        if all(score.protocol.get(what) == value for score in scores)
    }
    return Score(
        task=f"average of {len(scores)}: {' '.join(score.task for score in scores)}",
        split=first.split,
        metric=first.metric,
        aggregation=first.aggregation,
        value=float(np.mean([round(score.value, 2) for score in scores])),
        low=low,
        high=high,
        n=sum(score.n for score in scores),
        protocol={
            **common,
            "data": "+".join(sorted(parts)),
            **({"differs": ", ".join(differing)} if differing else {}),
        },
        replicates=replicates,
    )


def compare_results(first: Results, second: Results) -> list[Difference]:
    """Compare two models on the rows both were scored on, with a paired bootstrap.

    The draws of a task depend on the seed and the task alone, so replicate r of both models saw the
    same rows and the difference of the replicates is the paired one.

    Raises:
        UserError: a score was measured on other data, with another classifier or other draws in the two results.
    """
    others = {score.key: score for score in second.scores}
    differences = []
    for one in first.scores:
        other = others.get(one.key)
        if other is None or one.replicates is None or other.replicates is None:
            continue
        for what in ("data", "bootstrap", "classifier"):
            if one.protocol.get(what) != other.protocol.get(what):
                raise UserError(
                    f"{one.task} cannot be compared: its {what} is {one.protocol.get(what)} in one result "
                    f"and {other.protocol.get(what)} in the other; evaluate both models in the same way"
                )
        gap = one.replicates - other.replicates
        differences.append(
            Difference(
                task=one.task,
                split=one.split,
                metric=one.metric,
                aggregation=one.aggregation,
                value=one.value - other.value,
                low=float(np.quantile(gap, 0.025)),
                high=float(np.quantile(gap, 0.975)),
                above=float(np.mean(gap > 0)),
            )
        )
    if not differences:
        raise UserError(
            "the two results share no score with bootstrap replicates: evaluate both models on the "
            "same tasks, in one process, with bootstrap above 0"
        )
    return differences


def measured(
    task: str,
    split: str,
    metric: str,
    value: float,
    replicates: Float[np.ndarray, " R"] | None,
    n: int,
    protocol: Mapping[str, object],
    *,
    aggregation: str = "",
) -> Score:
    """Return a score with the interval of its replicates; None and an empty array are no replicates."""
    low, high = interval(replicates)
    return Score(
        task=task,
        split=split,
        metric=metric,
        aggregation=aggregation,
        value=value,
        low=low,
        high=high,
        n=n,
        protocol=protocol,
        replicates=None if low is None else replicates,
    )


def over_seeds(results: Sequence[Results], *, seed: int = 0) -> Results:
    """Join the results of one recipe's seeds: mean scores, whose replicates draw seeds with replacement, too.

    Raises:
        ValueError: none is given.
    """
    if not results:
        raise ValueError("no results to join")
    first = results[0]
    if len(results) == 1:
        return first
    joined = []
    for score in first.scores:
        same = [found for other in results for found in other.scores if found.key == score.key]
        if len(same) < len(results):
            continue
        drawn = [found.replicates for found in same if found.replicates is not None]
        replicates = None
        if len(drawn) == len(same):
            # Which seeds a resample meets depends on the seed alone: two recipes with as many seeds meet the same.
            picks = np.random.default_rng(seed).integers(len(drawn), size=(len(drawn), len(drawn[0])))
            replicates = np.take_along_axis(np.stack(drawn), picks, axis=0).mean(axis=0)
        values = [found.value for found in same]
        low, high = interval(replicates)
        joined.append(
            replace(
                score,
                value=float(np.mean(values)),
                low=low,
                high=high,
                replicates=replicates,
                protocol={**score.protocol, "seeds": len(same), "spread over seeds": float(np.std(values, ddof=1))},
            )
        )
    return Results(scores=joined, missing=first.missing, fingerprint=first.fingerprint)
