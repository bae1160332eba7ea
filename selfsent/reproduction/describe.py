"""A table or figure in lines to hold beside the paper: what each row trains, on what, and how it is averaged."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain

from selfsent.config import Recipe
from selfsent.reproduction.cost import training_cost
from selfsent.reproduction.plan import ArtifactPlan, PlannedRow, spell_out
from selfsent.reproduction.scale import ReproduceOptions, training_recipe
from selfsent.reproduction.spec import Measure, Training

_SAID = ("schedule", "warmup_steps", "weight_decay", "max_grad_norm", "adam_epsilon", "adam_bias_correction")


def describe_rows(plan: ArtifactPlan, options: ReproduceOptions) -> Iterator[str]:
    """Yield the lines of a table or figure; what all of its trainings share is said once.

    Validation is that of a run with ``--data``.
    """
    artifact = plan.artifact
    yield f"{artifact.id}: {artifact.title}"
    if plan.sketch:
        yield f"  drawn without training: {_join(_settings(plan.sketch))}; base {plan.sketch.base}"
    recipes = {row.row.name: _recipe(row, options) for row in plan.rows if row.recipe}
    runs = {name: _run(recipe, options) for name, recipe in recipes.items()}
    shared = _common(list(runs.values()))
    if shared:
        yield f"  every training: {_join(shared)}"
    same = {
        method: _common([_settings(recipe) for recipe in recipes.values() if recipe.method == method])
        for method in dict.fromkeys(recipe.method for recipe in recipes.values())
    }
    for method, settings in same.items():
        yield f"  every {method}: {_join(settings)}"
    if artifact.measures:
        yield f"  columns: {' | '.join(measure.name for measure in artifact.measures)}"
        yield from (f"  {line}" for line in describe_measures(artifact.measures))
    for row in plan.rows:
        parts = [_source(row)]
        if recipe := recipes.get(row.row.name):
            own = {key: value for key, value in _settings(recipe).items() if key not in same[recipe.method]}
            own |= {key: value for key, value in runs[row.row.name].items() if key not in shared}
            parts.append(_join(own))
        if row.row.published:
            values = [row.row.published.get(measure.name) for measure in artifact.measures]
            parts.append("published " + " ".join("-" if value is None else f"{value:.2f}" for value in values))
        parts.append(row.row.note)
        yield f"  {row.row.name}: {'; '.join(filter(None, parts))}"
    for claim in artifact.claims:
        yield f"  claim: {claim.words(claim.measure, artifact.published_lead(claim))}"
    if artifact.note:
        yield f"  note: {artifact.note}"


def _recipe(row: PlannedRow, options: ReproduceOptions) -> Recipe:
    """Return what is trained where there are evaluation data, by which the published runs choose their weights."""
    assert isinstance(row.row.source, Training)
    given = replace(options, data=options.data or "evaluation-data")
    return spell_out(training_recipe(row.row.source, options.first_seed, given))


def _run(recipe: Recipe, options: ReproduceOptions) -> dict[str, str]:
    train, steps = recipe.train, training_cost(recipe).steps
    passes = f"{train.epochs:g} epoch{'s' * (train.epochs != 1)}"
    length = f"{steps:,} steps" if train.steps else f"{passes} ({steps:,} steps)"
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    chosen = "the last weights" if train.select == "last" else f"best of {train.select}, every {train.evaluate_every}"
    return {
        "base": recipe.base,
        "texts": " ".join(recipe.texts),
        "rate": f"{train.learning_rate:g}",
        "batch": f"{train.batch_size * train.accumulation}",
        "length": length,
        "seeds": " ".join(map(str, seeds)),
        "validation": chosen,
        **{key: str(getattr(train, key)) for key in _SAID},
    }


def _settings(recipe: Recipe) -> dict[str, str]:
    """Return the settings of the method, its pooling, its longest text, and where its positives come from."""
    objective = {key: value for key, value in recipe.objective.items() if value is not None}
    # What a method takes where none is given.
    if objective.get("whitening") == "group" and "num_groups" not in objective:
        objective.setdefault("group_width", 2)
    of_spans = "num_anchors" in objective
    if of_spans:
        objective.setdefault("max_length", "of the encoder, to 512")
    column = recipe.corpus["positive_column"]
    given = {
        "pooling": recipe.encoder.pooling,
        "tokens": None if of_spans else recipe.corpus["max_length"],
        "positives": None if column == "positive" else column or "none",
        **objective,
    }
    return {key: str(value) for key, value in given.items() if value is not None}


def _common(tables: list[dict[str, str]]) -> dict[str, str]:
    first = tables[0] if tables else {}
    return {key: value for key, value in first.items() if all(table.get(key) == value for table in tables)}


def _join(table: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {value}" for key, value in table.items())


def _source(row: PlannedRow) -> str:
    kinds = {"": "", "target": ", whitened on each task", "other": ", whitened on --nli"}
    if row.recipe:
        return row.recipe.method + kinds[row.row.whitening]
    return f"{row.model}, {row.pooling} pooling{kinds[row.row.whitening]}, not trained" if row.model else "of others"


def describe_measures(measures: tuple[Measure, ...]) -> Iterator[str]:
    """Yield how tasks are scored, and how each mean is made."""
    kinds: dict[str, dict[str, None]] = {}
    for part in chain.from_iterable(group for measure in measures for group in measure.groups):
        split = "" if part.split == "test" else part.split
        kind = ", ".join(filter(None, (part.metric or "its main score", part.aggregation, split)))
        kinds.setdefault(kind, {})[part.task] = None
    for kind, tasks in kinds.items():
        yield f"{kind}: {' '.join(tasks)}"
    both = {group[0].task: group for measure in measures for group in measure.groups if len(group) > 1}
    for task, group in both.items():
        yield f"{task}: the mean of {' and '.join(part.metric for part in group)}"
    for measure in measures:
        sizes = list(map(len, measure.blocks))
        if len(sizes) > 1:
            yield f"{measure.name}: the mean of {len(sizes)} means, over {' and '.join(map(str, sizes))} tasks"
        elif sizes[0] > 1:
            yield f"{measure.name}: the mean over {sizes[0]} tasks"
