"""The verdict against encoders whose order is known, and its figures against slow and outside computations."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score
from test_document_tests import make_documents

from selfsent.encoder.quantize import unit
from selfsent.errors import UserError
from selfsent.evaluation.comparison import compare_scores
from selfsent.evaluation.label_free import document_tests, held_out_retrieval, scores
from selfsent.evaluation.label_free.verdict import compare_tests, judge_tests
from selfsent.text import clean

WIDTH = 64


@cache
def drawn(text, *seed):
    return np.random.default_rng([*seed, *text.encode()]).normal(size=WIDTH)


def bag(noise=0.0, seed=0):
    """Encode a text as the sum of its words' random vectors, spoiled by so much noise."""

    def encode(texts):
        rows = [np.sum([drawn(word) for word in clean.words(text)], axis=0) for text in texts]
        return np.array(
            [
                row + noise * np.linalg.norm(row) / np.sqrt(WIDTH) * drawn(text, seed)
                for row, text in zip(rows, texts, strict=True)
            ]
        )

    return encode


def rank(encode, width):
    """Collapse an encoder into so many dimensions."""
    return lambda texts: encode(texts) * (np.arange(WIDTH) < width)


@pytest.fixture(scope="module")
def tests():
    return document_tests.build_tests(make_documents(150, seed=3, pool=120), details=True)


def score(tests, encode, resamples=300):
    return scores.score_vectors(tests, encode(tests.texts), resamples=resamples)


@pytest.fixture(scope="module")
def clear(tests):
    return score(tests, bag(noise=1.0))


def test_a_better_encoder_is_better_and_the_worse_one_worse(tests, clear):
    noisy = score(tests, bag(noise=2.0))
    better = judge_tests(tests, {"base": noisy, "trained": clear})
    assert better.decision == "better"
    assert str(better).startswith("Better. Over ")
    worse = judge_tests(tests, {"base": clear, "trained": noisy})
    assert worse.decision == "worse"
    assert "do not use it" in str(worse)


def test_an_encoder_cannot_be_told_from_itself(tests, clear):
    same = judge_tests(tests, {"base": clear, "trained": score(tests, bag(noise=1.0))})
    assert same.decision == "cannot tell"
    assert all(change.value == change.low == change.high == 0 for change in same.differences)


def test_two_encoders_of_one_quality_are_hardly_ever_told_apart(tests, clear):
    words = [
        judge_tests(tests, {"base": clear, "trained": score(tests, bag(noise=1.0, seed=seed))}).decision
        for seed in range(1, 9)
    ]
    assert words.count("cannot tell") >= 6  # 95 % of them, in the long run


def test_a_collapsed_encoder_is_worse(tests, clear):
    collapsed = score(tests, rank(bag(noise=1.0), 2))
    said = judge_tests(tests, {"base": clear, "trained": collapsed}, notes=["Beware."])
    assert said.decision == "worse"
    assert said.sentences[-1] == "Beware."
    assert collapsed.get("geometry", "effective_rank").value < 2.001


def test_one_point_for_everything_scores_what_guessing_scores(tests):
    same = score(tests, lambda texts: np.ones((len(texts), 3)))
    for one in same.scores:
        if one.metric in ("auc", "accuracy"):
            assert one.value == pytest.approx(50)
        if one.metric == "spearman":
            assert one.value == pytest.approx(0)
        if one.metric == "mrr@10":
            assert one.value == pytest.approx(100 * sum(1 / r for r in range(1, 11)) / one.n)


def test_word_matching_scores_50_where_it_must_not_win(tests):
    words = scores.score_bm25(tests, resamples=100)
    hard = [one for one in words.scores if one.metric == "accuracy"]
    assert hard
    for one in hard:
        assert (one.low, one.value, one.high) == pytest.approx((50, 50, 50))
    assert all(one.value > 50 for one in words.scores if one.metric == "auc")


