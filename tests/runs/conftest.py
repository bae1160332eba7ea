"""What the tests of the folders of runs share."""

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache in which no corpus is."""
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
