"""Alignment, uniformity and collapse figures against closed forms, slow loops and the authors' values."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from selfsent.encoder.quantize import unit
from selfsent.errors import UserError
from selfsent.evaluation import geometry
from selfsent.evaluation.suite import read_suite


@pytest.fixture
def points():
    return np.random.default_rng(0).normal(size=(37, 5))


def test_identical_pairs_are_aligned(points):
    assert geometry.alignment(points, 3 * points) == pytest.approx(0, abs=1e-15)


def test_equal_points_have_uniformity_0_and_antipodes_minus_8():
    assert geometry.uniformity(np.ones((5, 3))) == pytest.approx(0, abs=1e-14)
    assert geometry.uniformity(np.array([[0.0, 2.0], [0.0, -0.5]])) == pytest.approx(-8, abs=1e-12)


def test_figures_do_not_depend_on_the_scale_of_rows(points):
    scaled = points * np.linspace(0.1, 9, 37)[:, None]
    for figure in (geometry.uniformity, geometry.mean_cosine, geometry.effective_rank):
        assert figure(scaled) == pytest.approx(figure(points), abs=1e-12)
    assert geometry.alignment(scaled, points[::-1]) == pytest.approx(geometry.alignment(points, points[::-1]))


@pytest.mark.parametrize("tile", [1, 5, 36, 1000])
def test_uniformity_is_the_mean_over_all_pairs_whatever_the_tiles(points, tile, monkeypatch):
    monkeypatch.setattr(geometry, "TILE", tile)
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    terms = [np.exp(-3 * np.sum((a - b) ** 2)) for a, b in combinations(unit, 2)]
    assert geometry.uniformity(points, t=3.0) == pytest.approx(np.log(np.mean(terms)), abs=1e-12)


def test_a_zero_row_is_at_distance_one_from_all_others():
    assert geometry.uniformity(np.array([[0.0, 0.0], [0.0, 2.0]])) == pytest.approx(-2, abs=1e-12)


def test_mean_cosine_is_the_mean_over_all_pairs(points):
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    assert geometry.mean_cosine(points) == pytest.approx(np.mean([a @ b for a, b in combinations(unit, 2)]))


def test_alignment_takes_pairs_above_the_threshold_and_those_at_it_if_asked():
    x, y = np.tile([1.0, 0.0], (3, 1)), np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    gold = np.array([4.5, 4.0, 3.0])  # squared distances 0, 2, 4
    assert geometry.alignment(x, y, gold) == pytest.approx(0)
    assert geometry.alignment(x, y, gold, inclusive=True) == pytest.approx(1)
    assert geometry.alignment(x, y) == pytest.approx(2)
    with pytest.raises(ValueError, match="no pair has a gold score above 4"):
        geometry.alignment(x, y, gold - 1)


def test_effective_rank_counts_directions_that_are_used():
    assert geometry.effective_rank(np.eye(7)) == pytest.approx(7)
    assert geometry.effective_rank(np.outer([1, 2, -3, 4], [1.0, 2.0, 3.0])) == pytest.approx(1, abs=1e-6)
    # 9 rows on one axis and 1 on another: singular values 3 and 1, shares 3/4 and 1/4.
    rows = np.repeat(np.eye(2), [9, 1], axis=0)
    assert geometry.effective_rank(rows) == pytest.approx(np.exp(-0.75 * np.log(0.75) - 0.25 * np.log(0.25)))
    assert geometry.effective_rank(np.zeros((3, 2))) == 0


def test_the_centre_of_a_star_is_its_hub():
    # Every leaf's nearest is the centre, and the centre's nearest are all leaves alike: N_1 is n once, 1/n n times.
    n = 20
    star = np.concatenate([np.eye(n + 1)[:1], np.eye(n + 1)[:1] + np.eye(n + 1)[1:]])
    assert geometry.hubness(star, k=1) == pytest.approx((n - 1) / np.sqrt(n))
    assert geometry.hubness(star[::-1], k=1) == pytest.approx((n - 1) / np.sqrt(n))


@pytest.mark.parametrize("tile", [7, 1000])
def test_hubness_is_the_skewness_of_how_often_a_row_is_near(points, tile, monkeypatch):
    monkeypatch.setattr(geometry, "TILE", tile)
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    counts = np.zeros(37)
    for i, row in enumerate(unit):
        nearest = sorted((j for j in range(37) if j != i), key=lambda j: -(row @ unit[j]))
        counts[nearest[:10]] += 1
    assert geometry.hubness(points) == pytest.approx(stats.skew(counts))


def test_rows_that_are_all_alike_have_no_hub():
    assert geometry.hubness(np.eye(15)) == 0
    assert geometry.hubness(np.ones((15, 4))) == 0
    with pytest.raises(ValueError, match="the 10 nearest of 10 rows"):
        geometry.hubness(np.eye(10))


def test_alignment_and_uniformity_are_the_authors(golden):
    arrays = golden("align_uniform")
    x, y, gold = arrays["x"], arrays["y"], arrays["gold"]
    close = {"abs": 1e-10, "rel": 0}
    assert geometry.alignment(x, y) == pytest.approx(float(arrays["align_all_pairs"]), **close)
    assert geometry.alignment(x, y, gold) == pytest.approx(float(arrays["align_gold_gt4"]), **close)
    at_four = geometry.alignment(x, y, gold, inclusive=True)
    assert at_four == pytest.approx(float(arrays["align_gold_ge4"]), **close)
    assert geometry.uniformity(x) == pytest.approx(float(arrays["uniform_x"]), **close)
    both = np.concatenate([x, y])
    assert geometry.uniformity(both) == pytest.approx(float(arrays["uniform_x_and_y"]), **close)


def test_one_row_has_no_uniformity():
    with pytest.raises(ValueError, match="at least 2 rows, got 1"):
        geometry.uniformity(np.ones((1, 3)))


def test_the_task_measures_every_sentence_of_its_split(senteval, encode):
    suite = read_suite(["geometry-dev"], senteval)
    results = suite.score(encode(suite.sentences), bootstrap=0)
    texts = suite.tasks[0].texts
    assert len(texts) == 3000
    vectors = encode(texts)
    lines = (senteval / "STS/STSBenchmark/sts-dev.csv").read_text().splitlines()
    cells = [line.split("\t") for line in lines]
    same = [(cell[5], cell[6]) for cell in cells if float(cell[4]) > 4]
    left, right = (encode([pair[side] for pair in same]) for side in (0, 1))
    assert results.get("geometry-dev", "alignment").value == pytest.approx(geometry.alignment(left, right))
    assert results.get("geometry-dev", "alignment").n == len(same)
    assert results.get("geometry-dev", "uniformity").value == pytest.approx(geometry.uniformity(vectors))
    assert results.get("geometry-dev", "mean_cosine").value == pytest.approx(geometry.mean_cosine(vectors))
    rank = results.get("geometry-dev", "effective_rank").value
    assert rank == pytest.approx(geometry.effective_rank(vectors))
    spread = results.get("geometry-dev", "dimension_std").value
    assert spread == pytest.approx(np.sqrt(8) * unit(vectors).std(axis=0).mean())


def test_the_whole_benchmark_is_the_default_and_its_absence_is_named(senteval, tmp_path, encode):
    assert len(read_suite(["geometry"], senteval).tasks[0].texts) == 2 * (5749 + 1500 + 1379)
    (tmp_path / "SICK").mkdir()
    with pytest.raises(UserError, match=r"geometry: looked for .*sts-train\.csv"):
        read_suite(["geometry"], tmp_path)


def test_the_interval_of_uniformity_is_that_of_resampling_sentences(senteval, encode):
    # Worked out the long way: draw sentences, take the log mean over pairs of different draws.
    suite = read_suite(["geometry-dev"], senteval)
    score = suite.score(encode(suite.sentences), bootstrap=500).get("geometry-dev", "uniformity")
    rows = unit(encode(suite.tasks[0].texts))
    kernel = np.exp(2 * 2 * (rows @ rows.T - 1))
    rng = np.random.default_rng(0)
    counts = np.stack([np.bincount(rng.integers(3000, size=3000), minlength=3000) for _ in range(200)])
    drawn = np.log((np.einsum("rn,rn->r", counts @ kernel, counts) - 3000) / (3000 * 2999))
    assert (score.high - score.low) / 3.92 == pytest.approx(np.std(drawn), rel=0.25)
    assert score.low < score.value < score.high


def test_collapse_raises_an_alarm_and_healthy_figures_raise_none():
    start = {"mean_cosine": 0.5, "effective_rank": 100.0, "uniformity": -1.5}
    assert geometry.collapse_alarms({"mean_cosine": 0.3, "effective_rank": 90.0, "uniformity": -2.0}, start) == []
    assert "one direction" in geometry.collapse_alarms(start | {"mean_cosine": 0.99}, start)[0]
    assert "few dimensions" in geometry.collapse_alarms(start | {"effective_rank": 10.0}, start)[0]
    assert "hardly spread out" in geometry.collapse_alarms(start | {"uniformity": -0.1}, start)[0]
