"""The time of a selection: decisions are kept, seconds add up, and a base's rate decides how many steps fit."""

import json

import pytest

from selfsent.errors import Interrupted
from selfsent.selection.budget import Budget
from selfsent.storage import atomic

START = 0.25  # seconds of an encoding that are none of its texts


@pytest.fixture
def clock():
    seconds = iter([0.0, 10.0, 100.0, 130.0, 500.0, 507.0])
    return lambda: next(seconds)


@pytest.fixture
def budget(tmp_path, clock):
    return Budget(tmp_path / "plan.json", {}, 10.0, clock=clock)


def spend(budget, name, ending=None):
    with budget.timed(name):
        if ending:
            raise ending
    return budget.seconds(name)


def test_what_was_decided_once_stays(budget):
    assert (budget.once("steps", "a", 50), budget.once("steps", "a", 60)) == (50, 50)


def test_the_seconds_of_a_training_that_is_interrupted_count(budget, tmp_path, clock):
    spend(budget, "bases")
    with pytest.raises(Interrupted):
        spend(budget, "training", Interrupted("Ctrl-C"))
    resumed = Budget(tmp_path / "plan.json", atomic.read_sealed(tmp_path / "plan.json", ""), 10.0, clock=clock)
    assert resumed.spent == 40
    assert spend(resumed, "training") == 37  # 30 of them before
    assert resumed.spent == 47
    resumed.once("seconds", "training", 99.0)  # read from disk, not made again
    assert resumed.spent == 47


def test_seventy_percent_of_the_minutes_are_for_trainings_of_which_a_step_costs_ten_encodings_a_text(budget):
    spend(budget, "bases")
    assert budget.seconds_left == pytest.approx(0.7 * 600 - 10)
    budget.once("rates", "base", 200.0)  # texts a second; a pair has two
    assert budget.steps_left("base", 8) == pytest.approx(410 * 200 / (5 * 2 * 8))


class Encoding:
    """Encodes by a clock that stands still otherwise: a start, and a tenth of a millisecond a text."""

    def __init__(self):
        self.now, self.seen = 0.0, []

    def clock(self):
        return self.now

    def __call__(self, encoder, texts):
        self.seen.append((encoder.max_seq_length, texts))
        self.now += START + 1e-4 * len(texts)


@pytest.fixture
def pairs(tmp_path):
    def write(count):
        path = tmp_path / "pairs.jsonl"
        rows = ({"text": f"a {row}", "positive": f"b {row}"} for row in range(count))
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        (20_000, [32, 512, 2_048, 8_192]),  # 0.30, 0.45 and 1.07 seconds, of which the last are long enough
        (1_000, [32, 512, 2_000]),  # all of them
        (100, [32, 200]),
    ],
)
def test_more_texts_are_timed_until_the_start_counts_for_little(encoder, pairs, tmp_path, rows, sizes):
    encoder.max_seq_length = 100
    encode = Encoding()
    budget = Budget(tmp_path / "plan.json", {}, 10.0, clock=encode.clock)
    rate = budget.measure_rate(encoder, pairs(rows), "base", encode)
    assert [len(texts) for _, texts in encode.seen] == sizes
    assert {length for length, _ in encode.seen} == {64}  # cut as the training cuts them
    texts = [f"{side} {row}" for row in range(rows) for side in "ab"]
    assert all(encoded == texts[: len(encoded)] for _, encoded in encode.seen)
    assert rate == pytest.approx(sizes[-1] / (START + 1e-4 * sizes[-1]), abs=0.1)
    assert budget.spent == pytest.approx(sum(START + 1e-4 * size for size in sizes[1:]), abs=0.1)


def test_a_resumed_selection_counts_with_the_rate_of_before(encoder, pairs, tmp_path):
    encode, path = Encoding(), tmp_path / "plan.json"
    first = Budget(path, {}, 10.0, clock=encode.clock).measure_rate(encoder, pairs(20_000), "base", encode)
    resumed = Budget(path, atomic.read_sealed(path, ""), 10.0, clock=encode.clock)
    encode.seen.clear()
    assert resumed.measure_rate(encoder, pairs(100), "base", encode) == first
    assert encode.seen == []
