"""The picture of a table or figure: measured values filled, published ones hollow."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from selfsent.reproduction.findings import Cell
from selfsent.reproduction.plan import ArtifactPlan
from selfsent.runs.read import Curve

CurveSet = Mapping[str, Sequence[Curve]]  # figure of the log -> a curve for each seed
OURS, PAPER = "#1f6fb2", "#c2571a"
SERIES = ("#1f6fb2", "#c2571a", "#3a8f4d", "#8a5fb0", "#9a7b1c", "#4f4f4f")
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
}
Cells = Mapping[str, Mapping[str, Cell]]

_NAME_SIZE = 7  # points


def draw_artifact(plan: ArtifactPlan, cells: Cells, curves: Mapping[str, CurveSet]) -> Figure:
    """Draw a table or figure in the way that it asks for."""
    artifact = plan.artifact
    with mpl.rc_context(STYLE):
        if artifact.drawing == "curves":
            return _draw_curves(plan, curves)
        if artifact.drawing == "scatter":
            return _draw_scatter(plan, cells)
        if artifact.drawing == "differences":
            return _draw_differences(plan, cells)
        if artifact.drawing == "lines" and any(row.row.x is not None for row in plan.rows):
            return _draw_lines(plan, cells)
        return _draw_dots(plan, cells)


def _error(cell: Cell) -> tuple[float, float]:
    """Return how far the error bar reaches below and above: the deviation over seeds, or the test rows' interval."""
    if cell.spread is not None:
        return cell.spread, cell.spread
    if cell.low is None or cell.high is None:
        return 0.0, 0.0
    return max(0.0, cell.value - cell.low), max(0.0, cell.high - cell.value)


def _bars(cells: Sequence[Cell]) -> np.ndarray:
    return np.array([_error(cell) for cell in cells]).T.reshape(2, -1)


def _draw_dots(plan: ArtifactPlan, cells: Cells) -> Figure:
    """Draw one line a row: ours with its error bar, and the published value."""
    measure = plan.artifact.main.name
    rows = [row.row for row in plan.rows if measure in row.row.published or measure in cells.get(row.row.name, {})]
    figure = Figure(figsize=(6.4, 1.2 + 0.3 * max(1, len(rows))), layout="constrained")
    axes = figure.subplots()
    measured = [
        (place, cells[row.name][measure]) for place, row in enumerate(rows) if measure in cells.get(row.name, {})
    ]
    printed = [(place, row.published[measure]) for place, row in enumerate(rows) if measure in row.published]
    found = [cell for _, cell in measured]
    if found:
        places = [place for place, _ in measured]
        axes.errorbar(
            [cell.value for cell in found], places, xerr=_bars(found), fmt="o", color=OURS, capsize=2, label="here"
        )
    if printed:
        values, places = [value for _, value in printed], [place for place, _ in printed]
        axes.plot(values, places, "s", markerfacecolor="none", color=PAPER, label="paper")
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel(measure)
    _finish(figure, axes, plan)
    return figure


def _draw_differences(plan: ArtifactPlan, cells: Cells) -> Figure:
    """Draw by how much the last row is above the first, one line a measure: ours, a dot a seed, and the published."""
    first, last = plan.artifact.rows[0], plan.artifact.rows[-1]
    names = [measure.name for measure in plan.artifact.measures]
    figure = Figure(figsize=(6.4, 1.2 + 0.26 * len(names)), layout="constrained")
    axes = figure.subplots()
    axes.axvline(0, color="#888888", linewidth=1)
    for place, name in enumerate(names):
        both = [cells.get(row.name, {}).get(name) for row in (first, last)]
        if both[0] is not None and both[1] is not None:
            # Trainings of one seed read the same texts in the same order; a checkpoint has one value for all seeds.
            found = np.subtract(*np.broadcast_arrays(both[1].values, both[0].values))
            axes.plot(found, [place] * len(found), "o", color=OURS, label="here, each seed")
        if name in first.published and name in last.published:
            printed = last.published[name] - first.published[name]
            axes.plot(printed, place, "s", markerfacecolor="none", color=PAPER, label="paper")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(f"{last.name} less {first.name}, points")
    _finish(figure, axes, plan)
    return figure


def _draw_lines(plan: ArtifactPlan, cells: Cells) -> Figure:
    """Draw the main measure against the rows' numbers, a line for each series."""
    measure = plan.artifact.main.name
    figure = Figure(figsize=(5.2, 3.6), layout="constrained")
    axes = figure.subplots()
    named = dict.fromkeys(row.row.series for row in plan.rows if row.row.x is not None)
    for place, series in enumerate(named):
        rows = sorted((row.row for row in plan.rows if row.row.series == series), key=lambda row: row.x or 0.0)
        found = [(row.x or 0.0, cells[row.name][measure]) for row in rows if measure in cells.get(row.name, {})]
        if found:
            values = [cell for _, cell in found]
            axes.errorbar(
                [x for x, _ in found],
                [cell.value for cell in values],
                yerr=_bars(values),
                marker="o",
                capsize=2,
                color=SERIES[place % len(SERIES)],
                label=series or "here",
            )
        printed = [(row.x or 0.0, row.published[measure]) for row in rows if measure in row.published]
        if printed:
            axes.plot(*zip(*printed, strict=True), "s--", markerfacecolor="none", color=PAPER, label="paper")
    known = sorted({row.row.x for row in plan.rows if row.row.x is not None})
    if known[0] > 0 and known[-1] / known[0] >= 8:
        axes.set_xscale("log")
    axes.set_xticks(known, [f"{value:g}" for value in known])
    axes.set_xticks([], minor=True)
    axes.set_ylabel(measure)
    _finish(figure, axes, plan)
    return figure


