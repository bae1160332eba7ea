"""Where the time is too short for every training of a selection, the better half goes on, round by round."""

import pytest

from selfsent.errors import EncoderError, ResumeError, StorageError
from selfsent.selection.candidates.bases import train_bases

METHODS = ("simcse", "scd", "whitenedcse")
THREE = {"methods": METHODS}
SCORES = {"simcse": 60, "scd": 70, "whitenedcse": 65}
VALUES = {f"base, trained by {method}, round {number}": value for number in (1, 2) for method, value in SCORES.items()}


def trained(work):
    """What was made, by its name."""
    return {candidate.name: candidate.how for candidate in work.board.candidates if " steps" in candidate.how}


def test_the_better_half_goes_on_and_the_last_has_most_of_the_time(workspace):
    work = workspace(enough=225, values=VALUES, **THREE)
    train_bases(work, fewest=25)
    assert (
        trained(work)
        == {
            **{
                f"base, trained by {method}, round 1": f"{method}, 25 steps" for method in METHODS
            },  # 225 / 3 rounds / 3
            **{
                f"base, trained by {method}, round 2": f"{method}, 50 steps" for method in METHODS[1:]
            },  # and 150 / 2 / 2, in 25s
            "base, trained by scd": "scd, 100 steps",  # and all that was asked for
        }
    )
    starts = [start for _, start, *_ in work.asked]
    assert starts[:3] == ["base-folder"] * 3
    assert ["round-1" in start for start in starts[3:]] == [True, True, False]
    assert "round-2" in starts[5]
    assert len(set(starts[3:])) == 3  # each from where its last round ended


@pytest.mark.parametrize(("enough", "each"), [(301, 100), (120, 25)])
def test_with_time_for_all_or_for_no_first_round_there_is_one_round(workspace, enough, each):
    work = workspace(enough=enough, **THREE)
    train_bases(work, fewest=25)
    names = [f"base, trained by {method}" for method in METHODS]
    assert set(trained(work)) == set(names)
    assert trained(work)[names[0]] == f"simcse, {each} steps"


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


def test_with_less_time_there_are_fewer_rounds(workspace):
    work = workspace(enough=150, values=VALUES, **THREE)  # 50 for each: two rounds of 25, of which the second has two
    train_bases(work, fewest=25)
    rounds = [name.endswith("round 1") for name in trained(work)]
    assert (sum(rounds), len(rounds) - sum(rounds)) == (3, 2)
    for name in trained(work):
        assert name.endswith("round 1") or work.board.find(name).seconds >= work.board.find(f"{name}, round 1").seconds


@pytest.mark.parametrize("number", range(1, 7))
def test_a_selection_that_is_killed_between_its_rounds_makes_the_same(workspace, number, tmp_path):
    killed = workspace(enough=225, values=VALUES, **THREE)
    killed.budget.dies = (number,)
    with pytest.raises(KeyboardInterrupt):
        train_bases(killed, fewest=25)
    resumed = workspace(enough=225, values=VALUES, **THREE)
    train_bases(resumed, fewest=25)
    (tmp_path / "plan.json").unlink()
    whole = workspace(enough=225, values=VALUES, **THREE)
    train_bases(whole, fewest=25)
    assert trained(resumed) == trained(whole)
    assert resumed.asked == whole.asked
