"""Run folders in, one self-contained HTML page out: records and tables of runs/, and drawings, through page.html.

embeddings.py  base and trained encoder on a sample of held-out texts
plots.py       matplotlib -> inline SVG in the page's colours
style.py       the style of every picture
"""

import re
from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from jinja2 import Environment
from markupsafe import Markup
from numpy.typing import ArrayLike

from selfsent.errors import ConfigurationError, UserError
from selfsent.evaluation.label_free.scores import BASELINES
from selfsent.pretraining.repeat_command import command_of_pretraining
from selfsent.progress import SILENT, Progress
from selfsent.report import plots
from selfsent.report.embeddings import EmbeddedSample, Vectors, embed_sample
from selfsent.report.plots import Drawing, Line
from selfsent.runs import read, tables
from selfsent.runs.read import Group
from selfsent.runs.repeat_command import command_of_run
from selfsent.runtime.templates import template_environment
from selfsent.storage import atomic, locks

MAX_SAMPLES = 4  # recipes whose encoders are opened
MAP_SIZE = 360, 300  # of a map's drawing, as map.html has it
_MARGIN = 8
_MARKER = '<meta name="generator" content="selfsent report">'  # by which a page of ours is known
# Title and meaning of each score that is measured during training, in the order of the page.
_SCORES = {
    "retrieval": ("held-out retrieval, MRR@10", "On held-out documents that select the best weights; higher is better"),
    "stsb-dev": ("STS-B dev, Spearman × 100", "Higher is better"),
    "sickr-dev": ("SICK-R dev, Spearman × 100", "Higher is better"),
    "sts-dev": ("mean of STS-B and SICK-R dev", "Higher is better"),
    "held_out_loss": ("held-out loss", "Lower is better"),
    "held_out_accuracy": ("held-out masked-word accuracy, %", "Higher is better"),
    "alignment": ("alignment", "Of held-out pairs; lower is closer"),
    "uniformity": ("uniformity", "Of held-out texts; lower is more evenly spread, 0 is a single point"),
    "mean_cosine": ("mean cosine of two texts", "Of held-out texts; near 1 all embeddings point the same way"),
    "effective_rank": ("effective rank", "Of held-out texts: how many dimensions they use"),
    "stsb_alignment": ("alignment, STS-B dev", "Of pairs that people score above 4; lower is closer"),
    "stsb_uniformity": ("uniformity, STS-B dev", "Of its sentences; lower is more evenly spread"),
}
_MEANINGS = {"scores": "On development data", "terms": "Weighted term of the loss", "figures": "Not trained on"}


