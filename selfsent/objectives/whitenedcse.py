"""WhitenedCSE.  Zhuo, Sun, Wang, Zhu & Yang, ACL 2023, https://arxiv.org/abs/2305.17746.

SimCSE with V views of each text, each whitened in its own way.  View v is embedded under its own dropout
mask, (B, D); its D features are shuffled by a permutation of its own, cut into G groups of width w, and
every group is whitened:

    whitening    Y_g = X_g (X_g^T X_g / B + eps I)^(-1/2)        X_g (B, w): one group's centred rows: equations 2, 5
    head         z_v = tanh(A [Y_1 ... Y_G] + b)                 the groups put back in the features' order
    contrast     s_pij = cos(z_1i, z_pj) / tau
                 L = lambda sum_{p>1} 1/B sum_i -log( exp(s_pii) / sum_j exp(s_pij) )        equation 7

In the paper m is V, the number k of groups is G, Z^T holds the rows of X.
B texts, tau the temperature, lambda the weight; view 1 is the anchor, the other V - 1 are its positives.
Whitening and head are dropped after training: at test time an embedding is what the encoder's pooling
gives.  On a corpus of pairs the positives take turns with the text behind the anchor, beyond the paper.

Defaults: the paper's, read so that it works; ``whitenedcse_paper`` also trains as the paper says.  The paper names no
eps: without one, two features that are equal in a batch and share a group have no finite whitening.  Its "group size
384" is the number of groups of 768 features, hence width 2: groups of 384 features cannot be whitened over a batch of
64.  ``whitenedcse_released`` follows the authors' code @ 65fe70a: 128 groups, no eps, its cut of the rows, and batches
of 128 at 1e-5.  That code lays the rows out text by text and cuts them into three consecutive parts, which it shuffles
and whitens one by one; so the views of a text nearly always share a shuffle (126 of 128 texts), against the paper's
point.

``whitening_form`` "pca" whitens by U diag(l + eps)^(-1/2) in place of the symmetric root, where U diag(l) U^T is the
covariance of a group; ``eval_head`` keeps the head's Linear and tanh in the model, without the whitening.

Departs from the paper: its equation 8 is printed with the sign of the positives reversed; ``loss``
"softmin" is the corrected form.  At width 2 the whitened vector is close to a standardized one (cosine
about 0.998), so compare with ``whitening`` "batch_norm" before believing in the whitening; the figure
``shuffle_cosine`` says how far apart two shuffles of the same embeddings end up.
"""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic.dataclasses import dataclass
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from selfsent.config import FINITE, setting, warn_of_idle
from selfsent.encoder.inspect import embedding_width
from selfsent.functional import init_linear_, multi_positive, standardize
from selfsent.objectives.base import Batch, Objective, RecipeTable, Terms, Views, gather, published_presets, second
from selfsent.objectives.group_whitening import group_whiten, whitening_matrix

_RELEASED_PARTS = 3  # written into the authors' module


