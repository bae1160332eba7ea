"""The command that repeats a run: every setting of its recipe that differs from the method's defaults."""

import dataclasses
import json
import shlex
from collections.abc import Collection, Iterator
from typing import Any

from selfsent import methods
from selfsent.config import Table, apply_settings, recipe_table, resolve_recipe
from selfsent.errors import UserError
from selfsent.report.read import Record, flatten

_PRETRAIN_OPTIONS = ("size", "base", "vectors", "vocabulary", "tokens", "hours", "seed")
_TRAIN_OPTIONS = ("method", "base", "texts", "data", "seed", "paper")  # paper changes nothing


def command_of_run(run: Record) -> str:
    """Return the command line of a run, from its config.json, without ``--out``.

    For a training run, ``api.resolve`` of this command gives the recipe of the run.
    """
    return shlex.join(_train(run.recipe) if run.kind == "train" else _pretrain(run.recipe))


def _train(recipe: Table) -> list[str]:
    words = ["selfsent", "train", str(recipe["method"]), "--base", str(recipe.get("base", "builtin"))]
    for text in recipe.get("texts", ()):
        words += ["--corpus", str(text)]
    if recipe.get("data"):
        words += ["--data", str(recipe["data"])]
    words += ["--seed", str(recipe.get("seed", 42))]
    return [*words, *_settings(recipe, _method_defaults(str(recipe["method"])), _TRAIN_OPTIONS)]


def _method_defaults(method: str) -> Table:
    """Return what a recipe that gives only the method resolves to."""
    table: Table = {"method": method}
    try:
        table |= methods.method_recipe(method)
        return recipe_table(resolve_recipe(table))
    except UserError:
        return {}  # a method that is not installed here: every key is written out


def _pretrain(recipe: Table) -> list[str]:
    from selfsent.pretraining import static_vectors, train

    words = ["selfsent", "pretrain", *map(str, recipe.get("texts", ()))]
    for option in _PRETRAIN_OPTIONS:
        if recipe.get(option) is not None:
            words += [f"--{option}", str(recipe[option])]
    config: Any = static_vectors.StaticConfig() if recipe.get("size") == "static" else train.PretrainConfig()
    defaults = json.loads(json.dumps(dataclasses.asdict(config)))
    return [*words, *_settings(recipe, defaults, (*_PRETRAIN_OPTIONS, "texts"))]


def _settings(recipe: Table, defaults: Table, options: Collection[str]) -> Iterator[str]:
    """Yield ``--set KEY=VALUE`` for each key that is not an option of its own and not the default."""
    known = dict(flatten(defaults))
    for key, value in flatten({key: value for key, value in recipe.items() if key not in options}):
        if key not in known or known[key] != value:
            yield from ("--set", f"{key}={setting_value(value)}")


def setting_value(value: object) -> str:
    """Write a value so that ``--set`` parses it back to the same value."""
    if value is None:
        return "none"
    if isinstance(value, bool | int | float | list | tuple):
        return json.dumps(value)
    text = str(value)
    parsed = apply_settings({}, [f"key={text}"])["key"]
    return text if parsed == text else json.dumps(text, ensure_ascii=False)
