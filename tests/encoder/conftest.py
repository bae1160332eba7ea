"""An encoder with a prompt, for the tests of this folder."""

import pytest
from tiny import PROMPT

from selfsent.encoder.load import load_encoder


@pytest.fixture
def prompted(bert):
    return load_encoder(bert, pooling="prompt", template=PROMPT)
