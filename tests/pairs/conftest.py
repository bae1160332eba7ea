"""Fixtures of augmentation: translators trained once per session, and a cache per test."""

from pathlib import Path

import pytest
from tiny_marian import train, write


@pytest.fixture(scope="session")
def model():
    """A trained MarianMT model."""
    return train()


@pytest.fixture(scope="session")
def translators(model, tmp_path_factory) -> tuple[Path, Path]:
    """The folders of a translator from English to German, and of its counterpart."""
    folder = tmp_path_factory.mktemp("translators")
    return write(folder / "en-de", model, "en", "de"), write(folder / "de-en", model, "de", "en")


@pytest.fixture(autouse=True)
def cache_folder(monkeypatch, tmp_path) -> Path:
    """The cache folder of one test."""
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
