"""The neighbour map is what slow loops and a closed form say, and the folder that is saved computes it."""

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from tiny import TEXTS

from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.neighbour_map import fit_neighbour_map, map_encoder
from selfsent.encoder.open import open_encoder
from selfsent.encoder.pair_module import join_encoders
from selfsent.encoder.principal_axes import turn_encoder
from selfsent.encoder.save import save_encoder
from selfsent.errors import EncoderError


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def vectors():
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(4, 6))
    return (centres[draw.integers(4, size=90)] + 0.7 * draw.normal(size=(90, 6))).astype(np.float32)


@pytest.mark.parametrize(("dose", "beside"), [(0.0, False), (0.5, False), (1.0, False), (1.0, True)])
def test_the_map_is_the_ridge_solution_of_slow_loops(vectors, dose, beside):
    x = unit(vectors.astype(np.float64))
    other = np.random.default_rng(3).normal(size=(90, 4)) if beside else np.zeros((90, 4))
    cosine = x @ x.T + (0.3 * unit(other) @ unit(other).T if beside else 0)
    targets = []
    for i in range(90):
        near = sorted((j for j in range(90) if j != i), key=lambda j: -cosine[i, j])[:20]
        weights = np.exp([cosine[i, j] / 0.05 for j in near])
        targets.append(sum(weight * x[j] for weight, j in zip(weights, near, strict=True)) / weights.sum())
    mean, targets = x.mean(axis=0), np.array(targets) - np.mean(targets, axis=0)
    penalty = 0.1 * np.trace(np.cov(x.T, bias=True)) / 6
    # least squares with the penalty as six more rows
    rows = np.vstack([x - mean, np.sqrt(90 * penalty) * np.eye(6)])
    weights = np.linalg.lstsq(rows, np.vstack([targets, np.zeros((6, 6))]), rcond=None)[0]
    expected = unit((x - mean) @ (np.eye(6) + dose * weights))
    found = fit_neighbour_map(vectors, other if beside else None, dose=dose, neighbours=20)
    assert found(vectors) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["bert", "builtin-static"])
def test_a_saved_folder_computes_it_and_opens_without_selfsent(name, bert, tmp_path):
    encoder = load_encoder(bert if name == "bert" else name)
    before = encode(encoder, TEXTS)
    affine = fit_neighbour_map(np.random.default_rng(1).normal(size=(600, before.shape[1])).astype(np.float32))
    save_encoder(map_encoder(encoder, affine), tmp_path / "model")
    for vectors in (
        SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(TEXTS),
        open_encoder(tmp_path / "model").embed(TEXTS, precision="fp32"),
    ):
        assert vectors == pytest.approx(affine(before), abs=2e-3 if name == "bert" else 1e-5)


def test_what_it_cannot_be_made_of_or_for_is_refused(vectors, bert):
    with pytest.raises(EncoderError, match="needs 180 texts or more, and 90 were given"):
        fit_neighbour_map(vectors, neighbours=90)
    with pytest.raises(EncoderError, match="all equal"):
        fit_neighbour_map(np.ones((200, 6), np.float32))
    with pytest.raises(EncoderError, match="of 6 dimensions does not fit"):
        map_encoder(load_encoder(bert), fit_neighbour_map(vectors, neighbours=20))
    pair = join_encoders([load_encoder(bert), load_encoder(bert)], [0.5, 0.5])
    with pytest.raises(EncoderError, match="of 6 dimensions does not fit an encoder of 64"):
        map_encoder(pair, fit_neighbour_map(vectors, neighbours=20))
    smaller = turn_encoder(pair, np.eye(64, 6, dtype=np.float32))
    with pytest.raises(EncoderError, match="a smaller pair of encoders takes no map"):
        map_encoder(smaller, fit_neighbour_map(vectors, neighbours=20))
