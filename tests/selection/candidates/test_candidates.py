"""Which ways of making candidates are taken, and in which order: all share one time."""

import pytest
from scoreboards import candidate

from selfsent.selection import candidates
from selfsent.selection.candidates import make_candidates
from selfsent.selection.candidates.pairs import add_pair
from selfsent.selection.gates import SearchGate

LAST = ["add_latent_vectors", "add_pair"]
ABROAD = {"words": 50.0, "base": 40.0, "meaning": 5.0}


@pytest.fixture
def taken(monkeypatch):
    """The ways that are taken, each of which makes nothing."""
    taken = []
    for name in ("add_bases", "train_bases", "add_static_vectors", "add_interpolated", "add_neighbour_map", *LAST):
        monkeypatch.setattr(candidates, name, lambda *given, name=name: taken.append(name))
    return taken


@pytest.mark.parametrize(
    ("gate", "ways"),
    [
        (SearchGate(**ABROAD, weak=False), ["add_static_vectors", "add_latent_vectors", "add_pair"]),
        (SearchGate(**ABROAD, weak=True), ["add_static_vectors", "train_bases", *LAST]),
        (SearchGate(words=30.0, base=60.0, meaning=40.0, weak=False), []),  # at home in the text
    ],
)
def test_a_weak_base_is_trained_and_nothing_is_made_beside_one_that_is_at_home(workspace, taken, base, gate, ways):
    make_candidates(workspace(base(), kind="documents", gate=gate), ["any"])
    assert taken == ["add_bases", *ways, "add_neighbour_map"]


def test_static_vectors_alone_need_no_gate(workspace, taken, base):
    make_candidates(workspace(base(is_transformer=False), kind="documents"), ["any"])
    assert taken == ["add_bases", "add_static_vectors", "train_bases", *LAST, "add_neighbour_map"]


@pytest.mark.parametrize(("static", "trains"), [(90.0, True), (70.0, False)])
def test_of_single_lines_a_weak_base_learns_alone(workspace, taken, static, trains):
    """The base has 80 on general text."""
    make_candidates(workspace(static=static), ["any"])
    assert taken == ["add_bases", *["train_bases", "add_interpolated"] * trains, "add_neighbour_map"]


@pytest.mark.parametrize(
    ("purpose", "kind", "ways"),
    [
        ("grouping", "documents", ["add_static_vectors", "add_latent_vectors", "add_pair", "add_neighbour_map"]),
        ("grouping", "lines", ["add_neighbour_map"]),
        ("search", "documents", ["add_static_vectors", "add_latent_vectors", "add_pair"]),
        ("search", "lines", ["train_bases", "add_interpolated"]),
    ],
)
def test_what_is_for_another_purpose_is_not_made(workspace, taken, purpose, kind, ways):
    work = workspace(kind=kind, purpose=purpose, gate=SearchGate(**ABROAD, weak=False))
    make_candidates(work, ["any"])
    assert taken == ["add_bases", *ways]


@pytest.mark.parametrize(
    ("gate", "weights"),
    [
        (SearchGate(words=50.0, base=40.0, meaning=8.0, weak=False), "0.6 : 0.4"),
        (SearchGate(words=50.0, base=40.0, meaning=12.0, weak=False), "0.8 : 0.2"),  # half of the dose
        (SearchGate(words=50.0, base=40.0, meaning=12.0, weak=True), "0.3 : 0.7"),
        (SearchGate(words=50.0, base=40.0, meaning=16.0, weak=False), None),
        (SearchGate(words=50.0, base=58.0, meaning=5.0, weak=False), None),
    ],
)
def test_a_pair_is_of_the_best_of_both_kinds_with_the_weights_of_the_gate(workspace, base, gate, weights):
    static = [candidate(f"static {value}", value, is_transformer=False, is_static=True) for value in (55.0, 58.0, 57.0)]
    work = workspace(base(), base("better", 60.0), *static, kind="documents", bases=2, gate=gate)
    add_pair(work)
    pairs = [candidate for candidate in work.board.candidates if candidate.is_pair]
    assert [pair.name for pair in pairs] == ["better beside static vectors of your text"] * (weights is not None)
    assert all(f"pair of encoders, {weights}: " in pair.how for pair in pairs)
    assert all("better and static 58.0" in pair.how for pair in pairs)
