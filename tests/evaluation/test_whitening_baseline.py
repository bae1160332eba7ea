"""Whitening against its definition and golden values."""

from functools import partial

import numpy as np
import pytest

from selfsent.errors import ConfigurationError, UserError
from selfsent.evaluation.suite import read_suite
from selfsent.evaluation.whitening_baseline import Whitening, whiten_target


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(300, 12)) @ rng.normal(size=(12, 12)) + 5


def cosines(x):
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return unit @ unit.T


@pytest.mark.parametrize("kind", ["pca", "zca"])
def test_the_fitted_rows_get_mean_zero_and_identity_covariance(rows, kind):
    white = Whitening(kind=kind, eps=0.0).fit(rows).transform(rows)
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(12), atol=1e-6)


def test_groups_are_white_inside_and_correlated_outside(rows):
    white = Whitening(kind="group", group_width=3).fit(rows).transform(rows)
    covariance = np.cov(white.T, bias=True)
    inside = np.kron(np.eye(4), np.ones((3, 3))).astype(bool)
    np.testing.assert_allclose(covariance[inside], np.eye(12)[inside], atol=1e-6)
    assert np.abs(covariance[~inside]).max() > 0.1


def test_pca_and_zca_give_the_same_cosines(rows):
    pca, zca = (Whitening(kind=kind).fit(rows).transform(rows) for kind in ("pca", "zca"))
    np.testing.assert_allclose(cosines(pca), cosines(zca), atol=1e-9)
    assert np.abs(pca - zca).max() > 0.1


def test_columns_keep_the_first_directions_in_order_of_variance(rows):
    whole, few = (Whitening(columns=k).fit(rows).transform(rows) for k in (None, 4))
    np.testing.assert_allclose(few, whole[:, :4])
    centred = rows - rows.mean(axis=0)
    first = np.linalg.svd(centred, full_matrices=False)[0][:, 0] * np.sqrt(300)  # the first principal component
    np.testing.assert_allclose(np.abs(whole[:, 0]), np.abs(first), atol=1e-6)
    turned = Whitening(kind="zca", columns=4).fit(rows).transform(rows)
    np.testing.assert_allclose(cosines(few), cosines(turned), atol=1e-9)


def test_new_rows_are_mapped_by_what_was_fitted(rows):
    whitening = Whitening().fit(rows[:200])
    np.testing.assert_allclose(whitening.transform(rows)[250:], whitening.transform(rows[250:]))
    assert np.abs(whitening.transform(rows[250:]).mean(axis=0)).max() > 0.01


def test_group_whitening_is_the_independent_one(golden):
    arrays = golden("zca_plain")
    for groups in arrays["num_groups_list"].tolist():
        for name, eps in (("eps0", 0.0), ("eps1e-5", 1e-5)):
            whitening = Whitening(kind="group", group_width=24 // groups, eps=eps)
            order = arrays[f"G{groups}_perm"]
            white = whitening.fit(arrays["X"][:, order]).transform(arrays["X"][:, order])
            np.testing.assert_allclose(white, arrays[f"G{groups}_{name}_Y"][:, order], rtol=0, atol=1e-8)
            np.testing.assert_allclose(whitening.maps, arrays[f"G{groups}_{name}_W"], rtol=0, atol=1e-8)


def test_float32_rows_are_whitened_in_float64(rows):
    white = Whitening(eps=0.0).fit(rows.astype(np.float32)).transform(rows.astype(np.float32))
    assert white.dtype == np.float64
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(12), atol=1e-9)


def test_what_cannot_be_whitened_is_refused(rows):
    with pytest.raises(UserError, match="whitening to 12 directions needs more than 12 texts to fit on, got 12"):
        Whitening().fit(rows[:12])
    assert Whitening(columns=4).fit(rows[:12]).transform(rows).shape == (300, 4)
    with pytest.raises(ConfigurationError, match="groups of 5 do not divide 12 dimensions"):
        Whitening(kind="group", group_width=5).fit(rows)
    with pytest.raises(ValueError, match="columns=0 must be at least 1"):
        Whitening(columns=0)
    with pytest.raises(UserError, match="unknown whitening 'zac': did you mean 'zca'"):
        Whitening(kind="zac")


def test_target_whitening_is_fitted_to_the_texts_of_each_task(senteval, encode):
    suite = read_suite(["sickr-dev", "stsb-dev"], senteval)
    scales = np.linspace(0.1, 3, 8, dtype=np.float32)  # dimensions of different variance
    whitened = suite.score(encode(suite.sentences) * scales, bootstrap=0, transform=partial(whiten_target, "pca"))
    for task in suite.tasks:
        vectors = encode(task.texts) * scales
        expected = task.score(Whitening().fit(vectors).transform(vectors), resamples=0, seed=0)[0].value
        assert whitened.get(task.name).value == pytest.approx(expected, abs=1e-9)