def _draw_scatter(plan: ArtifactPlan, cells: Cells) -> Figure:
    """Draw the second measure against the first, coloured by the third; published points are squares."""
    across, along, colour = (measure.name for measure in plan.artifact.measures)
    figure = Figure(figsize=(5.6, 4.2), layout="constrained")
    axes = figure.subplots()
    points = [
        (row.row.name, {name: cell.value for name, cell in cells.get(row.row.name, {}).items()}, "o")
        for row in plan.rows
    ] + [(row.row.name, row.row.published, "s") for row in plan.rows]
    points = [(name, values, marker) for name, values, marker in points if {across, along} <= values.keys()]
    shades = [values[colour] for _, values, _ in points if colour in values]
    scale = mpl.colors.Normalize(min(shades, default=0.0), max(shades, default=1.0))
    drawn = None
    for _, values, marker in points:
        place = values[across], values[along]
        if colour in values:
            edge = PAPER if marker == "s" else OURS
            drawn = axes.scatter(
                *place, c=[values[colour]], norm=scale, cmap="viridis", marker=marker, s=55, edgecolors=edge
            )
        else:
            axes.scatter(*place, marker=marker, s=55, facecolors="none", edgecolors=PAPER)
    axes.margins(x=0.2, y=0.1)  # room for the names
    _write_names(axes, [(name, (values[across], values[along])) for name, values, _ in points])
    if drawn is not None:
        figure.colorbar(drawn, ax=axes, label=colour)
    axes.plot([], [], "o", color=OURS, label="here")
    axes.plot([], [], "s", markerfacecolor="none", color=PAPER, label="paper")
    axes.set_xlabel(across)
    axes.set_ylabel(along)
    axes.margins(0.15)
    _finish(figure, axes, plan)
    return figure


def _write_names(axes: Axes, points: Sequence[tuple[str, tuple[float, float]]]) -> None:
    """Write a name beside each point, in the first of four places where it covers no other name."""
    scale = 72 / axes.figure.dpi
    taken: list[tuple[float, float, float, float]] = []
    for name, place in points:
        x, y = scale * axes.transData.transform(place)
        width = 0.55 * _NAME_SIZE * len(name)  # about
        ways = []
        for right, up in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            left, bottom = x + 5 * right - width * (right < 0), y + 4 * up - _NAME_SIZE * (up < 0)
            ways.append(((right, up), (left, bottom, left + width, bottom + _NAME_SIZE)))
        (right, up), box = next((way for way in ways if not any(_overlap(way[1], one) for one in taken)), ways[0])
        taken.append(box)
        axes.annotate(
            name,
            place,
            textcoords="offset points",
            xytext=(5 * right, 4 * up),
            ha="left" if right > 0 else "right",
            va="bottom" if up > 0 else "top",
            fontsize=_NAME_SIZE,
        )


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _draw_curves(plan: ArtifactPlan, curves: Mapping[str, CurveSet]) -> Figure:
    """Draw figures of the training log by step, a panel each: the mean over the seeds, and each seed faint."""
    names = plan.artifact.curves
    figure = Figure(figsize=(3.8 * len(names), 3.2), layout="constrained")
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        for place, (row, found) in enumerate(curves.items()):
            colour = SERIES[place % len(SERIES)]
            of_seeds = [dict(curve) for curve in found.get(name, ())]
            steps = sorted(set.intersection(*map(set, of_seeds))) if of_seeds else []
            for curve in of_seeds if len(of_seeds) > 1 else []:
                axes.plot(steps, [curve[step] for step in steps], color=colour, alpha=0.25, linewidth=0.8)
            mean = [float(np.mean([curve[step] for curve in of_seeds])) for step in steps]
            axes.plot(steps, mean, color=colour, marker="o", markersize=3, label=row)
        axes.set_xlabel("step")
        axes.set_ylabel(name.replace("_", " "))
    _finish(figure, panels[0], plan)
    return figure


def _finish(figure: Figure, axes: Axes, plan: ArtifactPlan) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.suptitle(plan.artifact.title, fontsize=10)
    if handles:
        unique = dict(zip(labels, handles, strict=True))
        figure.legend(unique.values(), unique.keys(), loc="outside lower center", ncols=4, fontsize=8)
