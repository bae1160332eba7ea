"""Pictures of tables and figures: measured values filled, published ones hollow; and figures without scores.

Two figures show what a method does to text rather than what it scores, and are drawn without training:

    spans        DeCLUTR, figure 1: lengths of the spans that are drawn from documents, beside the densities they come
                 from
    whitening    WhitenedCSE, figure 1: two features of a group before and after whitening, and the positives of a text
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from textwrap import fill
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from scipy import stats

from selfsent.config import Recipe, build_config
from selfsent.corpus.prepare import corpus_documents, corpus_texts
from selfsent.corpus.settings import CorpusConfig
from selfsent.encoder.inspect import tokenizer_of
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import as_encoder
from selfsent.errors import CorpusError
from selfsent.evaluation.geometry import uniformity
from selfsent.objectives.declutr import DeCLUTR
from selfsent.objectives.group_whitening import group_whiten
from selfsent.objectives.registry import plan_objective
from selfsent.progress import SILENT, Progress
from selfsent.report.style import STYLE
from selfsent.reproduction.findings import Cell, name_measured
from selfsent.reproduction.plan import ArtifactPlan
from selfsent.runs.read import Curve

CurveSet = Mapping[str, Sequence[Curve]]  # figure of the log -> a curve for each seed
Cells = Mapping[str, Mapping[str, Cell]]  # by the names of row and measure
SERIES = ("#1f6fb2", "#c2571a", "#3a8f4d", "#8a5fb0", "#9a7b1c", "#4f4f4f")
OURS, PAPER = SERIES[:2]
_PUBLISHED: dict[str, Any] = {"marker": "s", "ls": "none", "markerfacecolor": "none", "color": PAPER, "label": "paper"}
_NAME_SIZE = 7  # points

_SPANS = 20_000  # about: of all kinds together
_DOCUMENTS = 2_000  # at most: those that are read
_BINS = 40  # about
_BETA = {"anchors": (4, 2), "positives": (2, 4)}
_TEXTS = 512  # whose features are whitened together
_SHOWN = 4  # texts whose positives are drawn

Span = tuple[int, int]


# ------------------------------------------------------------------------------------------------- figures with scores


def draw_artifact(plan: ArtifactPlan, cells: Cells, curves: Mapping[str, CurveSet]) -> Figure:
    """Draw a table or figure in the way that it asks for."""
    drawing = plan.artifact.drawing
    if drawing == "lines" and all(row.row.x is None for row in plan.rows):
        drawing = "dots"
    with mpl.rc_context(STYLE):
        figure = _draw_curves(plan, curves) if drawing == "curves" else _KINDS[drawing](plan, cells)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.suptitle(plan.artifact.title, fontsize=10)
        if handles:
            unique = dict(zip(labels, handles, strict=True))
            figure.legend(unique.values(), unique.keys(), loc="outside lower center", ncols=4, fontsize=8)
    return figure


def _panel(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _error_bars(cells: Sequence[Cell]) -> Float[np.ndarray, "2 N"]:
    """Return how far error bars reach below and above: the deviation over seeds, or the test rows' interval."""

    def reach(cell: Cell) -> tuple[float, float]:
        if cell.spread is not None or cell.low is None or cell.high is None:
            return (cell.spread or 0.0,) * 2
        return max(0.0, cell.value - cell.low), max(0.0, cell.high - cell.value)

    return np.array([reach(cell) for cell in cells]).T.reshape(2, -1)


