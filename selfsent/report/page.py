"""From records, tables and figures to one self-contained HTML page."""

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from datetime import timedelta
from importlib.resources import files
from itertools import count
from typing import Any

import numpy as np
from jaxtyping import Float
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from selfsent.report import command, figures, read, tables
from selfsent.report.embeddings import EmbeddedSample
from selfsent.report.figures import Drawing, Line
from selfsent.report.read import Group, Record
from selfsent.report.tables import format_value

MAP_SIZE = 360, 300  # of the map's drawing
_MARGIN = 8
_HOVER = 160  # characters of a text shown on the map
_EXAMPLE = 220  # characters of a text shown as an example
_CAPTIONED = 2  # curves of a panel whose numbers its caption repeats
_SYMBOLS = {"better": "▲", "worse": "▼", "cannot tell": "≈"}
_GEOMETRY = ("alignment", "uniformity", "mean_cosine", "effective_rank", "stsb_alignment", "stsb_uniformity")
_HELD_OUT = ("retrieval", *_GEOMETRY[:4])  # depend on the held-out texts
_NAMES = {
    "retrieval": "held-out retrieval, MRR@10",
    "stsb-dev": "STS-B dev, Spearman × 100",
    "sickr-dev": "SICK-R dev, Spearman × 100",
    "sts-dev": "mean of STS-B and SICK-R dev",
    "mean_cosine": "mean cosine of two texts",
    "effective_rank": "effective rank",
    "stsb_alignment": "alignment, STS-B dev",
    "stsb_uniformity": "uniformity, STS-B dev",
    "held_out_loss": "held-out loss",
    "held_out_accuracy": "held-out masked-word accuracy, %",
}
_MEANINGS = {
    "retrieval": "In points on the held-out documents that select the best weights; higher is better",
    "uniformity": "Of held-out texts; lower is more evenly spread, 0 is a single point",
    "alignment": "Of held-out pairs; lower is closer",
    "mean_cosine": "Of held-out texts; near 1 all embeddings point the same way",
    "effective_rank": "Of held-out texts: how many dimensions they use",
    "stsb_alignment": "Of pairs that people score above 4; lower is closer",
    "stsb_uniformity": "Of its sentences; lower is more evenly spread",
}


def render_page(groups: Sequence[Group], samples: Sequence[EmbeddedSample | str], notes: Sequence[str]) -> str:
    """Return the page.

    Args:
        samples: of the first groups, or why there is none.
        notes: sentences on what was left out.
    """
    drawn = count()

    def svg(drawing: Drawing) -> Markup:
        prefix = rf"\g<1>f{next(drawn)}-"  # identifiers are unique on the page
        return Markup(re.sub(r"(\bid=\"|href=\"#|url\(#)", prefix, drawing.svg))

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["svg"] = svg
    environment.filters["shorten"] = lambda text: shorten(text, _EXAMPLE)
    environment.filters["figure"] = format_value
    template = environment.from_string(files("selfsent.report").joinpath("page.html").read_text(encoding="utf-8"))
    return template.render(
        title=", ".join(group.name for group in groups),
        groups=groups,
        several=len(groups) > 1,
        notes=notes,
        verdicts=[_verdict(group) for group in groups],
        facts=[_facts(group) for group in groups],
        differences=read.differences(groups) if len(groups) > 1 else {},
        legend=[
            (group.name, number, figures.shape_of(number), figures.dash_pattern(number))
            for number, group in enumerate(groups)
            if any(run.log.terms or run.log.scores for run in group.runs)
        ],
        sections=tables.sections(groups),
        terms=_draw_terms(groups, "terms", "Weighted term of the loss."),
        figures=_draw_terms(groups, "figures", "Not trained on."),
        scores=_draw_scores(groups),
        samples=[_sample(group, sample) for group, sample in zip(groups, samples, strict=False)],
        map_size=MAP_SIZE,
        corpora=_corpora(groups),
        runs=[_run(run) for group in groups for run in group.runs],
        versions=_versions(groups),
    )


# ----------------------------------------------------------------------------------------------------------- header


def _verdict(group: Group) -> dict[str, Any]:
    verdicts = [(run.name, run.verdict) for run in group.runs if run.verdict]
    words = [verdict.word for _, verdict in verdicts]
    order = sorted(set(words), key=lambda word: [*read.VERDICTS, word].index(word))
    run = group.runs[0]
    return {
        "counts": [(_SYMBOLS.get(word, "•"), word, words.count(word)) for word in order],
        "texts": [(name, verdict.word, " ".join(verdict.sentences)) for name, verdict in verdicts],
        "pretrained": run.kind == "pretrain",
        "outcome": [  # of a pretraining, which has no table of scores
            f"{_NAMES.get(key, key.replace('_', ' '))}: {format_value(float(value), 2 if abs(value) < 100 else 0)}"
            for key, value in run.outcome.items()
            if isinstance(value, int | float)
        ],
    }


