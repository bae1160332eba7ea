"""Group whitening of WhitenedCSE, in float32 or float64 whatever autocast says around it."""

from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from selfsent.functional import full_precision


@full_precision
def group_whiten(
    x: Float[Tensor, "*V B D"],
    groups: int,
    *,
    permutation: Int[Tensor, "*V D"] | None = None,
    eps: float = 1e-5,
    form: Literal["zca", "pca"] = "zca",
    gradient: Literal["detach", "full"] = "detach",
) -> Float[Tensor, "*V B D"]:
    """Whiten ``groups`` equal slices of the features over the rows, after a permutation if one is given.

    With X (B, w) the centred rows of one group, w = D / groups: Y = X W, W the ``whitening_matrix`` of X^T X / B.

    Args:
        groups: must divide D, into slices of at most B - 1 features.
        permutation: feature ``permutation[i]`` is moved to place i before slicing, and back after it.
        gradient: ``detach`` treats the whitening matrix as a constant, as the authors' code does; ``full`` does not.

    Raises:
        ValueError: ``groups`` does not divide D, or a group is too wide for the number of rows.

    Source: Zhuo et al. 2023, https://arxiv.org/abs/2305.17746; SupstarZh/WhitenedCSE @ 65fe70a.
    """
    rows, dim = x.shape[-2:]
    if groups < 1 or dim % groups:
        raise ValueError(f"G={groups} groups cannot share D={dim} features evenly; choose a divisor of {dim}")
    width = dim // groups
    if width > rows - 1:
        raise ValueError(
            f"groups of {width} features cannot be whitened over {rows} rows: "
            f"at most {rows - 1} features a group, or at least {width + 1} rows"
        )
    if permutation is not None:
        permutation = permutation.to(x.device)
        x = x.gather(-1, permutation.unsqueeze(-2).expand_as(x))
    sliced = (x - x.mean(-2, keepdim=True)).unflatten(-1, (groups, width)).transpose(-3, -2)  # (G, B, w)
    covariance = sliced.mT @ sliced / rows  # (G, w, w)
    matrix = whitening_matrix(covariance.detach() if gradient == "detach" else covariance, eps, form)
    whitened = (sliced @ matrix).transpose(-3, -2).flatten(-2)
    if permutation is not None:
        whitened = whitened.gather(-1, permutation.argsort(-1).unsqueeze(-2).expand_as(whitened))
    return whitened


@full_precision
def whitening_matrix(
    covariance: Float[Tensor, "*G w w"], eps: float, form: Literal["zca", "pca"]
) -> Float[Tensor, "*G w w"]:
    """Return W so that rows X of this covariance become white as X W.

    zca: the symmetric (covariance + eps I)^(-1/2).  pca: U diag(l + eps)^(-1/2) with covariance = U diag(l) U^T, which
    turns the rows onto their principal axes; which way an axis points is arbitrary.
    """
    if form == "zca":
        return inverse_square_root(covariance, eps)
    values, vectors = torch.linalg.eigh(covariance)
    return vectors * (values.clamp(min=0) + eps).rsqrt().unsqueeze(-2)


@full_precision
def inverse_square_root(covariance: Float[Tensor, "*G w w"], eps: float) -> Float[Tensor, "*G w w"]:
    """Return the symmetric (covariance + eps I)^(-1/2) of positive semi-definite matrices, differentiably.

    Width 2 has a closed form: with s = sqrt(det M) and t = sqrt(tr M + 2 s), M^(-1/2) = adj(M + s I) / (s
    t).  Other widths use the eigendecomposition with a gradient of its own, because autograd's divides by
    differences of eigenvalues, and data that is nearly white has eigenvalues that are nearly equal.
    """
    if covariance.shape[-1] == 1:
        return (covariance + eps).rsqrt()
    if covariance.shape[-1] == 2:
        first, mixed, second = covariance[..., 0, 0], covariance[..., 0, 1], covariance[..., 1, 1]
        trace = first + second
        # Rounding can make the determinant of two nearly equal features negative; eps then keeps it positive.
        determinant = (first * second - mixed * mixed).clamp(min=0) + eps * (trace + eps)
        s = determinant.sqrt()
        t = (trace + 2 * eps + 2 * s).sqrt()
        adjugate = torch.stack((second + eps + s, -mixed, -mixed, first + eps + s), -1).unflatten(-1, (2, 2))
        return adjugate / (s * t)[..., None, None]
    root: Tensor = _InverseSquareRoot.apply(covariance, eps)
    return root


class _InverseSquareRoot(torch.autograd.Function):
    """(M + eps I)^(-1/2) by eigendecomposition, with the gradient of Daleckii and Krein.

    For f(M) = U f(l) U^T, df = U (K * U^T dM U) U^T with K_ij = (f(l_i) - f(l_j)) / (l_i - l_j).  For f =
    1/sqrt that is -1 / (r_i r_j (r_i + r_j)), r = sqrt(l): free of differences, so equal eigenvalues are safe.
    """

    @staticmethod
    def forward(ctx: Any, covariance: Tensor, eps: float) -> Tensor:  # noqa: ANN401
        values, vectors = torch.linalg.eigh(covariance)
        roots = (values.clamp(min=0) + eps).sqrt()
        ctx.save_for_backward(vectors, roots)
        return (vectors / roots.unsqueeze(-2)) @ vectors.mT

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        vectors, roots = ctx.saved_tensors
        r, q = roots.unsqueeze(-1), roots.unsqueeze(-2)
        inner = vectors.mT @ (gradient + gradient.mT) @ vectors / 2
        return vectors @ (inner / -(r * q * (r + q))) @ vectors.mT, None
