"""Counts, PPMI, factors and weights, each against slow loops."""

import math

import numpy as np
import pytest
import torch
from scipy import sparse

from selfsent.config import build_config
from selfsent.corpus.prepare import prepare_corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.errors import ConfigurationError
from selfsent.pretraining import factorization, vocabulary
from selfsent.progress import SILENT


@pytest.fixture
def prepared(text):
    tokenizer = vocabulary.learn_vocabulary([str(text)], CorpusConfig(), 120)
    return tokenizer, prepare_corpus([str(text)], CorpusConfig(held_out=0), tokenizer, unit="documents")


@pytest.fixture
def skip(prepared):
    return np.array(prepared[0].all_special_ids)


@pytest.fixture(params=["dense", "sparse"])
def form(request, monkeypatch):
    monkeypatch.setattr(factorization, "_DENSE", {"dense": 10**6, "sparse": 0}[request.param])


def upper(square):
    return sparse.csr_array(np.triu(square))


def whole(table):
    table = table.toarray()
    return table + table.T


def slowly(rows, size, window, skip):
    table, words = np.zeros((size, size)), np.zeros(size, int)
    for row in rows:
        row = [word for word in row if word not in skip]
        for place, word in enumerate(row):
            words[word] += 1
            for other in range(max(0, place - window), min(len(row), place + window + 1)):
                table[word, row[other]] += other != place
    return table, words


@pytest.mark.parametrize("pairs", [100, 1500, 1 << 20])
def test_counts_are_those_of_slow_loops_and_no_pair_crosses_documents(prepared, skip, pairs, monkeypatch):
    tokenizer, text = prepared
    monkeypatch.setattr(factorization, "_TOKENS", 1000)  # so that several chunks are added up
    monkeypatch.setattr(factorization, "_ROWS", 7)
    monkeypatch.setattr(factorization, "_PAIRS", pairs)
    table, words = factorization.count_cooccurrences(text, len(tokenizer), 3, skip, SILENT)
    expected, counted = slowly(text.rows(range(len(text))), len(tokenizer), 3, set(skip.tolist()))
    assert np.array_equal(whole(table), expected)
    assert np.array_equal(words, counted)
    assert np.array_equal(factorization.frequencies(text, len(tokenizer), skip), counted)


def test_ppmi_is_that_of_slow_loops():
    draw = np.random.default_rng(0)
    table = draw.integers(0, 6, (12, 12)).astype(np.float32)
    table = table + table.T
    table[3] = table[:, 3] = 0  # a word without neighbours
    total = table.sum()
    expected = np.zeros_like(table)
    for i in range(12):
        for j in range(12):
            if table[i, j]:
                expected[i, j] = max(0.0, math.log(table[i, j] * total / (table[i].sum() * table[:, j].sum())))
    halved = np.triu(table) - np.diag(np.diag(table)) / 2
    found = factorization.ppmi(sparse.csr_array(halved.astype(np.int64)))
    assert np.allclose(found.toarray(), np.triu(expected), atol=1e-5)
    assert found.dtype == np.float32
    assert found.data.min() > 0  # nothing is stored in vain


def test_a_wide_vocabulary_is_counted_alike():
    # i V + j of the last pair is 70,000 x 70,000 - 1, more than 32 bits hold
    pairs = np.array([69_999 * 70_000 + 69_999, 5, 69_999 * 70_000 + 69_999, 3 * 70_000 + 69_999], np.uint64)
    found = factorization._count_pairs(pairs, 70_000)
    assert (found[69_999, 69_999], found[0, 5], found[3, 69_999], found.nnz) == (2, 1, 1, 3)


def test_texts_without_pairs_are_counted():
    assert factorization._count_pairs(np.empty(0, np.uint32), 10).nnz == 0


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_factors_are_those_of_the_full_svd(power, form):
    # Singular values that fall as those of real counts do; of a random matrix they are all but equal.
    axes, _ = torch.linalg.qr(torch.randn(40, 40, generator=torch.Generator().manual_seed(0)))
    square = axes * (torch.arange(1, 41) ** -1.0) @ axes.T
    found = factorization.factorise(upper(square), factorization.FactorConfig(width=6, power=power), seed=1)
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
    found = factorization.factorise(upper(square), factorization.FactorConfig(width=8), seed=0).norm(dim=1)
    assert torch.equal(found == 0, torch.isin(torch.arange(30), torch.tensor([0, 3, 29])))


def test_vectors_as_wide_as_the_vocabulary_are_refused():
    with pytest.raises(
        ConfigurationError, match="8 word pieces cannot have vectors 8 wide: give more text, or choose narrower"
    ):
        factorization.factorise(upper(torch.rand(8, 8)), factorization.FactorConfig(width=8), seed=0)


def test_factors_are_the_same_for_the_same_seed(form):
    square = torch.rand(30, 30, generator=torch.Generator().manual_seed(0))
    one, two = (factorization.factorise(upper(square), factorization.FactorConfig(width=4), seed=3) for _ in range(2))
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


def test_words_of_one_subject_end_up_near_each_other(prepared, skip, form):
    tokenizer, text = prepared
    table, _ = factorization.count_cooccurrences(text, len(tokenizer), 5, skip, SILENT)
    vectors = factorization.factorise(factorization.ppmi(table), factorization.FactorConfig(width=4), seed=0)
    near, far = (
        vectors[tokenizer.convert_tokens_to_ids("ship")] @ vectors[tokenizer.convert_tokens_to_ids(word)]
        for word in ("storm", "soup")
    )
    assert near > 0.5 > far


def test_both_forms_of_the_product_are_the_whole_matrix(form, monkeypatch):
    monkeypatch.setattr(factorization, "_ROWS", 7)
    square = torch.randn(20, 20, generator=torch.Generator().manual_seed(0))
    square, columns = square + square.T, torch.randn(20, 3)
    assert torch.allclose(factorization._product(upper(square))(columns), square @ columns, atol=1e-5)


def test_counts_that_may_not_fit_say_what_would(prepared, skip, monkeypatch):
    monkeypatch.setattr(factorization, "_free_memory", lambda: 16 * 50**2)
    with pytest.raises(ConfigurationError, match="ask for a vocabulary of 50 word pieces or fewer"):
        factorization.count_cooccurrences(prepared[1], 120, 5, skip, SILENT)


def test_a_wide_vocabulary_of_little_text_fits(prepared, skip, monkeypatch):
    monkeypatch.setattr(factorization, "_free_memory", lambda: 1 << 25)  # a table of its square would take 40 GB
    counts, _ = factorization.count_cooccurrences(prepared[1], 100_000, 1, skip, SILENT)
    assert counts.shape == (100_000, 100_000)


@pytest.mark.parametrize(("key", "value"), [("width", 0), ("window", 0), ("sif_coefficient", 0.0), ("common", -1)])
def test_settings_that_mean_nothing_are_refused(key, value):
    with pytest.raises(ConfigurationError, match=f"factors.{key} = {value}"):
        build_config(factorization.FactorConfig, {key: value}, "factors")
