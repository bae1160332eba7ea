"""The command on the page repeats the run: read back, it resolves to the recipe that the run was made with."""

import shlex
from pathlib import Path

import pytest
from made_runs import write_run

import selfsent
from selfsent import api
from selfsent.config import apply_settings, recipe_table
from selfsent.report import command, published, read

RECIPES = sorted((Path(selfsent.__file__).parent / "recipes").glob("*.toml"))


def read_back(line):
    """Resolve a command as the command line would."""
    words = shlex.split(line)
    assert words[:2] == ["selfsent", "train"]
    given = {}
    for flag, value in zip(words[3::2], words[4::2], strict=True):
        given.setdefault(flag, []).append(value)
    (base,), (seed,) = given["--base"], given["--seed"]
    data = given.get("--data", [None])[0]
    return api.resolve(
        words[2], base=base, corpus=given["--corpus"], seed=int(seed), data=data, settings=given.get("--set", ())
    )


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_command_of_every_recipe_resolves_to_that_recipe(path, tmp_path):
    recipe = recipe_table(api.resolve(path, data="some where/data", seed=7))
    run = read.read_run(write_run(tmp_path / "run", **{**recipe, "seed": 7}))
    assert recipe_table(read_back(command.command_of_run(run))) == {**recipe, "paper": {}}


def test_strings_that_look_like_something_else_come_back_as_they_were():
    for value in ("true", "none", "3", "a b", 'quo"te', None, True, 3, 1e-08, [0.9, 0.999]):
        assert apply_settings({}, [f"key={command.written(value)}"]) == {"key": value}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_papers_rows_of_the_recipes_are_those_of_the_report(path):
    recipe = recipe_table(api.resolve(path))
    own = published.published_row(recipe)
    if not recipe["paper"]:
        assert own is None or not own.own
        return
    assert own.own
    names = {"bert-base-uncased": "BERT-base", "bert-large-uncased": "BERT-large", "roberta-base": "RoBERTa-base"}
    names |= {"roberta-large": "RoBERTa-large", "distilroberta-base": "DistilRoBERTa"}
    method = recipe["method"].split("_")[0]
    rows = {**published._STS, **published._STS_MEAN}[method]
    if names[recipe["base"]] not in rows or path.stem == "denosent-bert-base":  # the latter is a released checkpoint's
        return
    of_method = published._figures(method, names[recipe["base"]])
    shared = own.figures.keys() & of_method.keys()
    assert len(shared) >= 5
    assert {key: own.figures[key] for key in shared} == {key: of_method[key] for key in shared}
