"""What the tables and figures of the papers are made of: rows, columns, published values, and what the paper finds.

They are data: ``artifacts/PAPER.toml`` has a table for each, ``artifacts/columns.toml`` their columns, and says how
both are written.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from functools import cache
from importlib import resources
from itertools import chain
from statistics import fmean
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic.dataclasses import dataclass

from selfsent.config import FINITE, build_config, read_recipe
from selfsent.errors import ConfigurationError, first_line, unknown
from selfsent.evaluation.data_sets import TRANSFER, YEARS

ARTIFACTS = resources.files("selfsent.reproduction") / "artifacts"
PAPERS = ("scd", "whitenedcse", "denosent", "declutr")  # in the order of listings
_TEXTS_OF = {"denosent": "pairs", "declutr": "documents"}  # by method; others: sentences
_COLUMNS_OF_PAPER = {  # keys of a recipe's [paper] table
    **{key: key.upper() for key in (*YEARS, *TRANSFER)},
    "stsb": "STS-B",
    "sickr": "SICK-R",
    "average": "average",
}

TextKind = Literal["sentences", "documents", "pairs"]
Drawing = Literal["dots", "lines", "scatter", "curves", "differences", "spans", "whitening"]


class ScorePart(NamedTuple):
    """One score of an evaluation: what ``Score.key`` names."""

    task: str
    metric: str = "spearman"  # empty: the task's main score
    aggregation: str = "all"
    split: str = "test"


Groups = tuple[tuple[ScorePart, ...], ...]


@dataclass(frozen=True, kw_only=True, config=FINITE)
class Measure:
    """A column: the mean of blocks; each is the mean of groups, and each of these the mean of scores."""

    name: str
    blocks: tuple[Groups, ...]

    @property
    def groups(self) -> Groups:
        """The groups of all blocks."""
        return tuple(chain(*self.blocks))


@dataclass(frozen=True, kw_only=True, config=FINITE)
class Training:
    """A recipe that ships with the package, and what a row changes in it."""

    recipe: str
    settings: tuple[str, ...] = ()
    small: tuple[str, ...] | None = None  # in place of ``settings`` at small scale, where the base is narrower
    text: TextKind = "sentences"
    small_text: TextKind | None = None  # in place of ``text`` at small scale
    fraction: float = 1.0  # of the steps or the epoch
    watched: bool = False  # scored on development sets while it trains, at small scale, too


@dataclass(frozen=True, kw_only=True, config=FINITE)
class Untrained:
    """A base as it is."""

    base: str
    pooling: str
    start: bool = False  # of the trainings beside it: at small scale pooled as they are


@dataclass(frozen=True, kw_only=True, config=FINITE)
class ArtifactRow:
    """A row of a table, or a point or line of a figure."""

    name: str
    source: Training | Untrained | None = None  # None: a model of others, measured where a checkpoint is given
    whitening: Literal["", "target", "other"] = ""  # PCA whitening after encoding, fitted to each task, or to NLI texts
    published: Mapping[str, float] = field(default_factory=dict)  # by the name of the measure
    x: float | None = None  # where a figure has a numeric axis
    series: str = ""  # the line that it belongs to
    note: str = ""  # what the paper's description leaves open about it


@dataclass(frozen=True, kw_only=True, config=FINITE)
class PaperClaim:
    """The paper finds ``first`` above ``second``; with a margin, it finds them equal but for so many points."""

    first: str  # names of rows
    second: str
    measure: str
    margin: float | None = None
    paper: float | None = None  # the difference, where the rows have no published values

    def words(self, measure: str, paper: float | None) -> str:
        """Return it in words, of a measure by the name that it has here."""
        relation = "above" if self.margin is None else f"within {self.margin:g} of"
        text = f"{self.first} {relation} {self.second} in {measure}"
        return text if paper is None else f"{text} (paper {paper:+.2f})"


@dataclass(frozen=True, kw_only=True, config=FINITE)
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

    @property
    def tasks(self) -> list[str]:
        """The tasks to evaluate."""
        parts = (part for measure in self.measures for part in chain(*measure.groups))
        return list(dict.fromkeys(part.task for part in parts))

    def row(self, name: str) -> ArtifactRow:
        """Return a row by name."""
        return next(row for row in self.rows if row.name == name)

    def published_lead(self, claim: PaperClaim) -> float | None:
        """Return the published difference of a claim; None where the paper prints none."""
        values = [self.row(name).published.get(claim.measure) for name in (claim.first, claim.second)]
        if claim.paper is not None or values[0] is None or values[1] is None:
            return claim.paper
        return values[0] - values[1]

    @property
    def main(self) -> Measure:
        """The measure that a figure shows."""
        return next((measure for measure in self.measures if measure.name == self.shown), self.measures[-1])


# ------------------------------------------------------------------------------------------------------------- reading

ColumnSets = dict[str, tuple[Measure, ...]]
_MALFORMED = (ConfigurationError, AttributeError, KeyError, TypeError, ValueError)
T = TypeVar("T")


def _read_tables(text: str, file: str, read: Callable[[str, dict[str, Any]], T]) -> dict[str, T]:
    """Read every table of a TOML file; one sentence names the file and the table that is malformed."""
    try:
        tables = tomllib.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{file} is not TOML: {error}") from error
    entries = {}
    for name, table in tables.items():
        try:
            entries[name] = read(name, table)
        except _MALFORMED as error:
            raise ConfigurationError(f"{file} does not fit in [{name}]: {first_line(error)}") from error
    return entries


def parse_columns(text: str, file: str) -> ColumnSets:
    """Read sets of columns from TOML.

    Args:
        file: its name, for errors.

    Raises:
        ConfigurationError: it is malformed; one sentence names the file and the table.
    """
    sets: ColumnSets = {}

    def groups_of(names: Iterable[str]) -> Groups:
        return tuple(group for column in _find_columns(names, sets) for group in column.groups)

    def blocks_of(written: str | list[str] | dict[str, list[str]]) -> tuple[Groups, ...]:
        if isinstance(written, dict) and "means" in written:
            return tuple(groups_of([name]) for name in written["means"])
        if isinstance(written, dict):
            return (groups_of(written["mean"]),)
        scores = [written] if isinstance(written, str) else written
        return ((tuple(ScorePart(*map(str.strip, score.split("|"))) for score in scores),),)

    def read(name: str, table: dict[str, Any]) -> tuple[Measure, ...]:
        sets[name] = ()
        for column, written in table.items():
            sets[name] += (Measure(name=column, blocks=blocks_of(written)),)
        return sets[name]

    return _read_tables(text, file, read)


def _find_columns(names: Iterable[str], sets: ColumnSets) -> tuple[Measure, ...]:
    """Return the columns of sets, or single ones of a set, such as "sts.average"."""
    single = {f"{name}.{column.name}": (column,) for name, measures in sets.items() for column in measures}
    columns: tuple[Measure, ...] = ()
    for name in names:
        if name not in sets and name not in single:
            raise unknown("columns", name, sets)
        columns += sets.get(name) or single[name]
    return columns


def parse_artifacts(text: str, file: str) -> list[Artifact]:
    """Read the tables and figures of a paper from TOML; arguments and errors as of ``parse_columns``."""
    return [*_read_tables(text, file, _read_artifact).values()]


def _read_artifact(name: str, table: dict[str, Any]) -> Artifact:
    measures = _find_columns(table.get("measures", ()), read_columns())
    parts = {
        "id": name,
        "measures": measures,
        "rows": [_read_row(row, keys, measures) for row, keys in table.get("rows", {}).items()],
        "claims": [build_config(PaperClaim, claim, "claims") for claim in table.get("claims", ())],
        "sketch": _read_training(table["sketch"], "sketch") if "sketch" in table else None,
    }
    return build_config(Artifact, {**table, **parts}, "")


def _read_row(name: str, table: Mapping[str, Any], measures: tuple[Measure, ...]) -> ArtifactRow:
    kind = Training if "recipe" in table else Untrained if "base" in table else None
    own = {key.name for key in fields(kind)} if kind else set()
    of_source = {key: value for key, value in table.items() if key in own}
    row = {key: value for key, value in table.items() if key not in own}
    if kind:
        row["source"] = _read_training(of_source, name) if kind is Training else build_config(kind, of_source, name)
    written = row.get("published")
    if isinstance(written, str):
        row["published"] = _published(written, table.get("recipe", ""), measures)
    return build_config(ArtifactRow, {"name": name, **row}, name)


def _published(written: str, recipe: str, measures: tuple[Measure, ...]) -> dict[str, float]:
    if not written.startswith("recipe"):
        return named_values(measures, written)
    wanted = written.split()[1:] or [measure.name for measure in measures]
    return {column: value for column, value in recipe_values(recipe, measures).items() if column in wanted}


def _read_training(table: Mapping[str, Any], where: str) -> Training:
    method = str(read_recipe(table["recipe"])["method"]).partition("_")[0]
    return build_config(Training, {"text": _TEXTS_OF.get(method, "sentences"), **table}, where)


def named_values(measures: Iterable[Measure], values: str) -> dict[str, float]:
    """Return values, written with spaces between them, by the names of measures; "-" leaves one out.

    Raises:
        ValueError: there are more or fewer values than measures.
    """
    names, written = [measure.name for measure in measures], values.split()
    if len(names) != len(written):
        raise ValueError(f"{len(written)} published values are given for {len(names)} columns")
    return {name: float(value) for name, value in zip(names, written, strict=True) if value != "-"}


def recipe_values(recipe: str, measures: tuple[Measure, ...]) -> dict[str, float]:
    """Return the published values of a recipe that these measures have; the average of transfer tasks is computed."""
    paper: dict[str, Any] = read_recipe(recipe).get("paper", {})
    values = {_COLUMNS_OF_PAPER[key]: float(value) for key, value in paper.items() if key in _COLUMNS_OF_PAPER}
    if measures == read_columns()["transfer"]:
        values.pop("average", None)  # of STS
        scores = [values[column.name] for column in measures[:-1] if column.name in values]
        if len(scores) == len(TRANSFER):
            values["average"] = round(fmean(scores), 2)
    return {column.name: values[column.name] for column in measures if column.name in values}


# ------------------------------------------------------------------------------------------------------------ shipped


@cache
def read_columns() -> ColumnSets:
    """Return the columns that artifacts may name, by set."""
    return parse_columns((ARTIFACTS / "columns.toml").read_text("utf-8"), "columns.toml")


@cache
def read_catalog() -> dict[str, Artifact]:
    """Return all tables and figures, by id."""
    files = [ARTIFACTS / f"{paper}.toml" for paper in PAPERS]
    artifacts = (artifact for file in files for artifact in parse_artifacts(file.read_text("utf-8"), file.name))
    return {artifact.id: artifact for artifact in artifacts}


def find_artifact(name: str) -> Artifact:
    """Return a table or figure by its id.

    Raises:
        ConfigurationError: there is no such id.
    """
    if name not in read_catalog():
        raise unknown("table or figure", name, read_catalog())
    return read_catalog()[name]
