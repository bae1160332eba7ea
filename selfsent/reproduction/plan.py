"""Which runs and evaluations tables and figures need, each named once, and what they still lack."""

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from huggingface_hub import try_to_load_from_cache

from selfsent.config import Recipe, build_config, recipe_table
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import DEMO
from selfsent.encoder.folder import SHIPPED
from selfsent.errors import ConfigurationError, DataError
from selfsent.evaluation.mteb import PREFIX
from selfsent.evaluation.suite import read_suite
from selfsent.objectives import registry
from selfsent.reproduction.scale import (
    OPTION,
    ReproduceOptions,
    base_of,
    kind_of,
    pooling_of,
    texts_of,
    training_recipe,
)
from selfsent.reproduction.spec import Artifact, ArtifactRow, Training, Untrained
from selfsent.runtime.imports import import_datasets


@dataclass(frozen=True, kw_only=True)
class PlannedRow:
    """A row, and what measures it."""

    row: ArtifactRow
    recipe: Recipe | None = None  # of the first seed
    model: str = ""  # a base without training, or a checkpoint
    pooling: str | None = None
    run: str = ""  # the name of its training
    key: str = ""  # equal for rows that are one thing; empty: nothing measures it
    needs: tuple[str, ...] = ()  # "weights NAME", "data NAME"

    @property
    def measured(self) -> bool:
        """Whether it can be measured."""
        return bool(self.key) and not self.needs


@dataclass(frozen=True, kw_only=True)
class ArtifactPlan:
    """A table or figure, its rows, and the tasks that are evaluated."""

    artifact: Artifact
    rows: tuple[PlannedRow, ...]
    tasks: tuple[str, ...]  # with data
    missing: dict[str, str] = field(default_factory=dict)  # tasks without data, and why
    sketch: Recipe | None = None  # whose base and text a figure without scores is drawn from
    lacking: tuple[str, ...] = ()  # what that needs

    @property
    def needs(self) -> list[str]:
        """What its rows and measures lack, each once: weights first."""
        if self.sketch:
            return list(self.lacking)
        lacking = dict.fromkeys(need for row in self.rows for need in row.needs)
        needs = sorted(lacking, key=lambda need: not need.startswith("weights"))
        if not self.tasks:
            return [*needs, "data of the tasks (--data)"]
        return [*needs, *([f"data {' '.join(self.missing)}"] if self.missing else [])]

    @property
    def ready(self) -> bool:
        """Whether anything can be measured."""
        return not self.lacking if self.sketch else bool(self.tasks) and any(row.measured for row in self.rows)

    @property
    def state(self) -> str:
        """The state in words."""
        lacking = ", ".join(self.needs)
        if not self.ready:
            return f"needs {lacking}" if lacking else "as published"
        return f"ready, without {lacking}" if lacking else "ready"


def plan_artifacts(artifacts: Sequence[Artifact], options: ReproduceOptions) -> list[ArtifactPlan]:
    """Plan several tables and figures; evaluation data are read once.

    Raises:
        ConfigurationError: a setting of a row does not fit.
    """
    missing = find_missing(dict.fromkeys(task for artifact in artifacts for task in artifact.tasks), options)
    plans = []
    for artifact in artifacts:
        if artifact.sketch:
            recipe, lacking = _recipe_and_needs(artifact.sketch, options)
            plans.append(ArtifactPlan(artifact=artifact, rows=(), tasks=(), sketch=recipe, lacking=tuple(lacking)))
            continue
        named = {row.name for row in artifact.rows}
        others = (ArtifactRow(name=name) for name in options.checkpoints if name not in named)
        plans.append(
            ArtifactPlan(
                artifact=artifact,
                rows=tuple(plan_row(row, options) for row in (*artifact.rows, *others)),
                tasks=tuple(task for task in artifact.tasks if task not in missing),
                missing={task: missing[task] for task in artifact.tasks if task in missing},
            )
        )
    return plans


