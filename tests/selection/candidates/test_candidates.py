"""Which ways of making candidates are taken, and in which order: all share one time."""

import pytest
from scoreboards import candidate

from selfsent.selection import candidates
from selfsent.selection.candidates import make_candidates
from selfsent.selection.candidates.pairs import add_pairs

LAST = ["add_interpolated", "add_partly_whitened", "add_pairs"]


@pytest.fixture
def taken(monkeypatch):
    """The ways that are taken, each of which makes nothing."""
    taken = []
    for name in ("add_bases", "train_bases", "add_static_vectors", "add_average", *LAST):
        monkeypatch.setattr(candidates, name, lambda *given, name=name: taken.append(name))
    return taken


@pytest.mark.parametrize(
    ("named", "static", "order"),
    [
        (True, 54.0, ["add_static_vectors", "train_bases", "add_average"]),
        (True, 56.0, ["add_static_vectors", "add_average", "train_bases"]),
        (False, 56.0, ["train_bases", "add_static_vectors", "add_average"]),
    ],
)
def test_what_promises_more_has_the_time_first(workspace, taken, base, named, static, order):
    """A base that training may lift above the static vectors is trained before their second training."""
    made = [base(), base("builtin-static", 40.0, source="builtin-static", is_transformer=False)][: 1 + named]
    work = workspace(*made, candidate("static vectors", static), kind="documents", bases=len(made))
    make_candidates(work, ["any"])
    assert taken == ["add_bases", *order, *LAST]


@pytest.mark.parametrize(("static", "asked", "trains"), [(90.0, False, True), (70.0, False, False), (70.0, True, True)])
def test_a_strong_base_learns_from_single_lines_only_where_that_was_asked_for(workspace, taken, static, asked, trains):
    """The base has 80 on general text."""
    make_candidates(workspace(static=static, replace_strong_base=asked), ["any"])
    assert taken == ["add_bases", *["train_bases", "add_interpolated"] * trains]


@pytest.mark.parametrize("asked", [False, True])
def test_a_pair_is_of_the_best_of_both_kinds_and_may_be_kept_only_where_that_was_asked(workspace, base, asked):
    static = [candidate(f"static {value}", value, is_transformer=False) for value in (55.0, 58.0, 57.0)]
    made = base(), base("better", 60.0), *static
    work = workspace(*made, kind="documents", bases=2, pair_of_encoders=asked)
    add_pairs(work)
    pairs = [candidate for candidate in work.board.candidates if candidate.is_pair]
    assert [pair.name for pair in pairs] == [
        f"pair of better and static 58.0, {weights}" for weights in ("0.3 : 0.7", "0.5 : 0.5", "0.7 : 0.3")
    ]
    assert {pair.eligible for pair in pairs} == {asked}
    assert all(("--set pair_of_encoders=true" in pair.note) is not asked for pair in pairs)
