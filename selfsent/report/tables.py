"""Tables of scores: models down, measurements across; one column is one protocol, and papers have rows of their own."""

import math
import statistics
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from selfsent.config import RECIPES
from selfsent.evaluation.score import Key, Score
from selfsent.report.read import Group

YEARS = ("sts12", "sts13", "sts14", "sts15", "sts16")
SETS = (*YEARS, "stsb", "sickr")
TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
AVERAGE = f"average of 7: {' '.join(SETS)}"

# May differ between the models of one column: it belongs to the model, not to the measurement.
_OF_THE_MODEL = (
    *("pooling", "max_length", "bootstrap", "model"),
    *("regulariser", "fits", "passes", "seeds", "spread over seeds"),
    "differs",  # a file from the known one: where that changed what was read, "data" says so
)
_LITERATURE_CLASSIFIER = "classifier=senteval_full"  # that of the papers' accuracies
_POINTS = ("spearman", "pearson", "accuracy", "f1", "mrr", "recall", "map")
_TITLES = {"mrr@10": "MRR@10", "recall@1": "recall@1", "recall@10": "recall@10", "stsb": "STS-B", "sickr": "SICK-R"}
_METHODS = ("SimCSE", "SCD", "DeCLUTR", "DenoSent", "WhitenedCSE")

Identity = tuple[str, ...]


@dataclass(frozen=True)
class Model:
    """The scores of an encoder, one list for each run that measured it."""

    kind: str  # base, baseline, trained or seed
    label: str
    note: str
    runs: list[list[Score]]

    def scores(self) -> list[Score]:
        """Return those of all runs."""
        return [score for scores in self.runs for score in scores]


@dataclass(frozen=True)
class TableColumn:
    """One measurement under one protocol."""

    identity: Identity
    label: str
    note: str  # how many rows, which data
    decimals: int


@dataclass(frozen=True)
class TableCell:
    """One number."""

    value: float
    text: str
    below: str = ""  # its interval, or the standard deviation over seeds


@dataclass(frozen=True)
class TableRow:
    """One model, or the mean over the seeds of a recipe."""

    label: str
    note: str
    kind: str  # that of the model, or paper
    cells: Mapping[Identity, TableCell]


@dataclass(frozen=True)
class TableSection:
    """Measurements that are read together."""

    title: str
    caption: str
    main: bool  # others are folded
    columns: list[TableColumn]
    rows: list[TableRow]
    seeds: list[TableRow]  # of each run by itself


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """The figures of a paper."""

    method: str
    base: str
    own: bool  # of the recipe that was run; otherwise of the method, from another base
    figures: dict[Key, float]


# ----------------------------------------------------------------------------------------------------------- models


def sections(groups: Sequence[Group]) -> list[TableSection]:
    """Table every score of the groups: of bases, trained encoders, baselines and papers."""
    models, papers = _models(groups), _papers(groups)
    tables = _verdict_tables(groups)
    for title, caption, main, belongs in _SECTIONS:
        by_data: dict[str, list[tuple[Model, Score]]] = {}  # held-out texts of two corpora have no column in common
        for model in models:
            for score in filter(belongs, model.scores()):
                by_data.setdefault(_held_out_data(score), []).append((model, score))
        for data, members in by_data.items():
            trained = dict.fromkeys(model.label for model, _ in members if model.kind == "trained")
            where = f": {', '.join(trained)}" if len(by_data) > 1 and data else ""
            tables.append(_section(title + where, caption, main, [score for _, score in members], models, papers))
    return tables


def _models(groups: Sequence[Group]) -> list[Model]:
    models: list[Model] = []
    for group in groups:
        runs = [run for run in group.runs if run.trained]
        if runs:
            bases, trained = [run.base for run in runs], [run.trained for run in runs]
            models.append(Model("base", _base_label(group), _pooling_note(bases[0]), bases))
            models.append(Model("trained", group.name, _seeds_note(runs) or _pooling_note(trained[0]), trained))
        if len(group.runs) > 1:
            models += [Model("seed", run.name, f"seed {run.seed}", [run.trained]) for run in runs]
        for label, note, scores in (evaluation for run in group.runs for evaluation in run.evaluations):
            models.append(Model("baseline", label, note, [scores]))
    return models


