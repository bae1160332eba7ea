"""Trained relatedness: the authors' predictions, soft labels by hand, and scores outside their scale."""

import shutil

import numpy as np
import pytest
import torch
from scipy import stats

from selfsent.errors import DataError
from selfsent.evaluation.senteval import relatedness
from selfsent.evaluation.senteval.classification import pair_features
from selfsent.evaluation.sts import SentencePairs


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
    return SentencePairs(
        name="",
        left=[f"l{row} {rng.integers(10**9)}" for row in range(count)],
        right=[f"r{row} {rng.integers(10**9)}" for row in range(count)],
        gold=[round(float(score), 1) for score in rng.uniform(1, 5, size=count)],
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
        left = rng.normal(size=(len(given.gold), 8))
        noise = rng.normal(size=left.shape)
        share = (np.array(given.gold)[:, None] - 1) / 4
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
    gold = [np.array(given.gold) for given in task.splits.values()]
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


def test_pairs_are_sorted_by_the_tokens_of_both_texts_and_by_score(senteval):
    task = relatedness.read_relatedness("stsb-regression", senteval)
    for given in task.splits.values():
        keys = [
            (len(left.split()), len(right.split()), gold)
            for left, right, gold in zip(given.left, given.right, given.gold, strict=True)
        ]
        assert keys == sorted(keys)


@pytest.mark.parametrize(
    ("name", "file", "line", "message"),
    [
        (
            "stsb-regression",
            "STS/STSBenchmark/sts-dev.csv",
            "g\tf\ty\t1\t5.2\ta\tb",
            "score 5.2 in dev, .* from 0 to 5",
        ),
        ("stsb-regression", "STS/STSBenchmark/sts-dev.csv", "g\tf\ty\t1\tnan\ta\tb", "score nan in dev"),
        ("sickr-regression", "SICK/SICK_trial.txt", "7\ta\tb\t0.5\tNEUTRAL", "score 0.5 in dev, .* from 1 to 5"),
    ],
)
def test_a_score_outside_its_scale_is_refused(senteval, tmp_path, name, file, line, message):
    folder = shutil.copytree(senteval, tmp_path / "copy")
    # The made SICK files hold scores from 0: only their broken line is to be wrong.
    for path in (folder / "SICK").glob("*.txt"):
        rows = [row.split("\t") for row in path.read_text().splitlines()]
        rows[1:] = [[*row[:3], f"{max(1.0, float(row[3]))}", row[4]] for row in rows[1:]]
        path.write_text("".join("\t".join(row) + "\n" for row in rows))
    assert not isinstance(relatedness.read_relatedness(name, folder), type(folder))
    lines = (folder / file).read_text().splitlines()
    lines[5] = line
    (folder / file).write_text("".join(f"{kept}\n" for kept in lines))
    with pytest.raises(DataError, match=message):
        relatedness.read_relatedness(name, folder)


def test_what_is_not_there_is_a_place(tmp_path):
    assert relatedness.read_relatedness("sickr-regression", tmp_path) == tmp_path / "SICK" / "SICK_train.txt"
