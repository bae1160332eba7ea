"""The command that repeats a run: every setting of its recipe that differs from the method's defaults."""

import dataclasses
import json
import shlex
from contextlib import suppress
from typing import Any

from selfsent import methods
from selfsent.config import Table, apply_settings, recipe_table, resolve_recipe
from selfsent.errors import UserError
from selfsent.report.read import Record, flatten

_PRETRAIN_OPTIONS = ("size", "base", "vectors", "vocabulary", "tokens", "hours", "seed")


def command_of_run(run: Record) -> str:
    """Return the command line of a run, from its config.json, without ``--out``.

    For a training run, ``api.resolve`` of this command gives the recipe of the run.
    """
    recipe, texts = run.recipe, [str(text) for text in run.recipe.get("texts", ())]
    defaults: Table = {}
    if run.pretraining:
        from selfsent.pretraining import static_vectors, train

        options: tuple[str, ...] = _PRETRAIN_OPTIONS
        words = ["selfsent", "pretrain", *texts]
        config: Any = static_vectors.StaticConfig() if recipe.get("size") == "static" else train.PretrainConfig()
        defaults = json.loads(json.dumps(dataclasses.asdict(config)))
    else:
        options = ("base", "data", "seed")
        words = ["selfsent", "train", recipe["method"], *(word for text in texts for word in ("--corpus", text))]
        with suppress(UserError):  # a method that is not installed here: every key is written out
            defaults = recipe_table(resolve_recipe({"method": recipe["method"], **methods.method_recipe(words[2])}))
    for option in options:
        if recipe.get(option) is not None:
            words += [f"--{option}", str(recipe[option])]
    known = dict(flatten(defaults))
    rest = {key: value for key, value in recipe.items() if key not in ("method", "texts", "paper", *options)}
    for key, value in flatten(rest):
        if key not in known or known[key] != value:
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