def _verdict_tables(groups: Sequence[Group]) -> list[TableSection]:
    """Table verdict.json: the tests behind the verdict, of base, trained encoder and baselines."""
    models: list[Model] = []
    for group in groups:
        verdicts = [run.verdict.systems for run in group.runs if run.verdict and run.verdict.systems]
        for name in dict.fromkeys(name for systems in verdicts for name in systems):
            runs = [systems[name] for systems in verdicts if name in systems]
            kind = name if name in ("base", "trained") else "baseline"
            label = {"base": _base_label(group), "trained": group.name}.get(name, name)
            models.append(Model(kind, label, _seeds_note(runs), runs))
    scores = [score for model in models for score in model.scores()]
    if not scores:
        return []
    caption = "The tests behind the verdict, on documents not trained on; in points, 0 to 100, except the geometry."
    section = _section("Without labels", caption, True, scores, models, [])
    columns = [replace(column, label=" ".join(column.identity[:3:2]).strip()) for column in section.columns]
    return [replace(section, columns=columns)]


def _base_label(group: Group) -> str:
    return f"base: {group.first.recipe.get('base')}"


def _seeds_note(runs: Sequence[object]) -> str:
    return f"mean of {len(runs)} seeds" if len(runs) > 1 else ""


def _pooling_note(scores: Sequence[Score]) -> str:
    return f"pooling {scores[0].protocol['pooling']}" if scores and "pooling" in scores[0].protocol else ""


# ----------------------------------------------------------------------------------------------------------- papers


def published_row(recipe: Mapping[str, Any]) -> PublishedRow | None:
    """Return the ``[paper]`` of a recipe, or that of the first shipped recipe of its method, by file name."""
    method = str(recipe.get("method", "")).split("_")[0]
    paper, base = recipe.get("paper"), recipe.get("base")
    if not paper:
        shipped = sorted(path for path in RECIPES.iterdir() if path.name.startswith(f"{method}-"))
        if not shipped:
            return None
        table = tomllib.loads(shipped[0].read_text(encoding="utf-8"))
        paper, base = table.get("paper", {}), table["base"]
    figures: dict[Key, float] = {}
    for name, value in paper.items():
        if name in TRANSFER:
            figures[name, "test", "accuracy", ""] = value
        elif name == "average":
            figures[AVERAGE, "test", "spearman", "all"] = value
        elif name in YEARS and "downstream" in paper:  # DeCLUTR averages the sub-files of a year
            figures[name, "test", "spearman", "mean"] = value
        elif name in SETS and "downstream" not in paper:  # its STS-B and SICK-R are regressions
            figures[name, "test", "spearman", "all"] = value
    return PublishedRow(method=method, base=str(base), own=bool(recipe.get("paper")), figures=figures)


def _papers(groups: Sequence[Group]) -> list[PublishedRow]:
    rows = [published_row(group.first.recipe) for group in groups if any(run.trained for run in group.runs)]
    return list({(row.method, row.base): row for row in rows if row is not None}.values())


# --------------------------------------------------------------------------------------------------------- sections


def _is_retrieval(score: Score) -> bool:
    return score.task == "retrieval" and not _is_geometry(score)


def _is_geometry(score: Score) -> bool:
    return score.task.startswith("geometry") or (
        score.task == "retrieval" and score.metric in ("alignment", "uniformity")
    )


def _is_similarity(score: Score) -> bool:
    return (score.metric, score.aggregation) == ("spearman", "all")


def _is_accuracy(score: Score) -> bool:
    return score.metric == "accuracy"


def _is_other(score: Score) -> bool:
    return not any(belongs(score) for belongs in (_is_retrieval, _is_geometry, _is_similarity, _is_accuracy))


