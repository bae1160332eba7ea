"""Tables: rounding, columns, and the papers' figures, which stand in the recipes alone."""

import pytest

from selfsent.config import RECIPES, recipe_table
from selfsent.runs import tables
from selfsent.training import train


def test_a_number_that_rounds_to_zero_has_no_sign():
    assert tables.format_value(-0.04, 1) == "0.0"
    assert tables.format_value(-1.25, 1) == "−1.2"


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_figures_of_a_recipe_are_those_of_its_paper_table(path):
    recipe = recipe_table(train.resolve(path))
    row = tables.published_row(recipe)
    if not recipe["paper"]:
        assert row is None or not row.own
        return
    assert row.own
    assert row.base == recipe["base"]
    sets = [recipe["paper"][name] for name in tables.SETS if name in recipe["paper"]]
    if len(sets) == len(tables.SETS) and "downstream" not in recipe["paper"]:
        average = row.figures[tables.AVERAGE, "test", "spearman", "all"]
        assert average == pytest.approx(sum(sets) / 7, abs=0.015)


@pytest.mark.parametrize(
    ("method", "base", "key", "value"),
    [
        ("simcse", "bert-base-uncased", ("stsb", "test", "spearman", "all"), 76.85),
        ("simcse", "bert-base-uncased", ("mr", "test", "accuracy", ""), 81.18),
        ("scd_released", "bert-base-uncased", ("trec", "test", "accuracy", ""), 83.60),
        ("declutr", "distilroberta-base", ("sts12", "test", "spearman", "mean"), 64.10),
        ("denosent", "bert-base-uncased", (tables.AVERAGE, "test", "spearman", "all"), 79.33),
        ("whitenedcse", "bert-base-uncased", ("sickr", "test", "spearman", "all"), 71.33),
    ],
)
def test_a_recipe_without_figures_is_given_those_of_its_method_from_another_base(method, base, key, value):
    row = tables.published_row({"method": method, "base": "builtin"})
    assert (row.base, row.own, row.figures[key]) == (base, False, value)


def test_regressions_of_declutr_and_unknown_methods_have_no_published_figure():
    assert all(key[0] in tables.YEARS for key in tables.published_row({"method": "declutr"}).figures)
    assert tables.published_row({"method": "mypackage.mine"}) is None
    assert tables.published_row({}) is None
