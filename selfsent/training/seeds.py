"""One recipe trained with several seeds: a run each, its mean and deviation, and a verdict over the seeds.

Beside the folder of a finished run, ``seed-42``, stands ``seed-42.json`` with the scores that settings are compared by
and their bootstrap replicates, which the run's own files do not hold.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from selfsent.config import SEEDS, Recipe, recipe_table
from selfsent.corpus.sources import corpus_sources, resolve_sources
from selfsent.encoder.inspect import encoder_digest
from selfsent.encoder.load import load_encoder
from selfsent.errors import ConfigurationError, ResumeError
from selfsent.evaluation.label_free.held_out_retrieval import LEAST_HELD_OUT, SINGLE_LINES
from selfsent.evaluation.score import Results, Score
from selfsent.evaluation.significance import LEAST_SEEDS, Lead, SeedScores, compare_settings
from selfsent.progress import SILENT, Progress, Quiet
from selfsent.storage import atomic, locks
from selfsent.storage.run_folder import Run
from selfsent.training import train
from selfsent.training.tracking import AnyTracker
from selfsent.training.train import Trained

RETRIEVAL = "retrieval"
_BESIDE = {"recipe", "inputs"}  # of a record, beside the scores


@dataclass(frozen=True, kw_only=True)
class SeedRun:
    """The scores of one run, in points: of dev, which chose its weights, and of test, before and after."""

    seed: int
    folder: Path
    selected_by: str  # the dev score
    dev: float | None  # of the best weights; None: the last weights were kept
    metric: str  # of test; empty: nothing could be held out
    data: str  # fingerprint of the queries
    queries: int  # or pairs of the labelled sets; 0: nothing could be held out
    before: float | None
    test: float | None
    before_replicates: list[float]
    replicates: list[float]
    structured: bool = True  # as of ``Trained``


@dataclass(frozen=True, kw_only=True)
class TrainedSeeds:
    """What several seeds of one recipe gave."""

    folder: Path
    runs: list[SeedRun]
    lead: Lead | None  # over the base encoder; None: nothing was held out
    verdict: str


def require_possible_seeds(first: int, seeds: int) -> None:
    """Refuse numbers of seeds that there are not.

    Raises:
        ConfigurationError: none, or some would be beyond the highest one.
    """
    if seeds < 1:
        raise ConfigurationError(f"seeds = {seeds} does not fit: it must be at least 1")
    if first + seeds - 1 > SEEDS:
        raise ConfigurationError(f"seed = {first} does not fit: its {seeds} seeds would go beyond {SEEDS}")


def train_seeds(
    method: str | Path | Recipe,
    *,
    seeds: int,
    texts: Iterable[str] | None = None,
    corpus: Sequence[str | Path] | str | Path | None = None,
    base: str | None = None,
    out: str | Path | None = None,
    seed: int | None = None,
    data: str | Path | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    tracker: AnyTracker | None = None,
    progress: Progress = SILENT,
) -> TrainedSeeds:
    """Train a recipe with consecutive seeds, each an ordinary run: ``OUT/seed-42``, ``OUT/seed-43`` and so on.

    Args:
        method: as of ``train``; so are all others that are not named here.
        seeds: how many; a verdict needs three.
        seed: the first.
        out: the folder of the runs; default ``runs/<method>``.
        resume: resume those that were interrupted, keep those that are finished, start the others.

    Raises:
        UserError: as ``train``.
        Interrupted: Ctrl-C or SIGTERM; the state is saved.
    """
    recipe = train.resolve(
        method, base=base, corpus=corpus_sources(texts, corpus), seed=seed, data=data, settings=settings
    )
    require_possible_seeds(recipe.seed, seeds)
    folder = Path(out) if out is not None else train.default_folder(method)
    if not resume:
        Run.require_free(folder, "choose another --out, or add --resume to resume the runs in it")
    inputs = input_fingerprints(recipe)
    runs: list[SeedRun] = []
    with locks.exclusive(folder):
        for number in range(recipe.seed, recipe.seed + seeds):
            progress.say(f"seed {number}: {number - recipe.seed + 1} of {seeds}")
            one = replace(recipe, seed=number)
            heard = Quiet(progress) if runs else progress
            runs.append(train_seed(one, folder / f"seed-{number}", inputs, tracker=tracker, progress=heard))
    lead, verdict = judge_seeds(runs)
    return TrainedSeeds(folder=folder, runs=runs, lead=lead, verdict=verdict)


def input_fingerprints(recipe: Recipe) -> dict[str, Any]:
    """Return what changes with the weights of the base, and with the text."""
    texts = [source.identity() for source in resolve_sources(recipe.texts)]
    found: dict[str, Any] = json.loads(json.dumps({"base": encoder_digest(load_encoder(recipe.base)), "texts": texts}))
    return found


def train_seed(
    recipe: Recipe,
    folder: Path,
    inputs: Mapping[str, Any],
    *,
    tracker: AnyTracker | None = None,
    progress: Progress,
) -> SeedRun:
    """Train one seed, or resume it, or return the scores of a run that is finished.

    Args:
        inputs: ``input_fingerprints`` of the recipe.

    Raises:
        ResumeError: it was trained from another base or text.
        UserError: as ``train``.
    """
    record = folder.with_name(f"{folder.name}.json")
    known = _read_record(record)
    if known is not None and known["recipe"] == recipe_table(recipe) and Run(folder).finished():
        _require_same_inputs(folder, known["inputs"], inputs)
        return SeedRun(folder=folder, **{key: value for key, value in known.items() if key not in _BESIDE})
    begun = (folder / "config.json").is_file()
    trained = train.train(recipe, out=folder, resume=begun, tracker=tracker, progress=progress)
    score = _test_score(trained, trained.after)
    if score is not None and score.replicates is None:  # it was finished before a kill
        trained = train.rescore(trained, recipe, progress)
    run = _measured(trained, recipe.seed)
    content = {key: value for key, value in asdict(run).items() if key != "folder"}
    atomic.write_sealed(record, {**content, "recipe": recipe_table(recipe), "inputs": dict(inputs)})
    return run


def _read_record(path: Path) -> dict[str, Any] | None:
    """Read the scores beside a run; None where they are missing or damaged, and are measured again."""
    try:
        content = atomic.read_sealed(path, "")
    except ResumeError:
        return None
    keys = {one.name for one in fields(SeedRun)} - {"folder"} | _BESIDE
    return content if content.keys() == keys else None  # another version's is not read


def _require_same_inputs(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse the scores of a run that was trained before the base or the text changed."""
    for key, what in (("base", "base"), ("texts", "text")):
        if before[key] != now[key]:
            raise ResumeError(
                f"the {what} that {folder} was trained from has changed since: put it back, or start anew with another "
                "--out"
            )


