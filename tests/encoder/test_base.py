"""A prepared encoder gives the vectors of sentence-transformers, whatever the batches and the threads."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from tiny import HARD, PROMPT, TEXTS, make_base

from selfsent.encoder import batches as fused
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import as_encoder, open_encoder
from selfsent.encoder.pair_module import join_encoders
from selfsent.encoder.save import save_encoder
from selfsent.encoder.transformers_encoder import TransformersEncoder
from selfsent.errors import EncoderError


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    bert, roberta = make_base(folder / "bert"), make_base(folder / "roberta", "roberta")
    return {
        "mean": load_encoder(bert, pooling="mean"),
        "cls": load_encoder(roberta, pooling="cls"),
        "prompt": load_encoder(bert, pooling="prompt", template=PROMPT),
        "static": load_encoder("builtin-static"),
        "pair": join_encoders([load_encoder(bert, pooling="mean"), load_encoder("builtin-static")], [0.25, 0.75]),
    }


def prepared_encoder(encoder, precision="auto"):
    opened = as_encoder(encoder)
    opened.prepare(precision)
    return opened


@pytest.mark.parametrize("kind", ["mean", "cls", "prompt", "static", "pair"])
def test_vectors_are_those_of_sentence_transformers(encoders, kind, tmp_path):
    """Also of an encoder that was opened without transformers."""
    encoder: SentenceTransformer = encoders[kind]
    expected = encoder.encode(HARD)
    save_encoder(encoder, tmp_path / "model")
    direct = open_encoder(tmp_path / "model")
    assert not isinstance(direct, TransformersEncoder)
    for opened in (encoder, direct):
        prepared = prepared_encoder(opened, "fp32")
        found = prepared.embed_tokenized(prepared.tokenize(HARD))
        one_by_one = np.concatenate([prepared.embed_tokenized(prepared.tokenize([text])) for text in HARD])
        prepared.close()
        np.testing.assert_allclose(found, expected, atol=2e-6)
        np.testing.assert_allclose(one_by_one, expected, atol=2e-6)


@pytest.mark.parametrize("kind", ["mean", "cls", "prompt", "static", "pair"])
def test_token_ids_are_the_same_however_a_folder_is_opened(encoders, kind, tmp_path):
    save_encoder(encoders[kind], tmp_path / "model")
    whole, direct = prepared_encoder(encoders[kind]), prepared_encoder(open_encoder(tmp_path / "model"))
    for direction in ("left", "right"):
        assert whole.tokenize(HARD, "a ", direction=direction) == direct.tokenize(HARD, "a ", direction=direction)
        if kind != "pair":
            rows = [encoding.ids for encoding in whole.encodings(HARD)]
            assert whole.from_ids(rows, "a ", direction=direction) == direct.from_ids(rows, "a ", direction=direction)
    assert whole.parameters == direct.parameters


def test_every_pass_is_in_bf16_where_there_are_no_fused_products(encoders, monkeypatch):
    """As on a GPU: autocast ends with the block of inference mode that it was entered in."""
    monkeypatch.setattr(fused, "fused_products_fit", lambda *_: False)
    prepared = prepared_encoder(encoders["mean"], "bf16")
    passes = [prepared.embed_tokenized(prepared.tokenize(TEXTS)) for _ in range(3)]
    prepared.close()
    for one in passes:
        np.testing.assert_array_equal(one, passes[0])
    np.testing.assert_allclose(passes[0], encoders["mean"].encode(TEXTS), atol=0.05)


@pytest.mark.parametrize("kind", ["mean", "prompt", "static"])
def test_token_ids_with_and_without_special_tokens_are_the_text(encoders, kind):
    prepared = prepared_encoder(encoders[kind], "fp32")
    expected = prepared.embed_tokenized(prepared.tokenize(TEXTS))
    for special in (True, False):
        ids = [encoding.ids for encoding in prepared.encodings(TEXTS, special=special)]
        np.testing.assert_allclose(prepared.embed_tokenized(prepared.from_ids(ids)), expected, atol=2e-6)
    prepared.close()


@pytest.mark.parametrize("given", [[-1], [10**9]])
def test_ids_outside_the_vocabulary_are_refused(encoders, given):
    prepared = prepared_encoder(encoders["mean"])
    with pytest.raises(EncoderError, match=f"token id {given[0]} is outside the vocabulary"):
        prepared.from_ids([given])


def test_a_pair_of_encoders_takes_no_ids(encoders):
    with pytest.raises(EncoderError, match="send text, not token ids"):
        prepared_encoder(encoders["pair"]).from_ids([[1, 2]])


def test_long_texts_are_cut_at_the_end_that_was_asked_for(encoders):
    prepared = prepared_encoder(encoders["mean"])
    long = " ".join([*["rain"] * 100, *["moon"] * 100])
    ids = prepared.encodings(["rain moon"], special=False)[0].ids
    for direction, word in (("right", ids[0]), ("left", ids[1])):
        (text,) = prepared.tokenize([long], direction=direction)
        (same,) = prepared.from_ids([prepared.encodings([long])[0].ids], direction=direction)
        assert text.truncated
        assert same == text
        assert text.tokens == prepared.max_length == 64
        assert set(text.rows[0][1:-1]) == {word}


def test_a_prompt_is_put_before_every_text(encoders):
    encoder = encoders["mean"]
    prepared = prepared_encoder(encoder, "fp32")
    found = prepared.embed_tokenized([*prepared.tokenize(TEXTS[:3], "a dog "), *prepared.tokenize(TEXTS[3:])])
    prepared.close()
    expected = np.concatenate([encoder.encode(TEXTS[:3], prompt="a dog "), encoder.encode(TEXTS[3:])])
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_threads_tokenise_at_once(encoders):
    prepared = prepared_encoder(encoders["mean"])
    expected = prepared.tokenize(HARD)
    with ThreadPoolExecutor(8) as threads:
        assert all(found == expected for found in threads.map(lambda _: prepared.tokenize(HARD), range(64)))


def test_close_gives_back_the_encoder_as_it_was(encoders):
    encoder = encoders["cls"]
    before = encoder.encode(TEXTS)
    forwards = [vars(module).get("forward") for module in encoder.modules()]
    prepared = prepared_encoder(encoder, "fp32")
    prepared.embed_tokenized(prepared.tokenize(TEXTS))
    assert [vars(module).get("forward") for module in encoder.modules()] != forwards
    prepared.close()
    assert [vars(module).get("forward") for module in encoder.modules()] == forwards
    np.testing.assert_array_equal(encoder.encode(TEXTS), before)


@pytest.mark.parametrize(
    ("text", "nothing"), [("!!!", True), ("...", True), ("", True), ("日", True), ("a!", False), ("42", False)]
)
def test_a_text_without_a_known_letter_or_digit_says_nothing(encoders, text, nothing):
    """Though its tokens may be known, as the punctuation marks of ``builtin-static`` are."""
    prepared = prepared_encoder(encoders["static"])
    assert prepared.knows_nothing(text) is nothing
    prepared.close()
