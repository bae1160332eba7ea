"""What is trained, in how many steps, at which rate; where the time is too short for all, they share it."""

import pytest

from selfsent.errors import EncoderError, ResumeError, StorageError
from selfsent.selection.candidates.bases import train_bases

METHODS = ("simcse", "scd", "whitenedcse")
THREE = {"methods": METHODS}


def trained(work):
    """What was made, by its name."""
    return {candidate.name: candidate.how for candidate in work.board.candidates if " steps" in candidate.how}


@pytest.mark.parametrize(
    ("enough", "each"), [(301, [100] * 3), (225, [75] * 3), (120, [25, 25, 50]), (60, [25, 25, 0])]
)
def test_the_trainings_have_equal_shares_of_the_time(workspace, enough, each):
    work = workspace(enough=enough, **THREE)
    train_bases(work, fewest=25)
    shares = zip(METHODS, each, strict=True)
    made = {f"base, trained by {method}": f"{method}, {steps} steps" for method, steps in shares if steps}
    assert trained(work) == made
    assert [start for _, start, *_ in work.asked] == ["base-folder"] * len(made)


def test_a_slow_base_has_all_its_steps_where_the_time_is_enough_for_all(workspace, base):
    work = workspace(
        base("quick"), base("slow"), enough=400, cost={"slow": 2.5}, bases=2, methods=("scd",)
    )  # 100 + 250 of these
    train_bases(work, fewest=25)
    assert trained(work) == {"quick, trained by scd": "scd, 100 steps", "slow, trained by scd": "scd, 100 steps"}


@pytest.mark.parametrize(
    "error", [EncoderError("it has no dropout: give another"), RuntimeError("out of memory\nat 0")]
)
def test_a_base_that_cannot_be_trained_is_left_out_with_the_reason_and_the_others_go_on(workspace, base, error):
    work = workspace(base("one"), base("two"), bases=2, methods=("scd",))
    work.budget.fails = {"one-folder": error}
    train_bases(work, fewest=25)
    assert trained(work) == {"two, trained by scd": "scd, 100 steps"}
    assert [(each.name, each.note) for each in work.board.left_out] == [
        ("one, trained by scd", f"left out: {str(error).splitlines()[0]}")
    ]
    assert [base.name for base in work.board.bases] == ["one", "two"]  # as they are they can be used


@pytest.mark.parametrize("error", [ResumeError("it was changed"), StorageError("the disk is full")])
def test_what_no_other_base_would_mend_ends_the_trainings(workspace, base, error):
    work = workspace(base("one"), base("two"), bases=2, methods=("scd",))
    work.budget.fails = {"one-folder": error}
    with pytest.raises(type(error)):
        train_bases(work, fewest=25)


def test_a_training_that_no_time_is_left_for_is_left_out_and_said(workspace):
    work = workspace(enough=24, methods=("scd",))
    train_bases(work, fewest=25)
    assert trained(work) == {}
    assert work.progress.said == ["left out: base, trained by scd: 10 minutes are too few; give more --minutes"]


@pytest.mark.parametrize(
    ("given", "source", "kind", "rate"),
    [
        ({}, "some-encoder", "lines", 1e-5),  # a fifth of that of pairs
        ({}, "some-encoder", "documents", 5e-5),
        ({}, "builtin", "documents", 5e-4),
        ({"learning_rate": 1e-3}, "some-encoder", "lines", 1e-3),
    ],
)
def test_the_rate_is_the_one_that_was_asked_for_or_that_of_the_base_and_the_text(
    workspace, base, given, source, kind, rate
):
    work = workspace(base(source=source), kind=kind, methods=("simcse",), **given)
    train_bases(work)
    assert [asked[3] for asked in work.asked] == pytest.approx([rate])


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_selection_that_is_killed_while_it_trains_makes_the_same(workspace, number, tmp_path):
    killed = workspace(enough=225, **THREE)
    killed.budget.dies = (number,)
    with pytest.raises(KeyboardInterrupt):
        train_bases(killed, fewest=25)
    resumed = workspace(enough=225, **THREE)
    train_bases(resumed, fewest=25)
    (tmp_path / "plan.json").unlink()
    whole = workspace(enough=225, **THREE)
    train_bases(whole, fewest=25)
    assert trained(resumed) == trained(whole)
    assert resumed.asked == whole.asked
