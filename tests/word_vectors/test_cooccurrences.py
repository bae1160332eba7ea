"""Counts and PPMI, each against slow loops, in memory and in files."""

import errno
import math
import tempfile

import numpy as np
import pytest
from scipy import sparse

from selfsent.errors import ConfigurationError, DataError
from selfsent.progress import SILENT
from selfsent.word_vectors import cooccurrences


def whole(tables):
    table = sum(table.toarray() for table in tables)
    return table + table.T


def lies_in_a_file(entries):
    while not isinstance(entries, np.memmap) and isinstance(entries, np.ndarray):
        entries = entries.base
    return isinstance(entries, np.memmap)


def slowly(rows, size, window, skip):
    table, words = np.zeros((size, size)), np.zeros(size, int)
    for row in rows:
        row = [word for word in row if word not in skip]
        for place, word in enumerate(row):
            words[word] += 1
            for other in range(max(0, place - window), min(len(row), place + window + 1)):
                table[word, row[other]] += other != place
    return table, words


@pytest.fixture
def in_files(monkeypatch):
    monkeypatch.setattr(cooccurrences, "_PAIRS", 2000)
    monkeypatch.setattr(cooccurrences, "_HELD", 100)


@pytest.mark.parametrize(("pairs", "held"), [(100, 1 << 20), (1500, 1 << 20), (1 << 20, 1 << 20), (1500, 300)])
def test_counts_are_those_of_slow_loops_and_no_pair_crosses_documents(prepared, skip, pairs, held, monkeypatch):
    tokenizer, text = prepared
    monkeypatch.setattr(cooccurrences, "_TOKENS", 1000)  # so that several chunks are added up
    monkeypatch.setattr(cooccurrences, "_PAIRS", pairs)
    monkeypatch.setattr(cooccurrences, "_HELD", held)
    tables, words = cooccurrences.count_cooccurrences(text, len(tokenizer), 3, skip, SILENT)
    expected, counted = slowly(text.rows(range(len(text))), len(tokenizer), 3, set(skip.tolist()))
    assert np.array_equal(whole(tables), expected)
    assert np.array_equal(words, counted)
    assert np.array_equal(cooccurrences.frequencies(text, len(tokenizer), skip), counted)
    assert (len(tables) > 2) == (held == 300)


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
    (found,) = cooccurrences.ppmi([sparse.csr_array(halved.astype(np.int64))])
    assert np.allclose(found.toarray(), np.triu(expected), atol=1e-5)
    assert found.dtype == np.float32
    assert found.data.min() > 0  # nothing is stored in vain


def test_a_wide_vocabulary_is_counted_alike():
    # i V + j of the last pair is 70,000 x 70,000 - 1, more than 32 bits hold
    pairs = np.array([69_999 * 70_000 + 69_999, 5, 69_999 * 70_000 + 69_999, 3 * 70_000 + 69_999], np.uint64)
    found = cooccurrences._count_pairs(pairs, 70_000)
    assert (found[69_999, 69_999], found[0, 5], found[3, 69_999], found.nnz) == (2, 1, 1, 3)


def test_texts_without_pairs_are_counted():
    assert cooccurrences._count_pairs(np.empty(0, np.uint32), 10).nnz == 0


def test_counts_that_may_not_fit_say_what_would(prepared, skip, monkeypatch):
    monkeypatch.setattr(cooccurrences, "free_memory", lambda: 16 * 50**2)
    with pytest.raises(ConfigurationError, match="ask for a vocabulary of 50 tokens or fewer"):
        cooccurrences.count_cooccurrences(prepared[1], 120, 5, skip, SILENT)


def test_a_wide_vocabulary_of_little_text_fits(prepared, skip, monkeypatch):
    monkeypatch.setattr(cooccurrences, "free_memory", lambda: 1 << 25)  # a table of its square would take 40 GB
    counts, _ = cooccurrences.count_cooccurrences(prepared[1], 100_000, 1, skip, SILENT)
    assert [table.shape for table in counts] == [(100_000, 100_000)]


def test_ppmi_of_counts_in_files_is_that_of_counts_in_memory(prepared, skip, in_files, tmp_path, monkeypatch):
    tokenizer, text = prepared
    apart, _ = cooccurrences.count_cooccurrences(text, len(tokenizer), 5, skip, SILENT)
    bands = cooccurrences.ppmi(apart, tmp_path)
    assert len(apart) > 2
    assert len(bands) > 2
    parts = [part for part in (*apart[:-1], *bands) if part.nnz]
    assert all(lies_in_a_file(entries) for part in parts for entries in (part.data, part.indices))
    assert max(band.nnz for band in bands) <= 120
    monkeypatch.setattr(cooccurrences, "_HELD", 1 << 20)
    (expected,) = cooccurrences.ppmi(cooccurrences.count_cooccurrences(text, len(tokenizer), 5, skip, SILENT)[0])
    assert np.array_equal(sparse.vstack(bands).toarray(), expected.toarray())


def test_files_of_counts_have_no_names(prepared, skip, in_files, tmp_path):
    tokenizer, text = prepared
    before = sorted(text.folder.parent.iterdir())
    counts, _ = cooccurrences.count_cooccurrences(text, len(tokenizer), 5, skip, SILENT)
    bands = cooccurrences.ppmi(counts, tmp_path)
    assert sorted(text.folder.parent.iterdir()) == before
    assert not list(tmp_path.iterdir())
    assert bands[0].nnz


def test_a_full_disk_is_one_sentence(prepared, skip, in_files, monkeypatch):
    def full(**_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(DataError, match=r"do not fit on the disk of .* \(No space left on device\): free some space"):
        cooccurrences.count_cooccurrences(prepared[1], len(prepared[0]), 5, skip, SILENT)
