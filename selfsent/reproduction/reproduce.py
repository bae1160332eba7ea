"""reproduce(): measure tables and figures of the papers again, and say what becomes of what the papers find."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from selfsent.errors import ConfigurationError, DataError
from selfsent.evaluation.score import Results
from selfsent.progress import SILENT, Progress
from selfsent.reproduction.artifact_figure import CurveSet
from selfsent.reproduction.artifact_files import ArtifactOutcome, write_artifact
from selfsent.reproduction.catalog import CATALOG, find_artifact
from selfsent.reproduction.cost import Cost, plan_cost
from selfsent.reproduction.findings import find_cell, judge_claims
from selfsent.reproduction.measure import Laboratory
from selfsent.reproduction.plan import ArtifactPlan, PlannedRow, plan_artifacts
from selfsent.reproduction.scale import SCALES, ReproduceOptions, explain_scale
from selfsent.reproduction.sketch import draw_sketch
from selfsent.runs.read import read_log
from selfsent.storage import atomic, locks
from selfsent.storage.run_folder import Run
from selfsent.training.seeds import require_possible_seeds

SUMMARY = "summary.md"


class PlannedArtifact(NamedTuple):
    """A table or figure before it is measured."""

    plan: ArtifactPlan
    cost: Cost  # of its trainings
    left: int  # trainings that are not finished


def plan_reproduction(names: Sequence[str], options: ReproduceOptions, out: Path) -> list[PlannedArtifact]:
    """Return for each table or figure what it needs, what its trainings cost, and how many of them are left.

    Args:
        names: ids; none: all.

    Raises:
        ConfigurationError: an unknown id, or a setting that does not fit.
    """
    _require(options)
    plans = plan_artifacts([find_artifact(name) for name in names or CATALOG], options)
    laboratory = Laboratory(out, options)
    return [PlannedArtifact(plan, plan_cost([plan], options.seeds), _left(plan, laboratory)) for plan in plans]


def _left(plan: ArtifactPlan, laboratory: Laboratory) -> int:
    runs = {row.run: row for row in plan.rows if row.recipe is not None}
    return sum(not laboratory.finished(row, seed) for row in runs.values() for seed in laboratory.seeds(row))


def _require(options: ReproduceOptions) -> None:
    if options.scale not in SCALES:
        raise ConfigurationError(f"scale {options.scale!r} does not fit: choose one of {', '.join(SCALES)}")
    require_possible_seeds(options.first_seed, options.seeds)


def reproduce(
    names: Sequence[str],
    options: ReproduceOptions,
    out: str | Path,
    *,
    resume: bool = False,
    progress: Progress = SILENT,
) -> list[ArtifactOutcome]:
    """Measure tables and figures, and write each into ``out``: Markdown, CSV, JSON and a picture.

    A training that several of them need is made once; what is finished in ``out`` is not repeated.

    Args:
        names: ids, such as "scd-table-1"; none: all of which something can be measured.
        resume: use what is in ``out``.

    Raises:
        UserError: nothing can be measured of a table that was named, or as ``train`` and ``evaluate``.
        Interrupted: Ctrl-C or SIGTERM; the state is saved.
    """
    _require(options)
    folder = Path(out)
    plans = plan_artifacts([find_artifact(name) for name in names or CATALOG], options)
    for plan in plans:
        if names and not plan.ready:
            raise DataError(f"nothing of {plan.artifact.id} can be measured: it {plan.state}")
    plans = [plan for plan in plans if plan.ready]
    if not resume:
        Run.require_free(folder, "choose another --out, or add --resume to use what is in it")
    outcomes = []
    with locks.exclusive(folder):
        laboratory = Laboratory(folder, options, progress)
        tasks: dict[str, dict[str, None]] = {}  # every task that any table asks of a row
        for plan in plans:
            for row in plan.rows:
                tasks.setdefault(row.key, {}).update(dict.fromkeys(plan.tasks))
        for number, plan in enumerate(plans, start=1):
            progress.say(f"{plan.artifact.id} ({number} of {len(plans)}): {plan.artifact.title}")
            outcome = _measure(plan, laboratory, tasks, folder)
            write_artifact(outcome)
            outcomes.append(outcome)
        atomic.write_text(folder / SUMMARY, "\n".join(summary_lines(outcomes)) + "\n")
    return outcomes


def _measure(
    plan: ArtifactPlan, laboratory: Laboratory, tasks: dict[str, dict[str, None]], folder: Path
) -> ArtifactOutcome:
    results: dict[str, list[Results]] = {}
    curves: dict[str, CurveSet] = {}
    for row in plan.rows:
        if row.measured:
            results[row.row.name] = laboratory.measure(row, [*tasks[row.key]])
            if plan.artifact.curves and row.recipe is not None:
                curves[row.row.name] = _curves(row, laboratory, plan.artifact.curves)
    found = {
        name: {measure.name: cell for measure in plan.artifact.measures if (cell := find_cell(measure, of_seeds))}
        for name, of_seeds in results.items()
    }
    return ArtifactOutcome(
        plan=plan,
        cells=found,
        findings=judge_claims(plan, found),
        curves=curves,
        seeds=laboratory.options.seeds,
        scale=explain_scale(laboratory.options),
        folder=folder,
        sketch=draw_sketch(plan.artifact.drawing, plan.sketch, laboratory.progress) if plan.sketch else None,
    )


def _curves(row: PlannedRow, laboratory: Laboratory, names: Sequence[str]) -> CurveSet:
    """Return figures of the training logs of a row's seeds."""
    found: dict[str, list[Any]] = {name: [] for name in names}
    for seed in laboratory.seeds(row):
        logged = read_log(laboratory.run_folder(row, seed) / "log.jsonl")[0]["scores"]
        for name in names:
            found[name] += [logged[name]] if name in logged else []
    return found


def summary_lines(outcomes: Sequence[ArtifactOutcome]) -> list[str]:
    """Return the lines of the summary: a sentence for every claim."""
    lines = ["# What becomes of the papers' findings", ""]
    for outcome in outcomes:
        lines += [f"## [{outcome.plan.artifact.title}]({outcome.plan.artifact.id}.md)", ""]
        lines += [f"- {finding.sentence}" for finding in outcome.findings] or [
            "- It shows the method, and compares nothing." if outcome.sketch else "- No comparison is made here."
        ]
        lines.append("")
    return [*lines, outcomes[0].scale if outcomes else "Nothing could be measured."]
