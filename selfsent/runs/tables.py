"""Tables of scores: models down, measurements across; one column is one protocol, and papers have rows of their own."""

import statistics
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selfsent.config import RECIPES
from selfsent.evaluation.label_free.scores import BASELINES
from selfsent.evaluation.score import Key, Score
from selfsent.runs.read import Group

YEARS = ("sts12", "sts13", "sts14", "sts15", "sts16")
SETS = (*YEARS, "stsb", "sickr")
TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
AVERAGE = f"average of 7: {' '.join(SETS)}"

# May differ between the models of one column: it belongs to the model, not to the measurement.
_OF_THE_MODEL = (
    *("pooling", "max_length", "bootstrap", "model", "similarity", "prompts"),
    *("regulariser", "fits", "passes", "seeds", "spread over seeds"),
    "differs",  # a file from the known one: where that changed what was read, "data" says so
)
_LITERATURE_CLASSIFIER = "classifier=senteval_full"  # that of the papers' accuracies
_POINTS = ("spearman", "pearson", "accuracy", "f1", "mrr", "recall", "map", "mean", "effective_rank")
_METRICS = ("mrr@10", "recall@1", "recall@10", "alignment", "uniformity", "mean_cosine", "effective_rank")
_TITLES = {"mrr@10": "MRR@10", "stsb": "STS-B", "sickr": "SICK-R"} | {year: year.upper() for year in YEARS}

_VERDICT, _RETRIEVAL, _SIMILARITY, _GEOMETRY, _ACCURACY, _OTHER = (
    "Without labels",
    "Held-out retrieval, without labels",
    "Semantic textual similarity (STS)",
    "Alignment and uniformity",
    "Classifiers on frozen embeddings",
    "Other metrics",
)
_CAPTIONS = {
    _VERDICT: "The tests behind the verdict, on documents not trained on; in points, 0 to 100, except the geometry.",
    _RETRIEVAL: "Each held-out query (a document's first sentence, a text of a pair, or half of a line) retrieves the "
    "text that belongs to it among those of all. "
    "In points, 0 to 100.  BM25 matches words; word vectors were counted in the training text.",
    _SIMILARITY: "Spearman × 100; one correlation over all pairs of a year (“all”), as in SimCSE's tables. "
    "An average names how many sets it covers.",
    _GEOMETRY: "Of held-out pairs, or of STS-B. Alignment: squared distance of pairs that belong together, lower is "
    "closer. Uniformity: lower is more evenly spread. Neither is a goal by itself: a collapsed encoder aligns "
    "perfectly.",
    _ACCURACY: "Accuracy in points.",
    _OTHER: "Pearson, and the mean over a year's sub-files, plain (“mean”) or weighted by size (“wmean”); not "
    "comparable with the columns above.",
}

Identity = tuple[str, ...]


@dataclass(frozen=True)
class TableRow:
    """One model, the mean over the seeds of a recipe, or a paper."""

    kind: str  # base, baseline, trained or paper
    label: str
    note: str
    cells: dict[Identity, tuple[float, str, str]]  # value, text, and its interval or standard deviation over seeds


@dataclass(frozen=True)
class TableSection:
    """Measurements that are read together."""

    title: str
    caption: str
    columns: dict[Identity, tuple[str, str]]  # label and note
    rows: list[TableRow]


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """The figures of a paper."""

    method: str
    base: str
    own: bool  # of the recipe that was run; otherwise of the method, from another base
    figures: dict[Key, float]


def sections(groups: Sequence[Group]) -> list[TableSection]:
    """Table every score of the groups: of bases, trained encoders, baselines and papers."""
    sections = (_section(title, groups) for title in _CAPTIONS)
    return [section for section in sections if section.rows]


def _section(title: str, groups: Sequence[Group]) -> TableSection:
    columns: dict[Identity, tuple[str, str]] = {}
    rows: list[TableRow] = []
    file = "verdict.json" if title == _VERDICT else "scores.json"
    for group in groups:
        runs = [run.measured[file] for run in group.runs]
        for system in dict.fromkeys(name for run in runs for name in run):
            of_runs = [run[system] for run in runs if system in run]
            scores = [score for run in of_runs for score in run if title in (_VERDICT, _title(score.key))]
            columns |= {score_identity(score): _heading(title, score) for score in scores}
            row = _row(group, system, scores, len(of_runs))
            if scores and row not in rows:  # the base of several recipes is shown once
                rows.append(row)
    rows.sort(key=lambda row: ("base", "baseline", "trained").index(row.kind))
    if rows:
        rows += _published_rows(title, groups, columns)
    ordered = dict(sorted(columns.items(), key=lambda item: _place(item[0])))
    return TableSection(title, _CAPTIONS[title], ordered, rows)