def test_reciprocal_ranks_are_those_of_retrieval_and_areas_those_of_scikit_learn(tests, clear):
    encode = bag(noise=1.0)
    for test in tests.retrieval:
        queries, passages = encode(test.queries), encode(test.passages)
        ranks = held_out_retrieval.expected_scores(*held_out_retrieval.expected_ranks(queries, passages))
        assert clear.get(test.name, "mrr@10").value == pytest.approx(100 * ranks[:, 0].mean())
        cosines = np.round(unit(queries) @ unit(passages).T, 9)
        expected = roc_auc_score(np.eye(len(cosines)).ravel(), cosines.ravel())
        assert clear.get(test.name, "auc").value == pytest.approx(100 * expected, abs=1e-6)


def test_alignment_is_that_of_queries_and_answers_but_for_perturbed_ones(tests, clear):
    related = [test for test in tests.retrieval if test.name in ("title", "summary", "halves", "neighbours")]
    sides = ([text for test in related for text in getattr(test, side)] for side in ("queries", "passages"))
    gaps = np.subtract(*(unit(bag(noise=1.0)(texts)) for texts in sides))
    assert len(related) < len(tests.retrieval)
    assert clear.get("geometry", "alignment").value == pytest.approx((gaps**2).sum(axis=1).mean())


def test_nearness_is_spearmans_correlation(tests, clear):
    graded, encode = tests.nearness, bag(noise=1.0)
    left, right = unit(encode(graded.queries)), unit(encode(graded.passages))
    expected = stats.spearmanr(np.round((left * right).sum(axis=1), 9), graded.degrees).statistic
    assert clear.get("nearness").value == pytest.approx(100 * expected)


def test_intervals_are_those_of_drawing_documents(tests, clear):
    # The long way: draw documents, put their pairs together, correlate; and the mean over the queries drawn.
    graded = tests.nearness
    summary = next(test for test in tests.retrieval if test.name == "summary")
    encode = bag(noise=1.0)
    cosines = (unit(encode(graded.queries)) * unit(encode(graded.passages))).sum(axis=1)
    ranks = held_out_retrieval.expected_scores(
        *held_out_retrieval.expected_ranks(encode(summary.queries), encode(summary.passages))
    )
    draw = np.random.default_rng(9)
    drawn = []
    for _ in range(300):
        chosen = draw.integers(tests.documents, size=tests.documents)
        pairs = np.concatenate([np.flatnonzero(graded.documents == one) for one in chosen])
        queries = np.concatenate([np.flatnonzero(summary.documents == one) for one in chosen])
        nearness = 100 * stats.spearmanr(np.round(cosines[pairs], 9), graded.degrees[pairs]).statistic
        drawn.append((nearness, 100 * ranks[queries, 0].mean()))
    spread = np.std(drawn, axis=0)
    for one, expected in zip((clear.get("nearness"), clear.get("summary", "mrr@10")), spread, strict=True):
        assert (one.high - one.low) / 3.92 == pytest.approx(expected, rel=0.2)
        assert one.low < one.value < one.high


def test_without_details_the_score_is_the_same(clear):
    tests = document_tests.build_tests(make_documents(150, seed=3, pool=120))
    plain = score(tests, bag(noise=1.0))
    assert {one.metric for one in plain.scores if one.task == "summary"} == {"mrr@10", "accuracy"}
    for one in plain.scores:
        if (one.task, one.metric) in (*scores.SCORED, (scores.SCORE, "mean")):
            assert one.value == clear.get(one.task, one.metric).value
            assert (one.replicates == clear.get(one.task, one.metric).replicates).all()
    assert len(plain.get(scores.SCORE, "mean").protocol["mean of"]) == 6


def test_the_score_is_the_plain_mean_of_its_parts(clear):
    parts = [one for one in clear.scores if (one.task, one.metric) in scores.SCORED]
    whole = clear.get(scores.SCORE, "mean")
    assert whole.value == pytest.approx(np.mean([one.value for one in parts]))
    np.testing.assert_allclose(whole.replicates, np.mean([one.replicates for one in parts], axis=0))
    assert whole.protocol["mean of"] == [f"{one.task} {one.metric}" for one in parts]


