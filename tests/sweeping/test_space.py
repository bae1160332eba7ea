"""What --set, --range and a recipe's lists mean."""

import pytest

from selfsent.config import apply_settings
from selfsent.errors import ConfigurationError
from selfsent.sweeping.space import as_settings, grid_points, parse_range, random_points, read_lists, split_settings
from selfsent.sweeping.trials import plan_points


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.05,0.1", ["0.05", "0.1"]),
        ("0.05, 0.1", ["0.05", "0.1"]),
        ("mean,cls", ["mean", "cls"]),
        ("none,0.1", ["none", "0.1"]),
        ("[0.9,0.98],[0.9,0.999]", ["[0.9,0.98]", "[0.9,0.999]"]),
        ("'a,b',c", ["'a,b'", "c"]),
    ],
)
def test_values_are_split_at_commas_outside_brackets_and_quotes(text, values):
    single, (swept,) = split_settings(["train.steps=3", f"key={text}"])
    assert single == ["train.steps=3"]
    assert (swept.key, list(swept.values)) == ("key", values)


@pytest.mark.parametrize("text", ["0.05", "[0.9,0.98]", "'a,b'", '"a,b"', "{a=1,b=2}", "none"])
def test_one_value_is_no_list(text):
    assert split_settings([f"key={text}"]) == ([f"key={text}"], [])


def test_ranges_of_whole_numbers_are_told_from_others():
    steps, rate, decay = map(parse_range, ("train.steps=100..400", "a=1e-5..1e-3:log", "b=0..0.1"))
    assert (steps.low, steps.high, steps.whole, steps.log) == (100, 400, True, False)
    assert (rate.low, rate.high, rate.whole, rate.log) == (1e-5, 1e-3, False, True)
    assert (decay.low, decay.high, decay.whole) == (0, 0.1, False)


def test_lists_of_a_recipe_come_back_as_the_values_they_were():
    table = {"train": {"adam_betas": [[0.9, 0.9], [0.8, 0.9]]}, "base": ["true", "a b"], "x": {"y": [None, 1e-8, True]}}
    for swept in read_lists(table):
        *path, last = swept.key.split(".")
        inner = table
        for part in path:
            inner = inner[part]
        assert [apply_settings({}, [f"v={value}"])["v"] for value in swept.values] == inner[last]


def test_the_grid_has_every_combination_the_last_key_fastest():
    _, space = split_settings(["a=1,2", "b=x,y,z"])
    points = [as_settings(point) for point in grid_points(space)]
    assert points == [[f"a={a}", f"b={b}"] for a in "12" for b in "xyz"]


def test_random_settings_are_drawn_evenly_and_none_twice():
    _, space = split_settings(["a=1,2", "b=x,y,z"])
    every = {tuple(as_settings(point)) for point in grid_points(space)}
    assert {tuple(as_settings(point)) for point in random_points(space, 100, seed=3)} == every
    pairs = [frozenset(tuple(as_settings(p)) for p in random_points(space, 2, seed)) for seed in range(3_000)]
    counts = [pairs.count(pair) for pair in {*pairs}]
    assert len(counts) == 15  # 6 over 2
    assert 140 < min(counts) <= max(counts) < 265  # 200 each, more than four deviations on either side


def test_random_settings_of_a_grid_that_no_memory_holds_are_drawn_at_once():
    _, space = split_settings([f"k{key}=0,1,2,3,4,5,6,7,8,9" for key in range(30)])
    assert len({tuple(as_settings(point)) for point in random_points(space, 50, seed=1)}) == 50
    assert plan_points(space, "random", 5, 1) == random_points(space, 5, seed=1)
    assert len(plan_points(space, "grid", 7, 1) or ()) == 7
    with pytest.raises(ConfigurationError, match="more than 10,000 combinations: add --trials"):
        plan_points(space, "grid", None, 1)


@pytest.mark.parametrize("table", [{"train.steps": 3}, {"train": {"steps": [3]}}, {"a": "3"}])
def test_a_table_without_lists_is_refused(table):
    with pytest.raises(ConfigurationError, match="write"):
        read_lists(table)
