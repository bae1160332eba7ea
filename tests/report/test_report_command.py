"""The command on the page repeats the run: read back, it resolves to the recipe that the run was made with."""

import shlex

import pytest
from made_runs import write_run

from selfsent.config import RECIPES, apply_settings, recipe_table
from selfsent.runs import read, repeat_command
from selfsent.training import train


def read_back(line):
    """Resolve a command as the command line would."""
    words = shlex.split(line)
    assert words[:2] == ["selfsent", "train"]
    given = {}
    first = words.index("--method")
    for flag, value in zip(words[first::2], words[first + 1 :: 2], strict=True):
        given.setdefault(flag, []).append(value)
    (method,), (base,), (seed,) = given["--method"], given["--base"], given["--seed"]
    data = given.get("--data", [None])[0]
    return train.resolve(
        method, base=base, corpus=words[2:first], seed=int(seed), data=data, settings=given.get("--set", ())
    )


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_command_of_every_recipe_resolves_to_that_recipe(path, tmp_path):
    recipe = recipe_table(train.resolve(path, data="some where/data", seed=7))
    run = read.read_run(write_run(tmp_path / "run", **{**recipe, "seed": 7}))
    assert recipe_table(read_back(repeat_command.command_of_run(run))) == {**recipe, "paper": {}}


def test_strings_that_look_like_something_else_come_back_as_they_were():
    for value in ("true", "none", "3", "a b", 'quo"te', None, True, 3, 1e-08, [0.9, 0.999]):
        assert apply_settings({}, [f"key={repeat_command.setting_value(value)}"]) == {"key": value}
