"""Against plain Python sets: duplicates are found, and one of each is kept."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfsent.corpus import deduplicate
from selfsent.corpus.columns import Table
from selfsent.corpus.deduplicate import EXACT, HELD_OUT, KEPT, NEAR

rows_of_pieces = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=8), min_size=2, max_size=12)


def flat(rows, dtype=np.uint16):
    return np.array([n for row in rows for n in row], dtype), np.array([len(row) for row in rows], np.int64)


def pairs_of(row):
    return {*pairwise(row), (row[-1], "end")}


def jaccard(a, b):
    return len(pairs_of(a) & pairs_of(b)) / len(pairs_of(a) | pairs_of(b))


def drop_near(folder, rows, threshold):
    """Return the drop reason of every row."""
    ids, lengths = flat(rows)
    width = deduplicate.band_width(threshold)
    reasons = np.zeros(len(rows), np.uint8)
    with Table(folder) as table:
        column = table.ragged("ids", np.uint16)
        column.append(ids, lengths)
        bands = []
        for number, keys in enumerate(deduplicate.band_keys(deduplicate.shingles(ids, lengths), lengths, width)):
            bands.append(table.column(f"band_{number}", np.uint64))
            bands[-1].append(keys)
        deduplicate.drop_near(bands, column, threshold, reasons, folder)
    return reasons


def families(count, size, changes, seed=0, drift=False):
    """Make texts of 30 tokens in families whose members differ in a few places, or drift apart."""
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        row = draw.integers(0, 5000, 30)
        for _ in range(size):
            member = row if drift else row.copy()
            member[draw.choice(30, changes, replace=False)] = draw.integers(0, 5000, changes)
            rows.append(member.tolist())
    return [rows[i] for i in draw.permutation(len(rows))]


@settings(deadline=None, max_examples=60)
@given(rows=rows_of_pieces)
def test_similarity_is_that_of_sets_of_neighbouring_pieces(tmp_path_factory, rows):
    with Table(tmp_path_factory.mktemp("ids")) as table:
        column = table.ragged("ids", np.uint16)
        column.append(*flat(rows))
        earlier, later = np.array(list(combinations(range(len(rows)), 2))).T
        found = deduplicate.similarities(column, earlier, later)
    assert found == pytest.approx([jaccard(rows[i], rows[j]) for i, j in zip(earlier, later, strict=True)])


@settings(deadline=None)
@given(rows=rows_of_pieces)
def test_rows_have_equal_keys_just_when_they_are_equal(rows):
    keys = deduplicate.row_keys(*flat(rows)).tolist()
    assert all((keys[i] == keys[j]) == (rows[i] == rows[j]) for i, j in combinations(range(len(rows)), 2))


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7, 0.8, 0.9, 1.0])
def test_bands_find_nearly_all_pairs_at_the_threshold(threshold):
    width = deduplicate.band_width(threshold)
    assert deduplicate.MINIMA % width == 0
    assert 1 - (1 - threshold**width) ** (deduplicate.MINIMA // width) >= 0.97


@pytest.mark.parametrize("partition", [64, 1 << 20])
def test_every_dropped_text_has_an_earlier_near_duplicate_that_is_kept(tmp_path, monkeypatch, partition):
    monkeypatch.setattr(deduplicate, "_PARTITION", partition)
    monkeypatch.setattr(deduplicate, "_BLOCK", partition)
    rows = families(60, 8, 1, drift=True)  # neighbours are alike, the ends of a family are not
    reasons = drop_near(tmp_path, rows, 0.7)
    kept = np.flatnonzero(reasons == KEPT)
    dropped = np.flatnonzero(reasons == NEAR)
    assert len(dropped) > 100
    for row in dropped:
        assert any(jaccard(rows[row], rows[other]) >= 0.7 for other in kept[kept < row])


def test_at_least_97_percent_of_near_duplicates_are_dropped(tmp_path):
    rows = families(200, 2, 1)
    twins = {
        max(i, j)
        for i, j in combinations(range(len(rows)), 2)
        if rows[i][:2] == rows[j][:2] or rows[i][-2:] == rows[j][-2:]
        if jaccard(rows[i], rows[j]) >= 0.7
    }
    reasons = drop_near(tmp_path, rows, 0.7)
    assert len(twins) > 150
    assert sum(reasons[row] == NEAR for row in twins) > 0.97 * len(twins)


def test_different_texts_stay(tmp_path):
    rows = families(300, 2, 16)
    assert (drop_near(tmp_path, rows, 0.7) == KEPT).all()


@pytest.mark.parametrize("partition", [7, 1 << 20])
@given(keys=st.lists(st.integers(0, 20), max_size=60), held_out=st.lists(st.integers(0, 20), max_size=3))
@settings(deadline=None, max_examples=40)
def test_the_first_of_equal_texts_stays_unless_it_is_held_out(tmp_path_factory, partition, keys, held_out):
    reasons = np.zeros(len(keys), np.uint8)
    with Table(tmp_path_factory.mktemp("keys")) as table, pytest.MonkeyPatch.context() as patch:
        patch.setattr(deduplicate, "_PARTITION", partition)
        column = table.column("keys", np.uint64)
        column.append(np.array(keys, np.uint64))
        deduplicate.drop_held_out(column, np.array(held_out, np.uint64), reasons)
        deduplicate.drop_exact(column, reasons)
    expected = [
        HELD_OUT if key in held_out else EXACT if key in keys[:place] else KEPT for place, key in enumerate(keys)
    ]
    assert reasons.tolist() == expected
