"""Where the time is too short for every training of a selection, the better half goes on, round by round."""

import numpy as np
import pytest
from tiny import TEXTS

import selfsent
from selfsent.selection import stages
from selfsent.selection.stages import Stages
from selfsent.training import train as train_module

WORDS = sorted({word for text in TEXTS for word in text.split()})
SETTINGS = ["steps=100", "batch_size=8", "bootstrap=100", 'methods=["simcse", "scd", "whitenedcse"]']


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SELFSENT_CACHE", str(tmp_path_factory.mktemp("halving-cache")))
        yield


@pytest.fixture
def lines():
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(WORDS, 14)) for _ in range(420)]


@pytest.fixture
def steps(monkeypatch):
    """Let the time be enough for so many steps in all."""

    def enough(count, slower=1.0):
        def left(self, training):
            rates = {"simcse": 1.0, "scd": 1.0, "whitenedcse": slower}
            return (count - sum(self.plan._content.get("steps", {}).values())) * rates[training.method]

        monkeypatch.setattr(stages, "_FEWEST", 25)
        monkeypatch.setattr(Stages, "_affordable", left)

    return enough


def trained(result):
    """Steps of every training, by its name."""
    return {row["name"]: row["how"] for row in result.rows if " steps" in row["how"]}


def test_the_better_half_goes_on_and_the_last_has_most_of_the_time(bert, lines, steps, tmp_path, monkeypatch):
    seen, asked = [], []
    value, train = Stages.value, train_module.train
    monkeypatch.setattr(Stages, "value", lambda self, one: seen.append((one.name, value(self, one))) or seen[-1][1])
    monkeypatch.setattr(train_module, "train", lambda *given, **how: asked.append(how) or train(*given, **how))
    steps(225)
    result = selfsent.fit(lines, base=str(bert), out=tmp_path / "fit", minutes=5.0, settings=SETTINGS)
    values, name = dict(reversed(seen)), bert.name
    methods = ["simcse", "scd", "whitenedcse"]
    first = {method: values[f"{name} + {method}, round 1"] for method in methods}
    left = sorted(methods, key=lambda method: -first[method])[:2]
    second = {method: values[f"{name} + {method}, round 2"] for method in left}
    (best,) = sorted(left, key=lambda method: -second[method])[:1]
    assert trained(result) == {
        **{f"{name} + {method}, round 1": f"{method}, 25 steps" for method in methods},  # 225 / 3 rounds / 3
        **{f"{name} + {method}, round 2": f"{method}, 50 steps" for method in left},  # and 150 / 2 / 2, in 25s
        f"{name} + {best}": f"{best}, 100 steps",  # and all that was asked for
    }
    starts = [how["base"] for how in asked]
    assert starts[:3] == [str(bert)] * 3
    assert ["round-1" in start for start in starts[3:]] == [True, True, False]
    assert "round-2" in starts[5]
    assert len(set(starts[3:])) == 3  # each from where its last round ended


@pytest.mark.parametrize(("enough", "each"), [(301, 100), (120, 25)])
def test_with_time_for_all_or_for_no_first_round_there_is_one_round(bert, lines, steps, tmp_path, enough, each):
    steps(enough)
    result = selfsent.fit(lines, base=str(bert), out=tmp_path / "fit", minutes=5.0, settings=SETTINGS)
    names = [f"{bert.name} + {method}" for method in ("simcse", "scd", "whitenedcse")]
    assert set(trained(result)) == set(names)
    assert trained(result)[names[0]] == f"simcse, {each} steps"


def test_a_slow_training_has_all_its_steps_where_the_time_is_enough_for_all(bert, lines, steps, tmp_path):
    steps(700, slower=0.4)  # in these units 100 of its steps take 250, those of the others 100 each
    result = selfsent.fit(lines, base=str(bert), out=tmp_path / "fit", minutes=5.0, settings=SETTINGS)
    assert sorted(how.split(", ")[1] for how in trained(result).values()) == ["100 steps"] * 3


@pytest.mark.parametrize(("given", "rate"), [((), 1e-5), (("learning_rate=0.001",), 1e-3)])
def test_a_rate_that_was_given_is_the_rate_of_single_lines(bert, lines, steps, tmp_path, monkeypatch, given, rate):
    """Otherwise it is a fifth of that of pairs, 5e-5."""
    asked, train = [], train_module.train
    monkeypatch.setattr(
        train_module, "train", lambda *words, **how: asked.append(how["settings"]) or train(*words, **how)
    )
    steps(301)
    settings = [*SETTINGS[:-1], 'methods=["simcse"]', *given]
    selfsent.fit(lines, base=str(bert), out=tmp_path / "fit", minutes=5.0, settings=settings)
    rates = [one.partition("=")[2] for settings in asked for one in settings if one.startswith("train.learning_rate=")]
    assert list(map(float, rates)) == pytest.approx([rate])


def test_with_less_time_there_are_fewer_rounds(bert, lines, steps, tmp_path):
    steps(150)  # 50 for each: two rounds of 25, of which the second has two
    result = selfsent.fit(lines, base=str(bert), out=tmp_path / "fit", minutes=5.0, settings=SETTINGS)
    rounds = [name.endswith("round 1") for name in trained(result)]
    assert (sum(rounds), len(rounds) - sum(rounds)) == (3, 2)
    seconds = {row["name"]: row["seconds"] for row in result.rows}
    for name in trained(result):
        assert name.endswith("round 1") or seconds[name] > seconds[f"{name}, round 1"]


def test_a_selection_that_is_killed_between_its_rounds_ends_the_same(bert, lines, steps, tmp_path, monkeypatch):
    steps(225)
    given = {"texts": lines, "base": str(bert), "minutes": 5.0, "settings": SETTINGS}
    whole = selfsent.fit(out=tmp_path / "whole", **given)
    train, calls = train_module.train, []

    def dies(*positional, **how):
        calls.append(how)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return train(*positional, **how)

    with monkeypatch.context() as patched:
        patched.setattr(train_module, "train", dies)
        with pytest.raises(KeyboardInterrupt):
            selfsent.fit(out=tmp_path / "killed", **given)
    resumed = selfsent.fit(out=tmp_path / "killed", resume=True, **given)
    assert [{**row, "seconds": 0} for row in resumed.rows] == [{**row, "seconds": 0} for row in whole.rows]
    assert resumed.sentences == whole.sentences
    one, other = ((folder / "model" / "model.safetensors").read_bytes() for folder in (resumed.folder, whole.folder))
    assert one == other
