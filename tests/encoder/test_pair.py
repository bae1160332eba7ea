"""A pair of encoders: their cosines add up, and a folder holds both."""

import json

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tiny import TEXTS, make_base, make_tokenizer

from selfsent.encoder.encode import encode as encode_at
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import as_encoder, open_encoder
from selfsent.encoder.pair import EncoderPair
from selfsent.encoder.pair_module import join_encoders, parts_of
from selfsent.encoder.quantize import unit
from selfsent.encoder.save import save_encoder
from selfsent.errors import EncoderError

WEIGHTS = 0.3, 0.7


@pytest.fixture(scope="module")
def sides(bert):
    """A tiny BERT, and static vectors of another width that are far from length 1."""
    tokenizer = make_tokenizer()
    table = np.random.default_rng(0).normal(size=(len(tokenizer), 12)).astype(np.float32) * 7
    static = StaticEmbedding(tokenizer._tokenizer, embedding_weights=table)
    return [load_encoder(bert), SentenceTransformer(modules=[static], device="cpu")]


@pytest.fixture(scope="module")
def joined(sides):
    return join_encoders(sides, WEIGHTS)


@pytest.fixture(scope="module")
def folder(joined, tmp_path_factory):
    folder = tmp_path_factory.mktemp("joined") / "model"
    save_encoder(joined, folder)
    return folder


def encode(encoder, texts):
    return encode_at(encoder, texts, precision="fp32")


def cosine(one, other):
    one, other = np.float64(one), np.float64(other)
    return one @ other / (one @ one) ** 0.5 / (other @ other) ** 0.5


def test_its_cosines_are_the_weighted_sums_of_the_cosines_of_both(sides, joined):
    parts = [side.encode(TEXTS) for side in sides]
    found = encode(joined, TEXTS)
    assert found.shape == (len(TEXTS), 32 + 12)
    for i in range(len(TEXTS)):
        for j in range(len(TEXTS)):
            expected = sum(w * cosine(part[i], part[j]) for w, part in zip(WEIGHTS, parts, strict=True))
            assert cosine(found[i], found[j]) == pytest.approx(expected, abs=1e-5)
            assert found[i] @ found[j] == pytest.approx(expected, abs=1e-5)  # of length 1 when weights sum to 1


def test_texts_are_encoded_as_sentence_transformers_encodes_them(joined):
    np.testing.assert_allclose(encode(joined, TEXTS), joined.encode(TEXTS, batch_size=4), atol=1e-6)
    assert joined.get_embedding_dimension() == 44


def test_a_prompt_is_for_the_encoders_that_have_some(sides, bert, tmp_path):
    prompts = {"query": "she reads ", "document": "the book "}
    first = load_encoder(bert)
    first.prompts |= prompts
    joined = join_encoders([first, sides[1]], WEIGHTS)
    save_encoder(joined, tmp_path / "model")
    stock = SentenceTransformer(str(tmp_path / "model"), trust_remote_code=True, device="cpu")
    assert (joined.prompts, stock.prompts) == (first.prompts, first.prompts)
    for name, prompt in prompts.items():
        parts = [first.encode([prompt + text for text in TEXTS]), sides[1].encode(TEXTS)]
        parts = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in parts]
        expected = np.hstack([weight**0.5 * part for weight, part in zip(WEIGHTS, parts, strict=True)])
        opened = open_encoder(tmp_path / "model")
        by_name = {"query": stock.encode_query, "document": stock.encode_document}[name]
        for found in (
            encode_at(joined, TEXTS, prompt_name=name, precision="fp32"),
            opened.embed(TEXTS, prompt=opened.task_prompt(name), precision="fp32"),
            opened.embed_tokenized(opened.tokenize(TEXTS, prompt)),
            by_name(TEXTS),
        ):
            np.testing.assert_allclose(found, expected, atol=1e-5)
    without = encode_at(join_encoders(sides, WEIGHTS), TEXTS, prompt="the ", precision="fp32")  # no encoder has one
    np.testing.assert_allclose(
        without, encode(join_encoders(sides, WEIGHTS), [f"the {text}" for text in TEXTS]), atol=1e-6
    )


