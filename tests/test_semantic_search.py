"""Search: the nearest texts by cosine, any column of a table, cached by model, corpus, column and prompt."""

import json

import numpy as np
import pytest
from tiny import TEXTS

import selfsent
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.save import save_encoder
from selfsent.errors import ConfigurationError, CorpusError
from selfsent.semantic_search import build_index


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = ({"title": f"number {n}", "body": text, "text": TEXTS[-1 - n]} for n, text in enumerate(TEXTS))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("column", ["text", "body"])
def test_hits_are_the_nearest_texts_of_the_column(bert, corpus, column):
    index = build_index(bert, corpus, text_column=column)
    encoder = load_encoder(bert)
    texts = TEXTS if column == "body" else TEXTS[::-1]
    cosines = unit(encode(encoder, texts)) @ unit(encode(encoder, ["rain fell on the cat"]))[0]
    best = np.argsort(-cosines)[:3]
    hits = index.search("rain fell on the cat", 3)
    assert selfsent.search(bert, corpus, "rain fell on the cat", top=3, text_column=column) == hits
    assert [hit.text for hit in hits] == [texts[number] for number in best]
    assert [hit.title for hit in hits] == [f"number {number}" for number in best]
    np.testing.assert_allclose([hit.cosine for hit in hits], cosines[best], atol=1e-5)


def test_an_index_is_reused_for_the_same_model_corpus_and_column_alone(bert, corpus):
    assert not build_index(bert, corpus).reused
    assert build_index(bert, corpus).reused
    assert not build_index(bert, corpus, text_column="body").reused


def test_the_query_and_the_corpus_get_prompts_of_their_own(bert, corpus, tmp_path):
    encoder = load_encoder(bert)
    encoder.prompts = {"query": "the cat ", "passage": "a dog barked ", "document": ""}
    save_encoder(encoder, tmp_path / "model")
    hits = build_index(tmp_path / "model", corpus).search("old ships", len(TEXTS))
    texts = unit(encode(encoder, [hit.text for hit in hits], prompt_name="passage"))
    query = unit(encode(encoder, ["old ships"], prompt_name="query"))[0]
    np.testing.assert_allclose([hit.cosine for hit in hits], texts @ query, atol=1e-5)


def test_a_corpus_without_text_is_refused(bert, tmp_path):
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(CorpusError, match="holds no text to search"):
        build_index(bert, str(tmp_path / "empty.txt"))


def test_a_search_for_no_text_is_refused(bert, corpus):
    with pytest.raises(ConfigurationError, match="top = 0 does not fit"):
        selfsent.search(bert, corpus, "rain", top=0)
