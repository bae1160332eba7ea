"""WhitenedCSE against the authors' code, independent numpy, and its own definition."""

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch.nn import functional as F

from selfsent.encoder.embed import embed
from selfsent.objectives import registry
from selfsent.objectives.group_whitening import group_whiten
from selfsent.objectives.simcse import SimCSE
from selfsent.objectives.whitenedcse import BatchWhitening, WhitenedCSE

GROUPS = [12, 8, 4, 24, 1]
CHUNKINGS = {"released": "released", "byview": "by_view"}


def anything(width):
    return SentenceTransformer(modules=[Pooling(width, "cls")], device="cpu")


def make(width=24, **changes):
    """The objective for embeddings of this width, which need no encoder to be worked on."""
    return WhitenedCSE(WhitenedCSE.Config(**changes), anything(width))


def vectors(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, dtype=torch.float64, generator=generator)
    mix = torch.randn(shape[-1], shape[-1], dtype=torch.float64, generator=generator)
    return x @ (mix / 2 + torch.eye(shape[-1], dtype=torch.float64))


def by_view(item_major):
    """(B V, D), text by text, to (V, B, D)."""
    return item_major.unflatten(0, (-1, 3)).transpose(0, 1)


def by_item(views):
    return views.transpose(0, 1).flatten(0, 1)


# against the authors


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("chunking", CHUNKINGS)
@pytest.mark.parametrize("gradient", ["detach", "full", "authors"])
def test_whitening_and_its_gradient_are_those_of_numpy_and_of_the_authors(golden, chunking, groups, gradient):
    values, case, theirs = golden("whitenedcse"), f"G{groups}_{chunking}", gradient == "authors"
    dtype, kind = (torch.float32, "f32") if theirs else (torch.float64, "f64")
    cse = make(num_groups=groups, sgw_chunking=CHUNKINGS[chunking], whiten_grad="detach" if theirs else gradient, eps=0)
    x = torch.tensor(values["X_item_major"], dtype=dtype, requires_grad=True)
    y = by_item(cse.whiten(by_view(x), torch.tensor(values[f"{case}_perms"])))
    (y * torch.tensor(values["upstream"], dtype=dtype)).sum().backward()
    of_gradient = f"{case}_grad_X_f32" if theirs else f"{case}_grad_X_{gradient}W_f64"
    rtol = 1e-4 if theirs else 1e-7
    tolerances = ((5e-3, 0.1) if groups == 1 else (1e-5, 2e-5)) if theirs else [1e-6 if groups == 1 else 1e-8] * 2
    for actual, name, atol in zip((y.detach(), x.grad), (f"{case}_Y_{kind}", of_gradient), tolerances, strict=True):
        torch.testing.assert_close(actual, torch.tensor(values[name]), rtol=rtol, atol=atol)


@pytest.mark.parametrize("precision", ["f32", "f64"])
def test_the_whole_head_and_loss_are_those_of_the_authors(golden, precision):
    values, dtype = golden("whitenedcse"), {"f32": torch.float32, "f64": torch.float64}[precision]
    cse = make(
        num_groups=int(values["head_G"]), sgw_chunking="released", eps=0.0, temperature=float(values["head_tau"])
    ).to(dtype)
    linear = cse.head[0]
    with torch.no_grad():
        linear.weight.copy_(torch.tensor(values["head_W"]))
        linear.bias.copy_(torch.tensor(values["head_b"]))
    x = torch.tensor(values["X_item_major"], dtype=dtype, requires_grad=True)
    loss = cse.terms(by_view(x), torch.tensor(values["head_perms"]))["contrast"]
    loss.backward()
    rtol, atol = (1e-4, 2e-5) if precision == "f32" else (1e-7, 1e-8)
    torch.testing.assert_close(loss.detach(), torch.tensor(values[f"head_loss_{precision}"]), rtol=rtol, atol=atol)
    of_x = torch.tensor(values["head_grad_X_f32" if precision == "f32" else "head_grad_X_detachW_f64"])
    torch.testing.assert_close(x.grad, of_x, rtol=rtol, atol=atol)
    for gradient, name in ((linear.weight.grad, "W"), (linear.bias.grad, "b")):
        expected = torch.tensor(values[f"head_grad_{name}_f32"]).to(dtype)
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=2e-5)


# shuffles


def test_each_view_draws_its_own_shuffle_from_the_global_generator():
    cse, same = make(), vectors(1, 32, 24).expand(3, -1, -1)

    def whiten(seed):
        torch.manual_seed(seed)
        return cse.whiten(same)

    first = whiten(0)
    assert torch.equal(first, whiten(0))
    assert (first - whiten(1)).abs().max() > 0.01
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert (first[one] - first[other]).abs().max() > 0.01


def test_the_figure_is_the_cosine_between_two_shuffles_of_the_same_rows():
    cse, h = make(), vectors(3, 32, 24)
    permutations = torch.stack([torch.randperm(24, generator=torch.Generator().manual_seed(v)) for v in range(3)])
    cse.whiten(h, permutations)
    first, second = (group_whiten(h[0], 12, permutation=permutations[v]) for v in (0, 1))
    expected = F.cosine_similarity(first, second).mean().item()
    assert cse.figures() == {"shuffle_cosine": pytest.approx(expected)}
    assert expected < 0.999
    plain = make(whitening="none")
    plain.terms(h.float())
    assert plain.figures() == {}