class WhitenedCSE(Objective):
    """Contrast several views of a text, each whitened in groups of shuffled features."""

    presets: ClassVar[dict[str, RecipeTable]] = published_presets("whitenedcse")

    @dataclass(frozen=True, kw_only=True, config=FINITE)
    class Config:
        """Views, whitening, loss; one of group_width and num_groups, width 2 if neither is given."""

        num_views: int = setting(3, "V, the paper's m: one anchor and V - 1 positives", ge=2, le=1_000_000)
        group_width: int | None = setting(
            None, "w: features whitened together; None with no num_groups: 2", ge=1, le=1_000_000
        )
        num_groups: int | None = setting(
            None, "G = D / w, the paper's 'group size'; instead of group_width", ge=1, le=1_000_000
        )
        shuffle: bool = setting(True, "permute the features, differently for each view, before grouping")
        whitening: Literal["group", "batch_norm", "batch", "none"] = setting("group", "batch: running statistics")
        sgw_chunking: Literal["by_view", "released"] = setting("by_view", "rows of one shuffle: a view's, a third")
        backbone_passes: Literal["per_view", "shared"] = setting("per_view", "dropout masks of a text: V or 1")
        whitening_form: Literal["zca", "pca"] = setting("zca", "pca: onto the principal axes of each group")
        whiten_grad: Literal["detach", "full"] = setting("detach", "detach: its matrix is a constant")
        eps: float = setting(1e-5, "added to the variances", ge=0, le=1)
        momentum: float = setting(0.1, "share of the new batch in running statistics", gt=0, le=1)
        anchor: Literal["whitened", "raw"] = setting("whitened", "does the anchor go through the whitening too")
        temperature: float = setting(0.05, "tau: divides the cosines", gt=0, le=1_000)
        weight: float = setting(1.0, "lambda", ge=0, le=1_000_000)
        loss: Literal["eq7", "softmin"] = setting("eq7", "softmin: the least similar positive counts")
        positive_reduction: Literal["sum", "mean"] = setting("sum", "of eq7 over the V - 1 positives")
        negatives: Literal["same_view", "all_views"] = setting("same_view", "the other texts, in which views")
        eval_head: bool = setting(False, "keep Linear and tanh in the exported model, as Dense behind the pooling")

        def __post_init__(self) -> None:
            if self.group_width is not None and self.num_groups is not None:
                both = f"group_width {self.group_width} and num_groups {self.num_groups}"
                raise ValueError(f"{both} are both given: give one, the other follows")
            if self.sgw_chunking == "released" and self.num_views != _RELEASED_PARTS:
                raise ValueError(f"num_views is {self.num_views}: it should be 3 for sgw_chunking 'released'")
            if self.whitening_form == "pca" and self.whiten_grad == "full":
                raise ValueError(
                    "whiten_grad is 'full': it should be 'detach' for whitening_form 'pca', whose axes jump"
                )
            if self.loss == "softmin":
                warn_of_idle(self, "loss 'softmin' has one term a text", "positive_reduction")
            because = f"whitening is {self.whitening!r}"
            if self.whitening != "group":
                warn_of_idle(self, because, "num_groups", "group_width", "shuffle", "whiten_grad")
            if self.whitening != "batch":
                warn_of_idle(self, because, "momentum")
            if self.whitening in ("batch", "none"):
                warn_of_idle(self, because, "sgw_chunking")
            if self.whitening in ("batch_norm", "none"):
                warn_of_idle(self, because, "whitening_form")
            if self.whitening == "none":
                warn_of_idle(self, because, "eps", "anchor")

        def groups(self, dim: int) -> int:
            """Return G for embeddings of ``dim`` features.

            Raises:
                ValueError: the groups do not come out even.
            """
            if self.num_groups is not None:
                if dim % self.num_groups:
                    raise ValueError(f"num_groups is {self.num_groups}: G should divide D, which is {dim}")
                return self.num_groups
            width = 2 if self.group_width is None else self.group_width
            if dim % width:
                raise ValueError(f"group_width is {width}: w = D / G should divide D, which is {dim}")
            return dim // width

    def __init__(self, config: Config, encoder: SentenceTransformer) -> None:
        super().__init__(config, encoder)
        dim = embedding_width(encoder)
        self._width = 1
        if config.whitening == "group":
            self.groups = config.groups(dim)
            self._width = dim // self.groups
        if config.whitening == "batch":
            self.batch_whitening = BatchWhitening(
                dim, momentum=config.momentum, eps=config.eps, form=config.whitening_form
            )
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.Tanh())
        init_linear_(self.head)
        self._last: tuple[Tensor, Tensor] | None = None

    @property
    def least_rows(self) -> int:
        """One row more than a group is wide: fewer cannot be whitened."""
        return self._width + 1

    def columns(self, batch: Batch) -> tuple[str, ...]:
        """Ask for the text as often as there are views; given positives take turns with it behind the anchor."""
        if self.config.backbone_passes == "shared":
            return ("text",)
        return tuple("text" if view % 2 == 0 else second(batch) for view in range(self.config.num_views))

    def combine(self, views: Views, encoder: SentenceTransformer, batch: Batch) -> Terms:
        """Return the term ``contrast``."""
        return self.terms(gather(torch.stack(views), dim=1).expand(self.config.num_views, -1, -1))

    def terms(self, h: Float[Tensor, "V B D"], permutations: Int[Tensor, "V D"] | None = None) -> Terms:
        """Return the terms for the embeddings of the views, the anchor first."""
        config = self.config
        whitened = self.whiten(h, permutations)
        if config.anchor == "raw":
            whitened = torch.cat((h[:1], whitened[1:]))
        loss = multi_positive(  # equation 7; softmin: 8
            self.head(whitened),
            config.temperature,
            reduction=config.positive_reduction,
            negatives=config.negatives,
            form=config.loss,
        )
        return {"contrast": config.weight * loss}

    def whiten(
        self, h: Float[Tensor, "V B D"], permutations: Int[Tensor, "V D"] | None = None
    ) -> Float[Tensor, "V B D"]:
        """Whiten the views as the Config says, with fresh permutations unless they are given."""
        config = self.config
        views, rows, dim = h.shape
        if config.whitening == "none":
            return h
        if config.whitening == "batch":
            whitened: Tensor = self.batch_whitening(h.flatten(0, 1))
            return whitened.unflatten(0, (views, rows))
        by_text = config.sgw_chunking == "released"
        parts = h.transpose(0, 1).reshape(_RELEASED_PARTS, -1, dim) if by_text else h
        if config.whitening == "batch_norm":
            parts = standardize(parts, config.eps)
        else:
            if permutations is None and config.shuffle:
                # On the CPU, from the global generator, which the trainer seeds for each step.
                permutations = torch.stack([torch.randperm(dim) for _ in range(views)])
            if permutations is not None:
                self._last = parts[0].detach(), permutations[:2]
            parts = group_whiten(  # equations 2 and 5, group by group
                parts,
                self.groups,
                permutation=permutations,
                eps=config.eps,
                form=config.whitening_form,
                gradient=config.whiten_grad,
            )
        return parts.reshape(rows, views, dim).transpose(0, 1) if by_text else parts

    def figures(self) -> dict[str, float]:
        """Return the mean cosine between two shuffles of the same embeddings; near 1, they hardly differ."""
        if self._last is None:
            return {}
        rows, permutations = self._last
        first, second = group_whiten(rows.expand(2, -1, -1), self.groups, permutation=permutations, eps=self.config.eps)
        return {"shuffle_cosine": F.cosine_similarity(first, second).mean().item()}


class BatchWhitening(nn.Module):
    """Whiten whole vectors with running statistics: the ablation that the paper compares groups with.

        mu <- (1 - a) mu + a mean(x);  Sigma <- (1 - a) Sigma + a cov(x);  y = (x - mu) (Sigma + eps I)^(-1/2)

    Equation 13.  a is the momentum; mu starts at 0, Sigma at I.  Running, because a batch smaller than D has a
    covariance without an inverse.  Both statistics are constants to the gradient.
    """

    mean: Tensor
    covariance: Tensor

    def __init__(self, dim: int, *, momentum: float, eps: float, form: Literal["zca", "pca"]) -> None:
        super().__init__()
        self.momentum, self.eps, self.form = momentum, eps, form
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("covariance", torch.eye(dim))

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Update the statistics in training mode, then whiten with them."""
        with torch.autocast(x.device.type, enabled=False):
            if self.training:
                rows = x.detach().to(self.mean.dtype)
                self.mean.lerp_(rows.mean(0), self.momentum)
                self.covariance.lerp_(rows.mT.cov(correction=0), self.momentum)
            return (x - self.mean) @ whitening_matrix(self.covariance, self.eps, self.form)


METHOD = WhitenedCSE
