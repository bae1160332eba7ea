"""The inverted file: the recall that it states is that of queries that it has never seen."""

import numpy as np
import pytest

from selfsent.searching import nearest

pytest.importorskip("faiss", reason="needs faiss: pip install '.[search]' in the checkout")


def draw(count, seed):
    """Directions in clusters, as embeddings of texts are."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((200, 48))
    vectors = centres[random.integers(200, size=count)] + random.standard_normal((count, 48))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def grown(vectors, waiting, file=None, lists=300, bits=8):
    lists = min(lists, sum(map(len, vectors)))  # so many that it misses some
    file = file or nearest.IVFIndex(vectors, lists, bits)
    file.add_vectors(vectors, waiting)
    return file


def test_every_finite_value_is_widened_as_numpy_does():
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)].reshape(-1, 2)
    assert finite.size == 2 * 31 * 1024  # both signs, 31 exponents, 10 bits of mantissa
    np.testing.assert_array_equal(nearest.widen(finite).view(np.int32), finite.astype(np.float32).view(np.int32))


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_the_exact_neighbours_are_those_of_all_cosines(kind):
    parts = [draw(300, 1).astype(kind), draw(50, 2).astype(kind)]
    every, queries = np.concatenate(parts).astype(np.float64), draw(20, 3).astype(np.float32)
    hidden = np.zeros(350, bool)
    hidden[::7] = True
    cosines = np.where(hidden, -np.inf, queries @ every.T)
    numbers, best = nearest.exact_nearest(queries, parts, hidden, 9)
    np.testing.assert_array_equal(numbers, np.argsort(-cosines, axis=1)[:, :9])
    np.testing.assert_allclose(best, -np.sort(-cosines, axis=1)[:, :9], atol=1e-6)


def test_the_recall_that_is_measured_is_that_of_new_queries():
    vectors = [draw(3_000, 1).astype(np.float16), draw(2_500, 2).astype(np.float16)]
    waiting = nearest.choose_sample(0, 5_500)
    assert len(waiting) == nearest.SAMPLE == len({*waiting.tolist()})
    file = grown(vectors, waiting, lists=1_500)
    assert len(file) == 5_500 - nearest.SAMPLE
    nprobe, measured = nearest.measure_recall(file, vectors, waiting, 0.0)
    assert nprobe == 8
    file.add_rows(vectors, waiting)
    assert len(file) == 5_500
    new, every, shares = draw(400, 3).astype(np.float32), np.concatenate(vectors).astype(np.float32), []
    for query, found in zip(new, file.propose(new, 40), strict=True):
        ranked = sorted(found.tolist(), key=lambda number: -float(every[number] @ query))[:10]
        shares.append(len({*ranked} & {*np.argsort(-(every @ query))[:10].tolist()}) / 10)
    assert 0.3 < measured < 0.97
    assert measured == pytest.approx(np.mean(shares), abs=0.05)


def test_more_lists_are_searched_until_the_recall_is_reached():
    vectors = [draw(4_000, 1).astype(np.float16)]
    waiting = nearest.choose_sample(0, 4_000)
    file = grown(vectors, waiting)
    few, low = nearest.measure_recall(file, vectors, waiting, 0.0)
    more, high = nearest.measure_recall(file, vectors, waiting, low + 0.01)
    assert more > few
    assert high > low
    every, whole = nearest.measure_recall(file, vectors, waiting, 1.1)  # which no search reaches
    assert every >= file.lists
    assert whole > 0.97  # but for the int8 of 40 proposals


@pytest.mark.parametrize(("vectors", "lists"), [(1, 1), (9, 1), (100, 12), (1_000_000, 2_000), (10_000_000, 6_325)])
def test_the_lists_are_twice_the_square_root_of_the_vectors_but_not_empty(vectors, lists):
    assert nearest.lists_for(vectors) == lists


@pytest.mark.parametrize(
    ("had", "total", "count"), [(0, 1, 0), (0, 7, 3), (0, 10_000, 200), (50, 249, 0), (50, 250, 200)]
)
def test_the_sample_is_of_what_is_added_and_of_a_handful_there_is_none(had, total, count):
    sample = nearest.choose_sample(had, total)
    assert len(sample) == count
    assert all(had <= number < total for number in sample)
    assert sorted(sample.tolist()) == sample.tolist()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_file_of_hardly_any_vectors_is_whole(count):
    vectors = [draw(count, 1).astype(np.float16)]
    waiting = nearest.choose_sample(0, count)
    file = grown(vectors, waiting, lists=nearest.lists_for(count))
    assert nearest.measure_recall(file, vectors, waiting, 0.95) == (8, 1.0)
    file.add_rows(vectors, waiting)
    assert len(file) == count


@pytest.mark.parametrize("bits", [8, 1])
def test_a_file_grows_by_what_it_lacks_and_answers_alike_from_disk(tmp_path, bits):
    vectors = [draw(300, 1).astype(np.float16)]
    file = grown(vectors, np.array([7, 8]), lists=20, bits=bits)
    file.add_rows(vectors, np.array([7, 8]))
    file.save_file(tmp_path / "lists.faiss")
    file = nearest.IVFIndex.open_file(tmp_path / "lists.faiss", grow=True)
    file = grown([*vectors, draw(20, 2).astype(np.float16)], np.empty(0, np.int64), file)
    assert (len(file), file.lists) == (320, 20)
    queries = vectors[0][7:9].astype(np.float32)
    assert [found[0] for found in file.propose(queries, 1)] == [7, 8]
    file.save_file(tmp_path / "more.faiss")
    mapped = nearest.IVFIndex.open_file(tmp_path / "more.faiss")
    for one in (file, mapped):
        one.probe(20)
    for here, there in zip(file.propose(queries, 40), mapped.propose(queries, 40), strict=True):
        assert here.tolist() == there.tolist()
    file.probe(1)
    assert all(len(found) < 320 for found in file.propose(queries, 320)), "one list holds all"


def test_of_1_bit_a_dimension_the_file_is_a_fifth_and_four_times_as_many_candidates_hold_the_nearest(tmp_path):
    vectors, sizes = [np.hstack([draw(4_000, 1)] * 4).astype(np.float16) / 2], {}
    for bits in (8, 1):
        file = grown(vectors, np.array([], np.int64), lists=8, bits=bits)
        file.save_file(tmp_path / str(bits))
        sizes[bits] = (tmp_path / str(bits)).stat().st_size
    assert sizes[1] < 0.3 * sizes[8]  # with the number of each, and the centres
    file.probe(8)
    queries, every = np.hstack([draw(50, 3)] * 4).astype(np.float32) / 2, vectors[0].astype(np.float32)
    proposed = file.propose(queries, 40)
    assert [len(found) for found in proposed] == [160] * 50
    shares = []
    for query, found in zip(queries, proposed, strict=True):
        exact = np.argsort(-(every @ query))[:10]
        shares.append(len({*found.tolist()} & {*exact.tolist()}) / 10)
    assert np.mean(shares) > 0.9
