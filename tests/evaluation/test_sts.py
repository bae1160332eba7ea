"""STS: correlations against closed forms and the authors' evaluator."""

from dataclasses import replace

import numpy as np
import pytest

from selfsent.evaluation import sts
from selfsent.evaluation.sts import STS
from selfsent.evaluation.task import LabelledExamples


def made_of(golds):
    """A test set of sub-files with these gold scores; its texts do not matter."""
    parts = {
        f"part{number}": LabelledExamples(
            left=[f"l{number}.{row}" for row in range(len(gold))],
            right=[f"r{number}.{row}" for row in range(len(gold))],
            labels=list(map(float, gold)),
        )
        for number, gold in enumerate(golds)
    }
    return STS(name="sts99", split="test", parts=parts)


def at_cosines(cosines):
    """Vectors for left sides, then right sides, whose pairs have these cosines."""
    cosines = np.asarray(cosines, dtype=np.float64)
    left = np.tile([1.0, 0.0], (len(cosines), 1))
    return np.concatenate([left, np.stack([cosines, np.sqrt(1 - cosines**2)], axis=1)])


def points(task, vectors, resamples=0):
    scores = task.score(vectors, resamples=resamples, seed=0)
    return {(score.metric, score.aggregation): score for score in scores}


def test_order_within_sub_files_gives_mean_100_and_a_shift_between_them_less_for_all():
    task = made_of([[1, 2, 3, 4, 5], [1, 2, 3, 4, 5]])
    scores = points(task, at_cosines([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9]), resamples=64)
    assert scores["spearman", "mean"].value == pytest.approx(100)
    assert scores["spearman", "wmean"].value == pytest.approx(100)
    # Ranks 1..10 against gold ranks 1.5, 3.5, ..., twice: covariance 40, variances 82.5 and 80.
    assert scores["spearman", "all"].value == pytest.approx(100 * 40 / np.sqrt(82.5 * 80))
    # Within a sub-file every resample is in perfect order, unless it drew one row five times.
    assert np.median(scores["spearman", "mean"].replicates) == pytest.approx(100)


def test_wmean_weights_sub_files_by_their_rows():
    task = made_of([[1, 2, 3, 4], [1, 2]])
    scores = points(task, at_cosines([0.1, 0.2, 0.3, 0.4, 0.9, 0.8]))
    assert scores["spearman", "mean"].value == pytest.approx(0)
    assert scores["spearman", "wmean"].value == pytest.approx(100 * (4 - 2) / 6)


def test_ties_share_the_average_rank():
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5).
    scores = points(made_of([[1, 2, 3, 4]]), at_cosines([0.1, 0.5, 0.5, 0.9]))
    assert scores["spearman", "all"].value == pytest.approx(100 * 4.5 / np.sqrt(4.5 * 5))


def test_one_file_has_no_mean_beside_all():
    assert set(points(made_of([[1, 2, 3]]), at_cosines([0.1, 0.2, 0.3]))) == {("spearman", "all"), ("pearson", "all")}


def test_correlations_are_those_of_the_authors_evaluator(golden):
    arrays = golden("senteval_relatedness")
    task = made_of([arrays[f"sts_{part}_y"] for part in "pqr"])
    vectors = np.concatenate([arrays[f"sts_{part}_{side}"] for side in "AB" for part in "pqr"])
    scores = points(task, vectors)
    for metric in ("spearman", "pearson"):
        for aggregation in ("all", "mean", "wmean"):
            expected = 100 * arrays[f"sts_all_{metric}_{aggregation}"]
            assert scores[metric, aggregation].value == pytest.approx(float(expected), abs=1e-4)


def test_a_zero_vector_is_similar_to_nothing():
    assert sts.cosine(np.zeros((1, 3)), np.ones((1, 3))).tolist() == [0.0]


def test_pairs_of_one_text_tie_whatever_their_length_and_direction():
    vectors = np.random.default_rng(0).normal(size=(500, 33)).astype(np.float32)
    assert set(sts.cosine(vectors, vectors)) == {1.0}


def test_a_collapsed_encoder_scores_zero_and_not_nan():
    scores = points(made_of([[1, 2, 3], [3, 1, 2]]), np.ones((12, 4)), resamples=8)
    assert {score.value for score in scores.values()} == {0.0}
    assert {(score.low, score.high) for score in scores.values()} == {(0.0, 0.0)}


def test_the_fingerprint_sees_a_changed_text_and_a_changed_score():
    task = made_of([[1, 2, 3]])
    part = task.parts["part0"]
    parts = [part, replace(part, left=["x", *part.left[1:]]), replace(part, labels=[9.0, *part.labels[1:]])]
    assert len({STS(name="a", split="dev", parts={"": changed}).fingerprint for changed in parts}) == 3
