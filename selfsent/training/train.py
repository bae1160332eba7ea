"""train(): one run of a recipe, or one for each of several seeds and a verdict over them."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

from selfsent.config import (
    SEEDS,
    Recipe,
    apply_settings,
    is_recipe,
    read_recipe,
    recipe_table,
    resolve_recipe,
    sweep_lists,
)
from selfsent.corpus.in_memory import corpus_sources
from selfsent.corpus.settings import with_column
from selfsent.errors import ConfigurationError
from selfsent.evaluation.comparison import Comparison, compare_scores
from selfsent.evaluation.label_free.held_out_retrieval import guard_held_out
from selfsent.objectives import registry
from selfsent.progress import SILENT, Progress, Quiet
from selfsent.runtime.launch import launched_number
from selfsent.runtime.printed import Printed, Shown
from selfsent.storage import locks
from selfsent.storage.run_folder import Run
from selfsent.training.run import RETRIEVAL, Trained, train_run
from selfsent.training.tracking import AnyTracker


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainedSeeds(Printed):
    """What several seeds of one recipe gave."""

    folder: Path
    runs: list[Trained]
    comparison: Comparison | None  # with the base encoder; None: nothing was held out
    verdict: str

    def shown(self) -> Shown:
        """Return the verdict, and the scores of every seed."""
        scores = [[getattr(run, name) for name in ("dev", "base_test", "test")] for run in self.runs]
        cells = [["-" if score is None else f"{score:.2f}" for score in row] for row in scores]
        rows = [[f"{run.seed}", *row] for run, row in zip(self.runs, cells, strict=True)]
        said = [self.verdict, f"models: {self.folder}/seed-*/model"]
        return Shown(said, ["seed", "dev", "test of the base", "test"], rows)


@overload
def train(
    method: str | Path | Recipe,
    *,
    texts: Iterable[str] | None = None,
    corpus: Sequence[str | Path] | str | Path | None = None,
    column: str | None = None,
    base: str | None = None,
    out: str | Path | None = None,
    seed: int | None = None,
    seeds: None = None,
    data: str | Path | None = None,
    settings: Sequence[str] | Mapping[str, object] = (),
    resume: bool = False,
    tracker: AnyTracker | None = None,
    progress: Progress = SILENT,
) -> Trained: ...


@overload
def train(
    method: str | Path | Recipe,
    *,
    texts: Iterable[str] | None = None,
    corpus: Sequence[str | Path] | str | Path | None = None,
    column: str | None = None,
    base: str | None = None,
    out: str | Path | None = None,
    seed: int | None = None,
    seeds: int,
    data: str | Path | None = None,
    settings: Sequence[str] | Mapping[str, object] = (),
    resume: bool = False,
    tracker: AnyTracker | None = None,
    progress: Progress = SILENT,
) -> TrainedSeeds: ...


def train(
    method: str | Path | Recipe,
    *,
    texts: Iterable[str] | None = None,
    corpus: Sequence[str | Path] | str | Path | None = None,
    column: str | None = None,
    base: str | None = None,
    out: str | Path | None = None,
    seed: int | None = None,
    seeds: int | None = None,
    data: str | Path | None = None,
    settings: Sequence[str] | Mapping[str, object] = (),
    resume: bool = False,
    tracker: AnyTracker | None = None,
    progress: Progress = SILENT,
) -> Trained | TrainedSeeds:
    """Train a sentence encoder from raw text.

    Args:
        method: the name of a method, a preset or a recipe, a recipe file, or a Recipe.
        texts: the texts themselves: a list, an iterator, a pandas, polars or ``datasets`` column of strings.
        corpus: instead of texts: files, folders, hub names of data sets, or "pydocs".
        column: of a table, that holds the text.  Default: "text", or where there is none the one that reads like prose.
        base: "builtin", a folder, or a name on the hub.
        out: the folder of the run; default ``runs/<method>``.
        seeds: train with so many consecutive seeds, each an ordinary run, ``OUT/seed-42`` and so on, and compare them
            with the base encoder; a verdict needs three.  Default: one run, in ``out`` itself.
        data: evaluation data in SentEval's layout, or ``hub``, for labelled scores in addition.
        settings: changes such as ``["train.steps=500"]`` or ``{"train.steps": 500}``.
        resume: resume the run in ``out``, or return its result if it is finished; start it where there is none.
            Of several seeds, each.
        tracker: "tensorboard", "wandb", "mlflow" or a tracker of accelerate, which gets the lines of log.jsonl, too.

    Raises:
        UserError: something given cannot work; the message says what would.
        Interrupted: Ctrl-C or SIGTERM; the state is saved.

    Examples:
        >>> run = selfsent.train("scd", corpus="tickets.jsonl", out="runs/scd", settings={"train.steps": 500})
        >>> print(run.verdict)
        >>> encoder = selfsent.load(run.model)
    """
    if not isinstance(method, Recipe) and sweep_lists(method):
        raise ConfigurationError(
            f"{method} is the recipe of a sweep, many runs: run it with selfsent sweep TEXT --method {method}"
        )
    settings, sources = with_column(settings, column), corpus_sources(texts, corpus, column)
    recipe = resolve(method, base=base, corpus=sources, seed=seed, data=data, settings=settings)
    folder = Path(out) if out is not None else default_folder(method)
    if seeds is None:
        return train_run(recipe, folder, resume=resume, tracker=tracker, progress=progress)
    require_possible_seeds(recipe.seed, seeds)
    first = launched_number() == 0
    if first and not resume:
        Run.require_free(folder, "choose another --out, or add --resume to resume the runs in it")
    runs: list[Trained] = []
    with locks.exclusive(folder) if first else nullcontext():
        for number in range(recipe.seed, recipe.seed + seeds):
            progress.say(f"seed {number}: {number - recipe.seed + 1} of {seeds}")
            target, heard = folder / f"seed-{number}", Quiet(progress) if runs else progress
            begun = (target / "config.json").is_file()
            seeded = replace(recipe, seed=number)
            runs.append(train_run(seeded, target, resume=begun, tracker=tracker, progress=heard))
    comparison, verdict = judge_seeds(runs)
    return TrainedSeeds(folder=folder, runs=runs, comparison=comparison, verdict=verdict)


def require_possible_seeds(first: int, seeds: int) -> None:
    """Refuse numbers of seeds that there are not.

    Raises:
        ConfigurationError: none, or some would be beyond the highest one.
    """
    if seeds < 1:
        raise ConfigurationError(f"seeds = {seeds} does not fit: it must be at least 1")
    if first + seeds - 1 > SEEDS:
        raise ConfigurationError(f"seed = {first} does not fit: its {seeds} seeds would go beyond {SEEDS}")


def judge_seeds(runs: Sequence[Trained]) -> tuple[Comparison | None, str]:
    """Compare the runs with their base, over the seeds and the held-out queries, and put it into words."""
    scores = [run.compared for run in runs]
    pairs = [pair for pair in scores if pair is not None]
    if len(pairs) < len(scores):
        return None, "Cannot tell: too few documents could be held out to measure it on."
    comparison = compare_scores([after for _, after in pairs], [before for before, _ in pairs])
    if comparison.task == RETRIEVAL:
        comparison = guard_held_out(comparison, structured=all(run.structured for run in runs))
    return comparison, comparison.sentence(f"{comparison.task} {comparison.metric}")


def resolve(
    method: str | Path | Recipe,
    *,
    base: str | None = None,
    corpus: Sequence[str | Path] | None = None,
    seed: int | None = None,
    data: str | Path | None = None,
    settings: Sequence[str] | Mapping[str, object] = (),
) -> Recipe:
    """Merge a method's name or a recipe with the other arguments; lists that a sweep tries are left out.

    Raises:
        ConfigurationError: an unknown method or key, or a value that does not fit.
    """
    if isinstance(method, Recipe):
        table = recipe_table(method)
    else:
        table = read_recipe(method) if is_recipe(method) else {"method": str(method)}
        table.pop("sweep", None)
    overrides = {
        "base": base,
        "texts": [str(source) for source in corpus] if corpus else None,
        "seed": seed,
        "data": None if data is None else str(data),
    }
    table = apply_settings(table | {key: value for key, value in overrides.items() if value is not None}, settings)
    if not isinstance(method, Recipe) and isinstance(table.get("method"), str):
        for section, keys in registry.method_recipe(table["method"]).items():
            chosen = table.get(section, {})
            table[section] = {**keys, **chosen} if isinstance(chosen, dict) else chosen
    return resolve_recipe(table)


def default_folder(method: str | Path | Recipe) -> Path:
    """Return where a run goes that is not told: ``runs/`` and the name of its method or recipe."""
    name = method.method if isinstance(method, Recipe) else Path(method).name.removesuffix(".toml")
    return Path("runs") / name.replace(".", "-")
