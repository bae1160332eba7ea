"""Partial whitening is the linear map that its formula says, and the folder that is saved computes it."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling
from tiny import TEXTS

from selfsent.encoder.encode import encode
from selfsent.encoder.inspect import pooling_name
from selfsent.encoder.load import load_encoder
from selfsent.encoder.pair_module import join_encoders
from selfsent.encoder.partial_whitening import fit_partial_whitening, whiten_encoder
from selfsent.encoder.quantize import unit
from selfsent.encoder.save import save_encoder
from selfsent.errors import EncoderError


@pytest.fixture
def vectors():
    """Embeddings whose variances span two orders of magnitude, in directions that are no axes."""
    draw = np.random.default_rng(0)
    turned = np.linalg.qr(draw.normal(size=(6, 6)))[0]
    return (draw.normal(size=(500, 6)) * np.geomspace(0.1, 1, 6) @ turned + 0.3).astype(np.float32)


@pytest.mark.parametrize("power", [0.0, 0.2, 0.5, 1.0])
def test_variances_are_left_at_one_less_the_power_and_directions_stay(vectors, power):
    before, directions = np.linalg.eigh(np.cov(vectors.T))
    matrix = fit_partial_whitening(vectors, power)
    after = directions.T @ np.cov((vectors @ matrix).T) @ directions
    assert after == pytest.approx(np.diag(before ** (1 - power) * before.mean() ** power), abs=1e-4)
    assert matrix == pytest.approx(matrix.T, abs=1e-6)


def test_a_direction_in_which_nothing_varies_is_not_lifted_without_end(vectors):
    flat = np.hstack([vectors, np.ones((len(vectors), 1), np.float32)])
    matrix = fit_partial_whitening(flat, 1.0)
    highest = np.linalg.eigvalsh(np.cov(vectors.T))[-1]
    mean = np.linalg.eigvalsh(np.cov(flat.T)).mean()
    assert matrix[-1, -1] == pytest.approx((1e-3 * highest / mean) ** -0.5, rel=1e-3)


def test_too_few_texts_are_refused(vectors):
    fit_partial_whitening(vectors[:12])
    with pytest.raises(EncoderError, match="needs 12 texts or more, and 11 were given"):
        fit_partial_whitening(vectors[:11])


def whitening(encoder):
    draw = np.random.default_rng(1)
    width = encode(encoder, TEXTS[:1]).shape[1]
    return fit_partial_whitening(draw.normal(size=(2 * width, width)) * np.geomspace(0.1, 1, width), 0.8)


def same_directions(found, expected):
    units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (found, expected)]
    assert units[0] == pytest.approx(units[1], abs=1e-5)


@pytest.mark.parametrize("name", ["bert", "normalized", "static", "mapped"])
def test_a_whitened_folder_gives_the_embeddings_times_the_matrix_in_sentence_transformers(name, bert, tmp_path):
    encoder = load_encoder("builtin-static" if name in ("static", "mapped") else bert)
    if name == "mapped":  # as behind a neighbour map
        width = encoder.get_embedding_dimension()
        encoder.extend([Dense(width, width, activation_function=torch.nn.Identity()), Normalize()])
    if name == "normalized":
        encoder.append(Normalize())
    before, matrix = encode(encoder, TEXTS, precision="fp32"), whitening(encoder)
    kinds = [type(module) for module in whiten_encoder(encoder, matrix)]
    behind = {"bert": [Pooling, Dense], "normalized": [Pooling, Dense, Normalize], "static": [Normalize]}
    assert kinds[1:] == (behind | {"mapped": [Normalize, Dense, Dense, Normalize]})[name]
    save_encoder(encoder, tmp_path / "model")
    opened = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    found = opened.encode(TEXTS)
    same_directions(found, before @ matrix)
    assert found == pytest.approx(unit(before @ matrix), rel=1e-3, abs=1e-4)
    same_directions(encode(load_encoder(tmp_path / "model"), TEXTS, precision="fp32"), before @ matrix)
    if name not in ("static", "mapped"):
        assert pooling_name(encoder) == "mean"  # a stock map behind the pooling is no pooler


def test_two_encoders_side_by_side_are_not_whitened(bert):
    pair = join_encoders([load_encoder(bert), load_encoder("builtin-static")], (0.5, 0.5))
    with pytest.raises(EncoderError, match="whiten each of them"):
        whiten_encoder(pair, np.eye(4, dtype=np.float32))


def test_all_dimensions_of_an_encoder_that_is_cut_are_whitened(bert):
    encoder = load_encoder(bert)
    matrix, before = whitening(encoder), encode(encoder, TEXTS, precision="fp32")
    encoder.truncate_dim = 10
    whiten_encoder(encoder, matrix)
    assert encoder.truncate_dim == 10
    assert encode(encoder, TEXTS, precision="fp32") == pytest.approx((before @ matrix)[:, :10], rel=1e-3, abs=1e-4)
    with pytest.raises(EncoderError, match="a matrix for 10 dimensions does not fit an encoder of 32"):
        whiten_encoder(encoder, np.eye(10, dtype=np.float32))


def test_a_second_whitening_goes_into_the_first_map(bert):
    encoder = load_encoder(bert)
    before, first = encode(encoder, TEXTS, precision="fp32"), whitening(encoder)
    second = first[::-1, ::-1].copy()
    kinds = [type(module) for module in whiten_encoder(whiten_encoder(encoder, first), second)]
    assert kinds[1:] == [Pooling, Dense]
    assert encode(encoder, TEXTS, precision="fp32") == pytest.approx(before @ first @ second, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("vectors", [np.ones((40, 4)), np.full((40, 4), np.nan)])
def test_embeddings_that_do_not_vary_are_refused(vectors):
    with pytest.raises(EncoderError, match="all equal, or not finite"):
        fit_partial_whitening(vectors)
