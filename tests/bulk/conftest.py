"""The texts that all tests of this folder encode."""

import pytest
from encoding import write_lines


@pytest.fixture
def source(tmp_path):
    """A file of them."""
    return write_lines(tmp_path / "texts.txt")
