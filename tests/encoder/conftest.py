"""An encoder with a prompt, for the tests of this folder."""

import pytest
from tiny import PROMPT

from selfsent.encoder import load


@pytest.fixture(autouse=True)
def opened_anew(monkeypatch, genuine_opening):
    """Read every folder from disk every time: that is what is tested here."""
    for name, function in genuine_opening.items():
        monkeypatch.setattr(load, name, function)


@pytest.fixture
def prompted(bert):
    return load.load_encoder(bert, pooling="prompt", template=PROMPT)
