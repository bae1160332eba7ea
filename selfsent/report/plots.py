"""Matplotlib figures as inline SVG in the page's colours and fonts.

Colours are drawn as stand-ins and replaced by CSS variables, so that one drawing serves light, dark and paper.
"""

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from selfsent.report.embeddings import EncoderView
from selfsent.report.style import STYLE
from selfsent.runs.read import Curve
from selfsent.runs.tables import format_value

WIDTH, HEIGHT = 360, 250  # points; a panel is never shown narrower than a phone, so its letters stay readable
MAX_POINTS = 400  # of all curves of a panel; longer ones are averaged in segments
_BINS = 40

_VARIABLES = {"ink": "#010101", "soft": "#020202", "faint": "#030303"} | {f"c{n}": f"#1010{n:02x}" for n in range(6)}
_INK, _SOFT, _FAINT, *_SERIES = _VARIABLES.values()
_DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1.2, 1.6), (6, 2, 1, 2), (3, 1), (8, 3, 1, 2, 1, 2))
_MARKERS = ("o", "s", "^", "D", "v", "P")
_PAGE_STYLE: dict[Any, Any] = STYLE | {
    "svg.fonttype": "none",
    "svg.hashsalt": "selfsent",  # the same page for the same runs
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": _SOFT,
    "axes.labelcolor": _INK,
    "axes.titlecolor": _INK,
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "grid.color": _FAINT,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "text.color": _INK,
    "legend.fontsize": 10,
    "legend.labelcolor": _INK,
    "figure.facecolor": "none",
}


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """One figure of the page."""

    svg: str  # what stands inside the svg element; its identifiers repeat between drawings
    title: str
    caption: str


@dataclass(frozen=True, kw_only=True)
class Line:
    """The curves of one recipe, one for each seed."""

    label: str
    number: int  # decides colour, dash and marker
    curves: list[Curve]


def shape_of(number: int) -> int:
    """Return which dash and marker a series has; the seventh has the first's colour and another shape."""
    return (number + number // len(_SERIES)) % len(_SERIES)


def dash_pattern(number: int) -> str:
    """Return the dashes of a series in pixels, as SVG's stroke-dasharray."""
    return " ".join(f"{1.8 * part:g}" for part in _DASHES[shape_of(number)])


def draw_curves(
    title: str,
    lines: Sequence[Line],
    caption: str,
    *,
    best: int | None = None,
    levels: Mapping[str, float] = MappingProxyType({}),
) -> Drawing:
    """Draw one quantity over the steps; several seeds as their mean and a band of one standard deviation.

    Args:
        best: step of the weights that were kept, as an upright line.
        levels: what does not change with the steps, each as a level line with its name.
    """
    with _panel(title) as (figure, axes):
        for line in lines:
            steps, values = align_curves(line.curves, max(20, MAX_POINTS // len(lines)))
            mean, colour, shape = values.mean(axis=0), _SERIES[line.number % len(_SERIES)], shape_of(line.number)
            marker = _MARKERS[shape] if len(steps) <= 30 else None
            dash = (0, _DASHES[shape]) if _DASHES[shape] else "-"
            axes.plot(steps, mean, color=colour, linestyle=dash, linewidth=1.8, marker=marker, markersize=4)
            if len(values) > 1:
                spread = values.std(axis=0, ddof=1)
                axes.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.18, linewidth=0)
            change = f"{mean[0]:.3g} to {mean[-1]:.3g}".replace("-", "−")
            caption += f" {line.label}: {change}."
        if best is not None:
            axes.axvline(best, color=_SOFT, linewidth=1, linestyle=(0, (2, 2)))
        for number, (name, value) in enumerate(levels.items()):
            side: Any = ("left", "right")[number % 2]  # two names of nearly equal levels do not cover each other
            axes.axhline(value, color=_SOFT, linewidth=1.2, linestyle=(0, (6, 2 + 2 * number)))
            label = axes.text(number % 2, value, name, color=_SOFT, ha=side, va="bottom", fontsize=10)
            label.set_transform(axes.get_yaxis_transform())
            caption += f" {name}: {format_value(value, 1)}."
        axes.set_xlabel("step")
        axes.ticklabel_format(style="plain", useOffset=False)
        return _drawing(figure, axes, caption)


def align_curves(curves: Sequence[Curve], most: int) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, "R T"]]:
    """Return the steps that all curves have, at most ``most`` of them, and the values of each curve there.

    Longer curves are cut into segments, and each segment is averaged.  Of curves without a common step the longest one
    is returned.
    """
    shared = sorted(set.intersection(*({step for step, _ in curve} for curve in curves)))
    if not shared:
        return align_curves([max(curves, key=len)], most)
    segments = np.array_split(np.arange(len(shared)), min(most, len(shared)))
    steps = np.array(shared, dtype=np.float64)
    values = np.array([[at[step] for step in shared] for at in map(dict, curves)])
    return (
        np.array([steps[part].mean() for part in segments]),
        np.stack([values[:, part].mean(axis=1) for part in segments], axis=1),
    )


