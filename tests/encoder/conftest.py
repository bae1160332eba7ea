"""An encoder with a prompt, for the tests of this folder."""

import pytest
from tiny import PROMPT

from selfsent.encoder import load

ANEW = ("architectures", "bert", "checks", "damaged_folders", "load", "opening", "released", "save", "static_encoder")


@pytest.fixture(autouse=True)
def opened_anew(request, monkeypatch, genuine_opening):
    """Read every folder from disk every time, where that is what is tested."""
    if request.path.stem.removeprefix("test_") in ANEW:
        monkeypatch.setattr(load, "_open", genuine_opening)


@pytest.fixture
def prompted(bert):
    return load.load_encoder(bert, pooling="prompt", template=PROMPT)
