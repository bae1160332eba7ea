"""The command that repeats a run: what its recipe asks for beyond what the method gives by itself."""

import dataclasses
import json
import shlex
from collections.abc import Mapping
from typing import Any

from selfsent import methods
from selfsent.config import Table, apply_settings, recipe_table, resolve_recipe
from selfsent.errors import UserError
from selfsent.report.read import Record, flatten

_PRETRAIN_FLAGS = ("size", "base", "vectors", "vocabulary", "tokens", "hours", "seed")
_FLAGS = ("method", "base", "texts", "data", "seed", "paper")  # said otherwise, or, as paper, of no effect


def command_of_run(run: Record) -> str:
    """Return the command line of a run, from its config.json; ``--out`` is left for the reader to choose.

    ``api.resolve`` of what it says gives the recipe that the run was made with.
    """
    return shlex.join(_train(run.recipe) if run.kind == "train" else _pretrain(run.recipe))


def _train(recipe: Mapping[str, Any]) -> list[str]:
    words = ["selfsent", "train", str(recipe["method"]), "--base", str(recipe.get("base", "builtin"))]
    for text in recipe.get("texts", ()):
        words += ["--corpus", str(text)]
    if recipe.get("data"):
        words += ["--data", str(recipe["data"])]
    words += ["--seed", str(recipe.get("seed", 42))]
    usual = dict(flatten(_usual(str(recipe["method"]))))
    for key, value in flatten({key: value for key, value in recipe.items() if key not in _FLAGS}):
        if key not in usual or usual[key] != value:
            words += ["--set", f"{key}={written(value)}"]
    return words


def _usual(method: str) -> Table:
    """Return what a recipe that names the method alone resolves to."""
    table: Table = {"method": method}
    try:
        table |= methods.method_recipe(method)
        return recipe_table(resolve_recipe(table))
    except UserError:
        return {}  # a method that is not installed here: every key is written out


def _pretrain(recipe: Mapping[str, Any]) -> list[str]:
    from selfsent.pretraining import static_vectors, train

    words = ["selfsent", "pretrain", *map(str, recipe.get("texts", ()))]
    for flag in _PRETRAIN_FLAGS:
        if recipe.get(flag) is not None:
            words += [f"--{flag}", str(recipe[flag])]
    settings = static_vectors.StaticConfig() if recipe.get("size") == "static" else train.PretrainConfig()
    usual = dict(flatten(json.loads(json.dumps(dataclasses.asdict(settings)))))
    for key, value in flatten({key: value for key, value in recipe.items() if key not in (*_PRETRAIN_FLAGS, "texts")}):
        if key not in usual or usual[key] != value:
            words += ["--set", f"{key}={written(value)}"]
    return words


def written(value: object) -> str:
    """Write a value so that ``--set`` reads the same one back."""
    if value is None:
        return "none"
    if isinstance(value, bool | int | float | list | tuple):
        return json.dumps(value)
    text = str(value)
    read = apply_settings({}, [f"key={text}"])["key"]
    return text if read == text else json.dumps(text, ensure_ascii=False)
