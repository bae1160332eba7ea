"""Train and evaluate what rows need; everything that is finished is found on disk.

OUT/runs/NAME/seed-42    an ordinary run; NAME is equal for equal recipes, whatever table they belong to
OUT/scores/KEY.json      scores of one encoder with their bootstrap replicates, task by task
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from selfsent.corpus.sources import resolve_sources
from selfsent.encoder.inspect import encoder_digest
from selfsent.encoder.load import load_encoder
from selfsent.errors import ResumeError
from selfsent.evaluation.evaluate import evaluate
from selfsent.evaluation.score import Results, Score
from selfsent.progress import SILENT, Progress, Quiet
from selfsent.reproduction.plan import PlannedRow
from selfsent.reproduction.scale import ReproduceOptions
from selfsent.storage import atomic
from selfsent.storage.run_folder import Run
from selfsent.training import train

_AFTER_TRAINING = frozenset(("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr", "geometry"))
_DIGITS = 5  # of a replicate


class Laboratory:
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
        known = _read(path)
        if fresh is not None and not row.row.whitening:
            known |= {task: _of_task(fresh, task) for task in _AFTER_TRAINING.intersection(tasks) - known.keys()}
            known = {task: scores for task, scores in known.items() if scores}
            _write(path, known)
        if left := [task for task in tasks if task not in known]:
            self.progress.say(f"evaluating {row.row.name}, {len(left)} tasks")
            results = self._evaluate(row, model, left)
            known |= {task: _of_task(results.scores, task) for task in left}
            _write(path, known)
        return Results(scores=[score for task in tasks for score in known[task]])

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
        whitened_on = [self._nli] if row.row.whitening == "other" else []
        parts = [weights, row.key, self._data, self.options.classifier, *whitened_on]
        return self.folder / "scores" / f"{hashlib.sha256(' | '.join(parts).encode()).hexdigest()[:16]}.json"

    @cached_property
    def _data(self) -> str:
        """Return what changes with the content of the evaluation data: scores of other data are not these."""
        folder = Path(self.options.data or "")
        if self.options.data is None or not folder.is_dir():
            return str(self.options.data)
        digest = xxhash.xxh3_128()
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(folder).as_posix()} {len(content)} ".encode(errors="replace"))
            digest.update(content)
        return digest.hexdigest()

    @cached_property
    def _nli(self) -> str:
        return json.dumps([source.identity() for source in resolve_sources(self.options.texts.get("nli", ()))])

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
    return [replace(one, replicates=None if one.replicates is None else one.replicates.round(_DIGITS)) for one in kept]


def _read(path: Path) -> dict[str, list[Score]]:
    """Read the scores of one encoder by task; nothing where they are missing or damaged, and are measured again."""
    try:
        content = atomic.read_sealed(path, "")
    except ResumeError:
        return {}
    return {task: [_score(score) for score in scores] for task, scores in content["tasks"].items()}


def _score(table: dict[str, Any]) -> Score:
    drawn = table.pop("replicates")
    return Score(**table, replicates=None if drawn is None else np.array(drawn))


def _write(path: Path, known: dict[str, list[Score]]) -> None:
    def plain(score: Score) -> dict[str, object]:
        drawn = None if score.replicates is None else score.replicates.tolist()
        return {**asdict(replace(score, replicates=None)), "replicates": drawn}

    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_sealed(path, {"tasks": {task: [plain(score) for score in scores] for task, scores in known.items()}})
