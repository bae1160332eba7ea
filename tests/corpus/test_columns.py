"""Columns come back as they were written, also while they are being written."""

from itertools import chain

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from selfsent.corpus.columns import Ragged, Table

rows_of_numbers = st.lists(st.lists(st.integers(0, 65_535), max_size=6), max_size=30)


@settings(deadline=None, max_examples=30)
@given(parts=st.lists(rows_of_numbers, max_size=4))
def test_ragged_rows_come_back_in_any_order(tmp_path_factory, parts):
    folder = tmp_path_factory.mktemp("store")
    with Table(folder) as table:
        column = table.ragged("ids", np.uint16)
        for part in parts:
            column.append(np.array([*chain(*part)], np.uint16), np.array([len(row) for row in part], np.int64))
    rows = [*chain(*parts)]
    order = np.random.default_rng(0).permutation(len(rows))
    read = Ragged(folder, "ids")
    assert len(read) == len(rows)
    assert [row.tolist() for row in read.rows(order)] == [rows[i] for i in order]


def test_a_column_is_an_ordinary_npy_file(tmp_path):
    with Table(tmp_path) as table:
        column = table.column("lengths", np.int32)
        for start in range(0, 100_000, 1000):
            column.append(np.arange(start, start + 1000))
    np.testing.assert_array_equal(np.load(tmp_path / "lengths.npy"), np.arange(100_000))


def test_what_was_appended_can_be_read_before_the_end(tmp_path):
    with Table(tmp_path) as table:
        column = table.column("keys", np.uint64)
        column.append(np.arange(10))
        assert column.read(3, 6).tolist() == [3, 4, 5]
        column.append(np.arange(10, 20))
        assert np.concatenate([chunk for _, chunk in column.chunks()]).tolist() == list(range(20))
