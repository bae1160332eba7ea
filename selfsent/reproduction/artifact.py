"""What a table or a figure of a paper is made of: rows, measures, published values, and what the paper finds in it.

A row is a training (a recipe that ships with the package, and what the row changes in it), an encoder without training,
or a model of others, which is shown as published.  A measure is a mean of scores.  A claim compares two rows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal, NamedTuple

from selfsent.config import read_recipe
from selfsent.evaluation.senteval import transfer
from selfsent.evaluation.senteval.declutr_averages import DOWNSTREAM, PROBING
from selfsent.evaluation.sts import YEARS

TextKind = Literal["sentences", "documents", "pairs"]
Drawing = Literal["dots", "lines", "scatter", "curves", "differences", "spans", "whitening"]


class ScorePart(NamedTuple):
    """One score of an evaluation: what `Score.key` names."""

    task: str
    metric: str = "spearman"  # empty: the task's main score
    aggregation: str = "all"
    split: str = "test"


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A column: the mean over groups of the mean over each group's scores."""

    name: str
    groups: tuple[tuple[ScorePart, ...], ...]

    @property
    def tasks(self) -> list[str]:
        """The tasks to evaluate."""
        return list(dict.fromkeys(part.task for group in self.groups for part in group))


@dataclass(frozen=True, kw_only=True)
class Training:
    """A recipe that ships with the package, and what a row changes in it."""

    recipe: str
    settings: tuple[str, ...] = ()
    small: tuple[str, ...] | None = None  # in place of ``settings`` at small scale, where the base is narrower
    text: TextKind = "sentences"
    small_text: TextKind | None = None  # in place of ``text`` at small scale
    share: float = 1.0  # of the steps or the epoch
    watched: bool = False  # scored on development sets while it trains, at small scale, too


@dataclass(frozen=True, kw_only=True)
class Untrained:
    """A base as it is."""

    base: str
    pooling: str
    start: bool = False  # of the trainings beside it: at small scale pooled as they are


@dataclass(frozen=True, kw_only=True)
class ArtifactRow:
    """A row of a table, or a point or line of a figure."""

    name: str
    source: Training | Untrained | None = None  # None: a model of others, measured where a checkpoint is given
    whitening: Literal["", "target", "other"] = ""  # PCA whitening after encoding, fitted to each task, or to NLI texts
    published: Mapping[str, float] = field(default_factory=dict)  # by the name of the measure
    x: float | None = None  # where a figure has a numeric axis
    series: str = ""  # the line that it belongs to


@dataclass(frozen=True, kw_only=True)
class PaperClaim:
    """The paper finds ``first`` above ``second``; with a margin, it finds them equal but for so many points."""

    first: str  # names of rows
    second: str
    measure: str
    margin: float | None = None
    paper: float | None = None  # the difference, where the rows have no published values


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A table or a figure."""

    id: str  # "scd-table-1"
    title: str
    measures: tuple[Measure, ...] = ()
    rows: tuple[ArtifactRow, ...] = ()
    claims: tuple[PaperClaim, ...] = ()
    note: str = ""  # what a reader should know about the published values
    drawing: Drawing = "dots"
    shown: str = ""  # the measure that is drawn; default: the last
    curves: tuple[str, ...] = ()  # figures of the training log, for drawing "curves"
    sketch: Training | None = None  # of a figure without scores: the base and the text that it is drawn from

    def __post_init__(self) -> None:
        """Check that claims and published values name rows and measures that exist.

        Raises:
            ValueError: a name does not.
        """
        rows, measures = [row.name for row in self.rows], {measure.name for measure in self.measures}
        named = {name for claim in self.claims for name in (claim.first, claim.second)}
        columns = {claim.measure for claim in self.claims} | {name for row in self.rows for name in row.published}
        if unknown_names := (named - set(rows)) | (columns - measures) | ({self.shown} - measures - {""}):
            raise ValueError(f"{self.id} names {', '.join(sorted(unknown_names))}, which it does not have")
        if len(set(rows)) < len(rows):
            raise ValueError(f"{self.id} has two rows of one name")

    def row(self, name: str) -> ArtifactRow:
        """Return a row by name."""
        return next(row for row in self.rows if row.name == name)

    @property
    def main(self) -> Measure:
        """The measure that a figure shows."""
        return next((one for one in self.measures if one.name == self.shown), self.measures[-1])


# ------------------------------------------------------------------------------------------------------------ measures


def single_measure(name: str, *parts: ScorePart) -> Measure:
    """Return a column of one task."""
    return Measure(name=name, groups=(parts,))


def mean_measure(name: str, measures: Iterable[Measure]) -> Measure:
    """Return the mean of other columns as a column."""
    return Measure(name=name, groups=tuple(group for measure in measures for group in measure.groups))


STS_YEARS = tuple(single_measure(year.upper(), ScorePart(year)) for year in YEARS)
STSB, SICKR = single_measure("STS-B", ScorePart("stsb")), single_measure("SICK-R", ScorePart("sickr"))
STS = (*STS_YEARS, STSB, SICKR)
STS_AVERAGE = mean_measure("average", STS)
STS_TABLE = (*STS, STS_AVERAGE)
TRANSFER = tuple(single_measure(task.upper(), ScorePart(task, "accuracy", "")) for task in transfer.AVERAGED)
TRANSFER_TABLE = (*TRANSFER, mean_measure("average", TRANSFER))
ALIGNMENT = single_measure("alignment", ScorePart("geometry", "alignment", "", "train+dev+test"))
UNIFORMITY = single_measure("uniformity", ScorePart("geometry", "uniformity", "", "train+dev+test"))


def declutr_measures(tasks: Iterable[str], split: str = "test") -> tuple[Measure, ...]:
    """Return one column for each of DeCLUTR's 28 tasks.

    Args:
        split: "dev" takes development scores; STS12-16 have none, and count with their test scores, as in the paper.
    """
    found = []
    for task in tasks:
        parts = {**DOWNSTREAM, **PROBING}[task]
        if split == "dev" and task.endswith("regression"):
            parts = (("pearson", ""),)
        elif split == "dev" and task == "mrpc":
            parts = (("accuracy", ""),)
        place = "test" if task in YEARS else split
        found.append(single_measure(task, *(ScorePart(task, metric, way, place) for metric, way in parts)))
    return tuple(found)


# ---------------------------------------------------------------------------------------------------- published values

_RECIPE_KEYS = {
    **{key: key.upper() for key in (*YEARS, *transfer.AVERAGED)},
    "stsb": "STS-B",
    "sickr": "SICK-R",
    "average": "average",
}


def named_values(measures: Iterable[Measure], values: str) -> dict[str, float]:
    """Return values, written with spaces between them, by the names of measures; "-" leaves one out."""
    pairs = zip((measure.name for measure in measures), values.split(), strict=True)
    return {name: float(value) for name, value in pairs if value != "-"}


def recipe_values(recipe: str, measures: tuple[Measure, ...]) -> dict[str, float]:
    """Return the published values of a recipe that these measures have; a missing average of transfer is computed."""
    paper: dict[str, Any] = read_recipe(recipe).get("paper", {})
    wanted = {measure.name for measure in measures}
    named = {_RECIPE_KEYS[key]: value for key, value in paper.items() if key in _RECIPE_KEYS}
    if measures == TRANSFER_TABLE:
        values = [named[measure.name] for measure in TRANSFER if measure.name in named]
        named["average"] = round(fmean(values), 2) if len(values) == len(TRANSFER) else None
    return {name: float(value) for name, value in named.items() if name in wanted and value is not None}