_SECTIONS: tuple[tuple[str, str, bool, Callable[[Score], bool]], ...] = (
    (
        "Held-out retrieval, without labels",
        "The first sentence of each held-out document retrieves its passage among those of all. In points, 0 to 100.",
        True,
        _is_retrieval,
    ),
    (
        "Semantic textual similarity (STS)",
        "Spearman × 100; one correlation over all pairs of a year (“all”), as in SimCSE's tables. "
        "An average names how many sets it covers.",
        True,
        _is_similarity,
    ),
    (
        "Alignment and uniformity",
        "Alignment: squared distance of pairs that belong together, lower is closer. Uniformity: lower is more evenly "
        "spread. Neither is a goal by itself: a collapsed encoder aligns perfectly.",
        True,
        _is_geometry,
    ),
    ("Classifiers on frozen embeddings", "Accuracy in points.", True, _is_accuracy),
    (
        "Other metrics",
        "Pearson, and the mean over a year's sub-files, plain (“mean”) or weighted by size (“wmean”); not comparable "
        "with the columns above.",
        False,
        _is_other,
    ),
)


def _section(
    title: str,
    caption: str,
    main: bool,
    scores: Sequence[Score],
    models: Sequence[Model],
    papers: Sequence[PublishedRow],
) -> TableSection:
    columns = {column.identity: column for column in _columns(scores)}
    rows: dict[object, TableRow] = {}
    seeds: list[TableRow] = []
    for model in sorted(models, key=lambda model: ("base", "baseline", "trained", "seed").index(model.kind)):
        row = _row(model, columns)
        if row.cells and model.kind == "seed":
            seeds.append(row)
        elif row.cells:
            # The base of several recipes is shown once.
            shown = [model.label, model.note, *((key, cell.text) for key, cell in row.cells.items())]
            rows.setdefault(repr(shown) if model.kind == "base" else len(rows), row)
    metrics = {(score.metric, score.aggregation) for score in scores}
    for paper in papers:
        cells = {
            _paper_column(key, columns).identity: TableCell(value, format_value(value, 2))
            for key, value in paper.figures.items()
            if key[2:] in metrics
        }
        if cells:
            note = "as published" if paper.own else "another base, other text"
            label = f"{method_name(paper.method)} paper, {paper.base}"
            rows[paper.method, paper.base] = TableRow(label, note, "paper", cells)
    ordered = sorted(columns.values(), key=lambda column: _place(column.identity))
    return TableSection(title, caption, main, ordered, list(rows.values()), seeds)


# ---------------------------------------------------------------------------------------------------------- columns


def score_identity(score: Score) -> Identity:
    """Name a measurement: two scores share a column only where this is equal."""
    protocol = {k: v for k, v in score.protocol.items() if k not in _OF_THE_MODEL and not k.startswith("whitening")}
    return (*score.key, str(score.n), *(f"{key}={protocol[key]}" for key in sorted(protocol)))


def _held_out_data(score: Score) -> str:
    return str(score.protocol.get("data", "")) if score.task == "retrieval" else ""


def _columns(scores: Sequence[Score]) -> Iterable[TableColumn]:
    alike: dict[Identity, list[Score]] = {}
    for score in scores:
        alike.setdefault(score_identity(score), []).append(score)
    for key, members in alike.items():
        one = members[0]
        widths = [(s.high - s.low) / 2 for s in members if s.low is not None and s.high is not None]
        by_metric = _is_retrieval(one) or _is_geometry(one)
        label = _TITLES.get(one.metric, one.metric.replace("_", " ")) if by_metric else task_name(one.task)
        if one.aggregation in ("mean", "wmean") or (not by_metric and one.metric not in ("spearman", "accuracy")):
            label = " ".join(part for part in (label, one.metric, one.aggregation) if part)
        yield TableColumn(key, label, _note(one), decimals_of(one.metric, widths))


