"""Tables of scores for the terminal."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from selfsent.evaluation.labelfree.verdict import SCORE, SCORED, LabelFreeVerdict
from selfsent.evaluation.score import Difference, Results, Score
from selfsent.evaluation.suite import absence

_LONG = 20  # characters of a classifier's name; a longer one becomes a footnote
_FOLDED = 36  # characters that a label keeps before columns lose something
_WIDE = Console(width=10_000)  # where the natural width of a table is measured


def trained_table(before: Results, after: Results) -> Table:
    """Lay out the scores of base and trained encoder side by side."""
    table = _table(
        ("score", "base encoder", "trained encoder", "n"), title="base and trained encoder, on held-out text"
    )
    old = {score.key: score for score in before.scores}
    for score in filter(_is_main, after.scores):
        table.add_row(_label(score, {}), _interval(old[score.key]), _interval(score), f"{score.n:,}")
    return table


def results_table(results: Mapping[str, Results], width: int = 100) -> RenderableType:
    """Lay out the scores of a model, one a row, and of its baselines, one a column.

    Where the columns do not fit, long labels are folded, then the baselines lose their intervals, which the JSON has,
    and then they go into further tables.

    Args:
        width: columns of the terminal.
    """
    notes: dict[str, None] = {}
    scores = [*filter(_is_main, results["model"].scores)]
    labels = [_label(score, notes) for score in scores]

    def systems(names: Sequence[str], plain: bool) -> Table:
        table = _table(("score", *(name.replace(" ", "\n") for name in names), "n"))
        for label, score in zip(labels, scores, strict=True):
            same = [next(one for one in results[name].scores if one.key == score.key) for name in names]
            cells = [
                f"{one.value:.2f}" if plain and name != "model" else _interval(one)
                for name, one in zip(names, same, strict=True)
            ]
            table.add_row(label, *cells, f"{score.n:,}")
        return table

    tables: list[RenderableType] = []
    names = [*results]
    while names:
        # All systems side by side with the model's interval alone are better than several tables with every interval.
        ways = [(len(names), False), *((count, True) for count in range(len(names), 0, -1))]
        count, table = next(
            (count, table)
            for count, plain in ways
            if _fits(table := systems(names[:count], plain), width) or (count, plain) == (1, True)
        )
        tables.append(_sized(table, width))
        names = names[count:]
    missing = [Text(f"{task} is missing: {absence(place)}") for task, place in results["model"].missing.items()]
    return Constrain(Group(*tables, *missing, *_footnotes(notes)), width)


def verdict_table(verdict: LabelFreeVerdict) -> Table:
    """Lay out every test, one a row, of every system, one a column; those in the score first, marked."""
    systems = [{"bm25": "BM25", "static": "static\nvectors"}.get(name, name) for name in verdict.results]
    table = _table(("test", *systems, "change", "n"), title="base and trained encoder, on tests made of the text")
    table.columns[0].no_wrap = True
    changes = {(change.task, change.metric): change for change in verdict.differences}
    scores = verdict.results["trained"].scores
    whole = [score for score in scores if score.task == SCORE]
    inside = [score for score in scores if (score.task, score.metric) in SCORED]
    beside = [score for score in scores if score not in whole and score not in inside]
    for part, mark in ((inside, "* "), (whole, "= "), (beside, "  ")):
        for score in part:
            same = [[one for one in system.scores if one.key == score.key] for system in verdict.results.values()]
            cells = [f"{found[0].value:.2f}" if found else "-" for found in same]
            change = changes.get((score.task, score.metric))
            cells.append(_signed(change) if change else "")
            last = part is not beside and score is part[-1] and bool(whole)
            table.add_row(f"{mark}{score.task} {score.metric}", *cells, f"{score.n:,}", end_section=last)
    return table


def difference_table(
    names: Sequence[str], first: Results, second: Results, differences: Sequence[Difference], width: int = 100
) -> RenderableType:
    """Lay out two models and the difference between the first and the second, with its paired interval.

    Where the columns do not fit, long labels are folded, and then both models lose the intervals of their own.

    Args:
        width: columns of the terminal.
    """
    notes: dict[str, None] = {}
    scores = [{score.key: score for score in results.scores} for results in (first, second)]

    def pairs(cell: Callable[[Score], str]) -> Table:
        table = _table(("score", "first", "second", "difference", "first ahead\nin resamples"))
        for difference in differences:
            key = (difference.task, difference.split, difference.metric, difference.aggregation)
            both = [known[key] for known in scores]
            if _is_main(both[0]):
                ahead = f"{100 * difference.above:.0f} %"
                table.add_row(_label(both[0], notes), *map(cell, both), _signed(difference), ahead)
        return table

    table = pairs(_interval)
    if not _fits(table, width):
        table = pairs(lambda score: f"{score.value:.2f}")
    head = [Text(f"{place}: {name.replace(',', ', ')}") for place, name in zip(("first", "second"), names, strict=True)]
    return Constrain(Group(*head, _sized(table, width), *_footnotes(notes)), width)


def _table(headers: Sequence[str], title: str | None = None) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(headers[0], overflow="fold")
    for header in headers[1:]:
        table.add_column(header, justify="right", no_wrap=True)
    return table


def _interval(score: Score) -> str:
    if score.low is None or score.high is None or math.isnan(score.low):
        return f"{score.value:.2f}"
    return f"{score.value:.2f} [{score.low:.1f}, {score.high:.1f}]"


def _signed(difference: Difference) -> str:
    return f"{difference.value:+.2f} [{difference.low:+.1f}, {difference.high:+.1f}]"


def _is_main(score: Score) -> bool:
    # The JSON also has mean and wmean over sub-files, and Pearson; a terminal shows what the literature quotes.
    return score.metric == "recall" or (score.aggregation in ("", "all") and score.metric != "pearson")


def _label(score: Score, notes: dict[str, None]) -> str:
    """Label a score; a classifier too long for a row goes to ``notes``, and the label has its number."""
    kind, colon, place = score.task.partition(":")  # an own file goes by its name, not by its whole path
    # "average of 7" needs no list: their rows stand above.
    task = kind if kind.startswith("average of ") else kind + colon + PurePath(place).name
    label = [task, score.split, score.metric, score.aggregation]
    if "classifier" in score.protocol and score.metric != "recall":
        classifier = str(score.protocol["classifier"])  # numbers of different classifiers differ by points
        if len(classifier) > _LONG:
            notes[classifier] = None
            classifier = str([*notes].index(classifier) + 1)
        label.append(f"({classifier})")
    return " ".join(part for part in label if part)


def _footnotes(notes: Mapping[str, None]) -> list[Text]:
    return [Text(f"({number}) {note}") for number, note in enumerate(notes, start=1)]


def _fits(table: Table, width: int) -> bool:
    """Tell whether a table fits if labels are folded at ``_FOLDED`` and nothing else is."""
    labels = table.columns[0]
    labels.max_width = _FOLDED
    needed = _WIDE.measure(table).maximum
    labels.max_width = None
    return needed <= width


def _sized(table: Table, width: int) -> Table:
    """Give a table its natural width, or ``width`` if that is less."""
    table.width = min(_WIDE.measure(table).maximum, width)
    return table
