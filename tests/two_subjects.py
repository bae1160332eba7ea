"""A made-up text of two subjects, for tests of what learns from raw text."""

import json

import numpy as np
import pytest

from selfsent.corpus.prepare import prepare_corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.word_vectors import vocabulary

SEA = ["ship", "sail", "harbour", "wave", "captain", "anchor", "tide", "deck", "mast", "storm"]
KITCHEN = ["bread", "oven", "butter", "flour", "spoon", "salt", "kettle", "plate", "soup", "recipe"]
COMMON = ["the", "of", "and", "in", "with"]


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SELFSENT_CACHE", str(tmp_path_factory.getbasetemp() / "pretrain-cache"))
        yield


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    """400 documents of eight sentences, each about the sea or the kitchen, as jsonl."""
    draw = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("text") / "text.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(400):
            subject = SEA if number % 2 else KITCHEN
            sentences = []
            for _ in range(8):
                words = [
                    word for pair in zip(draw.choice(COMMON, 6), draw.choice(subject, 6), strict=True) for word in pair
                ]
                sentences.append(" ".join(words).capitalize() + ".")
            file.write(json.dumps({"text": " ".join(sentences)}) + "\n")
    return path


@pytest.fixture
def prepared(text):
    """Return a tokenizer of 120 tokens and the text's documents by it."""
    tokenizer = vocabulary.learn_vocabulary([str(text)], CorpusConfig(), 120)
    return tokenizer, prepare_corpus([str(text)], CorpusConfig(held_out=0), tokenizer, unit="documents")


@pytest.fixture
def skip(prepared):
    """Return the ids that are no words."""
    return np.array(prepared[0].all_special_ids)
