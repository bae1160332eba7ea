"""From records, tables and drawings to one HTML page that needs nothing but itself."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from selfsent.report import command, figures, published, read, tables
from selfsent.report.inside import Inside, View
from selfsent.report.read import GEOMETRY, Curve, Group, Record
from selfsent.report.svg import Drawing
from selfsent.report.tables import NAMES, format_value

_HELD_OUT = ("retrieval", "alignment", "uniformity", "mean_cosine", "effective_rank")  # hang on the held-out texts
_SYMBOLS = {"better": "▲", "worse": "▼", "cannot tell": "≈"}
_FEW = 2  # curves of a panel whose numbers its caption repeats
_LONG = 220  # characters of a text that is shown as an example


@dataclass(frozen=True, kw_only=True)
class Look:
    """The figures that show one recipe from inside, or why there are none."""

    group: Group
    skipped: str | None
    cosines: list[Drawing]
    judged: list[Drawing]
    maps: list[Drawing]
    legend: list[tuple[Markup, str]]
    inside: Inside | None


def render_page(groups: Sequence[Group], looks: Sequence["Look"], notes: Sequence[str]) -> str:
    """Return the page.

    Args:
        looks: what the encoders of some groups show.
        notes: sentences on what was left out.
    """
    numbers = {group.name: number for number, group in enumerate(groups)}
    sections = tables.sections(groups)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["svg"] = lambda drawing: Markup(drawing.svg)
    environment.filters["shorten"] = lambda written: figures.shorten(written, _LONG)
    environment.filters["figure"] = format_value
    template = environment.from_string(files("selfsent.report").joinpath("page.html").read_text(encoding="utf-8"))
    return template.render(
        title=", ".join(group.name for group in groups),
        groups=groups,
        several=len(groups) > 1,
        notes=notes,
        verdicts=[_verdicts(group) for group in groups],
        facts=[_facts(group) for group in groups],
        differences=read.differences(groups) if len(groups) > 1 else {},
        legends=[
            [
                (Markup(figures.swatch(f"legend{place}-{number}", number)), name)
                for name, number in ([("base", None)] if place == 0 else []) + list(numbers.items())
            ]
            for place in range(3)
        ],
        sections=sections,
        charts=_charts(sections, numbers),
        terms=_terms(groups, numbers, "terms"),
        figures=_terms(groups, numbers, "figures"),
        scores=_scores(groups, numbers),
        planes=_planes(groups, numbers),
        looks=looks,
        corpora=_corpora(groups),
        runs=[_run(run) for group in groups for run in group.runs],
        versions=_versions(groups),
    )


# ----------------------------------------------------------------------------------------------------- first things


def _verdicts(group: Group) -> dict[str, Any]:
    found = [(run, run.verdict) for run in group.runs if run.verdict]
    words = [verdict.word for _, verdict in found]
    counts = {word: words.count(word) for word in dict.fromkeys([*read.WORDS, *words]) if word in words}
    return {
        "name": group.name,
        "counts": [(_SYMBOLS.get(word, "•"), word, count) for word, count in counts.items()],
        "said": [
            (run.name, _SYMBOLS.get(verdict.word, "•"), verdict.word, " ".join(verdict.sentences))
            for run, verdict in found
        ],
        "unfinished": [(run.name, run.status) for run in group.runs if run.status],
        "alarms": [(run.name, step, alarm) for run in group.runs for step, alarm in run.log.alarms],
        "pretrained": all(run.kind == "pretrain" for run in group.runs),
        "went_on": group.first.recipe.get("base") if group.first.kind == "pretrain" else None,
        "runs": len(group.runs),
        "plain": _plain(group),
    }


def _plain(group: Group) -> list[tuple[str, str]]:
    """Return the figures that a pretraining ends with: it has no table of scores."""
    run = group.runs[0]
    if run.kind != "pretrain":
        return []
    return [
        (NAMES.get(key, key.replace("_", " ")), format_value(float(value), 2 if abs(value) < 100 else 0))
        for key, value in run.outcome.items()
        if isinstance(value, int | float)
    ]


def _facts(group: Group) -> str:
    """Say in one line what was trained on what."""
    run = group.first
    recipe, train = run.recipe, run.recipe.get("train", {})
    texts = ", ".join(str(name).rsplit("/", 1)[-1] for name in recipe.get("texts", ()))
    if run.kind == "pretrain" and recipe.get("size") == "static":
        source = texts or str(recipe.get("vectors", "")).rsplit("/", 1)[-1]
        return f"static word vectors, {'counted on' if texts else 'taken over from'} {source}"
    if run.kind == "pretrain" and recipe.get("base"):
        return f"masked language model, gone on with from {recipe['base']}, on {texts}"
    if run.kind == "pretrain":
        from selfsent.pretraining.train import SIZE

        return f"masked language model from scratch, size {recipe.get('size') or SIZE}, on {texts}"
    parts = [f"{recipe['method']} from {recipe.get('base')}", f"on {texts}"]
    count = run.config.get("corpus", {}).get("texts")
    if count:
        parts[-1] += f" ({count:,} texts)"
    steps = run.outcome.get("steps") or train.get("steps")
    if steps:
        parts.append(f"{steps:,} steps of {train.get('batch_size')}")
    if len(group.runs) > 1:
        parts.append("seeds " + ", ".join(str(one.seed) for one in group.runs))
    elif run.outcome.get("best_step") is not None:
        parts.append(f"weights of step {run.outcome['best_step']:,}, selected by {run.outcome.get('selected_by')}")
    return "; ".join(parts)


# --------------------------------------------------------------------------------------------------------- drawings


def _charts(sections: Sequence[tables.TableSection], numbers: Mapping[str, int]) -> dict[str, Drawing]:
    """Draw the sections whose columns are all in points."""
    charts: dict[str, Drawing] = {}
    for place, section in enumerate(sections):
        if not section.main or any(column.identity[2] in GEOMETRY for column in section.columns):
            continue
        caption = "Hollow grey marks are the base, filled ones the trained encoders; lines are 95 % intervals" + (
            ", small strokes the seeds." if section.seeds else "."
        )
        if not charts:
            caption += (
                " Intervals of two models may overlap although their paired difference, which the verdict goes by, is "
                "clearly not zero."
            )
        drawing = figures.scores(f"chart{place}", section, dict(numbers), caption, alt=f"{section.title}. {caption}")
        if drawing is not None:
            charts[section.title] = drawing
    return charts


def _terms(groups: Sequence[Group], numbers: Mapping[str, int], kind: str) -> list[Drawing]:
    """Draw every term of the loss, or every figure of the objective: one panel a method, since terms are its own."""
    panels: dict[tuple[str, str], list[figures.Line]] = {}
    for group in groups:
        method = str(group.first.recipe.get("method", "pretraining"))
        for name in dict.fromkeys(name for run in group.runs for name in getattr(run.log, kind)):
            curves = [getattr(run.log, kind)[name] for run in group.runs if name in getattr(run.log, kind)]
            line = figures.Line(label=group.name, number=numbers[group.name], curves=curves)
            panels.setdefault((method, name), []).append(line)
    several = len({method for method, _ in panels}) > 1
    found = []
    for place, ((method, name), lines) in enumerate(panels.items()):
        written = name.replace("_", " ").replace(".", ": ").replace("masked lm", "masked LM")
        title = f"{tables.method_name(method)}: {written}" if several else written
        what = "Weighted term of the loss; lower is what training asks for" if kind == "terms" else "Not trained on"
        said = _from_to(lines)
        caption = f"{what}. {said}" if len(lines) <= _FEW else f"{what}."
        found.append(figures.curves(f"{kind}{place}", title, lines, caption, alt=f"{title}. {what}. {said}"))
    return found


def _scores(groups: Sequence[Group], numbers: Mapping[str, int]) -> list[Drawing]:
    """Draw every score of the evaluations along the way; what hangs on held-out texts, one panel for each corpus."""
    panels: dict[tuple[str, str], list[figures.Line]] = {}
    best: dict[tuple[str, str], int] = {}
    for group in groups:
        for name in dict.fromkeys(name for run in group.runs for name in run.log.scores):
            held_out = name in _HELD_OUT or name.startswith("held_out")
            key = name, _held_out_data(group) if held_out else ""
            curves = [run.log.scores[name] for run in group.runs if name in run.log.scores]
            line = figures.Line(label=group.name, number=numbers[group.name], curves=curves)
            panels.setdefault(key, []).append(line)
            outcome = group.runs[0].outcome
            if len(groups) == len(group.runs) == 1 and outcome.get("selected_by") == name:
                best[key] = int(outcome["best_step"])
    order = [*(key for key in panels if key[0] not in GEOMETRY), *(key for key in panels if key[0] in GEOMETRY)]
    found = []
    for place, key in enumerate(order):
        title = NAMES.get(key[0], key[0])
        data = {other for name, other in panels if name == key[0]}
        if len(data) > 1:
            title += f" ({_few([line.label for line in panels[key]])})"
        caption, said = f"{_MEANING.get(key[0], 'On development data')}.", _from_to(panels[key])
        if key in best:
            caption += f" The dotted line is step {best[key]:,}, whose weights were kept."
        alt = f"{title}. {caption} {said}"
        if len(panels[key]) <= _FEW:
            caption += f" {said}"
        found.append(figures.curves(f"dev{place}", title, panels[key], caption, alt=alt, best=best.get(key)))
    return found


_MEANING = {
    "retrieval": "In points on the held-out documents that the best weights are chosen by; higher is better",
    "uniformity": "Of held-out texts; lower is more evenly spread, 0 is a single point",
    "alignment": "Of held-out pairs; lower is closer",
    "mean_cosine": "Of held-out texts; near 1 all texts get one direction",
    "effective_rank": "Of held-out texts: how many dimensions they use",
    "stsb_alignment": "Of pairs that people call the same; lower is closer",
    "stsb_uniformity": "Of its sentences; lower is more evenly spread",
}


def _from_to(lines: Sequence[figures.Line]) -> str:
    parts = []
    for line in lines:
        first = statistics.fmean(curve[0][1] for curve in line.curves)
        last = statistics.fmean(curve[-1][1] for curve in line.curves)
        seeds = f" (mean of {len(line.curves)} seeds)" if len(line.curves) > 1 else ""
        parts.append(f"{line.label}: {significant(first)} to {significant(last)}{seeds}")
    averaged = any(len(curve) > figures.POINTS for line in lines for curve in line.curves)
    return "; ".join(parts) + "." + (" Long curves are averaged in stretches." if averaged else "")


def significant(value: float) -> str:
    """Write a number with three significant digits."""
    if value == 0:
        return "0"
    digits = 2 - int(np.floor(np.log10(abs(value))))
    return format_value(value, max(0, min(5, digits)))


def _few(names: Sequence[str]) -> str:
    """Name up to three recipes, or say how many there are."""
    return ", ".join(names) if len(names) <= 3 else f"{len(names)} recipes"


def _held_out_data(group: Group) -> str:
    """Name the held-out texts: two corpora whose settings differ may hold out the same."""
    for score in group.first.base:
        if score.task == "retrieval":
            return str(score.protocol.get("data", ""))
    return str(group.first.config.get("corpus", {}).get("fingerprint", ""))


def _planes(groups: Sequence[Group], numbers: Mapping[str, int]) -> list[Drawing]:
    """Draw alignment against uniformity: on the held-out texts of each corpus, and on STS-B beside the papers."""
    held_out: dict[str, list[figures.Path]] = {}
    similar: list[figures.Path] = []
    logged = all("stsb_alignment" in group.runs[0].log.scores for group in groups)
    for group in groups:
        number = numbers[group.name]
        points = _along(group, "alignment", "uniformity") or _ends(group, "retrieval")
        if points:
            path = figures.Path(label=group.name, number=number, points=points)
            held_out.setdefault(_held_out_data(group), []).append(path)
        points = _along(group, "stsb_alignment", "stsb_uniformity") if logged else _ends(group, "geometry")
        if points:
            similar.append(figures.Path(label=group.name, number=number, points=points))
    found = []
    for place, paths in enumerate(held_out.values()):
        title = "held-out texts" + (f" ({_few([path.label for path in paths])})" if len(held_out) > 1 else "")
        what, said = (
            "Each text with the passage that belongs to it; from the hollow mark, the base, on.",
            _ends_of(paths),
        )
        caption = f"{what} {said}" if len(paths) <= _FEW else what
        found.append(figures.plane(f"plane{place}", title, paths, {}, caption, alt=f"{title}. {what} {said}"))
    if similar:
        where = "STS-B dev" if logged else "STS-B (train, dev and test)"
        what = (
            "From the hollow mark, the base, on; positive pairs are those that people score above 4. The crosses are "
            "the papers', read off a plot: indicative only, of other encoders, and perhaps of another part of STS-B."
        )
        said = _ends_of(similar)
        caption, alt = f"{what} {said}" if len(similar) <= _FEW else what, f"{where}. {what} {said}"
        found.append(figures.plane("plane-stsb", where, similar, published.ALIGNMENT_UNIFORMITY, caption, alt=alt))
    return found


def _along(group: Group, align: str, uniform: str) -> list[tuple[float, float]]:
    """Return (uniformity, alignment) at every evaluation, the mean over the seeds."""
    both = [run.log.scores for run in group.runs if align in run.log.scores and uniform in run.log.scores]
    if not both:
        return []
    curves: list[Curve] = [scores[name] for scores in both for name in (uniform, align)]
    values = figures.together(curves)[1]
    if len(values) < len(curves):
        values = values[:2]
    return list(zip(values[::2].mean(axis=0).tolist(), values[1::2].mean(axis=0).tolist(), strict=True))


def _ends(group: Group, task: str) -> list[tuple[float, float]]:
    """Return (uniformity, alignment) of base and trained encoder from their scores, the mean over the seeds."""
    points = []
    for side in ("base", "trained"):
        found: dict[str, list[float]] = {}
        for run in group.runs:
            for score in getattr(run, side):
                if score.task == task:
                    found.setdefault(score.metric, []).append(score.value)
        if "uniformity" not in found or "alignment" not in found:
            return []
        points.append((statistics.fmean(found["uniformity"]), statistics.fmean(found["alignment"])))
    return points


def _ends_of(paths: Iterable[figures.Path]) -> str:
    parts = [
        f"{path.label}: alignment {format_value(path.points[0][1], 2)} to {format_value(path.points[-1][1], 2)}, "
        f"uniformity {format_value(path.points[0][0], 2)} to {format_value(path.points[-1][0], 2)}"
        for path in paths
    ]
    return "; ".join(parts) + "."


# ------------------------------------------------------------------------------------------------ encoders at work


def build_look(group: Group, place: int, inside: Inside | None, skipped: str | None) -> Look:
    """Draw what the encoders of one group made of the sample."""
    if inside is None:
        return Look(group=group, skipped=skipped, cosines=[], judged=[], maps=[], legend=[], inside=None)
    sides: list[tuple[str, View]] = [("base", inside.base), ("trained", inside.trained)]
    limits, top = figures.shared_axes([inside.base, inside.trained])
    lowest = min((float(view.predicted.min()) for _, view in sides if view.predicted is not None), default=0.0) - 0.02
    cosines, judged, maps = [], [], []
    for side, view in sides:
        name = f"look{place}-{side}"
        means = {"random": view.random.mean(), "adjacent": view.adjacent.mean()}
        if view.paraphrase is not None and len(view.paraphrase):
            means["paraphrase"] = view.paraphrase.mean()
        said = ", ".join(f"{kind} {format_value(float(mean), 2)}" for kind, mean in means.items())
        caption = f"Mean cosine of {said}. The further random pairs lie to the left of the others, the better."
        cosines.append(figures.cosines(f"{name}-cosines", side, view, limits, top, caption))
        if view.predicted is not None and inside.gold is not None:
            from scipy import stats

            rank = 100 * float(stats.spearmanr(view.predicted, inside.gold).statistic)
            caption = (
                f"{len(inside.gold)} pairs of STS-B dev, Spearman × 100 of {format_value(rank, 1)} on these alone. "
                "A good encoder rises from the lower left to the upper right."
            )
            judged.append(figures.judged(f"{name}-judged", side, view.predicted, inside.gold, lowest, caption))
        caption = f"{len(inside.texts)} held-out texts on the first two principal components of their vectors."
        maps.append(figures.world(f"{name}-map", side, inside, view, caption))
    legend = [
        (Markup(figures.spot(f"look{place}-spot{mark}", mark)), figures.shorten(typical, 90))
        for mark, typical in enumerate(inside.typical)
    ]
    return Look(group=group, skipped=None, cosines=cosines, judged=judged, maps=maps, legend=legend, inside=inside)


# ------------------------------------------------------------------------------------------------------ last things


def _corpora(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Account for every corpus once."""
    found: dict[str, dict[str, Any]] = {}
    for group in groups:
        for run in group.runs:
            fingerprint = str(run.config.get("corpus", {}).get("fingerprint", ""))
            if fingerprint in found:
                names = found[fingerprint]["names"]
                if group.name not in names:
                    names.append(group.name)
                continue
            opened = read.corpus_of_run(run)
            found[fingerprint] = {
                "fingerprint": fingerprint,
                "names": [group.name],
                "sources": [str(name) for name in run.recipe.get("texts", ())],
                "texts": run.config.get("corpus", {}).get("texts"),
                "rows": opened.account.rows() if opened else None,
                "pieces": opened.account.word_pieces() if opened else "",
                "examples": list(opened.account.examples) if opened else [],
                "held_out": (len(opened.held_out.dev), len(opened.held_out.test)) if opened else None,
            }
    return list(found.values())