def test_baselines_that_are_better_are_named(tests):
    noisy, noisier = score(tests, bag(noise=4.0)), score(tests, bag(noise=5.0))
    systems = {"base": noisier, "trained": noisy, "static": score(tests, bag())}
    said = str(judge_tests(tests, {**systems, "bm25": scores.score_bm25(tests, resamples=300)}))
    assert "Averaged static word vectors of this text are better than both here" in said
    assert "Word matching (BM25) is better than both here" in said
    weak = {"base": noisier, "trained": score(tests, bag()), "static": noisy}
    assert "Averaged static word vectors of this text are behind the trained encoder" in str(judge_tests(tests, weak))


def test_single_lines_never_make_an_encoder_better_whatever_it_scores():
    """Halves of long lines are found, and nothing else can be tested."""
    articles = make_documents(200, sentences=4, seed=5)
    lines = [replace(one, title="", sentences=[" ".join(one.sentences).replace(".", "")]) for one in articles]
    halves = document_tests.build_tests(lines, details=True)
    assert {test.name for test in halves.every} & {"halves", *scores.STRUCTURE} == {"halves"}
    worse, better = score(halves, bag(noise=9.0)), score(halves, bag())
    assert compare_scores(better.get(scores.SCORE, "mean"), worse.get(scores.SCORE, "mean")).decision == "better"
    assert compare_tests(halves, worse, better).decision == "cannot tell"
    for systems in ({"base": worse, "trained": better}, {"base": better, "trained": worse}):
        said = judge_tests(halves, {**systems, "bm25": scores.score_bm25(halves, resamples=300)})
        assert said.decision == "cannot tell"
        assert "this text has no structure to judge by: of its 200 lines or rows" in said.sentences[0]
        assert "selfsent evaluate" in said.sentences[0]
        assert said.differences  # and the table has its rows
        assert "Word matching (BM25)" in str(said)


@pytest.mark.parametrize("name", scores.STRUCTURE)
def test_one_test_of_structure_is_enough_to_judge_by(tests, name):
    kept = {"retrieval": [test for test in tests.retrieval if test.name in ("halves", name)]}
    some = replace(tests, **kept, nearness=tests.nearness if name == "nearness" else None)
    worse, better = score(some, bag(noise=4.0)), score(some, bag())
    assert judge_tests(some, {"base": worse, "trained": better}).decision == "better"


@pytest.mark.parametrize(
    ("encode", "message"),
    [
        (lambda texts: np.full((len(texts), 4), np.nan), "the encoder gives NaN or infinity for .* of the test title"),
        (
            lambda texts: np.array([[np.inf if text.isupper() else 1.0] * 3 for text in texts]),
            "the encoder gives NaN or infinity for .* of the test case, first for '[A-Z0-9 ]*",
        ),
    ],
)
def test_vectors_that_cannot_be_judged_are_refused_by_name(tests, encode, message):
    with pytest.raises(UserError, match=message):
        score(tests, encode)


def test_a_corpus_that_allows_no_test_is_refused_with_the_reasons():
    with pytest.raises(UserError, match=r"no test can be made of 20 documents \(title: .*nearness: "):
        scores.require_enough_tests(document_tests.build_tests(make_documents(20), details=True))


def test_what_is_written_is_json_and_whole(tests, clear):
    import json

    said = judge_tests(tests, {"base": clear, "trained": clear}, facts={"text": "all of it"})
    content = json.loads(json.dumps(said.as_dict()))
    assert content["verdict"] == "cannot tell"
    assert content["text"] == "all of it"
    assert {one["task"] for one in content["trained"]["scores"]} >= {"summary", "nearness", "score", "geometry"}
    assert len(content["differences"]) == len([one for one in clear.scores if one.replicates is not None])
