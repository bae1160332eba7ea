"""The shared maths against closed forms, slow loops, and values of the authors' code."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from selfsent.functional import (
    correlation_summary,
    cross_correlation,
    info_nce,
    multi_positive,
    standardize,
    vocabulary_loss,
)
from selfsent.objectives.group_whitening import group_whiten, inverse_square_root

DTYPES = {"f64": (torch.float64, 1e-7, 1e-8), "f32": (torch.float32, 1e-4, 1e-5)}


def rows(*shape, seed=0):
    """Gaussian rows with correlated features of unequal scale, in float64."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, dtype=torch.float64, generator=generator)
    mix = torch.randn(shape[-1], shape[-1], dtype=torch.float64, generator=generator)
    return x @ (mix / 2 + torch.eye(shape[-1], dtype=torch.float64)) + 1


def close(actual, expected, rtol=1e-7, atol=1e-8):
    expected = torch.as_tensor(expected).to(actual.dtype)
    torch.testing.assert_close(actual.detach(), expected.detach(), rtol=rtol, atol=atol)


# contrast


def slow_multi_positive(z, temperature, negatives, form):
    views, texts, _ = z.shape

    def s(p, i, j):
        return F.cosine_similarity(z[0, i], z[p, j], dim=0).item() / temperature

    total = 0.0
    for i in range(texts):
        if form == "softmin":
            total += math.log(sum(math.exp(-s(p, i, i)) for p in range(1, views)))
            if negatives == "same_view":
                each = [math.log(sum(math.exp(s(p, i, j)) for j in range(texts))) for p in range(1, views)]
                total += sum(each) / len(each)
            else:
                total += math.log(sum(math.exp(s(p, i, j)) for p in range(1, views) for j in range(texts)))
            continue
        for p in range(1, views):
            among = [p] if negatives == "same_view" else range(1, views)
            others = sum(math.exp(s(q, i, j)) for q in among for j in range(texts) if j != i)
            own = math.exp(s(p, i, i))
            total -= math.log(own / (own + others))
    return total / texts


@pytest.mark.parametrize("form", ["eq7", "softmin"])
@pytest.mark.parametrize("negatives", ["same_view", "all_views"])
def test_multi_positive_is_its_formula_summed_entry_by_entry(negatives, form):
    z = rows(3, 5, 4)
    loss = multi_positive(z, 0.3, negatives=negatives, form=form)
    assert loss.item() == pytest.approx(slow_multi_positive(z, 0.3, negatives, form), rel=1e-10)


def test_two_identical_positives_cost_twice_as_much_as_one():
    z1, z2 = rows(6, 5), rows(6, 5, seed=1)
    one, z = info_nce(z1, z2, 0.05), torch.stack((z1, z2, z2))
    close(multi_positive(z, 0.05, reduction="sum"), 2 * one)
    close(multi_positive(z, 0.05, reduction="mean"), one)


@pytest.mark.parametrize("precision", DTYPES)
def test_multi_positive_equals_the_authors_loss_and_gradients(golden, precision):
    values, (dtype, rtol, atol) = golden("whitenedcse"), DTYPES[precision]
    z = torch.tensor(values["loss_z"], dtype=dtype, requires_grad=True)  # (B, V, D)
    views, tau = z.transpose(0, 1), float(values["loss_tau"])
    close(info_nce(views[0], views[1], tau), values[f"loss_part_view1_{precision}"], rtol, atol)
    close(info_nce(views[0], views[2], tau), values[f"loss_part_view2_{precision}"], rtol, atol)
    loss = multi_positive(views, tau)
    loss.backward()
    close(loss, values[f"loss_total_{precision}"], rtol, atol)
    close(z.grad, values[f"loss_grad_z_{precision}"], rtol, atol)


# correlation


def test_cross_correlation_is_numpys_corrcoef():
    x, y = rows(20, 6), rows(20, 6, seed=1)
    expected = np.corrcoef(x.numpy(), y.numpy(), rowvar=False)[:6, 6:]
    close(cross_correlation(x, y, eps=0.0), expected, atol=1e-12)