def _run(run: Record) -> dict[str, Any]:
    outcome, hardware = run.outcome, run.config.get("hardware", {})
    machine = [str(hardware[key]) for key in ("processor", "device", "precision") if hardware.get(key)]
    if hardware.get("threads"):
        machine.append(f"{hardware['threads']} thread{'s' * (hardware['threads'] != 1)}")
    rate = outcome.get("texts_per_second") or 0.0
    return {
        "name": run.name,
        "steps": f"{outcome['steps']:,}" if outcome.get("steps") else f"{run.log.last_step:,}",
        "best": f"{outcome['best_step']:,}" if outcome.get("best_step") is not None else "–",
        "selected_by": outcome.get("selected_by", "–"),
        "rate": f"{rate:,.0f}" if rate else "–",
        "time": clock(float(outcome["seconds"])) if rate and outcome.get("seconds") else "–",
        "machine": ", ".join(machine),
        "unread": run.log.unread,
        "command": command.command_of_run(run),
        "commit": run.config.get("versions", {}).get("commit"),
    }


def clock(seconds: float) -> str:
    """Write a time as a person says it."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _versions(groups: Sequence[Group]) -> dict[str, str]:
    """Return each package's version, or all of them where the runs differ."""
    found: dict[str, list[str]] = {}
    for group in groups:
        for run in group.runs:
            for package, version in run.config.get("versions", {}).items():
                if version not in found.setdefault(package, []):
                    found[package].append(str(version))
    return {package: ", ".join(versions) for package, versions in found.items()}
