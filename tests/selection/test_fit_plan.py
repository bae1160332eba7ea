"""What a selection keeps in its plan: decisions, and the seconds that it used."""

import pytest

from selfsent.errors import Interrupted
from selfsent.selection import fit_plan
from selfsent.selection.fit_plan import FitPlan
from selfsent.storage import atomic


@pytest.fixture
def plan(tmp_path, monkeypatch):
    clock = iter([0.0, 10.0, 100.0, 130.0, 500.0, 507.0])
    monkeypatch.setattr(fit_plan.time, "perf_counter", lambda: next(clock))
    return FitPlan(tmp_path / "plan.json", {})


def spend(plan, name, ending=None):
    with plan.timed(name) as seconds:
        if ending:
            raise ending
    return seconds()


def test_what_was_decided_once_stays(plan):
    assert (plan.once("steps", "a", 50), plan.once("steps", "a", 60)) == (50, 50)


def test_the_seconds_of_a_training_that_is_interrupted_count(plan, tmp_path):
    spend(plan, "bases")
    with pytest.raises(Interrupted):
        spend(plan, "training", Interrupted("Ctrl-C"))
    resumed = FitPlan(tmp_path / "plan.json", atomic.read_sealed(tmp_path / "plan.json", ""))
    assert resumed.spent == 40
    assert spend(resumed, "training") == 37  # 30 of them before
    assert resumed.spent == 47
    resumed.once("seconds", "training", 99.0)  # read from disk, not made again
    assert resumed.spent == 47
