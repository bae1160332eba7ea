"""SCD, self-contrastive decorrelation.  Klein & Nabi, ACL 2022, https://arxiv.org/abs/2203.07847.

A text is encoded twice, at a low and at a high dropout rate: h and k, (B, D).  Texts are never compared.
On a corpus of pairs k is made of the positives, beyond the paper.

    self-contrast    S = 1/B sum_i cos(h_i, k_i)                          drives the views of a text apart
    decorrelation    Q = sum_m (1 - C_mm)^2 + lambda sum_{m!=n} C_mn^2    ties each feature to itself alone: equation 4
    loss             L = w_S S / tau + beta Q

In the paper h^A is h, h^B is k, L_S is S, L_C is Q, alpha is beta; w_S and tau are the authors' code's.
B texts; C, (P, P), equation 3, correlates over the batch the features of p(h) with those of p(k), p a projector of
three layers with batch norm, applied to each view on its own; tau divides the cosine; lambda weighs what
lies off the diagonal.  There is no head: h and k are the embeddings themselves.  The projector is dropped
after training.

Defaults: the loss of the authors' README command for bert-base-uncased; ``scd_released`` is the whole command.
``scd_paper_literal`` takes the coefficients printed in the paper, where no temperature divides the cosine, so that its
beta weighs 20 times more, and selects by STS-B, as SimCSE does, which the paper follows; ``scd_roberta`` takes the
printed ones for RoBERTa, with the released temperature.

Small encoders need a smaller w_S.  With w_S 1 the gradient of S grows from a third of Q's to once or twice of it within
60 steps, and the views part by one vector that all texts share, which C, centred over the batch, does not see: from
6 % of their squared distance to 84 % (``builtin-mlm``, 6 layers of 256; 70 steps of 64 at 1e-4; STS-B dev from 70.0 to
44.2), from 3 % to 80 % (all-MiniLM-L6-v2; 86.7 to 27.7), and at the published rate and batch, 3e-5 and 192, likewise,
only later (120 steps: 86.7 to 45.6).  With w_S 0.1 or less S's gradient stays below a tenth of Q's, the views' cosine
above .9, and STS-B where it was (benchmarks/scd_weights.py).

Departs from the paper: the sign of the diagonal term in its equation 4 is minus, which would drive the
views to anti-correlate, against its own prose and the authors' code (``diag_sign``); its equation 3 is no
correlation (``correlation_norm``).  Departs from the authors' code: they sum C over one process and divide
it by the batch of all, which caps its diagonal at 1/N on N GPUs; we divide by what was summed.
"""

import warnings
from typing import ClassVar, Literal

from jaxtyping import Float
from pydantic.dataclasses import dataclass
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from selfsent.config import FINITE, setting
from selfsent.encoder.dropout import dropout_rate, dropout_rates, dropout_rows
from selfsent.encoder.embed import embed, embed_columns
from selfsent.encoder.inspect import embedding_width
from selfsent.functional import correlation_summary, init_linear_
from selfsent.objectives.base import Batch, Objective, RecipeTable, Terms, gather, published_presets, second