def _note(score: Score) -> str:
    if score.task == "retrieval":
        return f"of {score.n:,} held-out pairs"
    if score.task.startswith("geometry"):
        what = "pairs above 4" if score.metric == "alignment" else "sentences"
        return f"{score.n:,} {what}, STS-B {score.split.replace('+', ' + ')}"
    split = "" if score.split == "test" else f", {score.split}"
    return f"{score.n:,} pairs{split}" if score.metric in ("spearman", "pearson") else f"{score.n:,} rows{split}"


def _paper_column(key: Key, columns: dict[Identity, TableColumn]) -> TableColumn:
    """Return the column that measures the same, or add one for the papers alone."""
    for column in columns.values():
        # Papers measured on SentEval's rows and texts, with SentEval's classifier.
        other = any(
            part.startswith("rows=") or (part.startswith("texts=") and part.endswith("on the hub"))
            for part in column.identity
        )
        if key[2] == "accuracy":
            other = other or _LITERATURE_CLASSIFIER not in column.identity
        if column.identity[:4] == key and not other:
            return column
    aggregation = f" {key[2]} {key[3]}" if key[3] in ("mean", "wmean") else ""
    column = TableColumn((*key, "", "published"), task_name(key[0]) + aggregation, "published only", 2)
    columns[column.identity] = column
    return column


def _place(key: Identity) -> tuple[int, int, str]:
    """Order columns as the tables of the literature do; averages last."""
    tasks = (*SETS, *TRANSFER)
    metrics = ("mrr@10", "recall@1", "recall@10", "alignment", "uniformity", "mean_cosine", "effective_rank")
    task = len(tasks) + key[0].startswith("average") if key[0] not in tasks else tasks.index(key[0])
    return task, metrics.index(key[2]) if key[2] in metrics else len(metrics), "|".join(key)


# ----------------------------------------------------------------------------------------------------- rows and cells


def _row(model: Model, columns: Mapping[Identity, TableColumn]) -> TableRow:
    by_column: dict[Identity, list[Score]] = {}
    for score in model.scores():
        if score_identity(score) in columns:
            by_column.setdefault(score_identity(score), []).append(score)
    same = model.kind == "base"  # one encoder, measured once for each run: shown once where its scores agree
    cells = {key: _cell(scores, columns[key].decimals, same=same) for key, scores in by_column.items()}
    return TableRow(model.label, model.note, model.kind, cells)


def _cell(scores: Sequence[Score], decimals: int, *, same: bool) -> TableCell:
    values = [score.value for score in scores]
    one = scores[0]
    if len(values) == 1 or (same and len({format_value(value, decimals) for value in values}) == 1):
        below = ""
        if one.low is not None and one.high is not None:
            below = f"{format_value(one.low, decimals)} to {format_value(one.high, decimals)}"
        return TableCell(one.value, format_value(one.value, decimals), below)
    mean, spread = statistics.fmean(values), statistics.stdev(values)
    return TableCell(mean, format_value(mean, decimals), f"± {format_value(spread, decimals + 1)}")


def format_value(value: float, decimals: int) -> str:
    """Write a number with a true minus sign, and zero without one."""
    text = f"{value:.{decimals}f}"
    return text.replace("-", "−") if float(text) else f"{0:.{decimals}f}"


def decimals_of(metric: str, half_widths: Iterable[float]) -> int:
    """Return the significant decimals: one for points, otherwise two digits of the uncertainty."""
    if metric.split("@")[0] in _POINTS or metric == "effective_rank":
        return 1
    widths = [width for width in half_widths if width > 0]
    if not widths:
        return 2
    return min(3, max(2, 1 - math.floor(math.log10(statistics.median(widths)))))


def method_name(method: str) -> str:
    """Write a method, or several joined, as their papers do."""
    names = {name.lower(): name for name in _METHODS}
    return "+".join(names.get(part.split("_")[0], part) for part in method.split("+"))


def task_name(task: str) -> str:
    """Write a task as the literature does."""
    if task.startswith("average of "):
        return f"average of {task.split()[2].rstrip(':')}"
    return _TITLES.get(task, task.upper() if task.startswith("sts") else task)