def test_a_text_and_longer_ones_beside_it_give_the_vector_that_it_has_alone(joined):
    alone = joined.encode(TEXTS[:1])
    np.testing.assert_allclose(joined.encode([TEXTS[0], " ".join(TEXTS)])[:1], alone, atol=1e-6)


@pytest.mark.parametrize(
    "opened", [load_encoder, lambda where: SentenceTransformer(str(where), trust_remote_code=True, device="cpu")]
)
def test_a_saved_folder_gives_the_same_vectors(opened, joined, folder):
    again = opened(folder)
    np.testing.assert_allclose(again.encode(TEXTS), joined.encode(TEXTS), atol=1e-6)
    assert len(parts_of(again)) == 2


def test_a_folder_saved_again_gives_the_same_vectors(joined, folder, tmp_path):
    save_encoder(load_encoder(folder), tmp_path / "again")
    np.testing.assert_allclose(encode(load_encoder(tmp_path / "again"), TEXTS), encode(joined, TEXTS), atol=1e-6)


def test_each_side_of_a_saved_folder_is_an_encoder_of_its_own(sides, folder):
    for number, side in enumerate(sides):
        np.testing.assert_allclose(
            load_encoder(folder / str(number)).encode(TEXTS), unit(side.encode(TEXTS)), atol=1e-6
        )
    assert json.loads((folder / "pair.json").read_text())["weights"] == list(WEIGHTS)


def test_a_pooling_is_refused(folder):
    with pytest.raises(EncoderError, match="a pair of encoders: leave pooling 'cls' out"):
        load_encoder(folder, pooling="cls")


def test_an_ordinary_encoder_has_no_parts(sides):
    assert parts_of(sides[0]) == parts_of(sides[1]) == []


def test_two_transformers_of_different_tokenizers_read_their_own_pieces(sides, tmp_path):
    """A second BERT with the same words in another order: one tokenizer for both would mix them up."""
    other = load_encoder(make_base(tmp_path / "other", "distilbert", seed=1))
    joined = join_encoders([other, sides[0]], (0.5, 0.5))
    expected = [cosine(*side.encode(TEXTS[:2])) for side in (other, sides[0])]
    assert cosine(*encode(joined, TEXTS[:2])) == pytest.approx(np.mean(expected), abs=1e-5)


def test_prompts_and_width_of_the_folder_hold_for_both_together(sides, tmp_path):
    joined = join_encoders(sides, WEIGHTS)
    joined.prompts, joined.default_prompt_name, joined.truncate_dim = {"query": "the cat "}, "query", 20
    save_encoder(joined, tmp_path / "model")
    expected = encode(join_encoders(sides, WEIGHTS), [f"the cat {text}" for text in TEXTS])[:, :20]
    opened, direct = as_encoder(load_encoder(tmp_path / "model")), open_encoder(tmp_path / "model")
    assert isinstance(direct, EncoderPair)
    for found in (opened, direct):
        vectors = found.embed(TEXTS, prompt=found.resolve_prompt(), precision="fp32")
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert opened.digest == direct.digest


def test_of_an_encoder_that_is_cut_its_first_dimensions_are_joined(sides, bert, tmp_path):
    short = load_encoder(bert)
    short.truncate_dim = 10
    joined = join_encoders([short, sides[1]], WEIGHTS)
    own = short.encode(TEXTS)
    assert own.shape[1] == 10
    columns = zip((own, sides[1].encode(TEXTS)), WEIGHTS, strict=True)
    expected = np.hstack([w**0.5 * column / np.linalg.norm(column, axis=1)[:, None] for column, w in columns])
    np.testing.assert_allclose(encode(joined, TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(joined.encode(TEXTS), expected, atol=1e-5)
    prepared = as_encoder(joined)
    prepared.prepare("fp32")
    np.testing.assert_allclose(prepared.embed_tokenized(prepared.tokenize(TEXTS)), expected, atol=1e-5)
    prepared.close()