def write_report(
    folders: Sequence[str | Path],
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> Path:
    """Write one self-contained HTML page about one run or several; return its path.

    Args:
        folders: of runs; those that differ in the seed alone are shown as mean and spread.
        out: the page; an earlier one is replaced.  None: report.html in the folder of the run, or, of several, here.
        overwrite: replace any other file, too.

    Raises:
        UserError: a folder holds no run that can be read, or the page cannot be written or would replace another file.

    Examples:
        >>> print(selfsent.write_report(["runs/tickets"], "tickets.html"))
    """
    by_folder = {Path(folder).resolve(): Path(folder) for folder in folders}
    if not by_folder:
        raise ConfigurationError("there is nothing to report on: give the folder of a run, such as runs/simcse")
    runs = [read.read_run(folder) for folder in by_folder.values()]
    out = Path(out) if out is not None else (runs[0].folder if len(runs) == 1 else Path()) / "report.html"
    otherwise = "choose another --out" + ("" if overwrite else ", or add --overwrite to replace it")
    with locks.reserved(out, "" if overwrite else _MARKER, otherwise=otherwise):
        groups = read.group_runs(runs)
        cache: dict[object, Vectors] = {}
        samples: list[EmbeddedSample | str] = []
        for group in groups[:MAX_SAMPLES]:
            try:
                samples.append(embed_sample(group.first, cache, progress))
            except (UserError, OSError) as error:
                samples.append(str(error))
        samples += [f"Only the encoders of the first {MAX_SAMPLES} recipes are compared."] * (
            len(groups) - len(samples)
        )
        progress.report("drawing", 0)
        atomic.write_text(out, render_page(groups, samples))
    return out


def render_page(groups: Sequence[Group], samples: Sequence[EmbeddedSample | str]) -> str:
    """Return the page.

    Args:
        samples: of each group, or why there is none.
    """
    environment = open_templates()
    environment.filters |= {
        "time": lambda seconds: timedelta(seconds=round(seconds)),
        "command": lambda run: command_of_pretraining(run) if run.pretraining else command_of_run(run),
        "corpus": read.corpus_of_run,
        "cosines": plots.draw_cosines,
        "shape": plots.shape_of,
        "dashes": plots.dash_pattern,
    }
    template = environment.get_template("report/page.html")
    runs = [run for group in groups for run in group.runs]
    return template.render(
        groups=groups,
        runs=runs,
        samples=list(zip(groups, samples, strict=True)),
        sections=tables.sections(groups),
        panels={kind: _draw(groups, kind) for kind in _MEANINGS},
        scores=_SCORES,
        differences=read.differences(groups),
        corpora={run.config.get("corpus", {}).get("fingerprint", ""): run for run in runs},
        versions=dict.fromkeys(", ".join(map(" ".join, run.config.get("versions", {}).items())) for run in runs),
    )


def open_templates() -> Environment:
    """Return the package's templates, with the filters that every page needs; of an environment, render one page."""
    drawn = count()

    def svg(drawing: Drawing) -> Markup:
        prefix = rf"\g<1>f{next(drawn)}-"  # identifiers are unique on the page
        return Markup(re.sub(r"(\bid=\"|href=\"#|url\(#)", prefix, drawing.svg))

    environment = template_environment()
    environment.filters |= {"svg": svg, "figure": tables.format_value, "comma": "{:,.0f}".format, "placed": map_points}
    return environment


def _draw(groups: Sequence[Group], kind: str) -> list[Drawing]:
    """Draw every curve of one kind: scores, terms or figures."""
    panels: dict[tuple[str, str], list[Line]] = {}
    for number, group in enumerate(groups):
        logs = [run.curves[kind] for run in group.runs]
        for name in dict.fromkeys(name for log in logs for name in log):
            line = Line(label=group.name, number=number, curves=[log[name] for log in logs if name in log])
            panels.setdefault((name, _measured_on(group, kind, name)), []).append(line)
    names, order = [name for name, _ in panels], list(_SCORES)
    outcome: dict[str, Any] = groups[0].first.outcome if len(groups) == len(groups[0].runs) == 1 else {}
    drawings = []
    for name, data in sorted(panels, key=lambda key: order.index(key[0]) if key[0] in order else -1):
        title, meaning = _SCORES.get(name, (name.replace("_", " ").replace(".", ": "), _MEANINGS[kind]))
        if names.count(name) > 1:
            title += f" ({len(panels[name, data])} of {len(groups)} recipes)"
        best = outcome.get("best_step") if kind == "scores" and outcome.get("selected_by") == name else None
        if best is not None:
            meaning += f". The dotted line is step {best:,}, whose weights were kept"
        levels = _levels(groups[panels[name, data][0].number], name) if kind == "scores" else {}
        drawings.append(plots.draw_curves(title, panels[name, data], f"{meaning}.", best=best, levels=levels))
    return drawings


def _levels(group: Group, name: str) -> dict[str, float]:
    """Return what the baselines of a recipe score where its curve is measured, by the names of the page."""
    run = next((run for run in group.runs if run.levels.get(name)), group.first)
    return {BASELINES.get(system, system): value for system, value in run.levels.get(name, {}).items()}


def _measured_on(group: Group, kind: str, name: str) -> str:
    """Name what two recipes must share to share a panel: the held-out texts of a score, the method of a term."""
    if kind != "scores":
        return str(group.first.recipe.get("method", "pretraining"))
    if name.startswith(("sts", "sickr")):
        return ""
    # Two corpora whose settings differ may hold out the same texts.
    held_out = (score for score in group.first.measured["scores.json"].get("base", ()) if score.task == "retrieval")
    data = next((score.protocol.get("data") for score in held_out), None)
    return str(data or group.first.config.get("corpus", {}).get("fingerprint", ""))


def map_points(places: ArrayLike) -> Float[np.ndarray, "N 2"]:
    """Scale points to the drawing of the map, both axes alike and the second upwards."""
    points = np.asarray(places, dtype=np.float64)
    low, high = points.min(axis=0), points.max(axis=0)
    space = np.array(MAP_SIZE) - 2 * _MARGIN
    scale = float(np.min(space / np.maximum(high - low, 1e-9)))
    return (np.array(MAP_SIZE) / 2 + (points - (low + high) / 2) * (scale, -scale)).round(1)
