"""Search: the nearest texts by cosine, any column of a table, cached by model, corpus, column and prompt."""

import errno
import json

import numpy as np
import pytest
from crash import damage
from tiny import TEXTS

import selfsent
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.save import save_encoder
from selfsent.encoder.transformers_encoder import TransformersEncoder
from selfsent.errors import ConfigurationError, CorpusError, EncoderError, ResumeError
from selfsent.progress import Progress
from selfsent.searching.search import open_cached
from selfsent.storage import atomic


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
    assert not open_cached(bert, corpus, column="body" if column == "text" else "text").reused
    index = open_cached(bert, corpus, column=column)
    assert not index.reused
    assert open_cached(bert, corpus, column=column).reused
    encoder = load_encoder(bert)
    texts = TEXTS if column == "body" else TEXTS[::-1]
    cosines = unit(encode(encoder, texts)) @ unit(encode(encoder, ["rain fell on the cat"]))[0]
    best = np.argsort(-cosines)[:3]
    hits = index.search("rain fell on the cat", 3)
    assert selfsent.search(bert, corpus, "rain fell on the cat", top=3, column=column) == hits
    assert [hit.text for hit in hits] == [texts[number] for number in best]
    assert [hit.title for hit in hits] == [f"number {number}" for number in best]
    np.testing.assert_allclose([hit.cosine for hit in hits], cosines[best], atol=1e-5)


@pytest.mark.usefixtures("fp32_alone")
def test_the_query_and_the_corpus_get_prompts_of_their_own(bert, corpus, tmp_path):
    encoder = load_encoder(bert)
    encoder.prompts = {"query": "the cat ", "passage": "a dog barked ", "document": ""}
    save_encoder(encoder, tmp_path / "model")
    hits = open_cached(tmp_path / "model", corpus).search("old ships", len(TEXTS))
    texts = unit(encode(encoder, [hit.text for hit in hits], prompt_name="passage"))
    query = unit(encode(encoder, ["old ships"], prompt_name="query"))[0]
    np.testing.assert_allclose([hit.cosine for hit in hits], texts @ query, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "query", "options", "error", "message"),
    [
        ("empty.txt", "rain", {}, CorpusError, "holds no text to search"),
        ("corpus.jsonl", "rain", {"top": 0}, ConfigurationError, "top = 0 does not fit"),
        ("corpus.jsonl", "", {}, ConfigurationError, "the query is empty"),
        ("corpus.jsonl", " \n", {}, ConfigurationError, "the query is empty"),
    ],
)
def test_a_search_that_does_not_fit_is_refused(bert, corpus, tmp_path, name, query, options, error, message):
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(error, match=message):
        selfsent.search(bert, tmp_path / name, query, **options)


@pytest.mark.parametrize("asked", ["corpus", "query"])
def test_an_encoder_that_gives_no_numbers_is_refused_instead_of_printing_them(bert, corpus, monkeypatch, asked):
    genuine = TransformersEncoder.embed

    def broken(encoder, texts, **how):
        vectors = genuine(encoder, texts, **how)
        return vectors * np.nan if (len(texts) == 1) == (asked == "query") else vectors

    monkeypatch.setattr(TransformersEncoder, "embed", broken)
    with pytest.raises(EncoderError, match="NaN or infinity for"):
        selfsent.search(bert, corpus, "rain")


def test_a_full_disk_does_not_lose_the_answer(bert, corpus, monkeypatch):
    said, progress = [], Progress()
    progress.say = said.append

    def full(operation, path):
        if operation in ("write", "fsync", "rename"):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    expected = selfsent.search(bert, corpus, "rain fell", top=3)
    monkeypatch.setenv("SELFSENT_CACHE", f"{corpus}.full")
    monkeypatch.setattr(atomic, "fault", full)
    assert selfsent.search(bert, corpus, "rain fell", top=3, progress=progress) == expected
    assert "(No space left on device): the next search encodes these texts again" in said[-1]
    assert not open_cached(bert, corpus).reused
    monkeypatch.setattr(atomic, "fault", None)
    monkeypatch.setenv("SELFSENT_CACHE", str(corpus))  # a file, in which there is no folder
    assert selfsent.search(bert, corpus, "rain fell", top=3, progress=progress) == expected


@pytest.mark.parametrize("name", ["index.json", "texts.jsonl", "owners.npy", "vectors.npy"])
@pytest.mark.parametrize("how", ["removed", "cut", "flipped"])
def test_an_index_that_was_damaged_is_named_and_not_searched(bert, corpus, tmp_path, name, how):
    open_cached(bert, corpus)
    (path,) = tmp_path.glob(f"cache/indexes/*/**/{name}")
    damage(path, how)
    with pytest.raises(ResumeError, match=rf"{path}.*delete {tmp_path}/cache/indexes/\w+ and repeat the command"):
        open_cached(bert, corpus)


def test_lone_surrogates_are_found_and_printed_as_a_mark(bert, tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "rain \ud800 fell", "title": "\ud800"}))
    (hit,) = selfsent.search(bert, tmp_path / "a.jsonl", "rain \ud800")
    assert (hit.title, hit.text) == ("?", "rain ? fell")