def test_eq3_is_its_formula_entry_by_entry_and_no_correlation():
    x, y = rows(20, 4), rows(20, 4, seed=1)
    matrix = cross_correlation(x, y, normalization="eq3", eps=0.0)
    for j in range(4):
        for k in range(4):
            product = x[:, j] * y[:, k]
            assert matrix[j, k].item() == pytest.approx((product.sum() / (product**2).sum().sqrt()).item())
    ones = torch.ones(16, 2, dtype=torch.float64)
    close(cross_correlation(ones, ones, normalization="eq3", eps=0.0), torch.full((2, 2), 4.0))  # sqrt(B)


@pytest.mark.parametrize("normalization", ["batchnorm", "eq3"])
@pytest.mark.parametrize("shape", [(5, 40), (40, 5)])
def test_the_summary_of_a_correlation_is_that_of_its_matrix(normalization, shape):
    x, y = rows(*shape).requires_grad_(), rows(*shape, seed=1)
    matrix = cross_correlation(x, y, normalization=normalization)
    apart = ~torch.eye(shape[1], dtype=torch.bool)
    expected = matrix[apart].square().sum()
    diagonal, off_diagonal = correlation_summary(x, y, normalization=normalization)
    close(diagonal, matrix.diagonal())
    close(off_diagonal, expected)
    close(*(torch.autograd.grad(loss, x)[0] for loss in (off_diagonal + diagonal.sum(), expected + matrix.trace())))


@pytest.mark.parametrize("function", [cross_correlation, correlation_summary])
def test_one_text_has_no_correlation(function):
    with pytest.raises(ValueError, match="at least 2 rows, got 1"):
        function(torch.ones(1, 3), torch.ones(1, 3))


# whitening