def plan_row(row: ArtifactRow, options: ReproduceOptions) -> PlannedRow:
    """Plan one row."""
    needs: list[str] = []
    if row.whitening == "other" and not options.texts.get("nli"):
        needs.append(f"data NLI sentences ({OPTION['nli']})")
    recipe, model, pooling = None, "", None
    if row.name in options.checkpoints:
        model = options.checkpoints[row.name]
    elif isinstance(row.source, Untrained):
        model, pooling = base_of(row.source, options), pooling_of(row.source, options)
    elif isinstance(row.source, Training):
        recipe, lacking = _recipe_and_needs(row.source, options)
        needs += lacking
    else:
        return PlannedRow(row=row)
    if model and not has_weights(model):
        needs.insert(0, f"weights {model}")
    identity = {"recipe": recipe and _identity(recipe), "model": model, "pooling": pooling}
    return PlannedRow(
        row=row,
        recipe=recipe,
        model=model,
        pooling=pooling,
        run=digest(identity) if recipe else "",
        key=digest({**identity, "whitening": row.whitening}),
        needs=tuple(needs),
    )


def _recipe_and_needs(source: Training, options: ReproduceOptions) -> tuple[Recipe, list[str]]:
    """Return the recipe of a training for the first seed, and the weights and texts that it lacks."""
    recipe = spell_out(training_recipe(source, options.first_seed, options))
    kind, texts = kind_of(source, options), texts_of(source, options)
    needs = [] if has_weights(recipe.base) else [f"weights {recipe.base}"]
    needs += [] if texts else [f"data {kind} ({OPTION[kind]})"]
    return recipe, needs + [f"data {name}" for name in texts if not _has_text(name)]


def spell_out(recipe: Recipe) -> Recipe:
    """Return a recipe with every default of its objective and corpus, and without published scores.

    Rows that are one training by different words, such as a default that one of them names, are then equal.
    """
    objective = registry.plan_objective(recipe.method, recipe.objective).table()
    corpus = asdict(build_config(CorpusConfig, recipe.corpus, "corpus"))
    return replace(recipe, objective=objective, corpus=corpus, paper={})


def _identity(recipe: Recipe) -> dict[str, object]:
    """Return everything that decides a training but its seed."""
    table = recipe_table(recipe)
    for aside in ("seed", "hardware"):
        del table[aside]
    return table


def digest(content: object) -> str:
    """Return a short name of anything that JSON holds."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def has_weights(base: str) -> bool:
    """Tell whether a base can be opened without a download."""
    if base in SHIPPED or Path(base).is_dir():
        return True
    try:
        return isinstance(try_to_load_from_cache(base, "config.json"), str)
    except ValueError:  # not a name of the hub
        return False


def _has_text(name: str) -> bool:
    if name == DEMO or Path(name).exists():
        return True
    if "/" not in name or name.startswith((".", "/")):
        return False
    try:
        config = import_datasets(name).config
    except ConfigurationError:  # nothing of the hub is read without the package
        return False
    return any(Path(config.HF_DATASETS_CACHE).glob(f"{name.split(':')[0].replace('/', '___')}*"))


def find_missing(tasks: Collection[str], options: ReproduceOptions) -> dict[str, str]:
    """Return the tasks without data, and why; those of MTEB load theirs from the hub when data is ``hub``."""
    missing = {task: "left out" for task in tasks if task in options.left_out}
    wanted = [task for task in tasks if task not in missing]
    of_mteb = [task for task in wanted if task.startswith(PREFIX)]
    own = [task for task in wanted if task not in of_mteb]
    if options.data != "hub":
        missing |= dict.fromkeys(of_mteb, "of the package mteb, which loads it from the hub: --data hub")
    if options.data is None:
        return missing | dict.fromkeys(own, "--data is not given")
    try:
        absent = read_suite(own, options.data).missing if own else {}
    except DataError:
        return missing | dict.fromkeys(own, f"nothing in {options.data}")
    return missing | {task: str(path) for task, path in absent.items()}
