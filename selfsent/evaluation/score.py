"""Scores with their protocol, and averages."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Float

from selfsent.errors import ConfigurationError
from selfsent.runtime.printed import Printed, Shown

Key = tuple[str, str, str, str]  # task, split, metric, aggregation


@dataclass(frozen=True, kw_only=True, repr=False)
class Score(Printed):
    """One number with what was measured and how."""

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
        """What was measured: only scores with equal keys may be compared."""
        return self.task, self.split, self.metric, self.aggregation

    @property
    def is_main(self) -> bool:
        """Whether the literature quotes it; JSON also has mean and wmean over sub-files, and Pearson."""
        return self.metric == "recall" or (self.aggregation in ("", "all") and self.metric != "pearson")

    @property
    def label(self) -> str:
        """What tables call it."""
        kind, colon, place = self.task.partition(":")  # an own file goes by its name, not by its whole path
        # "average of 7" needs no list: their rows stand above.
        task = kind if kind.startswith("average of ") else kind + colon + PurePath(place).name
        label = [task, self.split, self.metric, self.aggregation]
        if "classifier" in self.protocol and self.metric != "recall":
            label.append(f"({self.protocol['classifier']})")  # numbers of different classifiers differ by points
        return " ".join(part for part in label if part)

    @property
    def cell(self) -> str:
        """The figure and its interval as tables show them, ``76.31 [74.9, 77.8]``."""
        if self.low is None or self.high is None or math.isnan(self.low):
            return f"{self.value:.2f}"
        return f"{self.value:.2f} [{self.low:.1f}, {self.high:.1f}]"

    def shown(self) -> Shown:
        """Return the figure with what was measured."""
        return Shown([f"{self.label}: {self.cell}, n = {self.n:,}"])


@dataclass(frozen=True, kw_only=True, repr=False)
class Results(Printed):
    """The scores of one model, the tasks whose data are missing, and a fingerprint of the data."""

    scores: list[Score]
    missing: dict[str, Path | str] = field(default_factory=dict)  # task -> where its data was expected, or a reason
    fingerprint: str = ""  # of all texts and labels that were read

    def get(self, task: str, metric: str = "spearman", aggregation: str | None = None) -> Score:
        """Return one score; of several aggregations, the first, which is ``all``.

        Raises:
            KeyError: there is no such score.
        """
        for score in self.scores:
            if (score.task, score.metric) == (task, metric) and aggregation in (None, score.aggregation):
                return score
        raise KeyError(f"no {metric} of {task} here: measured were {sorted({s.task for s in self.scores})}")

    def average(self, metric: str = "spearman") -> Score | None:
        """Return the average over the STS sets, or with "accuracy" over the transfer tasks; None below two tasks."""
        averages = (score for score in self.scores if score.task.startswith("average of "))
        return next((score for score in averages if score.metric == metric), None)

    def shown(self) -> Shown:
        """Return a table of the scores."""
        return show_scores({"points": self})

    def as_dict(self) -> dict[str, object]:
        """Return the content of a JSON file: everything but the replicates."""
        scores = [{name: value for name, value in vars(s).items() if name != "replicates"} for s in self.scores]
        return {
            "scores": scores,
            "missing": {task: str(path) for task, path in self.missing.items()},
            "fingerprint": self.fingerprint,
        }

    def replicates(self, name: str) -> dict[str, Float[np.ndarray, " R"]]:
        """Return the replicates of the scores that have some, each by ``name`` and the place of its score."""
        drawn = {f"{name} {place}": score.replicates for place, score in enumerate(self.scores)}
        return {key: replicates for key, replicates in drawn.items() if replicates is not None}

    @classmethod
    def from_dict(
        cls,
        content: Mapping[str, Any],
        replicates: Mapping[str, Float[np.ndarray, " R"]] = MappingProxyType({}),
        name: str = "",
    ) -> "Results":
        """Rebuild results from ``as_dict``, and from ``replicates(name)`` if they were kept."""
        drawn = [replicates.get(f"{name} {place}") for place in range(len(content["scores"]))]
        scores = [Score(**score, replicates=of) for score, of in zip(content["scores"], drawn, strict=True)]
        return cls(scores=scores, missing=dict(content["missing"]), fingerprint=content["fingerprint"])


class Scored(Printed, dict[str, Results]):
    """Results by name: of a "model", and of the baselines that were scored beside it."""

    def shown(self) -> Shown:
        """Return a table of the scores, a column for each."""
        return show_scores(self)


def show_scores(results: Mapping[str, Results]) -> Shown:
    """Return a table of the main scores of several systems, those of the first in their order."""
    systems = [{score.key: score for score in system.scores} for system in results.values()]
    rows = [
        [score.label, *(system[key].cell if key in system else "-" for system in systems), f"{score.n:,}"]
        for key, score in systems[0].items()
        if score.is_main
    ]
    missing = [f"{task} is missing: {why}" for task, why in next(iter(results.values())).missing.items()]
    return Shown(missing, ["score", *results, "n"], rows)


def average(scores: Sequence[Score]) -> Score:
    """Average scores as the literature does: each is first rounded to two decimals.

    The name lists the tasks, so that an average of six is not mistaken for that of seven.  Its protocol holds the
    entries that all scores share.

    Raises:
        ValueError: they come from different classifiers, whose scores are not comparable.
    """
    classifiers = {str(score.protocol.get("classifier")) for score in scores}
    if len(classifiers) > 1:
        raise ValueError(f"scores of different classifiers have no average: {', '.join(sorted(classifiers))}")
    drawn = [score.replicates for score in scores if score.replicates is not None]
    # Tasks are resampled independently, so replicate r of the average averages their replicates r.
    replicates = np.mean(drawn, axis=0) if len(drawn) == len(scores) else None
    first = scores[0]
    protocol = {k: v for k, v in first.protocol.items() if all(score.protocol.get(k) == v for score in scores)}
    protocol["data"] = "+".join(sorted({str(score.protocol.get("data", "")) for score in scores}))
    if differing := [str(score.protocol["differs"]) for score in scores if "differs" in score.protocol]:
        protocol["differs"] = ", ".join(differing)
    mean = replace(
        first,
        task=f"average of {len(scores)}: {' '.join(score.task for score in scores)}",
        value=float(np.mean([round(score.value, 2) for score in scores])),
        n=sum(score.n for score in scores),
        protocol=protocol,
    )
    return _with_replicates(mean, replicates)


def require_comparable(one: Score, other: Score) -> None:
    """Refuse two scores that were not measured on the same rows in the same way.

    Raises:
        ConfigurationError: the data, the classifier or the resamples differ.
    """
    for what in ("data", "bootstrap", "classifier"):
        if one.protocol.get(what) != other.protocol.get(what):
            raise ConfigurationError(
                f"{one.task} cannot be compared: its {what} is {one.protocol.get(what)} in one result "
                f"and {other.protocol.get(what)} in the other; evaluate both models in the same way"
            )


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
    score = Score(task=task, split=split, metric=metric, aggregation=aggregation, value=value, n=n, protocol=protocol)
    return _with_replicates(score, replicates)


def _with_replicates(score: Score, replicates: Float[np.ndarray, " R"] | None) -> Score:
    if replicates is None or not len(replicates):
        return replace(score, low=None, high=None, replicates=None)
    low, high = _interval(replicates) if score.n > 1 else (None, None)  # one row drawn again and again says nothing
    return replace(score, low=low, high=high, replicates=replicates)


def _interval(replicates: Float[np.ndarray, " R"]) -> tuple[float, float]:
    low, high = np.quantile(replicates, (0.025, 0.975))
    return float(low), float(high)
