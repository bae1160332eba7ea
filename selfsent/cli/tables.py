"""Tables of scores for the terminal; where they do not fit, rich folds the names of the scores."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from selfsent.evaluation.comparison import Comparison
from selfsent.evaluation.label_free.scores import SCORE, SCORED
from selfsent.evaluation.label_free.verdict import Verdict
from selfsent.evaluation.score import Key, Results, Score
from selfsent.evaluation.suite import absence
from selfsent.evaluation.task import said_prompts

if TYPE_CHECKING:
    from selfsent.selection.fit import Fitted
    from selfsent.training.run import Trained

FIT_FIGURES = (
    "Points, 100 is best: how high a sentence from inside ranks its document (MRR@10); again without the rare words "
    "that the two share; tests made of general text; the first two on documents that chose nothing."
)
_SYSTEMS = 3  # of one table; their names fold well in 80 columns


def results_table(results: Mapping[str, Results], beside: Mapping[str, Results] = MappingProxyType({})) -> Group:
    """Lay out the scores of several systems, one a column: base and trained encoder, or a model and its baselines.

    Of more than two systems only the first has its intervals, and with others beside them the last; the JSON has those
    of all.

    Args:
        beside: further columns, empty where a system has no such score.
    """
    names = [*results]
    first = results[names[0]]
    whole = names[-1:] if beside else names[:1] if len(names) > 2 else names
    results = {**results, **beside}
    tables = []
    width = len(results) if beside else _SYSTEMS
    for start in range(0, len(results), width):
        shown = [*results][start : start + width]
        table = _table(("score", *(name.replace(" ", "\n") for name in shown), "n"))
        systems = {name: _by_key(results[name]) for name in shown}
        for score in (score for score in first.scores if score.is_main):
            same = {name: scores.get(score.key) for name, scores in systems.items()}
            cells = [(own.cell if name in whole else f"{own.value:.2f}") if own else "" for name, own in same.items()]
            table.add_row(score.label, *cells, f"{score.n:,}")
        tables.append(table)
    missing = [Text(f"{task} is missing: {absence(place)}") for task, place in first.missing.items()]
    return Group(*tables, *missing, *_prompts(first))


def _by_key(results: Results) -> dict[Key, Score]:
    return {score.key: score for score in results.scores}


def _prompts(results: Results, name: str = "") -> list[Text]:
    said = said_prompts(score.protocol for score in results.scores)
    return [Text(f"{name}{said}")] if said else []


def verdict_table(verdict: Verdict) -> Table:
    """Lay out every test, one a row, of every system, one a column; those in the score first, marked."""
    systems = [{"bm25": "BM25", "static": "static\nvectors"}.get(name, name) for name in verdict.results]
    table = _table(("test", *systems, "change", "n"), title="base and trained encoder, on tests made of the text")
    by_system = [_by_key(system) for system in verdict.results.values()]
    changes = {(change.task, change.metric): change for change in verdict.differences}

    def mark(score: Score) -> str:
        return "=" if score.task == SCORE else "*" if (score.task, score.metric) in SCORED else " "

    scores = sorted(verdict.results["trained"].scores, key=lambda score: "*= ".index(mark(score)))
    for sign, part in groupby(scores, mark):
        for score in part:
            same = [scores.get(score.key) for scores in by_system]
            cells = [f"{own.value:.2f}" if own else "-" for own in same]
            change = changes.get((score.task, score.metric))
            cells += [change.cell if change else "", f"{score.n:,}"]
            table.add_row(f"{sign} {score.task} {score.metric}", *cells)
        table.add_section()
    return table


def difference_table(names: Sequence[str], after: Results, before: Results, differences: Sequence[Comparison]) -> Group:
    """Lay out two models, named as before and after, and the difference that the second makes, with its interval."""
    table = _table(("score", "before", "after", "difference", "after ahead\nin resamples"))
    scores = [_by_key(before), _by_key(after)]
    for difference in differences:
        old, new = (of_model[difference.key] for of_model in scores)
        if new.is_main:
            ahead = "" if difference.above is None else f"{100 * difference.above:.0f} %"
            table.add_row(new.label, f"{old.value:.2f}", f"{new.value:.2f}", difference.cell, ahead)
    head = [Text(f"{place}: {name.replace(',', ', ')}") for place, name in zip(("before", "after"), names, strict=True)]
    return Group(*head, table, *_prompts(before, "before: "), *_prompts(after, "after: "))


def seeds_table(runs: Sequence["Trained"]) -> Table:
    """Lay out the scores of several seeds, one a row, then their mean and deviation."""
    columns = [[getattr(run, name) for run in runs] for name in ("dev", "base_test", "test")]
    rows = [[str(run.seed), *(_points(column[place]) for column in columns)] for place, run in enumerate(runs)]
    for name, measure in (("mean", np.mean), ("deviation", partial(np.std, ddof=1))):
        rows.append([name, *("" if None in column else _points(float(measure(column))) for column in columns)])
    tested = runs[0].compared
    metric = "test" if tested is None else f"{tested[1].task} {tested[1].metric}"
    return text_table(["seed", f"dev {runs[0].outcome.selected_by}", f"base {metric}", f"trained {metric}"], rows)


def _points(score: float | None) -> str:
    return "" if score is None else f"{score:.2f}"


def text_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Lay out rows of text; the heads are broken at their spaces."""
    table = _table([header.replace(" ", "\n") for header in headers])
    for row in rows:
        table.add_row(*row)
    return table


def _table(headers: Sequence[str], title: str | None = None) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(headers[0], overflow="fold")
    for header in headers[1:]:
        table.add_column(header, justify="right", no_wrap=True)
    return table


def fit_table(result: "Fitted") -> Group:
    """Lay out the candidates of a selection, best first, and word matching, and say what the figures are."""
    from selfsent.selection.choose import candidate_rows

    heads, rows = candidate_rows(result.rows)
    table = _table([head.replace(": ", ":\n").replace(" its ", " its\n").replace(" rare", "\nrare") for head in heads])
    table.columns[-1].justify, table.columns[-1].no_wrap, table.columns[-1].overflow = "left", False, "fold"
    for row in rows:
        table.add_row(*row, style="bold" if row[-1] == "kept" else None)
    return Group(table, Text(FIT_FIGURES))