# the ablations


def test_batch_norm_is_a_group_of_one_and_none_is_nothing():
    h = vectors(3, 32, 24)
    expected = F.batch_norm(h[1], None, None, training=True)
    torch.testing.assert_close(make(whitening="batch_norm").whiten(h)[1], expected)
    torch.testing.assert_close(make(group_width=1).whiten(h)[1], expected)
    assert make(whitening="none").whiten(h) is h


def test_two_unwhitened_views_are_simcse(encoder, batch):
    cse = WhitenedCSE(WhitenedCSE.Config(num_views=2, whitening="none"), encoder)
    simcse = SimCSE(SimCSE.Config(), encoder)
    simcse.head.load_state_dict(cse.head.state_dict())
    losses = []
    for objective in (cse, simcse):
        torch.manual_seed(0)
        losses.append(objective(encoder, batch)["contrast"])
    torch.testing.assert_close(*losses)


def test_running_statistics_approach_those_of_the_data_and_whiten_it():
    whiten, x = BatchWhitening(6, momentum=0.3, eps=0.0, form="zca").double(), vectors(400, 6) + 2
    whiten(x[:4])
    torch.testing.assert_close(whiten.mean, 0.3 * x[:4].mean(0))
    covariance = 0.7 * torch.eye(6, dtype=x.dtype) + 0.3 * x[:4].mT.cov(correction=0)
    torch.testing.assert_close(whiten.covariance, covariance)
    for _ in range(100):
        y = whiten(x)
    torch.testing.assert_close(y.mT.cov(correction=0), torch.eye(6, dtype=x.dtype))
    torch.testing.assert_close(y.mean(0), torch.zeros(6, dtype=x.dtype))


def test_running_statistics_rest_in_evaluation_mode_and_travel_with_the_weights():
    cse = make(whitening="batch")
    cse.whiten(vectors(3, 8, 24).float())
    state = {name: tensor.clone() for name, tensor in cse.state_dict().items()}
    cse.eval().whiten(5 * vectors(3, 8, 24).float())
    assert torch.equal(cse.state_dict()["batch_whitening.covariance"], state["batch_whitening.covariance"])
    assert not torch.equal(state["batch_whitening.covariance"], torch.eye(24))


# the views


class Watched(WhitenedCSE):
    """WhitenedCSE that remembers the embeddings of its views."""

    def terms(self, h, permutations=None):
        self.h = h.detach()
        return super().terms(h, permutations)


@pytest.mark.parametrize(("passes", "differ"), [("per_view", True), ("shared", False)])
def test_views_have_their_own_dropout_masks_or_share_one(encoder, batch, passes, differ):
    cse = Watched(Watched.Config(num_views=4, backbone_passes=passes), encoder)
    cse(encoder, batch)
    assert cse.h.shape == (4, 6, 32)
    assert torch.equal(cse.h[0], cse.h[3]) is not differ
    cse(encoder.eval(), batch)
    torch.testing.assert_close(cse.h, embed(encoder, batch["text"]).expand(4, -1, -1))


# the config


def test_groups_that_do_not_come_out_even_are_refused_with_both_numbers():
    with pytest.raises(ValueError, match="num_groups is 384: G should divide D, which is 1024"):
        make(1024, num_groups=384)
    with pytest.raises(ValueError, match="group_width is 5: w = D / G should divide D, which is 24"):
        make(24, group_width=5)
    assert make(1024).groups == 512
    assert make(768, num_groups=384).groups == 384


def test_the_paper_s_preset_whitens_two_equal_features_to_finite_values():
    """For the released eps of 0 the matrix of such a group does not exist."""
    _, changes = registry.find_method("whitenedcse_paper")
    cse = make(24, **changes)
    h = vectors(3, 16, 24).float()
    h[..., 1] = h[..., 0]
    assert cse.whiten(h, torch.arange(24).repeat(3, 1)).isfinite().all()
    assert not make(24, eps=0.0).whiten(h, torch.arange(24).repeat(3, 1)).isfinite().all()


def test_running_statistics_whiten_onto_principal_axes_too():
    cse, x = make(8, whitening="batch", whitening_form="pca", momentum=1.0, eps=0.0), vectors(3, 50, 8).float()
    white = cse.train().whiten(x).flatten(0, 1)
    torch.testing.assert_close(white.T.cov(correction=0), torch.eye(8), atol=1e-3, rtol=0)
    axes = cse.batch_whitening.covariance @ (x.flatten(0, 1) - cse.batch_whitening.mean).T @ white / 150
    assert axes.shape == (8, 8)  # eigenvectors, each times the square root of its eigenvalue cubed
    gram = axes.T @ axes
    torch.testing.assert_close(gram, gram.diag().diag(), atol=1e-2 * gram.max().item(), rtol=0)