def _test_score(trained: Trained, results: Results) -> Score | None:
    """Return the test score that belongs to the dev score: held-out retrieval, or the average of the labelled sets."""
    labelled = None if trained.outcome.selected_by in (RETRIEVAL, "last") else results.average()
    retrieval = next((score for score in results.scores if score.metric == "mrr@10"), None)
    return labelled or retrieval or results.average()


def _measured(trained: Trained, seed: int) -> SeedRun:
    before, after = (_test_score(trained, results) for results in (trained.before, trained.after))

    def replicates(score: Score | None) -> list[float]:
        return [] if score is None or score.replicates is None else score.replicates.tolist()

    return SeedRun(
        seed=seed,
        folder=trained.folder,
        selected_by=trained.outcome.selected_by,
        dev=trained.outcome.best_score,
        metric="" if after is None else f"{after.task} {after.metric}",
        data="" if after is None else str(after.protocol.get("data", "")),
        queries=0 if after is None else after.n,
        before=None if before is None else before.value,
        test=None if after is None else after.value,
        before_replicates=replicates(before),
        replicates=replicates(after),
        structured=trained.structured or after is None or after.task != RETRIEVAL,
    )


def seed_scores(runs: Sequence[SeedRun], *, before: bool = False) -> SeedScores | None:
    """Return the test scores of runs for comparisons, or those of their base; None where nothing was held out."""
    values = [run.before if before else run.test for run in runs]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    replicates = np.array([run.before_replicates if before else run.replicates for run in runs])
    return SeedScores(values=np.array(known), replicates=replicates)


def judge_seeds(runs: Sequence[SeedRun]) -> tuple[Lead | None, str]:
    """Say in words whether the runs are better than their base, over the seeds and the held-out queries."""
    after, before = seed_scores(runs), seed_scores(runs, before=True)
    if after is None or before is None:
        return None, "Cannot tell: too few documents could be held out to measure it on."
    lead = compare_settings(after, before)
    figures = f"{runs[0].metric} {before.values.mean():.1f} before, {after.values.mean():.1f} after"
    if lead.p is None or lead.low is None or lead.high is None:
        return lead, f"Cannot tell from {count_seeds(len(runs))}, {LEAST_SEEDS} are needed: {figures}."
    if few := too_few_queries(runs[0]):
        return lead, f"Cannot tell: {few}: {figures}."
    if lead.high >= 0 and not all(run.structured for run in runs):
        return lead, f"Cannot tell. {SINGLE_LINES} decides nothing: {figures}."
    decision = "Better" if lead.low > 0 else "Worse, do not use it" if lead.high < 0 else "Cannot tell"
    return lead, (
        f"{decision}. Mean of {len(runs)} seeds: {figures} (deviation {after.values.std(ddof=1):.1f}): a change of "
        f"{lead.value:+.1f} (95 % interval {lead.low:+.1f} to {lead.high:+.1f})."
    )


def too_few_queries(run: SeedRun) -> str:
    """Say that a run was tested on too few queries for any conclusion; empty: they are enough."""
    if run.metric.split()[:1] != [RETRIEVAL] or run.queries >= LEAST_HELD_OUT:
        return ""
    return (
        f"only {run.queries} queries were held out to test it on, and {LEAST_HELD_OUT} are needed (more text, or "
        "corpus.held_out_share=0.2, gives more)"
    )


def count_seeds(seeds: int) -> str:
    """Write a number of seeds."""
    return "one seed" if seeds == 1 else f"{seeds} seeds"
