"""Losses and statistics that several methods share: contrast, similarity, correlation, masked words.

Every function computes in float32, or in float64 if given it, whatever autocast says around it: a
correlation in half precision is wrong in its second digit.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

P = ParamSpec("P")
R = TypeVar("R")


def full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Run ``function`` without autocast, its half-precision arguments widened to float32."""

    def widened(value: Any) -> Any:  # noqa: ANN401
        half = isinstance(value, Tensor) and value.is_floating_point() and value.element_size() < 4
        return value.float() if half else value

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        device = next(value.device.type for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        with torch.autocast(device, enabled=False):
            return function(*map(widened, args), **{name: widened(value) for name, value in kwargs.items()})

    return wrapper


def init_linear_(module: nn.Module) -> None:
    """Give every Linear of a head Normal(0, 0.02) weights and a zero bias, as transformers initialises its own."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


@full_precision
def info_nce(z1: Float[Tensor, "B D"], z2: Float[Tensor, "B D"], temperature: float) -> Float[Tensor, ""]:
    """Contrast each row of ``z1`` with all rows of ``z2``; the row of the same index is its positive.

    logits_ij = cos(z1_i, z2_j) / temperature; cross-entropy with target j = i, mean over i, one direction.

    Source: Gao et al. 2021, https://arxiv.org/abs/2104.08821.
    """
    return multi_positive(torch.stack((z1, z2)), temperature)


@full_precision
def nt_xent(
    anchors: Float[Tensor, "B D"],
    positives: Float[Tensor, "B D"],
    temperature: float,
    *,
    reduction: Literal["mean", "sum"] = "mean",
    memory: Float[Tensor, "N D"] | None = None,
) -> Float[Tensor, ""]:
    """Contrast each of the 2B rows with all the others, in both directions; the positive is the row's partner.

    logits_ij = cos(e_i, e_j) / temperature over e = [anchors ; positives], j != i; cross-entropy whose target is the
    partner, i + B or i - B; mean or sum over the 2B rows.  Rows of ``memory`` are further negatives of all.

    Source: Chen et al. 2020, https://arxiv.org/abs/2002.05709.
    """
    rows = F.normalize(torch.cat((anchors, positives)), dim=1)
    logits = (rows @ rows.T / temperature).fill_diagonal_(-torch.inf)  # (2B, 2B)
    if memory is not None:
        logits = torch.cat((logits, rows @ F.normalize(memory, dim=1).T / temperature), dim=1)
    partners = torch.arange(len(rows), device=rows.device).roll(len(anchors))
    return F.cross_entropy(logits, partners, reduction=reduction)


@full_precision
def similarity_matching(
    student: Float[Tensor, "N D"],
    teacher: Float[Tensor, "N E"],
    temperature: float,
    teacher_temperature: float,
    queued: tuple[Float[Tensor, "M D"], Float[Tensor, "M E"]] | None = None,
) -> Float[Tensor, ""]:
    """Divergence of the student's distribution over the other rows from the teacher's, mean over the rows.

    p_ij = softmax over j != i of cos(t_i, t_j) / teacher_temperature, q_ij likewise of the student's rows;
    1/N sum_i KL(p_i || q_i), in nats.  No gradient goes to the teacher.

    Args:
        queued: rows of further texts, the student's and the teacher's: j runs over them, too, i does not.

    Source: Fang et al. 2021, https://arxiv.org/abs/2101.04731.
    """
    own = torch.eye(len(student), dtype=torch.bool, device=student.device)

    def log_shares(rows: Float[Tensor, "N D"], more: Float[Tensor, "M D"] | None, tau: float) -> Float[Tensor, "N K"]:
        rows = F.normalize(rows, dim=1)
        cosines = (rows @ rows.T)[~own].view(len(rows), -1)
        if more is not None:
            cosines = torch.cat((cosines, rows @ F.normalize(more, dim=1).T), dim=1)
        return (cosines / tau).log_softmax(dim=1)

    mine, taught = queued if queued is not None else (None, None)
    goal = log_shares(teacher.detach(), taught, teacher_temperature)
    return F.kl_div(log_shares(student, mine, temperature), goal, reduction="batchmean", log_target=True)


@full_precision
def multi_positive(
    z: Float[Tensor, "V B D"],
    temperature: float,
    *,
    reduction: Literal["sum", "mean"] = "sum",
    negatives: Literal["same_view", "all_views"] = "same_view",
    form: Literal["eq7", "softmin"] = "eq7",
) -> Float[Tensor, ""]:
    """Contrast the anchors ``z[0]`` with several positives each, ``z[1:]``.

    With s_pij = cos(z_0i, z_pj) / temperature and mean over i:

        eq7      sum_p (log sum_j exp(s_pij) - s_pii)                one cross-entropy for each positive
        softmin  log sum_p exp(-s_pii) + mean_p log sum_j exp(s_pij) only the least similar positive counts

    Args:
        reduction: ``mean`` divides eq7's sum by V - 1; softmin has one term an anchor, so nothing to reduce.
        negatives: ``same_view`` compares a positive with the texts of its own view; ``all_views`` with the other
            texts of every view, other positives of the same text left out.  For softmin, ``all_views`` sums over j
            and p inside one logarithm.

    Source: Zhuo et al. 2023, equations 7 and 8, https://arxiv.org/abs/2305.17746.
    """
    anchor, positives = F.normalize(z[0], dim=-1), F.normalize(z[1:], dim=-1)
    logits = anchor @ positives.mT / temperature  # (V - 1, B, B)
    own = logits.diagonal(dim1=1, dim2=2)  # (V - 1, B)
    if form == "softmin":
        everything = logits.logsumexp(-1).mean(0) if negatives == "same_view" else logits.logsumexp((0, 2))  # (B,)
        return ((-own).logsumexp(0) + everything).mean()
    if negatives == "same_view":
        terms = logits.logsumexp(-1) - own
    else:
        same_text = torch.eye(logits.shape[-1], dtype=torch.bool, device=logits.device)
        others = logits.masked_fill(same_text, -torch.inf).logsumexp((0, 2))  # (B,)
        terms = torch.logaddexp(own, others) - own
    return terms.mean(1).sum() if reduction == "sum" else terms.mean()


@full_precision
def standardize(x: Float[Tensor, "*V B D"], eps: float = 1e-5) -> Float[Tensor, "*V B D"]:
    """Give every feature mean 0 and variance var / (var + eps) over the rows: batch norm without scale.

    Raises:
        ValueError: there are fewer than 2 rows.
    """
    _at_least_two(x)
    centred = x - x.mean(-2, keepdim=True)
    return centred * (centred.square().mean(-2, keepdim=True) + eps).rsqrt()


@full_precision
def cross_correlation(
    x: Float[Tensor, "B P"],
    y: Float[Tensor, "B P"],
    *,
    normalization: Literal["batchnorm", "eq3"] = "batchnorm",
    eps: float = 1e-5,
) -> Float[Tensor, "P P"]:
    """Correlate every feature of ``x`` with every feature of ``y`` over the rows.

        batchnorm   C_jk = 1/B sum_i a_ij b_ik, where a and b are x and y standardized
        eq3         C_jk = sum_i x_ij y_ik / sqrt(sum_i x_ij^2 y_ik^2)

    Args:
        normalization: ``eq3`` is printed in the SCD paper.  It does not centre, and its bound is sqrt(B), not 1.
        eps: added to the variances of batchnorm, or inside eq3's root.

    Raises:
        ValueError: there are fewer than 2 rows.

    Source: Klein & Nabi 2022, https://arxiv.org/abs/2203.07847.
    """
    rows = _at_least_two(x)
    if normalization == "eq3":
        return (x.mT @ y) * (x.square().mT @ y.square() + eps).rsqrt()
    return standardize(x, eps).mT @ standardize(y, eps) / rows


@full_precision
def correlation_summary(
    x: Float[Tensor, "B P"],
    y: Float[Tensor, "B P"],
    *,
    normalization: Literal["batchnorm", "eq3"] = "batchnorm",
    eps: float = 1e-5,
) -> tuple[Float[Tensor, " P"], Float[Tensor, ""]]:
    """Return the diagonal of ``cross_correlation`` and the sum of squares off it.

    The batchnorm form never builds the (P, P) matrix: sum_jk C_jk^2 = 1/B^2 <a a^T, b b^T>, two (B, B)
    products.  At B 192 and P 4096 that is a tenth of the work and a few hundredths of the memory.

    Raises:
        ValueError: there are fewer than 2 rows.
    """
    rows = _at_least_two(x)
    if normalization == "eq3":
        matrix = cross_correlation(x, y, normalization="eq3", eps=eps)
        diagonal, squares = matrix.diagonal(), matrix.square().sum()
    else:
        a, b = standardize(x, eps), standardize(y, eps)
        diagonal, squares = (a * b).mean(0), ((a @ a.mT) * (b @ b.mT)).sum() / rows**2
    return diagonal, squares - diagonal.square().sum()


def _at_least_two(x: Tensor) -> int:
    rows = x.shape[-2]
    if rows < 2:
        raise ValueError(f"statistics over a batch need at least 2 rows, got {rows}")
    return rows


class _VocabularyLoss(torch.autograd.Function):
    """Cross-entropy over a vocabulary computed together with its gradient, so that no chunk of logits is kept."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        states: Tensor,
        words: Tensor,
        bias: Tensor,
        labels: Tensor,
        chunk: int,
        gradients: bool,
    ) -> tuple[Tensor, Tensor]:
        exact = torch.float64 if states.dtype == torch.float64 else torch.float32
        table = words.to(states.dtype)
        loss = torch.zeros((), dtype=exact, device=states.device)
        right = torch.zeros((), dtype=torch.long, device=states.device)
        towards_states = torch.empty_like(states)
        towards_words = torch.zeros(words.shape, dtype=exact, device=words.device)
        towards_bias = torch.zeros(bias.shape, dtype=exact, device=bias.device)
        for start in range(0, len(states), chunk):
            block, answers = states[start : start + chunk], labels[start : start + chunk, None]
            logits = (block @ table.T).to(exact).add_(bias)  # (chunk, V)
            own, (highest, guess) = logits.gather(1, answers), logits.max(dim=1, keepdim=True)
            right += (guess == answers).sum()
            logits.sub_(highest).exp_()
            totals = logits.sum(dim=1, keepdim=True)
            loss -= (own - highest - totals.log()).sum()
            if not gradients:
                continue
            error = logits.div_(totals)
            error.scatter_add_(1, answers, -torch.ones_like(answers, dtype=exact))
            towards_bias += error.sum(dim=0)
            error = error.to(table.dtype)
            towards_states[start : start + chunk] = error @ table
            towards_words += error.T @ block
        ctx.save_for_backward(towards_states, towards_words.to(words.dtype), towards_bias.to(bias.dtype))
        ctx.mark_non_differentiable(right)
        return loss, right

    @staticmethod
    def backward(ctx: Any, *slope: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        return *(saved * slope[0].to(saved.dtype) for saved in ctx.saved_tensors), None, None, None


def vocabulary_loss(
    states: Float[Tensor, "N D"],
    words: Float[Tensor, "V D"],
    bias: Float[Tensor, " V"],
    labels: Int[Tensor, " N"],
    chunk: int | None = None,
) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
    """Return the summed cross-entropy of ``labels`` by ``states @ words.T + bias``, and how many are predicted right.

    Computed for ``chunk`` states at a time (None: 512 on a CPU; 8,192 elsewhere, where small products wait for their
    launch), gradients included, so that memory does not grow with N x V; products in autocast's dtype, or without
    autocast in that of ``words``; the softmax and the sums of ``words``' gradient in fp32,
    or in fp64 where ``states`` are.
    """
    device, low = states.device.type, words.dtype
    if torch.is_autocast_enabled(device) and low != torch.float64:  # tables of embeddings stay fp32 (optimizer.py)
        low = torch.get_autocast_dtype(device)
    with torch.autocast(device, enabled=False):
        # A chunked step (encoder/chunks.py) computes it first without a graph, and then once more for the gradients.
        chunk = chunk or (512 if device == "cpu" else 8192)
        arguments = (states.to(low), words, bias, labels, chunk, torch.is_grad_enabled())
        result: tuple[Tensor, Tensor] = _VocabularyLoss.apply(*arguments)
    return result
