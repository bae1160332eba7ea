"""evaluate(): what a score is computed from, and what its protocol says of it."""

import numpy as np
import pytest
from small_runs import Told
from tiny import TEXTS

from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.evaluation.evaluate import evaluate


@pytest.fixture
def made_up():
    draw = np.random.default_rng(0)
    words = sorted({word for text in TEXTS for word in text.split()})
    return [" ".join(draw.choice(words, 6)) for _ in range(120)]


def mean_reciprocal_rank(queries, passages):
    """At 10, in points; ranks one by one."""
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, passages)]
    ranks = [1 + int((row > row[n]).sum()) for n, row in enumerate(unit[0] @ unit[1].T)]
    return 100 * np.mean([1 / rank if rank <= 10 else 0 for rank in ranks])


def test_whitening_can_be_fitted_to_other_texts(bert, made_up, tmp_path):
    queries, passages, others = made_up[:20], made_up[20:40], made_up[40:]
    (tmp_path / "other.txt").write_text("\n".join([*others[:40], "", *others[40:]]) + "\n", encoding="utf-8")
    results = evaluate(
        bert,
        ["retrieval"],
        held_out=(queries, passages),
        pooling="mean",
        whitening=["pca"],
        whiten_on=[tmp_path / "other.txt"],
        precision="fp32",
    )
    encoder = load_encoder(bert, pooling="mean")
    fitted, first, second = (encode(encoder, texts, precision="fp32") for texts in (others, queries, passages))
    mean = fitted.mean(0, dtype=np.float64)
    values, axes = np.linalg.eigh(np.cov(fitted.T.astype(np.float64), bias=True))
    expected = mean_reciprocal_rank(*((rows - mean) @ axes / np.sqrt(values + 1e-9) for rows in (first, second)))
    score = results["pca whitening"].get("retrieval", "mrr@10")
    assert score.value == pytest.approx(expected, abs=1e-9)
    assert score.protocol["whitening"] == "pca, 80 texts of other.txt"
    assert score.value != results["model"].get("retrieval", "mrr@10").value


def test_a_baseline_that_cannot_be_computed_is_told_and_costs_no_score(bert, made_up, tmp_path):
    told = Told()
    (tmp_path / "pairs.csv").write_text("text1,text2,label\na cat,a dog,1\nrain fell,the sun,0\n")
    tasks = ["retrieval", f"pairs:{tmp_path / 'pairs.csv'}"]
    held_out = made_up[:60], made_up[60:]
    results = evaluate(bert, tasks, held_out=held_out, pooling="mean", whitening=["pca"], progress=told)
    assert {score.task for score in results["model"].scores} == {"retrieval", tasks[1]}
    assert {score.task for score in results["pca whitening"].scores} == {"retrieval"}
    assert [line for line in told.said if "pca whitening of pairs:" in line and "needs more than" in line]
    told.said.clear()
    static = evaluate("builtin-static", tasks[1:], poolings=["mean"], progress=told)
    assert (list(static), any("no layers to pool" in line for line in told.said)) == (["model"], True)


def test_texts_are_cut_at_the_given_length(bert, made_up):
    pairs = made_up[:20], made_up[20:40]
    cut = tuple([" ".join(text.split()[:3]) for text in side] for side in pairs)
    (found,) = evaluate(bert, ["retrieval"], held_out=pairs, max_length=5)["model"].scores[:1]
    assert found.value == evaluate(bert, ["retrieval"], held_out=cut)["model"].scores[0].value
    assert found.protocol["max_length"] == 5
