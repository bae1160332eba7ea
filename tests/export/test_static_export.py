"""Static vectors solve the regression that they claim, and come near the encoder."""

import numpy as np
import pytest
from scipy import sparse
from sentence_transformers import SentenceTransformer
from tiny import TEXTS

from selfsent.encoder.load import load_encoder
from selfsent.errors import CorpusError
from selfsent.export.static import bare_tokenizer, distil_static, piece_shares, regress, ridge


@pytest.fixture
def problem():
    draw = np.random.default_rng(0)
    shares = sparse.random(60, 12, density=0.3, format="csr", random_state=0, dtype=np.float64)
    return shares, draw.normal(size=(60, 5)), draw.normal(size=(12, 5))


def solved(shares, targets, prior, penalty):
    x = shares.toarray()
    return np.linalg.solve(x.T @ x + penalty * np.eye(x.shape[1]), x.T @ targets + penalty * prior)


@pytest.mark.parametrize("penalty", [1.0, 0.01])
def test_the_regression_is_its_closed_form(problem, penalty):
    shares, targets, prior = problem
    found = ridge(shares, targets, prior, penalty, prior, iterations=200, tolerance=1e-12)
    np.testing.assert_allclose(found, solved(shares, targets, prior, penalty), atol=1e-8)


def test_the_penalty_is_the_one_that_suits_the_held_out_texts(problem, monkeypatch):
    """By hand: the last tenth of the texts is left out, and the cosine to their targets decides."""
    shares, targets, prior = problem
    targets /= np.linalg.norm(targets, axis=1, keepdims=True)
    monkeypatch.setattr("selfsent.export.static.ridge", lambda *given: solved(*given[:4]))
    found = regress(shares, targets, prior, penalties=(100.0, 1.0, 0.001))
    held_out = np.arange(60) >= 54
    first = shares @ prior
    scaled = prior * np.float32((first * targets).sum() / (first * first).sum())
    scores = {}
    for penalty in (100.0, 1.0, 0.001):
        vectors = shares[held_out] @ solved(shares[~held_out], targets[~held_out], scaled, penalty)
        lengths = np.linalg.norm(vectors, axis=1)
        scores[penalty] = ((vectors * targets[held_out]).sum(1)[lengths > 0] / lengths[lengths > 0]).sum()
    best = max(scores, key=scores.get)
    np.testing.assert_allclose(found, solved(shares, targets, scaled, best), atol=1e-5)


def test_the_shares_of_a_text_are_those_of_its_word_pieces(encoder):
    tokenizer = bare_tokenizer(encoder)
    shares = piece_shares(tokenizer, ["the cat the mat", "", "a dog"]).toarray()
    the, cat = (tokenizer.token_to_id(word) for word in ("the", "cat"))
    assert shares[0, the] == 0.5
    assert shares[0, cat] == 0.25
    np.testing.assert_allclose(shares.sum(axis=1), [1, 0, 1])


def test_the_folder_opens_without_us_and_is_near_the_encoder(folders, exported):
    static = SentenceTransformer(str(exported("mean", "static").folder), device="cpu")
    vectors = static.encode([*TEXTS, ""])
    assert vectors.shape == (len(TEXTS) + 1, 16)
    assert not vectors[-1].any()
    theirs = load_encoder(folders["mean"]).encode(TEXTS)
    upper = np.triu_indices(len(TEXTS), 1)

    def similarities(x):
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
        return (x @ x.T)[upper]

    assert np.corrcoef(similarities(vectors[:-1]), similarities(theirs))[0, 1] > 0.6


def test_too_few_texts_are_refused(encoder):
    with pytest.raises(CorpusError, match="100 different"):
        distil_static(encoder, TEXTS)
