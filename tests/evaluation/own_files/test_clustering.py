"""Clustering: the v-measure of every resample against scikit-learn on the resampled rows."""

import numpy as np
import pytest
from sklearn.cluster import MiniBatchKMeans
from sklearn.metrics import v_measure_score

from selfsent.errors import DataError
from selfsent.evaluation.own_files.labelled import Clustering, v_measures


def test_the_v_measure_of_a_resample_is_that_of_its_rows():
    rng = np.random.default_rng(0)
    classes, clusters = rng.integers(4, size=60), rng.integers(5, size=60)
    clusters[:30] = classes[:30]
    counts = rng.multinomial(60, np.full(60, 1 / 60), size=7).T.astype(float)
    found = v_measures(classes, clusters, counts)
    for column in range(7):
        rows = np.repeat(np.arange(60), counts[:, column].astype(int))
        assert found[column] == pytest.approx(v_measure_score(classes[rows], clusters[rows]), abs=1e-12)


def test_one_cluster_for_all_finds_nothing():
    assert v_measures(np.array([0, 0, 1, 1]), np.zeros(4, dtype=int), np.ones((4, 1)))[0] == 0


def test_clusters_that_are_the_classes_score_100_and_noise_near_0():
    labels = [f"c{i % 3}" for i in range(90)]
    task = Clustering(name="own", documents=[f"t{i}" for i in range(90)], labels=labels)
    corners = np.eye(3)[np.arange(90) % 3]
    score = task.score(corners, resamples=50, seed=0)[0]
    assert (score.metric, score.n) == ("v-measure", 90)
    assert [score.value, score.low, score.high] == pytest.approx([100, 100, 100])
    noise = task.score(np.random.default_rng(0).normal(size=(90, 3)), resamples=50, seed=0)[0]
    assert noise.value < 15
    assert noise.low < noise.value < noise.high


def test_the_score_is_that_of_mteb_s_k_means():
    rng = np.random.default_rng(0)
    classes, rows = rng.integers(9, size=1200), rng.normal(size=(1200, 4))
    task = Clustering(name="own", documents=[f"t{i}" for i in range(1200)], labels=[*map(str, classes)])
    starts = [MiniBatchKMeans(9, batch_size=500, n_init="auto", random_state=start) for start in range(task.starts)]
    expected = [100 * v_measure_score(classes, start.fit_predict(rows)) for start in starts]
    assert task.score(rows, resamples=2, seed=0)[0].value == pytest.approx(np.mean(expected))


def test_two_models_meet_the_same_resamples():
    labels = [f"c{i % 3}" for i in range(30)]
    task = Clustering(name="own", documents=[f"t{i}" for i in range(30)], labels=labels)
    rows = np.random.default_rng(0).normal(size=(30, 3))
    one, two = (task.score(rows, resamples=20, seed=0)[0].replicates for _ in range(2))
    assert np.array_equal(one, two)


def test_the_interval_of_many_small_classes_holds_the_score():
    """Texts drawn twice agree with themselves: of 20 classes of 15 texts plain resamples all score above the score."""
    labels = [f"c{i % 20}" for i in range(300)]
    task = Clustering(name="own", documents=[f"t{i}" for i in range(300)], labels=labels)
    score = task.score(np.random.default_rng(0).normal(size=(300, 8)), resamples=200, seed=0)[0]
    low, high = np.quantile(score.replicates, (0.025, 0.975))
    assert low < score.value < high
    assert score.replicates.mean() == pytest.approx(score.value)
    assert high - low > 1
    assert task.score(np.eye(300)[:, :8], resamples=0, seed=0)[0].value >= 0


@pytest.mark.parametrize(
    ("labels", "message"), [(["a", "a"], "has 1 classes of 2 texts"), (["a", "b"], "has 2 classes of 2 texts")]
)
def test_what_has_nothing_to_find_is_refused(labels, message):
    with pytest.raises(DataError, match=message):
        Clustering(name="own", documents=["x", "y"], labels=labels)
