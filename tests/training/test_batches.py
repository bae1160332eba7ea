"""Every text once an epoch, no copies in one batch, and a batch that depends on the step alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfsent.errors import CorpusError
from selfsent.training.batches import Batches

sizes = st.integers(2, 9)
corpora = st.integers(9, 300)
modes = st.booleans()
quick = settings(deadline=None, max_examples=40)


def make(rows, size, *, copies=0, seed=0, bucketed=True, **more):
    draw = np.random.default_rng(rows)
    lengths = draw.integers(3, 33, rows)
    keys = np.arange(rows, dtype=np.uint64)
    keys[:copies] = keys[rows - copies :]
    return lengths, keys, Batches(lengths, keys, size, seed=seed, bucketed=bucketed, **more)


def epoch(batches, number=0):
    steps = batches.steps_per_epoch
    return [batches(step) for step in range(number * steps, (number + 1) * steps)]


@quick
@given(rows=corpora, size=sizes, bucketed=modes, seed=st.integers(0, 5), number=st.integers(0, 3))
def test_an_epoch_holds_every_row_once(rows, size, bucketed, seed, number):
    _, _, batches = make(rows, size, seed=seed, bucketed=bucketed)
    seen = np.concatenate(epoch(batches, number))
    assert len(np.unique(seen)) == len(seen)
    assert len(seen) == rows - (rows % size == 1)


@quick
@given(rows=st.integers(60, 300), size=sizes, copies=st.integers(0, 20), bucketed=modes)
def test_no_batch_holds_a_text_twice_and_none_is_lost_where_there_is_room(rows, size, copies, bucketed):
    _, keys, batches = make(rows, size, copies=copies, bucketed=bucketed)
    all_batches = epoch(batches, 1)
    assert all(len(np.unique(keys[batch])) == len(batch) for batch in all_batches)
    assert batches.left_out == 0
    assert len(np.unique(np.concatenate(all_batches))) == rows - (rows % size == 1)


@quick
@given(rows=st.integers(100, 300), size=sizes, seed=st.integers(0, 50))
def test_texts_with_many_copies_never_share_a_batch_with_one(rows, size, seed):
    keys = np.random.default_rng(seed).integers(0, rows // 4, rows).astype(np.uint64)
    batches = Batches(np.full(rows, 5), keys, size, seed=seed)
    assert all(len(np.unique(keys[batch])) == len(batch) for batch in epoch(batches))


def test_copies_without_room_are_left_out_of_the_epoch_and_counted():
    keys = np.r_[np.zeros(30), np.arange(1, 71)].astype(np.uint64)  # 30 copies, but only 10 batches
    batches = Batches(np.full(100, 5), keys, 10, seed=0)
    seen = epoch(batches)
    assert batches.left_out == 20
    assert [int((keys[batch] == 0).sum()) for batch in seen] == [1] * 10
    assert sum(map(len, seen)) == 80


@pytest.mark.parametrize("bucketed", [True, False])
def test_every_text_has_its_turn_where_a_last_batch_is_left_out(bucketed):
    lengths = np.arange(1, 101)
    batches = Batches(lengths, np.arange(100, dtype=np.uint64), 16, seed=0, bucketed=bucketed, least=16)
    seen = {int(row) for step in range(60 * batches.steps_per_epoch) for row in batches(step)}
    assert seen == set(range(100))  # sorted first, the longest four would never have been read


def test_a_batch_that_copies_left_too_small_is_filled_from_larger_ones():
    keys = np.r_[np.arange(1, 129), np.zeros(26)].astype(np.uint64)  # the longest 26, the whole last batch, are copies
    for seed in range(8):
        batches = Batches(np.repeat([5, 9], [128, 26]), keys, 64, seed=seed, fewest=8)
        every = epoch(batches)
        assert (min(map(len, every)), sum(map(len, every))) == (8, 128 + 3)  # not more than it needs; a copy a batch
        assert all(len({*keys[rows].tolist()}) == len(rows) for rows in every)


def test_where_last_batches_are_left_out_copies_may_still_leave_smaller_ones():
    """Six hundred pairs of which thirty share a question: every batch may hold one of them."""
    keys = np.r_[np.zeros(30), np.arange(1, 571)].astype(np.uint64)
    batches = Batches(np.full(600, 9), keys, 64, seed=0, least=64)
    sizes = [len(batches(step)) for step in range(batches.steps_per_epoch)]
    assert (len(sizes), min(sizes) >= 2, sum(sizes)) == (9, True, 9 * 64 - batches.left_out)


def test_a_corpus_of_copies_is_refused():
    with pytest.raises(
        CorpusError, match=r"leaves a batch of 1: remove copies with corpus\.deduplicate, give fewer pairs of one text"
    ):
        Batches(np.full(40, 5), np.zeros(40, np.uint64), 10, seed=0)(0)


@quick
@given(rows=st.integers(40, 300), size=sizes, bucketed=modes, earlier=st.lists(st.integers(0, 400), max_size=6))
def test_a_batch_does_not_depend_on_the_steps_before(rows, size, bucketed, earlier):
    _, _, fresh = make(rows, size, copies=3, bucketed=bucketed)
    _, _, used = make(rows, size, copies=3, bucketed=bucketed)
    for step in earlier:
        used(step)
    np.testing.assert_array_equal(fresh(37), used(37))


def test_epochs_and_seeds_differ():
    _, _, batches = make(300, 8)
    _, _, other = make(300, 8, seed=1)
    first = np.concatenate(epoch(batches))
    assert (first != np.concatenate(epoch(batches, 1))).mean() > 0.9
    assert (first != np.concatenate(epoch(other))).mean() > 0.9


def test_bucketed_batches_hardly_pad():
    draw = np.random.default_rng(0)
    lengths = np.clip(draw.normal(26, 8, 20_000), 7, 32).astype(np.int32)
    keys = np.arange(20_000, dtype=np.uint64)

    def padding(**settings):
        rows = [lengths[batch] for batch in epoch(Batches(lengths, keys, 64, seed=0, **settings))]
        return 1 - sum(n.sum() for n in rows) / sum(n.max() * len(n) for n in rows)

    assert padding(bucketed=False) > 0.2
    assert padding() < 0.02


def test_long_and_short_batches_come_in_random_order():
    lengths, _, batches = make(6_000, 20)
    means = [lengths[batch].mean() for batch in epoch(batches)]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3


@pytest.mark.parametrize(("rows", "least", "steps"), [(20, 2, 2), (21, 2, 2), (22, 2, 3), (29, 10, 2), (25, 6, 2)])
def test_a_last_batch_is_kept_if_it_has_the_least_rows(rows, least, steps):
    _, _, batches = make(rows, 10, least=least)
    assert batches.steps_per_epoch == steps
    assert min(map(len, epoch(batches))) >= least


def test_fewer_texts_than_a_batch_are_refused_by_number():
    with pytest.raises(CorpusError, match=r"7 texts, fewer than one batch of 8"):
        make(7, 8)