def draw_cosines(views: Mapping[str, EncoderView]) -> list[Drawing]:
    """Draw the distributions of the cosines of random and adjacent pairs: a panel an encoder, with equal axes."""
    cosines = {side: {"random": view.random, "adjacent": view.adjacent} for side, view in views.items()}
    lowest = min(float(values.min()) for of_side in cosines.values() for values in of_side.values())
    edges = np.linspace(math.floor(10 * lowest) / 10, 1.0, _BINS + 1)
    shares = {
        (side, kind): np.histogram(np.clip(values, edges[0], 1.0), edges)[0] / len(values)
        for side, of_side in cosines.items()
        for kind, values in of_side.items()
    }
    drawings = []
    for side, of_side in cosines.items():
        with _panel(side) as (figure, axes):
            means = {kind: format_value(float(values.mean()), 2) for kind, values in of_side.items()}
            for kind, colour, dash in (("random", _SERIES[3], ":"), ("adjacent", _SERIES[0], "-")):
                axes.stairs(shares[side, kind], edges, fill=True, color=colour, alpha=0.15)
                label = f"{kind} {means[kind]}"
                axes.stairs(shares[side, kind], edges, color=colour, linewidth=1.6, linestyle=dash, label=label)
            axes.set_xlabel("cosine")
            axes.set_ylabel("share of the pairs")
            axes.legend(title="pairs, and their mean", title_fontsize=10, loc="upper left", handlelength=2.2)
            axes.set_ylim(0, 1.3 * max(float(share.max()) for share in shares.values()))
            caption = f"Mean cosine of random pairs {means['random']}, of adjacent pairs {means['adjacent']}."
            drawings.append(_drawing(figure, axes, caption))
    return drawings


def draw_bars(title: str, values: Mapping[str, float], caption: str, *, marked: str = "") -> Drawing:
    """Draw a bar for each name, the first at the top, with its value; the marked one in another colour."""
    with _panel(title) as (figure, axes):
        names = list(values)
        colours = [_SERIES[1] if name == marked else _SERIES[0] for name in names]
        bars = axes.barh(names, [values[name] for name in names], color=colours, height=0.62)
        axes.bar_label(bars, fmt=lambda value: format_value(value, 1), padding=3, color=_INK, fontsize=10)
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.set_xlim(0, 1.15 * max(values.values()))
        return _drawing(figure, axes, caption, axis="x")


def draw_places(
    title: str, points: Mapping[str, tuple[float, float]], labels: tuple[str, str], caption: str, *, marked: str = ""
) -> Drawing:
    """Draw a numbered point for each name, the numbers in their order; the marked one in another colour."""
    with _panel(title) as (figure, axes):
        for number, (name, (x, y)) in enumerate(points.items(), 1):
            colour = _SERIES[1] if name == marked else _SERIES[0]
            axes.plot(x, y, _MARKERS[name == marked], color=colour, markersize=7 if name == marked else 5)
            axes.annotate(str(number), (x, y), (4, 3), textcoords="offset points", color=colour, fontsize=10)
        axes.margins(0.12)
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        return _drawing(figure, axes, caption)


@contextmanager
def _panel(title: str) -> Iterator[tuple[Figure, Axes]]:
    """Yield the figure and axes of one panel, in the page's style."""
    with mpl.rc_context(_PAGE_STYLE):
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(title)
        yield figure, axes


def _drawing(figure: Figure, axes: Axes, caption: str, axis: Literal["both", "x"] = "both") -> Drawing:
    axes.locator_params(axis=axis, nbins=5)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<g ") : svg.rindex("</svg>")]  # without a style that would apply to the whole page
    for name, stand_in in _VARIABLES.items():
        svg = svg.replace(stand_in, f"var(--{name})")
    svg = re.sub(r"font-family:[^;\"]*;? ?", "", svg).replace("xlink:href", "href")
    return Drawing(svg=" ".join(svg.split()), title=axes.get_title(loc="left"), caption=caption)