@pytest.mark.parametrize("width", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_every_group_comes_out_white(width, dtype):
    x, permutation = rows(64, 24).to(dtype), torch.randperm(24, generator=torch.Generator().manual_seed(3))
    y = group_whiten(x, 24 // width, permutation=permutation, eps=0.0)
    atol = 1e-8 if dtype == torch.float64 else 1e-3
    close(y.mean(0), torch.zeros(24), atol=atol)
    for group in y[:, permutation].split(width, dim=1):
        close(group.mT @ group / 64, torch.eye(width), atol=atol)


def zca(x):
    """Full ZCA by singular values instead of eigenvalues."""
    centred = x - x.mean(0)
    u, _, vt = torch.linalg.svd(centred, full_matrices=False)
    return u @ vt * math.sqrt(len(x))


def test_one_group_is_full_zca_whatever_the_shuffle():
    x = rows(32, 8)
    permutation = torch.randperm(8, generator=torch.Generator().manual_seed(3))
    close(group_whiten(x, 1, eps=0.0), zca(x))
    close(group_whiten(x, 1, permutation=permutation, eps=0.0), zca(x))


def test_groups_of_one_are_standardized_by_the_biased_deviation():
    x = rows(32, 8)
    expected = (x - x.mean(0)) / x.std(0, correction=0)
    close(group_whiten(x, 8, eps=0.0), expected)
    close(standardize(x, eps=0.0), expected)


def test_each_view_is_whitened_alone_under_its_own_permutation():
    views = rows(3, 16, 12)
    permutations = torch.stack([torch.randperm(12, generator=torch.Generator().manual_seed(v)) for v in range(3)])
    together = group_whiten(views, 6, permutation=permutations)
    for view, permutation, whitened in zip(views, permutations, together, strict=True):
        close(group_whiten(view, 6, permutation=permutation), whitened)
    assert (group_whiten(views[0], 6, permutation=permutations[1]) - together[0]).abs().max() > 0.01


def test_a_group_as_wide_as_the_batch_is_refused_instead_of_nan():
    assert group_whiten(rows(5, 12), 3, eps=0.0).isfinite().all()
    with pytest.raises(ValueError, match=r"groups of 4 features cannot be whitened over 4 rows"):
        group_whiten(rows(4, 12), 3)
    with pytest.raises(ValueError, match=r"G=5.*D=24"):
        group_whiten(rows(32, 24), 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_and_dead_features_whiten_to_finite_values_and_gradients(dtype):
    x = rows(16, 6).to(dtype)
    x[:, 1], x[:, 4] = x[:, 0], 3.0
    for groups in (3, 2):
        for gradient in ("detach", "full"):
            leaf = x.clone().requires_grad_()
            y = group_whiten(leaf, groups, gradient=gradient)
            y.square().sum().backward()
            assert y.isfinite().all()
            assert leaf.grad.isfinite().all()


def test_rounding_cannot_make_the_closed_form_nan():
    first = 100 * torch.randn(1000, 1, 16, generator=torch.Generator().manual_seed(0))
    pair = torch.cat((first, first * (1 + 1e-6 * torch.arange(16.0))), dim=1)
    covariance = pair @ pair.mT / 16
    determinant = covariance[:, 0, 0] * covariance[:, 1, 1] - covariance[:, 0, 1] ** 2
    assert (determinant < -1).any()  # what rounding does to it
    assert inverse_square_root(covariance, 1e-5).isfinite().all()


@pytest.mark.parametrize("width", [1, 2, 3])
def test_the_full_gradient_is_that_of_finite_differences(width):
    x = rows(8, 6).requires_grad_()
    permutation = torch.tensor([4, 1, 3, 0, 5, 2])

    def whiten(x):
        return group_whiten(x, 6 // width, permutation=permutation, gradient="full")

    assert torch.autograd.gradcheck(whiten, (x,))


@pytest.mark.parametrize("width", [2, 3])
def test_equal_eigenvalues_leave_the_full_gradient_right(width):
    x = zca(rows(9, width)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: group_whiten(x, 1, gradient="full"), (x,))


@pytest.mark.parametrize("groups", [12, 8, 4])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@pytest.mark.parametrize("gradient", ["detach", "full"])
def test_group_whitening_equals_independent_numpy(golden, groups, eps, gradient):
    values, case = golden("zca_plain"), f"G{groups}_eps{'0' if eps == 0 else '1e-5'}"
    x = torch.tensor(values["X"], requires_grad=True)
    permutation = torch.tensor(values[f"G{groups}_perm"])
    y = group_whiten(x, groups, permutation=permutation, eps=eps, gradient=gradient)
    (y * torch.tensor(values["upstream"])).sum().backward()
    close(y, values[f"{case}_Y"])
    close(x.grad, values[f"{case}_grad_X_{gradient}W"], atol=1e-5 if gradient == "full" else 1e-8)
    centred = (x - x.mean(0))[:, permutation].unflatten(1, (groups, -1)).transpose(0, 1)
    close(inverse_square_root(centred.mT @ centred / 32, eps), values[f"{case}_W"])


@pytest.mark.parametrize("precision", DTYPES)
def test_group_whitening_equals_the_authors_module_in_eval_mode(golden, precision):
    values, dtype = golden("whitenedcse"), DTYPES[precision][0]
    x = torch.tensor(values["X_item_major"], dtype=dtype)
    drawn = torch.tensor(values["eval_perms_drawn"])[1]  # it draws two and uses the second
    y = group_whiten(x, int(values["eval_G"]), permutation=drawn, eps=0.0)
    close(y, values[f"eval_Y_{precision}"], rtol=0, atol=1e-8 if precision == "f64" else 1e-5)


# precision


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: info_nce(x, y, 0.05),
        lambda x, y: multi_positive(torch.stack((x, y, x)), 0.05),
        lambda x, y: cross_correlation(x, y),
        lambda x, y: correlation_summary(x, y)[1],
        lambda x, y: group_whiten(x, 6),
        lambda x, y: group_whiten(x, 4),
    ],
)
def test_autocast_around_it_changes_nothing(function):
    x, y = rows(16, 12).float(), rows(16, 12, seed=1).float()
    expected = function(x, y)
    with torch.autocast("cpu", torch.bfloat16):
        inside = function(x, y)
        half = function(x.bfloat16(), y.bfloat16())
    assert inside.dtype == half.dtype == torch.float32
    assert torch.equal(inside, expected)
    assert torch.equal(half, function(x.bfloat16().float(), y.bfloat16().float()))


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_vocabulary_loss_is_the_summed_cross_entropy_and_has_its_gradients(chunk):
    draw = torch.Generator().manual_seed(0)
    states, words, bias = (
        torch.randn(shape, generator=draw, dtype=torch.float64, requires_grad=True)
        for shape in ((7, 5), (11, 5), (11,))
    )
    labels = torch.randint(11, (7,), generator=draw)
    plain = torch.nn.functional.cross_entropy(states @ words.T + bias, labels, reduction="sum")
    expected = torch.autograd.grad(2 * plain, (states, words, bias))
    loss, right = vocabulary_loss(states, words, bias, labels, chunk)
    assert right == ((states @ words.T + bias).argmax(1) == labels).sum()
    assert loss.item() == pytest.approx(plain.item(), abs=1e-10)
    for found, right in zip(torch.autograd.grad(2 * loss, (states, words, bias)), expected, strict=True):
        assert torch.allclose(found, right, atol=1e-10)


def guesses(words=torch.float32):
    """States, a table of words, a bias, labels and a chunk."""
    draw = torch.Generator().manual_seed(0)
    states, table = torch.randn(200, 32, generator=draw), 0.1 * torch.randn(500, 32, generator=draw)
    return states, table.to(words).requires_grad_(), torch.zeros(500), torch.randint(500, (200,), generator=draw), 64


def test_vocabulary_loss_of_bf16_words_is_that_of_fp32_within_its_rounding():
    exact, low = guesses(), guesses(torch.bfloat16)
    for each in (exact, low):
        vocabulary_loss(*each)[0].backward()
    assert torch.allclose(low[1].grad.float(), exact[1].grad, atol=0.02 * exact[1].grad.abs().max())


class _Products(TorchDispatchMode):
    """The matrix products: how many, and of which dtypes."""

    def __init__(self):
        super().__init__()
        self.dtypes, self.count = set(), 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "mm" in function.__name__:
            self.count += 1
            self.dtypes |= {one.dtype for one in args if isinstance(one, torch.Tensor)}
        return function(*args, **(kwargs or {}))


def test_vocabulary_loss_of_an_fp32_table_is_computed_in_bf16_under_autocast_and_its_gradient_is_fp32():
    rounded, plain = guesses(torch.bfloat16), guesses()
    expected, _ = vocabulary_loss(*rounded)
    expected.backward()
    with _Products() as products, torch.autocast("cpu", torch.bfloat16):
        loss, _ = vocabulary_loss(*plain)
    loss.backward()
    assert products.dtypes == {torch.bfloat16}
    assert loss.item() == expected.item()
    assert plain[1].grad.dtype == torch.float32
    assert torch.equal(plain[1].grad.bfloat16(), rounded[1].grad)


def test_vocabulary_loss_without_a_graph_is_the_same_and_costs_one_product():
    states, words = rows(9, 5), rows(11, 5, seed=1).requires_grad_()
    labels = torch.arange(9)
    expected, right = vocabulary_loss(states, words, torch.zeros(11, dtype=torch.float64), labels, 4)
    with torch.no_grad(), _Products() as products:
        loss, counted = vocabulary_loss(states, words, torch.zeros(11, dtype=torch.float64), labels, 4)
    assert (loss, counted, products.count) == (expected, right, 3)  # of three chunks


def test_vocabulary_loss_of_nothing_is_zero_and_keeps_the_graph():
    words = torch.randn(11, 5, requires_grad=True)
    loss, _ = vocabulary_loss(torch.empty(0, 5), words, torch.zeros(11), torch.empty(0, dtype=torch.long))
    loss.backward()
    assert loss.item() == 0
    assert not words.grad.any()
