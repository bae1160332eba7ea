"""What the page draws: each function turns plain data into one panel."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from selfsent.report import svg
from selfsent.report.inside import Inside, View
from selfsent.report.read import Curve
from selfsent.report.svg import INK, PAPER, SOFT, Drawing
from selfsent.report.tables import TableSection, format_value

POINTS = 200  # of a curve; longer ones are averaged in so many stretches
_ALL_POINTS = 1200  # of all curves of one panel
TITLE = 160  # characters of a text shown on hover
_BINS = 40
_TOP = 12  # rows of a chart of scores


@dataclass(frozen=True, kw_only=True)
class Line:
    """The curves of one recipe, one for each seed."""

    label: str
    number: int  # colour, dash and marker
    curves: list[Curve]


@dataclass(frozen=True, kw_only=True)
class Path:
    """Alignment and uniformity of one recipe, from the base to the end."""

    label: str
    number: int
    points: list[tuple[float, float]]


def curves(name: str, title: str, lines: Sequence[Line], caption: str, *, alt: str, best: int | None = None) -> Drawing:
    """Draw one quantity over the steps; several seeds as their mean and a band of one standard deviation."""
    with svg.panel() as (figure, axes):
        for line in lines:
            steps, values = together(line.curves, min(POINTS, max(20, _ALL_POINTS // len(lines))))
            mean = values.mean(axis=0)
            axes.plot(
                steps,
                mean,
                color=svg.colour(line.number),
                linestyle=svg.dash(line.number),
                linewidth=1.8,
                marker=svg.marker(line.number) if len(steps) <= 30 else None,
                markersize=4,
            )
            if len(values) > 1:
                spread = values.std(axis=0, ddof=1)
                axes.fill_between(
                    steps, mean - spread, mean + spread, color=svg.colour(line.number), alpha=0.18, linewidth=0
                )
        if best is not None:
            axes.axvline(best, color=SOFT, linewidth=1, linestyle=(0, (2, 2)))
        axes.set_title(title)
        axes.set_xlabel("step")
        axes.locator_params(nbins=5)
        axes.ticklabel_format(style="plain", useOffset=False)
        return svg.drawn(figure, name, caption, alt=alt)


def together(curves: Sequence[Curve], most: int = POINTS) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, "R T"]]:
    """Return the steps that all curves have, at most ``most`` of them, and the values of each curve there.

    Longer curves are cut into stretches, and each stretch is averaged.
    """
    shared = sorted(set.intersection(*({step for step, _ in curve} for curve in curves)))
    if not shared:
        curves, shared = curves[:1], [step for step, _ in curves[0]]
    steps = np.array(shared, dtype=np.float64)
    values = np.array([[dict(curve)[step] for step in shared] for curve in curves], dtype=np.float64)
    if len(steps) > most:
        stretches = np.array_split(np.arange(len(steps)), most)
        steps = np.array([steps[part].mean() for part in stretches])
        values = np.stack([values[:, part].mean(axis=1) for part in stretches], axis=1)
    return steps, values


def scores(name: str, section: TableSection, numbers: dict[str, int], caption: str, *, alt: str) -> Drawing | None:
    """Draw the scores of a table as points with their intervals; the seeds of a recipe as small points."""
    columns = [
        column
        for column in section.columns
        if any(column.identity in row.cells for row in section.rows if row.kind in ("base", "trained"))
    ][:_TOP]
    rows = [row for row in section.rows if row.kind in ("base", "trained")]
    if not columns or not rows:
        return None
    height = min(0.8, 0.8 / len(rows))
    with svg.panel(height=52 + max(30, 10 * len(rows)) * len(columns)) as (figure, axes):
        for place, row in enumerate(rows):
            number = numbers.get(row.label)
            shade = SOFT if number is None else svg.colour(number)
            for line, column in enumerate(columns):
                cell = row.cells.get(column.identity)
                if cell is None:
                    continue
                y = line + (place - (len(rows) - 1) / 2) * height * 0.8
                if len(cell.values) > 1:
                    axes.plot(cell.values, [y] * len(cell.values), "|", color=shade, markersize=7)
                elif cell.low is not None and cell.high is not None:
                    axes.plot([cell.low, cell.high], [y, y], color=shade, linewidth=1.6)
                marker = "o" if number is None else svg.marker(number)
                fill = PAPER if number is None else shade
                axes.plot([cell.value], [y], marker, markersize=6, color=shade, markerfacecolor=fill)
        axes.set_yticks(range(len(columns)), [column.label for column in columns])
        axes.set_ylim(len(columns) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("points")
        axes.locator_params(axis="x", nbins=5)
        return svg.drawn(figure, name, caption, alt=alt)


def plane(
    name: str,
    title: str,
    paths: Sequence[Path],
    papers: dict[str, tuple[float, float]],
    caption: str,
    *,
    alt: str,
) -> Drawing:
    """Draw alignment against uniformity; from a hollow mark, the base, to a filled one, the end."""
    with svg.panel(height=300) as (figure, axes):
        for path in paths:
            x, y = zip(*path.points, strict=True)
            shade, marker = svg.colour(path.number), svg.marker(path.number)
            axes.plot(x, y, color=shade, linewidth=1.4, linestyle=svg.dash(path.number))
            axes.plot(x[1:-1], y[1:-1], marker, color=shade, markersize=3)
            axes.plot(x[:1], y[:1], marker, color=shade, markersize=8, markerfacecolor=PAPER)
            axes.plot(x[-1:], y[-1:], marker, color=shade, markersize=8)
        for label, (align, uniform) in papers.items():
            axes.plot([uniform], [align], "x", color=SOFT, markersize=6)
            last = uniform == max(other for _, other in papers.values())
            said = axes.annotate(
                label,
                (uniform, align),
                (0 if last else 5, {"SimCSE": 13, "SimCSE, supervised": -13}.get(label, -13 if last else 4)),
                textcoords="offset points",
                horizontalalignment="right" if last else "left",
                fontsize=9,
                color=SOFT,
            )
            said.set_in_layout(False)
        axes.margins(0.12, 0.15)
        axes.set_title(title)
        axes.set_xlabel("uniformity (left: more evenly spread)")
        axes.set_ylabel("alignment (down: closer)")
        axes.locator_params(nbins=5)
        return svg.drawn(figure, name, caption, alt=alt)


def cosines(name: str, title: str, view: View, limits: tuple[float, float], top: float, caption: str) -> Drawing:
    """Draw how the cosines of random, adjacent and paraphrase pairs are distributed."""
    edges = np.linspace(*limits, _BINS + 1)
    with svg.panel() as (figure, axes):
        for label, number in (("random", 3), ("adjacent", 0), ("paraphrase", 1)):
            values = getattr(view, label)
            if values is None or not len(values):
                continue
            shares = _shares(values, limits)
            dash, shade = svg.dash((0, 1, 2, 2)[number]), svg.colour(number)
            axes.stairs(shares, edges, fill=True, color=shade, alpha=0.15)
            axes.stairs(
                shares,
                edges,
                color=shade,
                linewidth=1.6,
                linestyle=dash,
                label=f"{label} {format_value(values.mean(), 2)}",
            )
        axes.set_title(title)
        axes.set_xlabel("cosine")
        axes.set_ylabel("share of the pairs")
        axes.legend(title="pairs, and their mean", title_fontsize=10, loc="upper left", handlelength=2.2)
        axes.set_ylim(0, 1.4 * top)
        axes.locator_params(nbins=5)
        return svg.drawn(figure, name, caption)


def judged(
    name: str,
    title: str,
    predicted: Float[np.ndarray, " S"],
    gold: Float[np.ndarray, " S"],
    lowest: float,
    caption: str,
) -> Drawing:
    """Draw predicted cosine against the judgement of people."""
    with svg.panel() as (figure, axes):
        axes.scatter(gold, predicted, s=14, color=svg.colour(0), alpha=0.45, linewidths=0)
        axes.set_title(title)
        axes.set_xlabel("people: 0 nothing in common, 5 the same")
        axes.set_ylabel("cosine")
        axes.set_ylim(lowest, 1.02)
        return svg.drawn(figure, name, caption)


def world(name: str, title: str, inside: Inside, view: View, caption: str) -> Drawing:
    """Draw the map of the sample; each point carries its text."""
    marks = np.array(inside.marks)
    titles: dict[str, list[str]] = {}
    with svg.panel(height=300) as (figure, axes):
        for mark in range(len(inside.typical)):
            rows = np.flatnonzero(marks == mark)
            gid = f"points-{mark}"
            titles[gid] = [shorten(inside.texts[row], TITLE) for row in rows]
            axes.scatter(
                view.places[rows, 0],
                view.places[rows, 1],
                s=22,
                marker=svg.marker(mark),
                color=svg.colour(mark),
                alpha=0.75,
                linewidths=0,
                gid=gid,
            )
        axes.set_title(title)
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.grid(visible=False)
        first, second = (f"{100 * share:.0f} %" for share in view.shares)
        axes.set_xlabel(f"1st component: {first} of the variance; 2nd, upwards: {second}")
        return svg.drawn(figure, name, caption, titles=titles)


def swatch(name: str, number: int | None) -> str:
    """Return a line and a marker as small SVG, for the legend; None is the base."""
    with svg.panel(height=20) as (figure, axes):
        figure.set_size_inches(44 / 72, 14 / 72)
        figure.set_layout_engine("none")
        axes.set_position((0, 0, 1, 1))
        axes.axis("off")
        shade = INK if number is None else svg.colour(number)
        if number is None:
            axes.plot([0.5], [0], "o", color=SOFT, markerfacecolor=PAPER, markersize=7)
        else:
            axes.plot([0, 1], [0, 0], color=shade, linestyle=svg.dash(number), linewidth=1.8)
            axes.plot([0.5], [0], svg.marker(number), color=shade, markersize=6)
        axes.set_xlim(0, 1)
        axes.set_ylim(-1, 1)
        return svg.drawn(figure, name, "").svg


def spot(name: str, mark: int) -> str:
    """Return the mark of a group on a map, for its legend."""
    with svg.panel(height=20) as (figure, axes):
        figure.set_size_inches(14 / 72, 14 / 72)
        figure.set_layout_engine("none")
        axes.set_position((0, 0, 1, 1))
        axes.axis("off")
        axes.plot([0], [0], svg.marker(mark), color=svg.colour(mark), markersize=7)
        return svg.drawn(figure, name, "").svg


def shorten(written: str, width: int) -> str:
    """Cut a text that is longer than ``width`` characters."""
    return written if len(written) <= width else f"{written[: width - 1].rstrip()}…"


def shared_axes(views: Sequence[View]) -> tuple[tuple[float, float], float]:
    """Return the range of all cosines and the highest share of a bin, so that base and trained share their axes."""
    every = [array for view in views for array in (view.random, view.adjacent, view.paraphrase) if array is not None]
    every = [array for array in every if len(array)]
    limits = math.floor(10 * min(float(array.min()) for array in every)) / 10, 1.0
    return limits, max(float(_shares(array, limits).max()) for array in every)


def _shares(values: Float[np.ndarray, " P"], limits: tuple[float, float]) -> Float[np.ndarray, " B"]:
    return np.histogram(np.clip(values, *limits), np.linspace(*limits, _BINS + 1))[0] / len(values)
