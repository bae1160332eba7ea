"""Factors and weights, each against slow loops."""

import numpy as np
import pytest
import torch
from scipy import sparse

from selfsent.config import build_config
from selfsent.errors import ConfigurationError
from selfsent.word_vectors import factorization


@pytest.fixture(params=["dense", "sparse"])
def form(request, monkeypatch):
    monkeypatch.setattr(factorization, "_DENSE", {"dense": 10**6, "sparse": 0}[request.param])


def upper(square):
    return sparse.csr_array(np.triu(square))


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_factors_are_those_of_the_full_svd(power, form):
    # Singular values that fall as those of real counts do; of a random matrix they are all but equal.
    axes, _ = torch.linalg.qr(torch.randn(40, 40, generator=torch.Generator().manual_seed(0)))
    square = axes * (torch.arange(1, 41) ** -1.0) @ axes.T
    found = factorization.factorise([upper(square)], factorization.FactorConfig(width=6, power=power), seed=1)
    left, values, _ = torch.linalg.svd(square)
    expected = torch.nn.functional.normalize(left[:, :6] * values[:6] ** power, dim=1)
    # Signs of singular vectors are free: what is fixed are the products of rows.
    assert torch.allclose(found @ found.T, expected @ expected.T, atol=1e-3)
    assert torch.allclose(found.norm(dim=1), torch.ones(40))


def test_a_word_without_neighbours_has_no_vector_wherever_it_stands(form):
    square = torch.rand(30, 30, generator=torch.Generator().manual_seed(0))
    square = square + square.T
    for word in (0, 3, 29):
        square[word] = square[:, word] = 0
    found = factorization.factorise([upper(square)], factorization.FactorConfig(width=8), seed=0).norm(dim=1)
    assert torch.equal(found == 0, torch.isin(torch.arange(30), torch.tensor([0, 3, 29])))


def test_vectors_as_wide_as_the_vocabulary_are_refused():
    with pytest.raises(
        ConfigurationError, match="8 tokens cannot have vectors 8 wide: give more text, or choose narrower"
    ):
        factorization.factorise([upper(torch.rand(8, 8))], factorization.FactorConfig(width=8), seed=0)


def test_factors_are_the_same_for_the_same_seed(form):
    square = torch.rand(30, 30, generator=torch.Generator().manual_seed(0))
    one, two = (factorization.factorise([upper(square)], factorization.FactorConfig(width=4), seed=3) for _ in range(2))
    assert torch.equal(one, two)


def test_weights_fall_with_frequency():
    words = np.array([0, 1, 999])
    assert factorization.sif_weights(words, 1e-3) == pytest.approx([1.0, 0.5, 1e-3 / (1e-3 + 0.999)])


def test_the_common_component_of_texts_is_gone(prepared, skip):
    tokenizer, text = prepared
    vectors = torch.rand(len(tokenizer), 8, generator=torch.Generator().manual_seed(0))
    found = factorization.without_common(vectors, text, skip, 2)
    left = torch.linalg.matrix_rank(found, rtol=1e-4)
    assert left == 6
    # Random positive vectors have their mean in common; nothing of it is left.
    assert found.mean(0).norm() < 0.2 * vectors.mean(0).norm()
    assert factorization.without_common(vectors, text, skip, 0) is vectors


def test_both_forms_of_the_product_are_the_whole_matrix_in_one_band_or_several(form, monkeypatch):
    monkeypatch.setattr(factorization, "_ROWS", 7)
    square = torch.randn(20, 20, generator=torch.Generator().manual_seed(0))
    square, columns = square + square.T, torch.randn(20, 3)
    whole = upper(square)
    for bands in ([whole], [whole[:6], whole[6:7], whole[7:]]):
        assert torch.allclose(factorization._product(bands)(columns), square @ columns, atol=1e-5)


@pytest.mark.parametrize(("key", "value"), [("width", 0), ("window", 0), ("sif_coefficient", 0.0), ("common", -1)])
def test_settings_that_mean_nothing_are_refused(key, value):
    with pytest.raises(ConfigurationError, match=f"factors.{key} = {value}"):
        build_config(factorization.FactorConfig, {key: value}, "factors")
