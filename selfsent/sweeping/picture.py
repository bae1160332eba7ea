"""The picture of a sweep, sweep.png: dev and test score against each key."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from selfsent.report.style import STYLE
from selfsent.sweeping.trials import AS_IT_IS, SweepTrial

_SCORES = {"dev": ("#1f6fb2", "o", -1.0), "test": ("#c2571a", "s", 0.0)}  # colour, marker, and where: left of a value
_PANEL = 3.6, 2.8  # inches
_PANELS = 3  # in a row
_VALUES = 8  # of a key, that are drawn with equal distances
_BESIDE = 0.35  # of that distance, over which trials of one value are spread
_RECIPE: dict[str, Any] = {"linewidth": 1, "linestyle": (0, (4, 3))}  # the recipe as it is


def draw_sweep(trials: Sequence[SweepTrial], keys: Sequence[str]) -> Figure:
    """Draw dev and test score against each swept key: a point and its deviation over the seeds for each trial.

    Args:
        trials: the recipe as it is first.
    """
    columns = min(_PANELS, len(keys))
    lines = -(-len(keys) // columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * lines + 0.3), layout="constrained")
        panels = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
        for key, axes in zip(keys, panels, strict=False):
            _draw_key(axes, trials, key)
        for axes in panels[len(keys) :]:
            axes.set_axis_off()
        panels[0].set_ylabel("points")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def _draw_key(axes: Axes, trials: Sequence[SweepTrial], key: str) -> None:
    """Draw the trials against one key: a few values with equal distances, many on a scale."""
    of_number = {trial.number: trial.runs for trial in trials}
    runs = [trial.runs or (of_number.get(trial.same_as, []) if trial.state == "repeated" else []) for trial in trials]
    done = [(trial.settings[key], own) for trial, own in zip(trials[1:], runs[1:], strict=True) if own]
    places, width = _place(axes, [value for value, _ in done])
    for name, (colour, marker, side) in _SCORES.items():
        points = [
            (x + side * width, [getattr(run, name) for run in own]) for x, (_, own) in zip(places, done, strict=True)
        ]
        points = [(x, scores) for x, scores in points if None not in scores]
        means = [float(np.mean(scores)) for _, scores in points]
        spread = [float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0 for _, scores in points]
        style: dict[str, Any] = {"fmt": marker, "color": colour, "markersize": 4, "capsize": 2, "label": name}
        axes.errorbar([x for x, _ in points], means, spread, **style)
        recipe = getattr(trials[0], name)
        if recipe is not None:
            axes.axhline(recipe, color=colour, **_RECIPE)
    axes.plot([], [], color="#666666", label=AS_IT_IS, **_RECIPE)
    axes.set_xlabel(key)


def _place(axes: Axes, values: Sequence[str]) -> tuple[list[float], float]:
    """Return where the trials of some values stand, and how far left of it their dev scores do."""
    different = list(dict.fromkeys(values))
    numbers = _numbers(different)
    if len(different) > _VALUES and numbers:
        if min(numbers) > 0 and max(numbers) / min(numbers) >= 20:
            axes.set_xscale("log")
        return [float(value) for value in values], 0.0
    if numbers:
        different.sort(key=float)
    axes.set_xticks(range(len(different)), different)
    axes.set_xlim(-0.5, len(different) - 0.5)
    # Trials of one value stand beside each other: their dev scores left of it, their test scores right of it.
    nth = [values[:place].count(value) for place, value in enumerate(values)]
    step = _BESIDE / (max(nth, default=0) + 1)
    return [different.index(value) + step * (n + 0.5) for value, n in zip(values, nth, strict=True)], _BESIDE


def _numbers(values: Sequence[str]) -> list[float]:
    """Return the values as numbers; none where one is none."""
    try:
        return [float(value) for value in values]
    except ValueError:
        return []