def _title(key: Key) -> str:
    """Return the section of a score of scores.json."""
    task, _, metric, aggregation = key
    if task.startswith("geometry") or (task == "retrieval" and metric in ("alignment", "uniformity")):
        return _GEOMETRY
    if task == "retrieval":
        return _RETRIEVAL
    if (metric, aggregation) == ("spearman", "all"):
        return _SIMILARITY
    return _ACCURACY if metric == "accuracy" else _OTHER


def score_identity(score: Score) -> Identity:
    """Name a measurement: two scores share a column only where this is equal."""
    protocol = {k: v for k, v in score.protocol.items() if k not in _OF_THE_MODEL and not k.startswith("whitening")}
    return (*score.key, str(score.n), *(f"{key}={protocol[key]}" for key in sorted(protocol)))


def _heading(title: str, score: Score) -> tuple[str, str]:
    """Return the label of a column, and how many rows of which split it covers."""
    task, metric = (_TITLES.get(name, name.partition(":")[0].replace("_", " ")) for name in (score.task, score.metric))
    label = f"{task} {metric} {score.aggregation}"
    if title in (_SIMILARITY, _ACCURACY):
        label = task
    elif title in (_RETRIEVAL, _GEOMETRY):
        label = metric
    return label.strip(), f"n = {score.n:,}, {score.split}"


def _place(key: Identity) -> tuple[int, int, str]:
    """Order columns as the tables of the literature do; averages last."""
    tasks = (*SETS, *TRANSFER)
    task = len(tasks) + key[0].startswith("average") if key[0] not in tasks else tasks.index(key[0])
    return task, _METRICS.index(key[2]) if key[2] in _METRICS else len(_METRICS), "|".join(key)


def _row(group: Group, system: str, scores: Sequence[Score], seeds: int) -> TableRow:
    labels = {"base": f"base: {group.first.recipe.get('base')}", "trained": group.name}
    label = labels.get(system, BASELINES.get(system, system))
    note = ""
    if system == "trained" and seeds > 1:
        note = f"mean of {seeds} seeds"
    elif system in labels and scores and "pooling" in scores[0].protocol:
        note = f"pooling {scores[0].protocol['pooling']}"
    by_column: dict[Identity, list[Score]] = {}
    for score in scores:
        by_column.setdefault(score_identity(score), []).append(score)
    cells = {identity: _cell(same) for identity, same in by_column.items()}
    return TableRow(system if system in labels else "baseline", label, note, cells)


def _cell(scores: Sequence[Score]) -> tuple[float, str, str]:
    first, values = scores[0], [score.value for score in scores]
    decimals = 1 if first.metric.split("@")[0] in _POINTS else 3
    if max(values) - min(values) > 1e-4:  # otherwise one encoder, measured for each run
        mean = statistics.fmean(values)
        return mean, format_value(mean, decimals), f"± {format_value(statistics.stdev(values), decimals + 1)}"
    bounds = [format_value(bound, decimals) for bound in (first.low, first.high) if bound is not None]
    return first.value, format_value(first.value, decimals), " to ".join(bounds)


def format_value(value: float, decimals: int) -> str:
    """Write a number with a true minus sign, and zero without one."""
    return f"{value:z.{decimals}f}".replace("-", "−")


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


def _published_rows(title: str, groups: Sequence[Group], columns: dict[Identity, tuple[str, str]]) -> list[TableRow]:
    """Return the papers' rows of one section, with columns for what they alone measured."""
    rows: dict[str, TableRow] = {}
    for paper in filter(None, (published_row(group.first.recipe) for group in groups)):
        cells = {}
        for key, value in paper.figures.items():
            if title == _title(key):
                identity = published_identity(key, columns)
                columns.setdefault(identity, (_TITLES.get(key[0], key[0].partition(":")[0]), "published only"))
                cells[identity] = value, format_value(value, 2), ""
        if cells:
            note = "as published" if paper.own else "another base, other text"
            label = f"{paper.method} paper, {paper.base}"
            rows[label] = TableRow("paper", label, note, cells)
    return list(rows.values())


def published_identity(key: Key, columns: Iterable[Identity]) -> Identity:
    """Return the column that measures what a paper does, on SentEval's rows and texts, with its classifier."""
    for column in columns:
        ours = any(part.startswith("rows=") or part.endswith("on the hub") for part in column)
        if column[:4] == key and not ours and (key[2] != "accuracy" or _LITERATURE_CLASSIFIER in column):
            return column
    return (*key, "", "published")