def _facts(group: Group) -> str:
    """Say in one line what was trained on what."""
    run = group.first
    recipe, outcome = run.recipe, run.outcome
    texts = ", ".join(str(name).rsplit("/", 1)[-1] for name in recipe.get("texts", ()))
    if run.kind == "pretrain" and recipe.get("size") == "static":
        vectors = str(recipe.get("vectors", "")).rsplit("/", 1)[-1]
        return f"static word vectors, {f'trained on {texts}' if texts else f'read from {vectors}'}"
    if run.kind == "pretrain" and recipe.get("base"):
        return f"masked language model, continued from {recipe['base']}, on {texts}"
    if run.kind == "pretrain":
        from selfsent.pretraining.train import SIZE

        return f"masked language model from scratch, size {recipe.get('size') or SIZE}, on {texts}"
    trained_on = run.config.get("corpus", {}).get("texts")
    parts = [f"{recipe['method']} from {recipe.get('base')}"]
    parts.append(f"on {texts}" + (f" ({trained_on:,} texts)" if trained_on else ""))
    steps = outcome.get("steps") or recipe.get("train", {}).get("steps")
    if steps:
        parts.append(f"{steps:,} steps of {recipe.get('train', {}).get('batch_size')}")
    if len(group.runs) > 1:
        parts.append("seeds " + ", ".join(str(one.seed) for one in group.runs))
    elif outcome.get("best_step") is not None:
        parts.append(f"weights of step {outcome['best_step']:,}, selected by {outcome.get('selected_by')}")
    return "; ".join(parts)


# --------------------------------------------------------------------------------------------------- learning curves


def _lines(groups: Sequence[Group], kind: str) -> Iterator[tuple[Group, str, Line]]:
    """Yield every curve of one kind: terms, figures or scores."""
    for number, group in enumerate(groups):
        logs: list[dict[str, read.Curve]] = [getattr(run.log, kind) for run in group.runs]
        for name in dict.fromkeys(name for log in logs for name in log):
            yield group, name, Line(label=group.name, number=number, curves=[log[name] for log in logs if name in log])


def _draw_terms(groups: Sequence[Group], kind: str, caption: str) -> list[Drawing]:
    """Draw the terms of the loss, or the figures of the objective: one panel for each method's own."""
    panels: dict[tuple[str, str], list[Line]] = {}
    for group, name, line in _lines(groups, kind):
        panels.setdefault((str(group.first.recipe.get("method", "pretraining")), name), []).append(line)
    several = len({method for method, _ in panels}) > 1
    drawings = []
    for (method, name), lines in panels.items():
        label = name.replace("_", " ").replace(".", ": ").replace("masked lm", "masked LM")
        drawings.append(_draw(f"{tables.method_name(method)}: {label}" if several else label, lines, caption))
    return drawings


def _draw_scores(groups: Sequence[Group]) -> list[Drawing]:
    """Draw every score measured during training; those of held-out texts, one panel for each corpus."""
    panels: dict[tuple[str, str], list[Line]] = {}
    for group, name, line in _lines(groups, "scores"):
        held_out = name in _HELD_OUT or name.startswith("held_out")
        panels.setdefault((name, _held_out_data(group) if held_out else ""), []).append(line)
    outcome = groups[0].runs[0].outcome if len(groups) == len(groups[0].runs) == 1 else {}
    drawings = []
    for name, data in sorted(panels, key=lambda key: key[0] in _GEOMETRY):
        lines, title = panels[name, data], _NAMES.get(name, name)
        if any(other == name and other_data != data for other, other_data in panels):
            title += f" ({', '.join(line.label for line in lines) if len(lines) <= 3 else f'{len(lines)} recipes'})"
        best = int(outcome["best_step"]) if outcome.get("selected_by") == name else None
        caption = f"{_MEANINGS.get(name, 'On development data')}."
        if best is not None:
            caption += f" The dotted line is step {best:,}, whose weights were kept."
        drawings.append(_draw(title, lines, caption, best))
    return drawings