class SCD(Objective):
    """Learn from one text seen through two dropout rates; needs no negatives."""

    selection: ClassVar[str] = "sickr-dev"
    presets: ClassVar[dict[str, RecipeTable]] = published_presets("scd")

    @dataclass(frozen=True, kw_only=True, config=FINITE)
    class Config:
        """Two dropout rates, the weights of the terms, the projector, and where paper and code differ."""

        dropout_low: float = setting(0.05, "r_A: share of activations dropped in the first view", ge=0, lt=1)
        dropout_high: float = setting(0.155, "r_B: the same in the second view", ge=0, lt=1)
        attention_low: float | None = setting(None, "r_A for attention weights; None copies dropout_low", ge=0, lt=1)
        attention_high: float | None = setting(None, "r_B for attention weights; None copies dropout_high", ge=0, lt=1)
        dropout_sites: Literal["all", "hidden_only"] = setting("all", "hidden_only: not attention")
        passes: Literal["two", "one"] = setting("two", "forward passes a step; one: rates differ by row")
        temperature: float = setting(0.05, "tau: divides the cosine of the views", gt=0, le=1_000)
        self_contrast_weight: float = setting(1.0, "w_S", ge=0, le=1_000_000)
        self_contrast_reduction: Literal["mean", "sum"] = setting("mean", "over the texts")
        decorrelation_weight: float = setting(0.005225, "beta (the paper's alpha)", ge=0, le=1_000_000)
        off_diagonal_weight: float = setting(0.012, "lambda", ge=0, le=1_000_000)
        projector_width: int = setting(4096, "P: features of the projector", ge=2, le=1_000_000)
        correlation_norm: Literal["batchnorm", "eq3"] = setting("batchnorm", "of C; eq3: the paper's")
        diag_sign: Literal[1, -1] = setting(1, "of the diagonal term; -1 (equation 4 as printed) needs unsafe")
        unsafe: bool = setting(False, "allow diag_sign -1, which teaches the views to anti-correlate")

        def __post_init__(self) -> None:
            rates = (self.attention_low, self.attention_high)
            if self.dropout_sites == "hidden_only" and rates != (None, None):
                raise ValueError(f"attention rates are {rates}: they need dropout_sites 'all', not 'hidden_only'")
            if self.diag_sign == -1:
                if not self.unsafe:
                    raise ValueError("diag_sign is -1: it should be 1, or be allowed with unsafe = true")
                warnings.warn("diag_sign -1 drives the two views to anti-correlate", stacklevel=3)
            low = self.dropout_low if self.attention_low is None else self.attention_low
            high = self.dropout_high if self.attention_high is None else self.attention_high
            if self.dropout_low >= self.dropout_high and low >= high:
                warnings.warn(
                    f"dropout_low {self.dropout_low} is not below dropout_high {self.dropout_high}: "
                    "the difference between the two views is this method's only augmentation",
                    stacklevel=3,
                )

    def __init__(self, config: Config, encoder: SentenceTransformer) -> None:
        super().__init__(config, encoder)
        width = config.projector_width
        self.projector = nn.Sequential(
            nn.Linear(embedding_width(encoder), width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Linear(width, width, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Linear(width, width, bias=False),
        )
        init_linear_(self.projector)
        self._last: dict[str, Tensor] = {}

    def forward(self, encoder: SentenceTransformer, batch: Batch) -> Terms:
        """Return the terms ``self_contrast`` and ``decorrelation``."""
        first, other = batch["text"], batch[second(batch)]
        config = self.config
        low, high = config.dropout_low, config.dropout_high
        own = dropout_rates(encoder).get("attention", 0.0)
        attention_low, attention_high = (own if rate is None else rate for _, rate in self.dropout_views())
        if config.passes == "one":
            with dropout_rows(encoder, (low, high), (attention_low, attention_high)):
                h, k = embed_columns(encoder, batch, ("text", second(batch)))
        else:
            with dropout_rate(encoder, low, attention_low):
                h = embed(encoder, first)
            with dropout_rate(encoder, high, attention_high):
                k = embed(encoder, other)
        return self.terms(gather(h), gather(k))

    def terms(self, h: Float[Tensor, "B D"], k: Float[Tensor, "B D"]) -> Terms:
        """Return the terms for the embeddings at the low and at the high rate.

        Raises:
            ValueError: there are fewer than 2 rows.
        """
        if len(h) < 2:  # before the projector's batch norm says it less clearly
            raise ValueError(f"a correlation over the batch needs at least 2 rows, got {len(h)}")
        config = self.config
        cosine = F.cosine_similarity(h, k)  # (B,), of S
        self_contrast = cosine.mean() if config.self_contrast_reduction == "mean" else cosine.sum()
        diagonal, off_diagonal = correlation_summary(  # of C, equation 3
            self.projector(h), self.projector(k), normalization=config.correlation_norm
        )
        on_diagonal = config.diag_sign * (1 - diagonal).square().sum()
        decorrelation = on_diagonal + config.off_diagonal_weight * off_diagonal  # Q, equation 4
        figures = {"cosine": cosine, "diagonal": diagonal, "off_diagonal": off_diagonal}
        self._last = {name: tensor.detach() for name, tensor in figures.items()}
        return {
            "self_contrast": config.self_contrast_weight * self_contrast / config.temperature,
            "decorrelation": config.decorrelation_weight * decorrelation,
        }

    def dropout_views(self) -> list[tuple[float | None, float | None]]:
        """List the (hidden, attention) rates of the two views; None where attention keeps its own."""
        config = self.config
        pairs = ((config.dropout_low, config.attention_low), (config.dropout_high, config.attention_high))
        if config.dropout_sites == "hidden_only":
            return [(hidden, None) for hidden, _ in pairs]
        return [(hidden, hidden if attention is None else attention) for hidden, attention in pairs]

    def figures(self) -> dict[str, float]:
        """Return the views' mean cosine, and C's mean on and root mean square off the diagonal."""
        if not self._last:
            return {}
        pairs = self.config.projector_width * (self.config.projector_width - 1)
        return {
            "view_cosine": self._last["cosine"].mean().item(),
            "correlation_diagonal": self._last["diagonal"].mean().item(),
            "correlation_off_diagonal_rms": (self._last["off_diagonal"].clamp(min=0) / pairs).sqrt().item(),
        }


METHOD = SCD
