"""The texts that all tests of this folder encode."""

import pytest
from encoding import write_lines


@pytest.fixture(autouse=True)
def ranges_of_few_texts(monkeypatch):
    """Let int8 take its ranges from blocks as small as those of these tests."""
    monkeypatch.setattr("selfsent.bulk.encode.CALIBRATION", 1)


@pytest.fixture
def source(tmp_path):
    """A file of them."""
    return write_lines(tmp_path / "texts.txt")
