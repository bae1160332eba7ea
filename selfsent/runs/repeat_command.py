"""The command that repeats a run: every setting of its recipe that differs from the method's defaults."""

import json
import shlex
from collections.abc import Sequence
from contextlib import suppress

from selfsent.config import Table, apply_settings, recipe_table, resolve_recipe
from selfsent.errors import UserError
from selfsent.objectives import registry
from selfsent.runs.read import Record, flatten


def command_of_run(run: Record) -> str:
    """Return the command line of a training run, from its config.json, without ``--out``.

    ``training.train.resolve`` of this command gives the recipe of the run.
    """
    recipe, method = run.recipe, run.recipe["method"]
    defaults: Table = {}
    words = ["selfsent", "train", *map(str, recipe.get("texts", ())), "--method", method]
    with suppress(UserError):  # a method that is not installed here: every key is written out
        defaults = recipe_table(resolve_recipe({"method": method, **registry.method_recipe(method)}))
    return command_line(words, recipe, ("base", "data", "seed"), defaults)


def command_line(words: Sequence[str], recipe: Table, options: Sequence[str], defaults: Table) -> str:
    """Add the options of a recipe to the first words of a command, and ``--set`` where it differs from the defaults."""
    words = [*words]
    for option in options:
        if recipe.get(option) is not None:
            words += [f"--{option}", str(recipe[option])]
    default_values = dict(flatten(defaults))
    rest = {key: value for key, value in recipe.items() if key not in ("method", "texts", "paper", *options)}
    for key, value in flatten(rest):
        if key not in default_values or default_values[key] != value:
            words += ["--set", f"{key}={setting_value(value)}"]
    return shlex.join(words)


def setting_value(value: object) -> str:
    """Write a value so that ``--set`` parses it back to the same value."""
    if value is None:
        return "none"
    if isinstance(value, bool | int | float | list | tuple):
        return json.dumps(value)
    text = str(value)
    parsed = apply_settings({}, [f"key={text}"])["key"]
    return text if parsed == text else json.dumps(text, ensure_ascii=False)
