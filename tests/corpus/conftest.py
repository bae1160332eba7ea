"""What the tests of the corpus share: a real WordPiece tokenizer and a folder for caches."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import selfsent.builtin
from selfsent.corpus.prepare import prepare_corpus
from selfsent.corpus.settings import CorpusConfig


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer of the encoder that is shipped."""
    return AutoTokenizer.from_pretrained(Path(selfsent.builtin.__file__).parent / "encoder")


@pytest.fixture
def prepare(tmp_path, tokenizer):
    """Prepare one file of text, given as its content, in a cache of its own."""

    def prepare(content, name="text.txt", **settings):
        path = tmp_path / name
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            path.write_text(content, encoding="utf-8")
        unit = settings.pop("unit", "sentences")
        config = CorpusConfig(**settings)
        return prepare_corpus([str(path)], config, tokenizer, unit=unit, cache=tmp_path / "cache")

    return prepare
