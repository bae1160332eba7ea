"""Weights between two encoders: a straight line, with the encoders at its ends."""

import numpy as np
import pytest
import torch
from tiny import TEXTS, make_base

from selfsent.encoder.load import load_encoder
from selfsent.errors import EncoderError
from selfsent.selection.interpolate import interpolate, mean_weights


@pytest.fixture(scope="module")
def folders(bert, tmp_path_factory):
    return bert, make_base(tmp_path_factory.mktemp("other"), seed=1)


@pytest.mark.parametrize(("share", "end"), [(0.0, 0), (1.0, 1)])
def test_the_ends_are_the_encoders_themselves(share, end, folders):
    found = interpolate(*map(load_encoder, folders), share)
    np.testing.assert_array_equal(found.encode(TEXTS), load_encoder(folders[end]).encode(TEXTS))


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_every_weight_is_so_far_on_the_way(share, folders):
    base, trained = (load_encoder(folder).state_dict() for folder in folders)
    found = interpolate(*map(load_encoder, folders), share).state_dict()
    assert found.keys() == base.keys()
    moved = 0
    for name, value in found.items():
        if not value.is_floating_point():
            continue
        expected = (1 - share) * base[name].double() + share * trained[name].double()
        torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-6)
        moved += not torch.equal(value, base[name])
    assert moved > 10


def test_the_mean_of_three_encoders_is_that_of_every_weight(folders, tmp_path):
    every = [*folders, make_base(tmp_path / "third", seed=2)]
    states = [load_encoder(folder).state_dict() for folder in every]
    found = mean_weights([load_encoder(folder) for folder in every]).state_dict()
    floating = [name for name, value in found.items() if value.is_floating_point()]
    assert len(floating) > 10
    for name in floating:
        expected = sum(state[name].double() for state in states) / 3
        torch.testing.assert_close(found[name].double(), expected, rtol=1e-5, atol=1e-6)


def test_the_trained_encoder_stays_as_it_is(folders):
    base, trained = map(load_encoder, folders)
    before = trained.encode(TEXTS)
    assert interpolate(base, trained, 0.5) is base
    np.testing.assert_array_equal(trained.encode(TEXTS), before)


@pytest.mark.parametrize("other", [{"layers": 1}, {"family": "distilbert"}])
def test_other_layers_are_refused(other, folders, tmp_path):
    with pytest.raises(EncoderError, match="one shape only: one has other layers"):
        interpolate(load_encoder(folders[0]), load_encoder(make_base(tmp_path / "other", **other)), 0.5)
