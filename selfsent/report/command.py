"""The command that repeats a run: what its recipe asks for beyond what the method gives by itself."""

import dataclasses
import json
import shlex
from collections.abc import Mapping
from typing import Any

from selfsent import config as recipes
from selfsent import methods
from selfsent.errors import UserError
from selfsent.report.gather import Record, flatten

_PRETRAIN_FLAGS = ("size", "base", "vectors", "vocabulary", "tokens", "hours", "seed")
_FLAGS = ("method", "base", "texts", "data", "seed", "paper")  # said otherwise, or, as paper, of no effect


def of_run(run: Record) -> str:
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


def _usual(method: str) -> recipes.Table:
    """Return what a recipe that names the method alone resolves to."""
    table: recipes.Table = {"method": method}
    try:
        table |= methods.recipe(method)
        return recipes.as_table(recipes.resolve(table))
    except UserError:
        return {}  # a method that is not installed here: every key is written out


def _pretrain(recipe: Mapping[str, Any]) -> list[str]:
    from selfsent.pretrain import training, vectors

    words = ["selfsent", "pretrain", *map(str, recipe.get("texts", ()))]
    for flag in _PRETRAIN_FLAGS:
        if recipe.get(flag) is not None:
            words += [f"--{flag}", str(recipe[flag])]
    settings = vectors.Settings() if recipe.get("size") == "static" else training.Settings()
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
    read = recipes.change({}, [f"key={text}"])["key"]
    return text if read == text else json.dumps(text, ensure_ascii=False)
