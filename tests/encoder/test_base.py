"""A prepared encoder gives the vectors of sentence-transformers, whatever the batches and the threads."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tiny import HARD, PROMPT, TEXTS, make_base

from selfsent.encoder import batches
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import as_encoder, open_encoder
from selfsent.encoder.pair_module import join_encoders
from selfsent.encoder.save import save_encoder
from selfsent.encoder.transformers_encoder import TransformersEncoder
from selfsent.errors import EncoderError

KINDS = ["mean", "cls", "prompt", "static", "pair"]


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


@pytest.fixture
def prepared(encoders):
    """Open one of them and make it ready; close it at the end."""
    opened = []

    def prepare(encoder, precision="fp32"):
        opened.append(as_encoder(encoders.get(encoder, encoder) if isinstance(encoder, str) else encoder))
        opened[-1].prepare(precision)
        return opened[-1]

    yield prepare
    for encoder in opened:
        encoder.close()


def vectors(encoder, texts, prompt=""):
    return encoder.embed_tokenized(encoder.tokenize(texts, prompt))


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_and_token_ids_are_the_same_however_a_folder_is_opened(encoders, prepared, kind, tmp_path):
    save_encoder(encoders[kind], tmp_path / "model")
    kept = load_encoder(tmp_path / "model")
    expected = kept.encode(HARD)
    heavy, direct = prepared(kept), prepared(open_encoder(tmp_path / "model"))
    assert not isinstance(direct, TransformersEncoder)
    assert heavy.parameters == direct.parameters
    for encoder in (heavy, direct):
        np.testing.assert_allclose(vectors(encoder, HARD), expected, atol=2e-6)
        np.testing.assert_allclose(np.concatenate([vectors(encoder, [text]) for text in HARD]), expected, atol=2e-6)
    for direction in ("left", "right"):
        assert heavy.tokenize(HARD, "a ", direction=direction) == direct.tokenize(HARD, "a ", direction=direction)
        if kind != "pair":
            rows = [encoding.ids for encoding in heavy.encodings(HARD)]
            assert heavy.from_ids(rows, "a ", direction=direction) == direct.from_ids(rows, "a ", direction=direction)


@pytest.mark.parametrize("kind", KINDS)
def test_every_encoder_is_one_or_several(encoders, kind):
    encoder = as_encoder(encoders[kind])
    assert len(encoder.encoders) == len(encoder.readers) == (2 if kind == "pair" else 1)
    assert kind == "pair" or encoder.encoders[0] is encoder


def test_every_pass_is_in_bf16_where_there_are_no_fused_products(encoders, prepared, monkeypatch):
    """As on a GPU: autocast ends with the block of inference mode that it was entered in."""
    monkeypatch.setattr(batches, "fused_products_fit", lambda *_: False)
    encoder = prepared("mean", "bf16")
    passes = [vectors(encoder, TEXTS) for _ in range(3)]
    encoder.close()
    assert all(np.array_equal(passes[0], others) for others in passes[1:])
    np.testing.assert_allclose(passes[0], encoders["mean"].encode(TEXTS), atol=0.05)


@pytest.mark.parametrize("kind", ["mean", "prompt", "static"])
def test_token_ids_with_and_without_special_tokens_are_the_text(prepared, kind):
    encoder = prepared(kind)
    for special in (True, False):
        ids = [encoding.ids for encoding in encoder.encodings(TEXTS, special=special)]
        found = encoder.embed_tokenized(encoder.from_ids(ids))
        np.testing.assert_allclose(found, vectors(encoder, TEXTS), atol=2e-6)


@pytest.mark.parametrize(
    ("kind", "ids", "message"),
    [
        ("mean", [-1], "token id -1 is outside the vocabulary"),
        ("mean", [10**9], "token id 1000000000 is outside the vocabulary"),
        ("pair", [1, 2], "send text, not token ids"),
    ],
)
def test_ids_that_mean_nothing_are_refused(prepared, kind, ids, message):
    with pytest.raises(EncoderError, match=message):
        prepared(kind).from_ids([ids])


def test_long_texts_are_cut_at_the_end_that_was_asked_for(prepared):
    encoder = prepared("mean")
    long = " ".join([*["rain"] * 100, *["moon"] * 100])
    ids = encoder.encodings(["rain moon"], special=False)[0].ids
    for direction, word in (("right", ids[0]), ("left", ids[1])):
        (text,) = encoder.tokenize([long], direction=direction)
        assert encoder.from_ids([encoder.encodings([long])[0].ids], direction=direction) == [text]
        assert text.truncated
        assert text.tokens == encoder.max_length == 64
        assert set(text.rows[0][1:-1]) == {word}


def test_a_prompt_is_put_before_every_text(encoders, prepared):
    encoder, theirs = prepared("mean"), encoders["mean"]
    found = encoder.embed_tokenized([*encoder.tokenize(TEXTS[:3], "a dog "), *encoder.tokenize(TEXTS[3:])])
    expected = np.concatenate([theirs.encode(TEXTS[:3], prompt="a dog "), theirs.encode(TEXTS[3:])])
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_threads_tokenise_at_once(prepared):
    encoder = prepared("mean")
    expected = encoder.tokenize(HARD)
    with ThreadPoolExecutor(8) as threads:
        assert all(found == expected for found in threads.map(lambda _: encoder.tokenize(HARD), range(64)))


def test_close_gives_back_the_encoder_as_it_was(encoders, prepared):
    module = encoders["cls"]

    def state():
        return [vars(child).get("forward") for child in module.modules()]

    before, forwards = module.encode(TEXTS), state()
    encoder = prepared("cls")
    vectors(encoder, TEXTS)
    assert state() != forwards
    encoder.close()
    assert state() == forwards
    np.testing.assert_array_equal(module.encode(TEXTS), before)


def test_a_text_without_a_known_letter_or_digit_says_nothing(prepared):
    """Though its tokens may be known, as the punctuation marks of ``builtin-static`` are."""
    encoder = prepared("static")
    texts = {"!!!": True, "...": True, "": True, "日": True, "a!": False, "42": False}
    assert {text: encoder.knows_nothing(text) for text in texts} == texts