def _draw(title: str, lines: Sequence[Line], caption: str, best: int | None = None) -> Drawing:
    changes = "; ".join(_change(line) for line in lines) + "."
    averaged = any(len(curve) > figures.MAX_POINTS for line in lines for curve in line.curves)
    full = f"{caption} {changes}" + (" Long curves are averaged in segments." if averaged else "")
    caption = full if len(lines) <= _CAPTIONED else caption
    return figures.draw_curves(title, lines, caption, alt=f"{title}. {full}", best=best)


def _change(line: Line) -> str:
    first, last = (statistics.fmean(curve[place][1] for curve in line.curves) for place in (0, -1))
    seeds = f" (mean of {len(line.curves)} seeds)" if len(line.curves) > 1 else ""
    return f"{line.label}: {significant(first)} to {significant(last)}{seeds}"


def significant(value: float) -> str:
    """Write a number with three significant digits."""
    decimals = 2 - math.floor(math.log10(abs(value))) if value else 0
    return format_value(value, min(5, max(0, decimals)))


def _held_out_data(group: Group) -> str:
    """Name the held-out texts: two corpora whose settings differ may hold out the same."""
    for score in group.first.base:
        if score.task == "retrieval":
            return str(score.protocol.get("data", ""))
    return str(group.first.config.get("corpus", {}).get("fingerprint", ""))


# -------------------------------------------------------------------------------------------------------- embeddings


def _sample(group: Group, sample: EmbeddedSample | str) -> dict[str, Any]:
    """Return what the page shows of base and trained encoder."""
    if isinstance(sample, str):
        return {"group": group, "reason": sample}
    hover = [shorten(text, _HOVER) for text in sample.texts]
    maps = [
        (side, view.variances, list(zip(map_points(view.points).tolist(), sample.clusters, hover, strict=True)))
        for side, view in (("base", sample.base), ("trained", sample.trained))
    ]
    return {
        "group": group,
        "reason": None,
        "sample": sample,
        "cosines": figures.draw_cosines(sample.base, sample.trained),
        "maps": maps,
        "centres": [shorten(text, 90) for text in sample.centres],
    }


def map_points(points: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N 2"]:
    """Scale points to the drawing of the map, both axes alike and the second upwards."""
    low, high = points.min(axis=0), points.max(axis=0)
    space = np.array(MAP_SIZE) - 2 * _MARGIN
    scale = float(np.min(space / np.maximum(high - low, 1e-9)))
    return (np.array(MAP_SIZE) / 2 + (points - (low + high) / 2) * (scale, -scale)).round(1)


def shorten(text: str, width: int) -> str:
    """Cut a text that is longer than ``width`` characters."""
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


# ----------------------------------------------------------------------------------------------- corpora and commands


def _corpora(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Describe every corpus once."""
    corpora: dict[str, dict[str, Any]] = {}
    for group in groups:
        for run in group.runs:
            facts = run.config.get("corpus", {})
            fingerprint = str(facts.get("fingerprint", ""))
            if fingerprint not in corpora:
                corpora[fingerprint] = {
                    "fingerprint": fingerprint,
                    "names": [],
                    "sources": [str(name) for name in run.recipe.get("texts", ())],
                    "texts": facts.get("texts"),
                    "corpus": read.corpus_of_run(run),
                }
            if group.name not in corpora[fingerprint]["names"]:
                corpora[fingerprint]["names"].append(group.name)
    return list(corpora.values())


def _run(run: Record) -> dict[str, Any]:
    outcome, hardware = run.outcome, run.config.get("hardware", {})
    machine = [str(hardware[key]) for key in ("processor", "device", "precision") if hardware.get(key)]
    if hardware.get("threads"):
        machine.append(f"{hardware['threads']} thread{'s' * (hardware['threads'] != 1)}")
    rate, seconds = outcome.get("texts_per_second"), outcome.get("seconds")
    return {
        "name": run.name,
        "steps": f"{outcome.get('steps') or run.log.last_step:,}",
        "best": f"{outcome['best_step']:,}" if outcome.get("best_step") is not None else "–",
        "selected_by": outcome.get("selected_by", "–"),
        "rate": f"{rate:,.0f}" if rate else "–",
        "time": str(timedelta(seconds=round(seconds))) if rate and seconds else "–",
        "machine": ", ".join(machine),
        "unread": run.log.unread,
        "command": command.command_of_run(run),
    }


def _versions(groups: Sequence[Group]) -> dict[str, str]:
    """Return each package's version, or all of them where the runs differ."""
    found: dict[str, dict[str, None]] = {}
    for run in (run for group in groups for run in group.runs):
        for package, version in run.config.get("versions", {}).items():
            found.setdefault(package, {})[str(version)] = None
    return {package: ", ".join(versions) for package, versions in found.items()}