def _name_lines(axes: Axes, names: Sequence[str], label: str) -> None:
    """Write a name at each line of a picture, the first at the top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(label)


def _label(cells: Cells, measure: str) -> str:
    """Return the name of an axis: of the published measure, and below it of ours where tasks are missing."""
    ours = name_measured(measure, *(of_row.get(measure) for of_row in cells.values()))
    return measure if ours == measure else f"paper: {measure}\nhere: {fill(ours, 60)}"


def _draw_dots(plan: ArtifactPlan, cells: Cells) -> Figure:
    """Draw one line a row: ours with its error bar, and the published value."""
    measure = plan.artifact.main.name
    rows = [row.row for row in plan.rows if measure in row.row.published or measure in cells.get(row.row.name, {})]
    figure, axes = _panel(6.4, 1.2 + 0.3 * max(1, len(rows)))
    for line, row in enumerate(rows):
        if cell := cells.get(row.name, {}).get(measure):
            axes.errorbar(cell.value, line, xerr=_error_bars([cell]), fmt="o", color=OURS, capsize=2, label="here")
        if measure in row.published:
            axes.plot(row.published[measure], line, **_PUBLISHED)
    _name_lines(axes, [row.name for row in rows], _label(cells, measure))
    return figure


def _draw_differences(plan: ArtifactPlan, cells: Cells) -> Figure:
    """Draw by how much the last row is above the first, one line a measure: ours, a dot a seed, and the published."""
    first, last = plan.artifact.rows[0], plan.artifact.rows[-1]
    names = [measure.name for measure in plan.artifact.measures]
    figure, axes = _panel(6.4, 1.2 + 0.26 * len(names))
    axes.axvline(0, color="#888888", linewidth=1)
    for line, name in enumerate(names):
        below, above = (cells.get(row.name, {}).get(name) for row in (first, last))
        if below is not None and above is not None:
            # Trainings of one seed read the same texts in the same order; a checkpoint has one value for all seeds.
            gaps = np.subtract(above.values, below.values)
            axes.plot(gaps, [line] * len(gaps), "o", color=OURS, label="here, each seed")
        if name in first.published and name in last.published:
            axes.plot(last.published[name] - first.published[name], line, **_PUBLISHED)
    _name_lines(axes, names, f"{last.name} less {first.name}, points")
    return figure


def _draw_lines(plan: ArtifactPlan, cells: Cells) -> Figure:
    """Draw the main measure against the rows' numbers, a line for each series."""
    measure = plan.artifact.main.name
    figure, axes = _panel(5.2, 3.6)
    rows = sorted((row.row for row in plan.rows if row.row.x is not None), key=lambda row: row.x or 0.0)
    for number, series in enumerate(dict.fromkeys(row.row.series for row in plan.rows if row.row.x is not None)):
        of_series = [row for row in rows if row.series == series]
        measured = [(row.x or 0.0, cells[row.name][measure]) for row in of_series if measure in cells.get(row.name, {})]
        if measured:
            axes.errorbar(
                [x for x, _ in measured],
                [cell.value for _, cell in measured],
                yerr=_error_bars([cell for _, cell in measured]),
                marker="o",
                capsize=2,
                color=SERIES[number % len(SERIES)],
                label=series or "here",
            )
        printed = [(row.x, row.published[measure]) for row in of_series if measure in row.published]
        if printed:
            axes.plot(*zip(*printed, strict=True), **_PUBLISHED | {"ls": "--"})
    across = sorted({row.x for row in rows if row.x is not None})
    if across[0] > 0 and across[-1] / across[0] >= 8:
        axes.set_xscale("log")
    axes.set_xticks(across, [f"{x:g}" for x in across])
    axes.set_xticks([], minor=True)
    axes.set_ylabel(_label(cells, measure))
    return figure


def _draw_scatter(plan: ArtifactPlan, cells: Cells) -> Figure:
    """Draw the second measure against the first, coloured by the third; published points are squares."""
    across, along, colour = (measure.name for measure in plan.artifact.measures)
    figure, axes = _panel(5.6, 4.2)
    measured = [{name: cell.value for name, cell in cells.get(row.row.name, {}).items()} for row in plan.rows]
    points = [(row.row.name, values, "o", OURS) for row, values in zip(plan.rows, measured, strict=True)]
    points += [(row.row.name, dict(row.row.published), "s", PAPER) for row in plan.rows]
    points = [point for point in points if {across, along} <= point[1].keys()]
    shades = [values[colour] for _, values, *_ in points if colour in values]
    scale = Normalize(min(shades, default=0.0), max(shades, default=1.0))
    for _, values, marker, edge in points:
        shade = {"c": [values[colour]], "norm": scale, "cmap": "viridis"} if colour in values else {"c": "none"}
        axes.scatter(values[across], values[along], marker=marker, s=55, edgecolors=edge, **shade)
    axes.margins(x=0.2, y=0.1)  # room for the names
    _write_names(axes, [(name, (values[across], values[along])) for name, values, *_ in points])
    if shades:
        figure.colorbar(ScalarMappable(scale, "viridis"), ax=axes, label=_label(cells, colour))
    axes.plot([], [], "o", color=OURS, label="here")
    axes.plot([], [], **_PUBLISHED)
    axes.set_xlabel(across)
    axes.set_ylabel(along)
    axes.margins(0.15)
    return figure


def _write_names(axes: Axes, points: Sequence[tuple[str, tuple[float, float]]]) -> None:
    """Write a name beside each point, in the first of four corners where it covers no other name."""
    scale = 72 / axes.figure.dpi
    taken: list[Bbox] = []
    for name, point in points:
        x, y = scale * axes.transData.transform(point)
        width = 0.55 * _NAME_SIZE * len(name)  # about
        corners = []
        for right, up in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            left, bottom = x + 5 * right - width * (right < 0), y + 4 * up - _NAME_SIZE * (up < 0)
            corners.append((right, up, Bbox.from_bounds(left, bottom, width, _NAME_SIZE)))
        right, up, box = next((corner for corner in corners if not corner[2].count_overlaps(taken)), corners[0])
        taken.append(box)
        axes.annotate(
            name,
            point,
            textcoords="offset points",
            xytext=(5 * right, 4 * up),
            ha="left" if right > 0 else "right",
            va="bottom" if up > 0 else "top",
            fontsize=_NAME_SIZE,
        )


