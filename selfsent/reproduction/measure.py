"""reproduce(): train and evaluate what tables and figures need, and say what becomes of what the papers find.

Everything that is finished is found on disk:

OUT/runs/NAME/seed-42    an ordinary run; NAME is equal for equal recipes, whatever table they belong to
OUT/scores/KEY.json      scores of one encoder with their bootstrap replicates, task by task
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from selfsent.corpus.sources import resolve_sources
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import encoder_digest
from selfsent.errors import ConfigurationError, DataError, ResumeError
from selfsent.evaluation.evaluate import evaluate
from selfsent.evaluation.score import Results, Score
from selfsent.progress import SILENT, Progress, Quiet
from selfsent.reproduction.cost import Cost, plan_cost
from selfsent.reproduction.figures import CurveSet, draw_sketch
from selfsent.reproduction.findings import find_cell, judge_claims
from selfsent.reproduction.plan import ArtifactPlan, PlannedRow, digest, plan_artifacts
from selfsent.reproduction.scale import SCALES, ReproduceOptions, explain_scale
from selfsent.reproduction.spec import find_artifact, read_catalog
from selfsent.reproduction.write import ArtifactOutcome, write_artifact
from selfsent.runs.read import read_log
from selfsent.storage import atomic, locks
from selfsent.storage.run_folder import Run
from selfsent.training import train
from selfsent.training.train import require_possible_seeds

SUMMARY = "summary.md"
_AFTER_TRAINING = frozenset(("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr", "geometry"))
_DIGITS = 5  # of a replicate


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
    runner = Runner(out, options)
    return [
        PlannedArtifact(plan, plan_cost([plan], options.seeds), runner.left(plan)) for plan in _plans(names, options)
    ]


def _plans(names: Sequence[str], options: ReproduceOptions) -> list[ArtifactPlan]:
    if options.scale not in SCALES:
        raise ConfigurationError(f"scale {options.scale!r} does not fit: choose one of {', '.join(SCALES)}")
    require_possible_seeds(options.first_seed, options.seeds)
    return plan_artifacts([find_artifact(name) for name in names or read_catalog()], options)


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
    folder, plans = Path(out), _plans(names, options)
    for plan in plans:
        if names and not plan.ready:
            raise DataError(f"nothing of {plan.artifact.id} can be measured: it {plan.state}")
    plans = [plan for plan in plans if plan.ready]
    if not resume:
        Run.require_free(folder, "choose another --out, or add --resume to use what is in it")
    outcomes = []
    with locks.exclusive(folder):
        runner = Runner(folder, options, progress)
        tasks: dict[str, dict[str, None]] = {}  # every task that any table asks of a row
        for plan in plans:
            for row in plan.rows:
                tasks.setdefault(row.key, {}).update(dict.fromkeys(plan.tasks))
        for number, plan in enumerate(plans, start=1):
            progress.say(f"{plan.artifact.id} ({number} of {len(plans)}): {plan.artifact.title}")
            outcomes.append(_measure(plan, runner, tasks))
            write_artifact(outcomes[-1])
        atomic.write_text(folder / SUMMARY, "\n".join(summary_lines(outcomes)) + "\n")
    return outcomes


def _measure(plan: ArtifactPlan, runner: "Runner", tasks: dict[str, dict[str, None]]) -> ArtifactOutcome:
    """Measure one table or figure.

    Args:
        tasks: to evaluate, by the key of a row.
    """
    artifact = plan.artifact
    rows = [row for row in plan.rows if row.measured]
    results = {row.row.name: runner.measure(row, [*tasks[row.key]]) for row in rows}
    cells = {
        name: {measure.name: cell for measure in artifact.measures if (cell := find_cell(measure, of_seeds))}
        for name, of_seeds in results.items()
    }
    return ArtifactOutcome(
        plan=plan,
        cells=cells,
        findings=judge_claims(plan, cells),
        curves={row.row.name: runner.curves(row, artifact.curves) for row in rows if artifact.curves and row.recipe},
        seeds=runner.options.seeds,
        scale=explain_scale(runner.options),
        folder=runner.folder,
        sketch=draw_sketch(artifact.drawing, plan.sketch, runner.progress) if plan.sketch else None,
    )


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


class Runner:
    """Measures rows in one folder."""

    def __init__(self, folder: Path, options: ReproduceOptions, progress: Progress = SILENT) -> None:
        self.folder, self.options, self.progress = folder, options, progress

    def seeds(self, row: PlannedRow) -> list[int]:
        """Return the seeds of a row: one alone where nothing is trained."""
        first = self.options.first_seed
        return list(range(first, first + self.options.seeds)) if row.recipe else [first]

    def run_folder(self, row: PlannedRow, seed: int) -> Path:
        """Return the folder of a row's training."""
        assert row.recipe is not None
        return self.folder / "runs" / f"{row.recipe.method}-{row.run}" / f"seed-{seed}"

    def finished(self, row: PlannedRow, seed: int) -> bool:
        """Tell whether a row's training is finished."""
        return row.recipe is None or Run(self.run_folder(row, seed)).finished() is not None

    def left(self, plan: ArtifactPlan) -> int:
        """Count the trainings of a table or figure that are not finished."""
        runs = {row.run: row for row in plan.rows if row.recipe is not None}
        return sum(not self.finished(row, seed) for row in runs.values() for seed in self.seeds(row))

    def curves(self, row: PlannedRow, names: Sequence[str]) -> CurveSet:
        """Return figures of the training logs of a row's seeds."""
        logs = [read_log(self.run_folder(row, seed) / "log.jsonl")[0]["scores"] for seed in self.seeds(row)]
        return {name: [logged[name] for logged in logs if name in logged] for name in names}

    def measure(self, row: PlannedRow, tasks: Sequence[str]) -> list[Results]:
        """Return the scores of a row on tasks, one result for each seed; train and evaluate what is not done yet.

        Raises:
            UserError: as ``train`` and ``evaluate``.
            Interrupted: Ctrl-C or SIGTERM; the state is saved.
        """
        return [self._measure(row, seed, tasks) for seed in self.seeds(row)]

    def _measure(self, row: PlannedRow, seed: int, tasks: Sequence[str]) -> Results:
        model, fresh = self._model(row, seed)
        path = self._path(row, model, seed)
        measured = _read(path)
        if fresh is not None and not row.row.whitening:
            measured |= {task: _of_task(fresh, task) for task in _AFTER_TRAINING.intersection(tasks) - measured.keys()}
            measured = {task: scores for task, scores in measured.items() if scores}
            _write(path, measured)
        if left := [task for task in tasks if task not in measured]:
            self.progress.say(f"evaluating {row.row.name}, {len(left)} tasks")
            results = self._evaluate(row, model, left)
            measured |= {task: _of_task(results.scores, task) for task in left}
            _write(path, measured)
        return Results(scores=[score for task in tasks for score in measured[task]])

    def _model(self, row: PlannedRow, seed: int) -> tuple[str, list[Score] | None]:
        """Return the encoder of a row, and what its training measured at its end if it has just been trained."""
        if row.recipe is None:
            return row.model, None
        recipe = replace(row.recipe, seed=seed)
        folder = self.run_folder(row, seed)
        if not self.finished(row, seed):
            self.progress.say(f"training {row.row.name}, seed {seed}, in {folder}")
        trained = train.train(recipe, out=folder, resume=True, progress=Quiet(self.progress))
        scores = [score for score in trained.after.scores if score.replicates is not None]
        return str(trained.model), scores or None

    def _path(self, row: PlannedRow, model: str, seed: int) -> Path:
        """Return the file of the scores of one encoder, which depends on its weights and on how it is evaluated."""
        weights = f"{row.run} {seed}" if row.recipe else encoder_digest(load_encoder(model))
        whitened_on = self._nli if row.row.whitening == "other" else None
        parts = [weights, row.key, self._data, self.options.classifier, whitened_on]
        return self.folder / "scores" / f"{digest(parts)}.json"

    @cached_property
    def _data(self) -> str:
        """Return what changes with the content of the evaluation data: scores of other data are not these."""
        folder = Path(self.options.data or "")
        if self.options.data is None or not folder.is_dir():
            return str(self.options.data)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return digest([(str(path.relative_to(folder)), atomic.file_digest(path)) for path in files])

    @cached_property
    def _nli(self) -> list[list[object]]:
        return [source.identity() for source in resolve_sources(self.options.texts.get("nli", ()))]

    def _evaluate(self, row: PlannedRow, model: str, tasks: Sequence[str]) -> Results:
        whitened = row.row.whitening
        results = evaluate(
            model,
            tasks,
            data=self.options.data,
            pooling=row.pooling,
            whitening=["pca"] if whitened else [],
            whiten_on=self.options.texts.get("nli", ()) if whitened == "other" else [],
            classifier=self.options.classifier,
            progress=self.progress,
        )
        return results["pca whitening" if whitened else "model"]


def _of_task(scores: Iterable[Score], task: str) -> list[Score]:
    """Return the scores of a task as they are kept: without Pearson's but of development sets, replicates rounded."""
    kept = [score for score in scores if score.task == task and (score.metric != "pearson" or score.split == "dev")]
    return [s if s.replicates is None else replace(s, replicates=s.replicates.round(_DIGITS)) for s in kept]


def _read(path: Path) -> dict[str, list[Score]]:
    """Read the scores of one encoder by task; nothing where they are missing or damaged, and are measured again."""
    try:
        content = atomic.read_sealed(path, "")
    except ResumeError:
        return {}
    return {task: [_score(score) for score in scores] for task, scores in content["tasks"].items()}


def _score(table: dict[str, Any]) -> Score:
    replicates = table.pop("replicates")
    return Score(**table, replicates=None if replicates is None else np.array(replicates))


def _write(path: Path, tasks: dict[str, list[Score]]) -> None:
    def plain(score: Score) -> dict[str, object]:
        return vars(score) | {"replicates": None if score.replicates is None else score.replicates.tolist()}

    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_sealed(path, {"tasks": {task: [plain(score) for score in scores] for task, scores in tasks.items()}})
