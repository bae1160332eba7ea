"""Figures of the papers, to stand beside what was measured here: never in a column of another protocol.

STS: Spearman x 100 of test sets, one correlation over all pairs of a year, as SimCSE's tables; the average is over
seven sets.  DeCLUTR averages the sub-files of a year instead.  Transfer: accuracy of a classifier on frozen vectors.
Each row is quoted from the method's own paper, but SimCSE's, whose STS row is the one that later papers quote.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from selfsent.evaluation.score import Key

YEARS = ("sts12", "sts13", "sts14", "sts15", "sts16")
SETS = (*YEARS, "stsb", "sickr")
TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
AVERAGE = f"average of 7: {' '.join(SETS)}"

# methods of ours -> base -> figures in the order of SETS and their average
_STS: dict[str, dict[str, tuple[float, ...]]] = {
    "simcse": {
        "BERT-base": (68.40, 82.41, 74.38, 80.91, 78.56, 76.85, 72.23, 76.25),
        "BERT-large": (70.88, 84.16, 76.43, 84.50, 79.76, 79.26, 73.88, 78.41),
        "RoBERTa-base": (70.16, 81.77, 73.24, 81.36, 80.65, 80.22, 68.56, 76.57),
        "RoBERTa-large": (72.86, 83.99, 75.62, 84.77, 81.80, 81.98, 71.26, 78.90),
    },
    "scd": {
        "BERT-base": (66.94, 78.03, 69.89, 78.73, 76.23, 76.30, 73.18, 74.19),
        "RoBERTa-base": (63.53, 77.79, 69.79, 80.21, 77.29, 76.55, 72.10, 73.89),
    },
    "denosent": {"BERT-base": (75.57, 83.77, 77.24, 84.30, 79.51, 80.81, 74.09, 79.33)},
    "whitenedcse": {
        "BERT-base": (74.03, 84.90, 76.40, 83.40, 80.23, 81.14, 71.33, 78.78),
        "BERT-large": (74.65, 85.79, 77.49, 84.71, 80.33, 81.48, 75.34, 79.97),
    },
}
# DeCLUTR: the mean over the sub-files of each year
_STS_MEAN = {
    "declutr": {
        "DistilRoBERTa": (64.10, 65.80, 67.89, 75.63, 72.84),
        "RoBERTa-base": (64.21, 70.40, 69.99, 77.51, 75.35),
    }
}
_TRANSFER = {
    "simcse": {"BERT-base": (81.18, 86.46, 94.45, 88.88, 85.50, 89.80, 74.43)},
    # of the authors' README: the paper's own row holds figures that no other table bears out
    "scd": {
        "BERT-base": (79.26, 84.85, 93.57, 89.13, 85.23, 83.60, 74.84),
        "RoBERTa-base": (82.17, 87.76, 93.67, 85.69, 88.19, 83.40, 76.23),
    },
}

# alignment and uniformity, read off a plot of SCD's paper: indicative only
ALIGNMENT_UNIFORMITY = {
    "average of BERT": (0.19, -1.4),
    "SimCSE": (0.24, -2.6),
    "BERT-flow": (0.55, -3.7),
    "BERT-whitening": (0.64, -3.8),
    "SimCSE, supervised": (0.24, -3.65),
    "SCD": (0.84, -3.83),
}


@dataclass(frozen=True, kw_only=True)
class Published:
    """One row of a paper."""

    method: str
    base: str
    own: bool  # of the very recipe that was run; otherwise of the method, from another base
    figures: dict[Key, float]


def published_row(recipe: Mapping[str, Any]) -> Published | None:
    """Return what the recipe itself says was published, or the method's row of the smallest base."""
    method = str(recipe.get("method", "")).split("_")[0]
    paper = {key: value for key, value in (recipe.get("paper") or {}).items() if isinstance(value, int | float)}
    if paper:
        # DeCLUTR's regressions of STS-B and SICK-R are another protocol and stay out.
        figures = (
            {_key(year, "mean"): paper[year] for year in YEARS if year in paper}
            if "downstream" in paper
            else {_key(AVERAGE if key == "average" else key): value for key, value in paper.items()}
        )
        return Published(method=method, base=str(recipe.get("base")), own=True, figures=figures)
    rows = _STS.get(method) or _STS_MEAN.get(method)
    if not rows:
        return None
    base = next(iter(rows))
    figures = _figures(method, base)
    return Published(method=method, base=base, own=False, figures=figures)


def _figures(method: str, base: str) -> dict[Key, float]:
    """Return the published figures of a method from a base, by what they measure."""
    if method in _STS:
        figures = dict(zip(map(_key, (*SETS, AVERAGE)), _STS[method][base], strict=True))
    else:
        figures = {_key(year, "mean"): value for year, value in zip(YEARS, _STS_MEAN[method][base], strict=True)}
    for task, value in zip(TRANSFER, _TRANSFER.get(method, {}).get(base, ()), strict=False):
        figures[task, "test", "accuracy", ""] = value
    return figures


def _key(task: str, aggregation: str = "all") -> Key:
    return task, "test", "spearman", aggregation
