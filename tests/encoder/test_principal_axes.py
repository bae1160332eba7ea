"""Fewer dimensions are the first principal axes: those of a singular value decomposition, in one map."""

import numpy as np
import pytest
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, StaticEmbedding
from tiny import TEXTS, make_tokenizer

from selfsent.encoder.affine import AffineMap
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.neighbour_map import map_encoder
from selfsent.encoder.open import open_encoder
from selfsent.encoder.pair_module import join_encoders
from selfsent.encoder.principal_axes import principal_axes, turn_encoder
from selfsent.encoder.save import save_encoder
from selfsent.errors import ConfigurationError, EncoderError


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def made(kind, bert):
    """Return a tiny encoder of 32 or more dimensions."""
    if kind == "static":
        tokenizer = make_tokenizer()
        table = np.random.default_rng(0).normal(size=(len(tokenizer), 32)).astype(np.float32) * 7
        return SentenceTransformer(modules=[StaticEmbedding(tokenizer._tokenizer, embedding_weights=table)])
    if kind == "pair":
        return join_encoders([load_encoder(bert), made("static", bert)], (0.6, 0.4))
    if kind.startswith("mapped"):
        encoder, rng = made("pair", bert) if kind == "mapped pair" else load_encoder(bert), np.random.default_rng(1)
        width = encoder.get_embedding_dimension()
        return map_encoder(encoder, AffineMap(*(rng.normal(size=s).astype("f") for s in ((width, width), width))))
    return load_encoder(bert)


def test_the_axes_are_the_right_singular_vectors_of_unit_vectors():
    x = np.random.default_rng(0).normal(size=(200, 24)) * np.linspace(9, 1, 24)
    _, _, right = np.linalg.svd(unit(x))
    found = principal_axes(x.astype(np.float32), 10)
    assert np.abs((found * right[:10].T).sum(axis=0)) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("kind", ["transformer", "static", "mapped", "pair", "mapped pair"])
@pytest.mark.parametrize("narrow", [None, 5])
def test_every_kind_of_encoder_gives_its_vectors_on_the_axes_wherever_it_is_opened(kind, narrow, bert, tmp_path):
    before = unit(made(kind, bert).encode(TEXTS))
    width = narrow or before.shape[1]
    random, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(before.shape[1],) * 2))
    axes = random[:, :width].astype(np.float32)
    save_encoder(turn_encoder(made(kind, bert), axes), tmp_path / "model")
    expected = unit(before @ axes)
    stock = SentenceTransformer(str(tmp_path / "model"), device="cpu", trust_remote_code="pair" in kind)
    assert stock.get_embedding_dimension() == width
    assert stock.encode(TEXTS) == pytest.approx(expected, abs=1e-5)
    assert encode(load_encoder(tmp_path / "model"), TEXTS, precision="fp32") == pytest.approx(expected, abs=1e-5)
    opened = open_encoder(tmp_path / "model")
    assert opened.width == width
    assert opened.embed(TEXTS, precision="fp32") == pytest.approx(expected, abs=1e-5)
    if narrow is None:  # a rotation leaves every cosine as it is
        assert expected @ expected.T == pytest.approx(before @ before.T, abs=1e-5)


def test_a_map_behind_a_pair_maps_the_joined_vectors(bert):
    rng = np.random.default_rng(5)
    matrix, offset = rng.normal(size=(64, 64)).astype(np.float32), rng.normal(size=64).astype(np.float32)
    mapped = map_encoder(made("pair", bert), AffineMap(matrix, offset))
    expected = unit(unit(made("pair", bert).encode(TEXTS)) @ matrix + offset)
    assert mapped.encode(TEXTS) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"matrix": (9, 64), "offset": 64}, "a map of 9 dimensions does not fit an encoder of 64"),
        ({"matrix": (64, 64), "offset": 5}, "behind.safetensors is damaged"),
        ({"matrix": 64, "offset": 64}, "behind.safetensors is damaged"),
        ({"axes": (64, 64)}, "behind.safetensors is damaged"),
    ],
)
def test_a_folder_whose_map_does_not_fit_its_pair_is_refused(sizes, said, bert, tmp_path):
    save_encoder(map_encoder(made("pair", bert), AffineMap(np.eye(64, dtype="f"), np.ones(64, "f"))), tmp_path)
    save_file({name: np.ones(size, "f") for name, size in sizes.items()}, tmp_path / "behind.safetensors")
    (tmp_path / ".checksums").unlink(missing_ok=True)
    for opened in (open_encoder, load_encoder):
        with pytest.raises(EncoderError, match=said):
            opened(tmp_path)


def test_a_map_in_front_and_the_table_of_static_vectors_take_the_axes_in(bert):
    axes = np.eye(32, 4, dtype=np.float32)
    assert [type(module) for module in turn_encoder(made("static", bert), axes)] == [StaticEmbedding]
    twice = turn_encoder(turn_encoder(made("transformer", bert), np.eye(32, dtype=np.float32)), axes)
    assert [type(module) for module in twice].count(Dense) == 1
    assert isinstance(turn_encoder(made("mapped", bert), axes)[-1], Normalize)


def test_a_pair_that_is_turned_twice_and_the_digest_of_another_one(bert, tmp_path):
    axes = np.linalg.qr(np.random.default_rng(3).normal(size=(64, 64)))[0].astype(np.float32)
    digests = set()
    for number, steps in enumerate(([], [axes], [axes, axes[:, :7]])):
        pair = made("pair", bert)
        expected = unit(pair.encode(TEXTS))
        for step in steps:
            pair, expected = turn_encoder(pair, step[: expected.shape[1]]), unit(expected @ step)
        save_encoder(pair, tmp_path / str(number))
        opened = open_encoder(tmp_path / str(number))
        assert opened.embed(TEXTS, precision="fp32") == pytest.approx(expected, abs=1e-5)
        digests |= {opened.digest}
    assert len(digests) == 3


def test_of_an_encoder_that_gives_its_first_dimensions_these_alone_are_turned(bert):
    short = made("transformer", bert)
    short.truncate_dim = 9
    axes = np.linalg.qr(np.random.default_rng(4).normal(size=(9, 9)))[0].astype(np.float32)
    before = unit(short.encode(TEXTS))
    assert unit(turn_encoder(short, axes).encode(TEXTS)) == pytest.approx(before @ axes, abs=1e-5)


def test_more_dimensions_than_there_are_no_embeddings_and_axes_of_another_width_are_refused(bert):
    with pytest.raises(ConfigurationError, match="give 1 to 24"):
        principal_axes(np.ones((9, 24), np.float32), 25)
    with pytest.raises(EncoderError, match="all zero"):
        principal_axes(np.zeros((9, 24), np.float32), 4)
    with pytest.raises(EncoderError, match="do not fit an encoder of 32"):
        turn_encoder(made("transformer", bert), np.eye(24, dtype=np.float32))
