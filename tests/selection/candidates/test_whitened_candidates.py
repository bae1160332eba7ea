"""Which candidates are partly whitened."""

import json
from functools import partial

import numpy as np
import pytest
from scoreboards import candidate
from tiny import TEXTS

from selfsent.encoder.load import load_encoder
from selfsent.encoder.pair_module import join_encoders
from selfsent.encoder.partial_whitening import fit_partial_whitening
from selfsent.selection.candidates.whitened import add_partly_whitened

WORDS = sorted({word for text in TEXTS for word in text.split()})


@pytest.fixture
def pairs(tmp_path):
    draw = np.random.default_rng(0)
    rows = [{"text": " ".join(draw.choice(WORDS, 5)), "positive": " ".join(draw.choice(WORDS, 5))} for _ in range(100)]
    (tmp_path / "pairs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return [text for row in rows for text in row.values()]


def whitened(workspace, *made):
    """What is partly whitened of candidates, and the workspace; the first is the base."""
    work = workspace(*made, kind="documents")
    add_partly_whitened(work)
    return [candidate for candidate in work.board.candidates if candidate.derive], work


def test_the_matrix_is_that_of_the_embeddings_of_the_pairs(workspace, pairs, base, bert, fp32_alone):
    """The vectors of what is whitened are computed from those of the other; the encoder gives the same."""
    (candidate,), work = whitened(
        workspace, base(open=partial(load_encoder, bert), is_transformer=False, is_static=True)
    )
    assert candidate.name == "base, partly whitened"
    (path,) = work.folder.glob("*.npy")
    expected = fit_partial_whitening(load_encoder(bert).encode(pairs))
    np.testing.assert_allclose(np.load(path), expected, rtol=1e-3, atol=1e-5)
    vectors = load_encoder(bert).encode(TEXTS)
    assert candidate.parts == [work.board.bases[0]]
    derived = candidate.derive(vectors)
    np.testing.assert_allclose(derived, candidate.open().encode(TEXTS), rtol=1e-3, atol=1e-5)
    assert not np.allclose(derived, vectors, atol=0.05)


def test_bases_that_are_cut_or_a_pair_are_not_whitened(workspace, pairs, base, bert):
    """What their tests have seen is not what a matrix of all dimensions would be multiplied with."""
    short = load_encoder(bert)
    short.truncate_dim = 10
    pair = join_encoders([load_encoder(bert), load_encoder("builtin-static")], (0.5, 0.5))
    for encoder in (short, pair):
        made, work = whitened(workspace, base(open=lambda encoder=encoder: encoder, is_static=True))
        assert made == []
        assert list(work.folder.glob("*.npy")) == []


def test_of_static_vectors_the_best_are_whitened_and_no_transformer(workspace, pairs, bert):
    kinds = ("base", 60, False), ("low", 51, True), ("high", 52, True)
    opened = partial(load_encoder, bert)
    made = [candidate(name, value, is_static=static, open=opened) for name, value, static in kinds]
    names = [candidate.name for candidate in whitened(workspace, *made)[0]]
    assert names == ["high, partly whitened"]
