"""The map of an index is a principal component analysis; queries drift where more than 5 % are far away."""

import json

import numpy as np
import pytest
from tiny import TEXTS

from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.searching.index import Index
from selfsent.searching.overview import DriftGauge, survey_index


@pytest.fixture
def index(bert, tmp_path):
    draw = np.random.default_rng(0)
    words = sorted({word for text in TEXTS for word in text.split()})
    texts = [" ".join(draw.choice(words, 8)) + ". " + " ".join(draw.choice(words, 8)) for _ in range(60)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    Index.make([tmp_path / "corpus.jsonl"], tmp_path / "index", model=bert)
    Index.open(tmp_path / "index").delete([3, 4])
    return Index.open(tmp_path / "index")


def openings(index, documents, bert):
    texts = [index.text(document)[1][0].split(". ")[0] + "." for document in documents]
    vectors = encode(load_encoder(bert), texts)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_the_map_is_a_principal_component_analysis_of_what_is_not_deleted(index, bert):
    overview = survey_index(index)
    assert overview.documents == [n for n in range(60) if n not in (3, 4)]
    vectors = openings(index, overview.documents, bert)
    centred = vectors - vectors.mean(axis=0)
    left, lengths, _ = np.linalg.svd(centred, full_matrices=False)
    expected = left[:, :2] * lengths[:2]
    expected /= np.abs(expected).max()
    for axis in range(2):
        assert abs(expected[:, axis] @ overview.points[:, axis]) == pytest.approx(
            expected[:, axis] @ expected[:, axis], rel=2e-2
        )
    np.testing.assert_allclose(
        overview.project(index.opening_vectors(np.array(overview.documents))), overview.points, atol=1e-5
    )
    assert np.abs(overview.points).max() == pytest.approx(1)


def test_far_is_what_one_sentence_in_twenty_is_from_other_documents(index, bert):
    documents = survey_index(index).documents
    first = openings(index, documents, bert)
    whole = encode(load_encoder(bert), [index.text(document)[1][0] for document in documents])
    whole /= np.linalg.norm(whole, axis=1, keepdims=True)
    best = []
    for own in range(len(documents)):
        others = [max(first[own] @ first[o], first[own] @ whole[o]) for o in range(len(documents)) if o != own]
        best.append(max(others))
    assert survey_index(index).far == pytest.approx(np.quantile(best, 0.05), abs=2e-3)


@pytest.mark.parametrize(
    ("far", "near", "drifting"),
    [(0, 19, None), (1, 19, False), (10, 190, False), (17, 183, False), (19, 181, True), (6, 14, True)],
)
def test_queries_drift_where_chance_does_not_make_so_many_far(far, near, drifting):
    """P(X >= 18 | 200, 0.05) = 0.0121 and P(X >= 19) = 0.0058 of the binomial distribution."""
    gauge = DriftGauge(0.5)
    for cosine in [0.4] * far + [0.6] * near:
        gauge.count_query(cosine)
    report = gauge.report()
    assert (report["queries"], report["far"], report["drifting"]) == (far + near, far, drifting)


def test_only_the_last_queries_count_and_a_small_index_says_nothing():
    gauge = DriftGauge(0.5)
    for cosine in [0.4] * 100 + [0.6] * 200:
        gauge.count_query(cosine)
    assert (gauge.report()["queries"], gauge.report()["far"]) == (200, 0)
    small = DriftGauge(None)
    small.count_query(0.1)
    assert small.report()["queries"] == 0
    assert "too small" in str(small.report()["sentence"])