def _draw_curves(plan: ArtifactPlan, curves: Mapping[str, CurveSet]) -> Figure:
    """Draw figures of the training log by step, a panel each: the mean over the seeds, and each seed faint."""
    names = plan.artifact.curves
    figure = Figure(figsize=(3.8 * len(names), 3.2), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        for number, (row, logged) in enumerate(curves.items()):
            colour = SERIES[number % len(SERIES)]
            of_seeds = [dict(curve) for curve in logged.get(name, ())]
            steps = sorted(set.intersection(*map(set, of_seeds))) if of_seeds else []
            for curve in of_seeds if len(of_seeds) > 1 else []:
                axes.plot(steps, [curve[step] for step in steps], color=colour, alpha=0.25, linewidth=0.8)
            mean = [float(np.mean([curve[step] for curve in of_seeds])) for step in steps]
            axes.plot(steps, mean, color=colour, marker="o", markersize=3, label=row)
        axes.set_xlabel("step")
        axes.set_ylabel(name.replace("_", " "))
    return figure


_KINDS = {"dots": _draw_dots, "lines": _draw_lines, "scatter": _draw_scatter, "differences": _draw_differences}


# ---------------------------------------------------------------------------------------------- figures without scores


class Sketch(NamedTuple):
    """A figure that is not made of scores, and the numbers in it."""

    figure: Figure
    heads: list[str]
    rows: list[list[str]]


def draw_sketch(drawing: str, recipe: Recipe, progress: Progress = SILENT) -> Sketch:
    """Draw a figure from the base and the text of a recipe.

    Args:
        drawing: "spans" or "whitening".

    Raises:
        UserError: the text cannot be read, or is too short.
    """
    with mpl.rc_context(STYLE):
        return {"spans": _draw_spans, "whitening": _draw_whitening}[drawing](recipe, progress)


def _draw_spans(recipe: Recipe, progress: Progress) -> Sketch:
    """Draw the lengths of spans as training would draw them, and count where positives lie."""
    encoder = load_encoder(recipe.base)
    objective = plan_objective(recipe.method, {**recipe.objective, "mlm_weight": 0.0}).build(encoder)
    assert isinstance(objective, DeCLUTR)
    least, longest = objective.config.min_length, objective.longest
    needed = 2 * objective.config.num_anchors * longest
    corpus = build_config(CorpusConfig, recipe.corpus, "corpus")
    documents = islice(corpus_documents(recipe.texts, corpus, progress), _DOCUMENTS)
    tokenizer = tokenizer_of(encoder)
    tokens = (tokenizer(document.text, verbose=False, add_special_tokens=False) for document in documents)
    counted = (len(of_document["input_ids"]) for of_document in tokens)
    lengths = [length for length in counted if length >= needed]
    if not lengths:
        raise CorpusError(f"no document of {' '.join(recipe.texts)} has {needed:,} tokens, so no spans are drawn")
    spans = sample_spans(objective, lengths, np.random.default_rng(recipe.seed))
    figure, axes = _panel(5.6, 3.4)
    width = max(1, round((longest - least) / _BINS))  # whole tokens, or some bins hold more lengths than others
    edges = [edge - 0.5 for edge in range(least, longest + width, width)]
    across = np.linspace(least, longest, 200)
    rows = []
    for kind, colour in zip(spans, (OURS, PAPER), strict=True):
        sizes, density = np.diff(spans[kind])[:, 0], stats.beta(*_BETA[kind], loc=least, scale=longest - least)
        axes.hist(sizes, bins=edges, density=True, color=colour, alpha=0.45, label=kind)
        axes.plot(across, density.pdf(across), color=colour, linewidth=1.3, label=f"Beta{_BETA[kind]}")
        drawn = f"{len(sizes):,} spans, {sizes.min()} to {sizes.max()} tokens"
        rows.append([kind, drawn, f"{sizes.mean():.1f}", f"{density.mean():.1f}"])
    axes.set_xlabel("tokens of a span")
    axes.set_ylabel("density")
    axes.legend(fontsize=8)
    counts = count_places(spans["anchors"], spans["positives"])
    for position in ("overlapping", "inside the anchor", "around the anchor", "adjacent"):
        percent = 100 * counts[position] / counts.total()
        rows.append([f"positives {position}", f"{counts[position]:,} ({percent:.1f} %)", "", ""])
    return Sketch(figure, ["spans", "drawn", "mean length", "mean of the density"], rows)


def sample_spans(
    objective: DeCLUTR, lengths: list[int], draw: np.random.Generator, count: int = _SPANS
) -> dict[str, list[Span]]:
    """Draw anchors, each as often as it has positives, and their positives from documents of these lengths in turn."""
    anchors: list[Span] = []
    positives: list[Span] = []
    while len(anchors) < count / 2:
        for length in lengths:
            for anchor, near in objective.spans(length, draw):
                anchors += [anchor] * len(near)
                positives += near
    return {"anchors": anchors, "positives": positives}


def count_places(anchors: list[Span], positives: list[Span]) -> Counter[str]:
    """Count how positives lie to their anchors."""
    return Counter(_place(anchor, positive) for anchor, positive in zip(anchors, positives, strict=True))


def _place(anchor: Span, positive: Span) -> str:
    if positive[1] == anchor[0] or positive[0] == anchor[1]:
        return "adjacent"
    if anchor[0] <= positive[0] and positive[1] <= anchor[1]:
        return "inside the anchor"
    if positive[0] <= anchor[0] and anchor[1] <= positive[1]:
        return "around the anchor"
    return "overlapping"


def _draw_whitening(recipe: Recipe, progress: Progress) -> Sketch:
    """Draw the two most correlated features that share a group, before and after whitening, and positives of texts.

    Positives of a text are its features after different shuffles, which put other features beside them.
    """
    corpus = build_config(CorpusConfig, recipe.corpus, "corpus")
    texts = list(islice(dict.fromkeys(corpus_texts(recipe.texts, corpus, progress)), _TEXTS))
    if len(texts) < _TEXTS:
        raise CorpusError(
            f"{' '.join(recipe.texts)} has {len(texts):,} different texts: {_TEXTS} are whitened together"
        )
    encoder = as_encoder(load_encoder(recipe.base, pooling=recipe.encoder.pooling)).before_unit()
    raw = torch.from_numpy(encoder.embed(texts)).double()
    features = raw - raw.mean(dim=0)
    count = plan_objective(recipe.method, recipe.objective).table()["num_views"] - 1  # beside the anchor
    white, positives = whiten_twice(features, recipe.seed, count)
    group = int(np.abs(_group_correlations(features.numpy())).argmax())
    pair = [2 * group, 2 * group + 1]
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    before, after = figure.subplots(1, 2)
    for axes, cloud, title in ((before, features, "before"), (after, white, "after whitening, and positives")):
        axes.scatter(*cloud[:, pair].T, s=7, color="#b5b5b5", label="texts")
        axes.set_title(title)
        axes.set_aspect("equal", "datalim")
        axes.set_xlabel(f"feature {pair[0] + 1}")
        axes.set_ylabel(f"feature {pair[1] + 1}")
    # Far from the middle and from one another, so that their positives can be told apart.
    distance = (white[:, pair] ** 2).sum(dim=1)
    chosen = distance.argsort(descending=True)[_SHOWN : 5 * _SHOWN : 4].tolist()
    for number, text in enumerate(chosen):
        colour = SERIES[number % len(SERIES)]
        before.scatter(*features[text, pair], s=36, color=colour)
        after.scatter(*positives[:, text, pair].T, s=14, color=colour)
    heads = ["features", "mean |correlation| in a group", "mean cosine of two texts", "of two positives", "uniformity"]
    rows = [["before", *_describe(raw, raw)], ["after whitening", *_describe(white, positives[1])]]
    return Sketch(figure, heads, rows)


def whiten_twice(
    features: Float[torch.Tensor, "N D"], seed: int, count: int = 2
) -> tuple[Float[torch.Tensor, "N D"], Float[torch.Tensor, "S N D"]]:
    """Whiten groups of two neighbouring features; and again after each of ``count`` shuffles."""
    groups = features.shape[1] // 2
    draw = torch.Generator().manual_seed(seed)
    shuffles = [torch.randperm(features.shape[1], generator=draw) for _ in range(count)]
    whitened = torch.stack([group_whiten(features, groups, permutation=shuffle) for shuffle in shuffles])
    return group_whiten(features, groups), whitened


def _group_correlations(features: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " G"]:
    scaled = (features - features.mean(axis=0)) / features.std(axis=0)
    return (scaled[:, 0::2] * scaled[:, 1::2]).mean(axis=0)


def _describe(features: Float[torch.Tensor, "N D"], positives: Float[torch.Tensor, "N D"]) -> list[str]:
    unit, other = (torch.nn.functional.normalize(rows).numpy() for rows in (features, positives))
    values = (
        np.abs(_group_correlations(features.numpy())).mean(),
        (unit @ unit.T)[np.triu_indices(len(unit), k=1)].mean(),
        (unit * other).sum(axis=1).mean(),
        uniformity(features.numpy()),
    )
    return [f"{value:.3f}" for value in values]
