"""Lay scores out: models down, measurements across, one protocol a column, and every number with the digits it has."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from selfsent.evaluation.score import Score
from selfsent.report import published
from selfsent.report.read import Group

# What differs between models that are measured in one way: may differ within a column, and is said in the row.
_OF_THE_MODEL = (
    *("pooling", "max_length", "bootstrap", "model"),
    *("regulariser", "fits", "passes", "seeds", "spread over seeds"),
    "differs",  # a file from the known one: where that changed what was read, "data" says so
)
_OF_THE_PAPERS = "classifier=senteval_full"  # behind the literature's accuracies
_POINTS = ("spearman", "pearson", "accuracy", "f1", "mrr", "recall", "map")
_TITLES = {"mrr@10": "MRR@10", "recall@1": "recall@1", "recall@10": "recall@10", "stsb": "STS-B", "sickr": "SICK-R"}
NAMES = {
    "retrieval": "held-out retrieval, MRR@10",
    "stsb-dev": "STS-B dev, Spearman × 100",
    "sickr-dev": "SICK-R dev, Spearman × 100",
    "sts-dev": "mean of STS-B and SICK-R dev",
    "uniformity": "uniformity",
    "mean_cosine": "mean cosine of two texts",
    "effective_rank": "effective rank",
    "alignment": "alignment",
    "stsb_alignment": "alignment, STS-B dev",
    "stsb_uniformity": "uniformity, STS-B dev",
    "held_out_loss": "held-out loss",
    "held_out_accuracy": "held-out words guessed, %",
}

METHODS = {
    "simcse": "SimCSE",
    "scd": "SCD",
    "declutr": "DeCLUTR",
    "denosent": "DenoSent",
    "whitenedcse": "WhitenedCSE",
}

Identity = tuple[str, ...]


@dataclass(frozen=True)
class Model:
    """The scores of an encoder, one list for each run that measured it."""

    kind: str  # base, trained or baseline
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
    note: str  # what tells it from its neighbours: how many rows, which data
    decimals: int


@dataclass(frozen=True)
class TableCell:
    """One number: of one run with its interval, or the mean over several with their spread."""

    value: float
    text: str
    below: str  # interval, or spread
    values: tuple[float, ...]  # of each run behind it
    low: float | None = None  # interval of a single run
    high: float | None = None


@dataclass(frozen=True)
class TableRow:
    """One model, or the mean over the seeds of a recipe."""

    label: str
    note: str
    kind: str  # base, trained, baseline, paper or seed
    cells: Mapping[Identity, TableCell]


@dataclass(frozen=True)
class TableSection:
    """Measurements that are read together."""

    title: str
    caption: str
    main: bool  # others are folded away
    columns: list[TableColumn]
    rows: list[TableRow]
    seeds: list[TableRow] = field(default_factory=list)


def sections(groups: Sequence[Group]) -> list[TableSection]:
    """Table every score of the groups, of base and trained encoders, of baselines, and of the papers."""
    models: list[Model] = []
    papers: dict[tuple[str, str], published.Published] = {}
    for one in groups:
        runs = [run for run in one.runs if run.trained]
        if runs:
            bases, trained = [run.base for run in runs], [run.trained for run in runs]
            models.append(Model("base", f"base: {runs[0].recipe.get('base')}", _pooled(bases[0]), bases))
            models.append(Model("trained", one.name, _seeds(trained) or _pooled(trained[0]), trained))
            paper = published.published_row(runs[0].recipe)
            if paper is not None:
                papers[paper.method, paper.base] = paper
        for file in (file for run in one.runs for file in run.evaluated):
            models.append(Model("baseline", file.model, "as it is", [file.scores]))
            models += [Model("baseline", name, f"of {file.model}", [scores]) for name, scores in file.baselines.items()]
    found: list[TableSection] = _label_free(groups)
    for title, caption, main, belongs in _SECTIONS:
        here = [score for model in models for score in model.scores() if belongs(score)]
        data = list(dict.fromkeys(_held_out_data(score) for score in here))
        for one_data in data:  # held-out texts of two corpora have no column in common
            few = [score for score in here if _held_out_data(score) == one_data]
            names = [
                model.label
                for model in models
                if model.kind == "trained"
                and any(belongs(score) and _held_out_data(score) == one_data for score in model.scores())
            ]
            where = f": {', '.join(names)}" if len(data) > 1 and one_data else ""
            found.append(_section(title + where, caption, main, few, models, groups, list(papers.values())))
    return found


def _label_free(groups: Sequence[Group]) -> list[TableSection]:
    """Table what verdict.json holds: the tests behind the verdict, of base, trained encoder and those beside them."""
    models: list[Model] = []
    for one in groups:
        judged = [run.verdict.systems for run in one.runs if run.verdict and run.verdict.systems]
        for name in dict.fromkeys(name for systems in judged for name in systems):
            runs = [systems[name] for systems in judged if name in systems]
            kind = name if name in ("base", "trained") else "baseline"
            label = {"base": f"base: {one.first.recipe.get('base')}", "trained": one.name}.get(name, name)
            models.append(Model(kind, label, _seeds(runs), runs))
    every = [score for model in models for score in model.scores()]
    if not every:
        return []
    caption = (
        "The tests behind the verdict, on documents that training never saw; in points, 0 to 100, but for the geometry."
    )
    section = _section("Without labels", caption, True, every, models, [], [])
    columns = [replace(c, label=f"{c.identity[0]} {c.identity[2]}".strip()) for c in section.columns]
    return [replace(section, columns=columns)]


def _seeds(runs: Sequence[object]) -> str:
    return f"mean of {len(runs)} seeds" if len(runs) > 1 else ""


def _held_out_data(score: Score) -> str:
    return str(score.protocol.get("data", "")) if score.task == "retrieval" else ""


def format_value(value: float, decimals: int) -> str:
    """Write a number with a true minus sign."""
    written = f"{value:.{decimals}f}"
    return written.replace("-", "−") if float(written) else f"{0:.{decimals}f}"


def decimals_of(metric: str, half_widths: Iterable[float]) -> int:
    """Return how many decimals mean something: two digits of the uncertainty, and one decimal for points."""
    if metric.split("@")[0] in _POINTS or metric == "effective_rank":
        return 1
    widths = [width for width in half_widths if width > 0]
    if not widths:
        return 2
    return min(3, max(2, 1 - math.floor(math.log10(statistics.median(widths)))))


def score_identity(score: Score) -> Identity:
    """Name a measurement: two scores stand in one column only where this is equal."""
    protocol = {k: v for k, v in score.protocol.items() if k not in _OF_THE_MODEL and not k.startswith("whitening")}
    return (*score.key, str(score.n), *(f"{key}={protocol[key]}" for key in sorted(protocol)))


def method_name(method: str) -> str:
    """Write a method, or several joined, as their papers do."""
    return "+".join(METHODS.get(part.split("_")[0], part) for part in method.split("+"))


def task_name(task: str) -> str:
    """Write a task as the literature does."""
    if task.startswith("average of "):
        return f"average of {task.split()[2].rstrip(':')}"
    return _TITLES.get(task, task.upper() if task.startswith("sts") else task)


def _pooled(scores: Sequence[Score]) -> str:
    return f"pooling {scores[0].protocol['pooling']}" if scores and "pooling" in scores[0].protocol else ""


def _is_held_out_point(score: Score) -> bool:
    return score.task == "retrieval" and score.metric not in ("alignment", "uniformity")


def _is_geometry(score: Score) -> bool:
    return not _is_held_out_point(score) and (score.task.startswith("geometry") or score.task == "retrieval")


def _is_similarity(score: Score) -> bool:
    return (score.metric, score.aggregation) == ("spearman", "all")


_SECTIONS = (
    (
        "Finding the right text, without labels",
        "Held-out documents: each one's passage is looked for with its first sentence among the passages of all. "
        "In points, 0 to 100.",
        True,
        _is_held_out_point,
    ),
    (
        "Similarity as people judge it (STS)",
        "Spearman × 100; of a year's sub-files one correlation over all pairs (“all”), as SimCSE's tables. "
        "An average names how many sets it is over, and those of different sets stand apart.",
        True,
        _is_similarity,
    ),
    (
        "Where the vectors lie",
        "Alignment: squared distance of pairs that belong together, lower is closer. Uniformity: lower is more evenly "
        "spread. Neither is a goal alone: a collapsed encoder aligns perfectly.",
        True,
        _is_geometry,
    ),
    (
        "Classifiers on frozen vectors",
        "Accuracy in points, of the tasks that were measured.",
        True,
        lambda score: score.metric == "accuracy",
    ),
    (
        "Other ways to average the same similarities",
        "Pearson, and the mean over a year's sub-files, plain (“mean”) or weighted by size (“wmean”): other numbers "
        "than those above, never to be mixed with them.",
        False,
        lambda score: (
            not _is_held_out_point(score)
            and not _is_geometry(score)
            and not _is_similarity(score)
            and score.metric != "accuracy"
        ),
    ),
)


def _section(
    title: str,
    caption: str,
    main: bool,
    scores: Sequence[Score],
    models: Sequence[Model],
    groups: Sequence[Group],
    papers: Sequence[published.Published],
) -> TableSection:
    columns = {column.identity: column for column in _columns(scores)}
    rows: list[TableRow] = []
    shown: set[str] = set()
    for kind in ("base", "baseline", "trained"):
        for model in models:
            row = _row(model.label, model.note, model.kind, model.runs, columns)
            looks = repr((model.label, model.note, [(key, cell.text) for key, cell in row.cells.items()]))
            if model.kind != kind or not row.cells or (kind == "base" and looks in shown):
                continue  # the base of several recipes is shown once
            shown.add(looks)
            rows.append(row)
    keys = {(score.metric, score.aggregation) for score in scores}
    for paper in papers:
        cells: dict[Identity, TableCell] = {}
        for key, value in paper.figures.items():
            if key[2:] in keys:
                column = _paper_column(key, columns)
                cells[column.identity] = TableCell(value, format_value(value, 2), "", (value,))
        if cells:
            note = "as published" if paper.own else "another base, other text"
            rows.append(TableRow(f"{method_name(paper.method)} paper, {paper.base}", note, "paper", cells))
    seeds = [
        _row(run.name, f"seed {run.seed}", "seed", [run.trained], columns)
        for one in groups
        for run in one.runs
        if run.trained and len(one.runs) > 1
    ]
    ordered = sorted(columns.values(), key=lambda column: _place(column.identity))
    return TableSection(title, caption, main, ordered, rows, [row for row in seeds if row.cells])


def _columns(scores: Sequence[Score]) -> Iterable[TableColumn]:
    alike: dict[Identity, list[Score]] = {}
    for score in scores:
        alike.setdefault(score_identity(score), []).append(score)
    for key, members in alike.items():
        one = members[0]
        widths = [(s.high - s.low) / 2 for s in members if s.low is not None and s.high is not None]
        of_points = _is_held_out_point(one) or _is_geometry(one)
        label = _TITLES.get(one.metric, one.metric.replace("_", " ")) if of_points else task_name(one.task)
        if one.aggregation in ("mean", "wmean") or (not of_points and one.metric not in ("spearman", "accuracy")):
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


def _paper_column(key: tuple[str, str, str, str], columns: dict[Identity, TableColumn]) -> TableColumn:
    """Return the column that measures the same, or a new one for the papers alone."""
    for column in columns.values():
        # Rows or texts other than SentEval's: no paper measured on them.
        others = any(
            part.startswith("rows=") or (part.startswith("texts=") and part.endswith("on the hub"))
            for part in column.identity
        )
        if key[2] == "accuracy":
            others = others or _OF_THE_PAPERS not in column.identity
        if column.identity[:4] == key and not others:
            return column
    aggregation = f" {key[2]} {key[3]}" if key[3] in ("mean", "wmean") else ""
    column = TableColumn((*key, "", "published"), task_name(key[0]) + aggregation, "published only", 2)
    columns[column.identity] = column
    return column


def _place(key: Identity) -> tuple[int, int, str]:
    """Order columns as the tables of the literature do; averages last."""
    tasks = (*published.SETS, *published.TRANSFER)
    metrics = ("mrr@10", "recall@1", "recall@10", "alignment", "uniformity", "mean_cosine", "effective_rank")
    task = len(tasks) + key[0].startswith("average") if key[0] not in tasks else tasks.index(key[0])
    return task, metrics.index(key[2]) if key[2] in metrics else len(metrics), "|".join(key)


def _row(
    label: str, note: str, kind: str, runs: Sequence[Sequence[Score]], columns: Mapping[Identity, TableColumn]
) -> TableRow:
    by_column: dict[Identity, list[Score]] = {}
    for scores in runs:
        for score in scores:
            if score_identity(score) in columns:
                by_column.setdefault(score_identity(score), []).append(score)
    same = kind == "base"  # one encoder, measured once for each run: its scores are shown once where they agree
    cells = {key: _cell(scores, columns[key].decimals, same=same) for key, scores in by_column.items()}
    return TableRow(label, note, kind, cells)


def _cell(scores: Sequence[Score], decimals: int, *, same: bool) -> TableCell:
    values = tuple(score.value for score in scores)
    first = scores[0]
    if len(values) == 1 or (same and len({format_value(value, decimals) for value in values}) == 1):
        below = ""
        if first.low is not None and first.high is not None:
            below = f"{format_value(first.low, decimals)} to {format_value(first.high, decimals)}"
        return TableCell(first.value, format_value(first.value, decimals), below, values[:1], first.low, first.high)
    mean, spread = statistics.fmean(values), statistics.stdev(values)
    return TableCell(mean, format_value(mean, decimals), f"± {format_value(spread, decimals + 1)}", values)
