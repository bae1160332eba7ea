"""Recipes: what is written is what runs, and what cannot run is refused by name."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfsent.config import (
    Recipe,
    TrainConfig,
    apply_settings,
    build_config,
    describe,
    read_recipe,
    recipe_table,
    resolve_recipe,
)
from selfsent.corpus.settings import CorpusConfig
from selfsent.errors import UserError
from selfsent.selection.settings import FitConfig
from selfsent.sweeping.space import split_settings


def resolved(*settings: str, **table):
    return resolve_recipe(apply_settings({"method": "simcse"} | table, settings))


def test_a_recipe_without_changes_has_the_defaults():
    recipe = resolved()
    assert (recipe.base, recipe.texts, recipe.seed) == ("builtin", ("pydocs",), 42)
    assert recipe.train == TrainConfig()


def test_settings_reach_their_table_with_their_type():
    recipe = resolved(
        "train.steps=7", "train.learning_rate=1e-4", "train.bucketed=false", "corpus.max_texts=9", "seed=3"
    )
    assert (recipe.train.steps, recipe.train.learning_rate, recipe.train.bucketed) == (7, 1e-4, False)
    assert (recipe.corpus, recipe.seed) == ({"max_texts": 9}, 3)


def test_words_and_none_need_no_quotes():
    assert resolved("encoder.pooling=mean").encoder.pooling == "mean"
    assert resolved("train.steps=none", train={"steps": 4}).train.steps is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["train.batchsize=8"], r"unknown key 'train\.batchsize': did you mean 'train\.batch_size'"),
        (["treain.steps=8"], "unknown key 'treain': did you mean 'train'"),
        (["train.steps=many"], r"train\.steps = 'many' does not fit"),
        (["train.steps"], "write key=value"),
        (["train.steps=0"], r"train\.steps = 0 does not fit: it must be at least 1"),
        (["train.batch_size=1"], r"train\.batch_size = 1 does not fit: it must be at least 2"),
        (["train.schedule=linaer"], r"unknown train\.schedule 'linaer': did you mean 'linear'"),
        (["train=5"], "train = 5 does not fit: it is a table"),
        (["seed.x=5"], "seed"),
    ],
)
def test_what_cannot_be_is_refused_by_name(settings, message):
    with pytest.raises(UserError, match=message):
        resolved(*settings)


def test_a_missing_recipe_file_and_a_broken_one_are_said_to_be_so(tmp_path):
    with pytest.raises(UserError, match="there is no recipe"):
        read_recipe(tmp_path / "none.toml")
    (tmp_path / "broken.toml").write_text("method = ")
    with pytest.raises(UserError, match="is not a recipe in TOML"):
        read_recipe(tmp_path / "broken.toml")


def test_a_recipe_survives_the_way_into_json_and_back():
    recipe = resolved("train.steps=7", "encoder.dropout=0.2", paper={"average": 76.25})
    assert resolve_recipe(recipe_table(recipe)) == recipe


def test_a_pair_of_numbers_is_described_by_the_bounds_of_each():
    kinds = {setting.key: setting.kind for setting in describe(Recipe)}
    assert kinds["train.adam_betas"] == "float at least 0 below 1, float at least 0 below 1"


KEYS = [setting.key for setting in describe(Recipe)] + [f"corpus.{setting.key}" for setting in describe(CorpusConfig)]
ANY_TEXT = st.text(st.characters(), max_size=20)  # lone surrogates are what a shell's invalid bytes become
VALUES = (
    st.integers().map(str)
    | st.floats().map(str)
    | st.booleans().map(json.dumps)
    | st.lists(st.integers()).map(str)
    | st.sampled_from(
        ["none", "9" * 5000, "[" * 5000, "{a.b=1}", '"', "1e999", "2026-01-01", "", "0x1", "'x", "\\ud800"]
    )
    | ANY_TEXT
)


@given(st.lists(st.tuples(st.sampled_from(KEYS), VALUES).map("=".join) | ANY_TEXT, max_size=3))
@settings(max_examples=400, deadline=None)
def test_any_setting_is_accepted_or_refused_in_one_sentence(given_settings):
    def refused_or(make):
        try:
            return make()
        except UserError as error:
            return str(error) == ""

    recipe = refused_or(lambda: resolved(*given_settings))
    if recipe:
        refused_or(lambda: build_config(CorpusConfig, recipe.corpus, "corpus"))
        assert resolve_recipe(json.loads(json.dumps(recipe_table(recipe)))) == recipe  # what a run writes down
    refused_or(lambda: build_config(FitConfig, apply_settings({}, given_settings), ""))
    refused_or(lambda: split_settings(given_settings))
