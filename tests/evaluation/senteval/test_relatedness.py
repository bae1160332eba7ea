"""Trained relatedness: the authors' predictions, soft labels by hand."""

import numpy as np
import pytest
import torch
from scipy import stats

from selfsent.evaluation.senteval import relatedness
from selfsent.evaluation.senteval.classification import pair_features
from selfsent.evaluation.task import LabelledExamples


def features(values, name, split):
    return pair_features(*(torch.from_numpy(values[f"{name}_{split}_{side}"]) for side in "AB"))


@pytest.mark.parametrize("stop_on", relatedness.STOP_ON)
@pytest.mark.parametrize("name", ["sick", "stsb"])
def test_the_regression_gives_the_authors_predictions(golden, name, stop_on):
    values = golden("senteval_relatedness")
    train, dev, test = (features(values, name, split) for split in ("train", "dev", "test"))
    found = relatedness.train_relatedness(
        (train, values[f"{name}_train_y"]), (dev, values[f"{name}_dev_y"]), stop_on=stop_on
    )
    start = f"{name}_{stop_on}stop_"
    assert found.passes == int(values[f"{start}passes"])
    assert found.best == pytest.approx(float(values[f"{start}dev_{stop_on}"]), abs=1e-6)
    np.testing.assert_allclose(found.weights[0], values[f"{start}W"], atol=1e-5)
    np.testing.assert_allclose(found.weights[1][:, 0], values[f"{start}b"], atol=1e-5)
    predicted = relatedness.predict_relatedness(found.weights, test)
    np.testing.assert_allclose(predicted, values[f"{start}yhat"], atol=1e-5)
    gold = values[f"{name}_test_y"]
    assert stats.spearmanr(predicted, gold)[0] == pytest.approx(float(values[f"{start}test_spearman"]), abs=1e-4)


def test_soft_labels_are_the_authors(golden):
    values = golden("senteval_relatedness")
    np.testing.assert_array_equal(relatedness.soft_labels(values["label_scores"]), values["label_soft"])
    for name in ("sick", "stsb"):
        np.testing.assert_array_equal(relatedness.soft_labels(values[f"{name}_train_y"]), values[f"{name}_train_soft"])


def test_soft_labels_by_hand():
    expected = [[0, 0, 0.6, 0.4, 0], [0, 0, 0, 0, 1], [0.5, 0, 0, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]]
    np.testing.assert_allclose(relatedness.soft_labels(np.array([3.4, 5.0, 0.5, 0.0, 1.0])), expected, atol=1e-7)


def pairs(count, rng):
    return LabelledExamples(
        left=[f"l{row} {rng.integers(10**9)}" for row in range(count)],
        right=[f"r{row} {rng.integers(10**9)}" for row in range(count)],
        labels=[round(float(score), 1) for score in rng.uniform(1, 5, size=count)],
    )


@pytest.fixture
def made(monkeypatch):
    """A task of a hundred pairs whose vectors are as alike as their score says."""
    monkeypatch.setattr(relatedness, "PASSES", 10)
    rng = np.random.default_rng(0)
    splits = {split: pairs(count, rng) for split, count in (("train", 100), ("dev", 40), ("test", 60))}
    task = relatedness.Relatedness(name="sickr-regression", splits=splits, stop_on="pearson")
    vectors = []
    for given in splits.values():
        left = rng.normal(size=(len(given.labels), 8))
        noise = rng.normal(size=left.shape)
        share = (np.array(given.labels)[:, None] - 1) / 4
        vectors += [left, share * left + (1 - share) * noise]
    return task, np.concatenate(vectors).astype(np.float32)


def test_scores_are_correlations_of_the_test_pairs_with_their_protocol(made, reports):
    task, vectors = made
    spearman, pearson, dev = task.score(vectors, resamples=64, seed=0, progress=reports)
    assert [(score.split, score.metric, score.n) for score in (spearman, pearson, dev)] == [
        ("test", "spearman", 60),
        ("test", "pearson", 60),
        ("dev", "pearson", 40),
    ]
    start = [0, 100, 200, 240, 280, 340]
    parts = [torch.from_numpy(vectors[a:b]) for a, b in zip(start, [*start[1:], 400], strict=True)]
    gold = [np.array(given.labels) for given in task.splits.values()]
    found = relatedness.train_relatedness(
        (pair_features(*parts[:2]), gold[0]), (pair_features(*parts[2:4]), gold[1]), stop_on="pearson"
    )
    predicted = relatedness.predict_relatedness(found.weights, pair_features(*parts[4:]))
    assert pearson.value == pytest.approx(100 * stats.pearsonr(predicted, gold[2])[0], abs=1e-3)
    assert spearman.value == pytest.approx(100 * stats.spearmanr(predicted, gold[2])[0], abs=0.1)
    assert spearman.low < spearman.value < spearman.high
    assert spearman.value > 30
    assert spearman.protocol["classifier"] == "regression stopped by pearson"
    assert reports[-1][:2] == ("sickr-regression: passes of at most 1010", spearman.protocol["passes"])


def test_the_correlation_that_stops_is_in_the_protocol_and_in_the_development_score(made):
    task, vectors = made
    task = relatedness.Relatedness(name=task.name, splits=task.splits, stop_on="spearman")
    *_, dev = task.score(vectors, resamples=0, seed=0)
    assert dev.metric == "spearman"
    assert dev.protocol["classifier"] == "regression stopped by spearman"


def test_a_collapsed_encoder_scores_0_and_not_nan(made):
    task, vectors = made
    spearman, pearson, dev = task.score(np.ones_like(vectors), resamples=8, seed=0)
    assert (spearman.value, pearson.value, dev.value) == (0, 0, 0)
