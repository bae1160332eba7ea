"""Weights between two encoders: a straight line, with the encoders at its ends; and between which they are tried."""

import numpy as np
import pytest
import torch
from scoreboards import candidate, scoreboard
from tiny import TEXTS, make_base

from selfsent.encoder.load import load_encoder
from selfsent.errors import EncoderError
from selfsent.selection.candidates.interpolated_weights import find_ways, interpolate


@pytest.fixture(scope="module")
def folders(bert, tmp_path_factory):
    return bert, make_base(tmp_path_factory.mktemp("other"), seed=1)


@pytest.mark.parametrize(("fraction", "end"), [(0.0, 0), (1.0, 1)])
def test_the_ends_are_the_encoders_themselves(fraction, end, folders):
    base, trained = map(load_encoder, folders)
    before = trained.encode(TEXTS)
    assert interpolate(base, trained, fraction) is base
    np.testing.assert_array_equal(base.encode(TEXTS), load_encoder(folders[end]).encode(TEXTS))
    np.testing.assert_array_equal(trained.encode(TEXTS), before)  # which stays as it is


@pytest.mark.parametrize("fraction", [0.25, 0.5])
def test_every_weight_is_so_far_on_the_way(fraction, folders):
    base, trained = (load_encoder(folder).state_dict() for folder in folders)
    between = interpolate(*map(load_encoder, folders), fraction).state_dict()
    assert between.keys() == base.keys()
    moved = 0
    for name, value in between.items():
        if not value.is_floating_point():
            continue
        expected = (1 - fraction) * base[name].double() + fraction * trained[name].double()
        torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-6)
        moved += not torch.equal(value, base[name])
    assert moved > 10


@pytest.mark.parametrize("other", [{"layers": 1}, {"family": "distilbert"}])
def test_other_layers_are_refused(other, folders, tmp_path):
    with pytest.raises(EncoderError, match="one shape only: one has other layers"):
        interpolate(load_encoder(folders[0]), load_encoder(make_base(tmp_path / "other", **other)), 0.5)


@pytest.mark.parametrize("far", [{"mrr": 40.0}, {"mrr": 90.0, "general": 60.0}])
def test_of_single_lines_weights_lead_to_the_best_or_where_all_lose_to_the_one_that_loses_least(base, far):
    near = {"mrr": 58.0, "general": 78.0 if "general" in far else 80.0}
    made = base(), candidate("far", 0, base="base", **far), candidate("near", 0, base="base", **near)
    assert [(start.name, goal.name) for start, goal in find_ways(scoreboard(*made, kind="lines"))] == [("base", "near")]
