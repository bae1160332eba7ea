"""How fast a base encodes, which decides how many steps fit into the minutes."""

import json

import pytest

from selfsent.selection import training
from selfsent.selection.fit_plan import FitPlan
from selfsent.selection.training import time_encoding

START = 0.25  # seconds of an encoding that are none of its texts


@pytest.fixture
def encoded(monkeypatch):
    """Encode by a clock that stands still otherwise: a start, and a tenth of a millisecond a text."""
    now, seen = [0.0], []

    def encode(encoder, texts):
        seen.append((encoder.max_seq_length, texts))
        now[0] += START + 1e-4 * len(texts)

    monkeypatch.setattr(training, "encode", encode)
    monkeypatch.setattr(training.time, "perf_counter", lambda: now[0])
    return seen


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
def test_more_texts_are_timed_until_the_start_counts_for_little(encoder, pairs, encoded, tmp_path, rows, sizes):
    encoder.max_seq_length = 100
    path, plan = pairs(rows), FitPlan(tmp_path / "plan.json", {})
    rate = time_encoding(encoder, path, "base", plan)
    assert [len(texts) for _, texts in encoded] == sizes
    assert {length for length, _ in encoded} == {64}  # cut as the training cuts them
    texts = [f"{side} {row}" for row in range(rows) for side in "ab"]
    assert all(one == texts[: len(one)] for _, one in encoded)
    assert rate == pytest.approx(sizes[-1] / (START + 1e-4 * sizes[-1]), abs=0.1)
    assert plan.spent == pytest.approx(sum(START + 1e-4 * size for size in sizes[1:]), abs=0.1)


def test_a_resumed_selection_counts_with_the_rate_of_before(encoder, pairs, encoded, tmp_path):
    plan = FitPlan(tmp_path / "plan.json", {})
    first = time_encoding(encoder, pairs(20_000), "base", plan)
    again = FitPlan(tmp_path / "plan.json", json.loads(json.dumps(plan._content)))
    assert time_encoding(encoder, pairs(100), "base", again) == first
