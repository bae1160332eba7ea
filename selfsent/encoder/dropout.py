"""Dropout with rates that can be set for each site and each row of a batch, and that is fast on a CPU.

Fused attention takes one dropout rate for the whole batch.  ``install_dropout`` therefore replaces every ``nn.Dropout``
by our module, and the attention by ours: two matrix products and a softmax on a CPU, whose backward pass is also faster
for texts of a sentence's length, and fused attention elsewhere, unless rates differ by row.  Neither changes the saved
model, and an encoder may be moved to another device at any time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int16
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import MODEL_FOR_MASKED_LM_MAPPING, AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask

from selfsent.encoder.inspect import transformer_of
from selfsent.errors import UserError
from selfsent.runtime import distributed

ATTENTION = "selfsent"  # the name that transformers has for `attend`
_LEVELS = 2**15  # rates are rounded to a multiple of 1 / _LEVELS


class Dropout(nn.Dropout):
    """``nn.Dropout`` whose rate may differ between the rows of a batch."""

    rows: tuple[float, ...] | None = None  # rates of equal, consecutive shares of the rows; None: ``p`` for all

    def forward(self, input: Tensor) -> Tensor:
        """Drop and rescale, in training mode only."""
        rates = self.rows or (self.p,)
        if not self.training or not any(rates):
            return input
        if input.device.type != "cpu" and len(rates) == 1:
            return F.dropout(input, self.p, training=True)
        return _drop(input, rates)


def _drop(x: Float[Tensor, "N ..."], rates: tuple[float, ...]) -> Float[Tensor, "N ..."]:
    """Multiply by a mask of 0 and 1 / (1 - rate), made from 15 random bits per element.

    ``bernoulli_`` draws a float per element, which takes ten times as long.
    """
    if x.shape[0] % len(rates):
        raise ValueError(f"{len(rates)} dropout rates need a multiple of as many rows, got {x.shape[0]}")
    below = _bits(x.numel(), x.device).view(x.shape).bitwise_and_(_LEVELS - 1)
    dropped = torch.tensor([round(rate * _LEVELS) for rate in rates], dtype=torch.int16, device=x.device)
    scale = _LEVELS / (_LEVELS - dropped.double())
    if len(rates) > 1:
        each = (-1, *[1] * (x.ndim - 1))
        dropped, scale = (column.repeat_interleave(x.shape[0] // len(rates)).view(each) for column in (dropped, scale))
    kept = below.neg_().add_(dropped - 1).bitwise_right_shift_(15)  # the sign alone: -1 where kept, 0 where dropped
    if x.dtype == torch.bfloat16:
        # A bitwise "and" with the scale saves two conversions, each slower than the product below.
        return x * kept.bitwise_and_(scale.to(torch.bfloat16).view(torch.int16)).view(torch.bfloat16)
    return x * (kept.to(x.dtype) * -scale.to(x.dtype))


def _bits(count: int, device: torch.device) -> Int16[Tensor, " N"]:
    """Draw 16 random bits for each of ``count`` elements from torch's global generator.

    On a CPU that generator seeds numpy's SFC64, which is twice as fast; of several processes each has a stream.
    """
    words = (count + 3) // 4
    if device.type != "cpu":
        # The sign bit of these draws is always 0: every fourth element has 15 random bits, and 15 are used.
        return torch.empty(words, dtype=torch.int64, device=device).random_().view(torch.int16)[:count]
    seed, rank = int(torch.randint(2**63 - 1, ())), distributed.here().number
    return torch.from_numpy(np.random.SFC64([seed, rank] if rank else seed).random_raw(words).view(np.int16))[:count]


def attend(
    module: nn.Module,
    query: Float[Tensor, "N H T K"],
    key: Float[Tensor, "N G T K"],
    value: Float[Tensor, "N G T K"],
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: object,
) -> tuple[Tensor, Tensor | None]:
    """Compute attention with the module's own dropout on its weights: fused, or as two products and a softmax."""
    site = getattr(module, "dropout", None)
    if key.shape[1] < query.shape[1]:  # grouped: several heads of queries share one of keys
        key, value = (states.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for states in (key, value))
    if fused_attention_fits(query.device.type) and not (isinstance(site, Dropout) and site.rows):
        rate = (site.p if isinstance(site, nn.Dropout) else dropout) if module.training else 0.0
        mask = None if attention_mask is None else attention_mask.to(query.dtype)
        attended = F.scaled_dot_product_attention(query, key, value, mask, rate, scale=scaling)
        return attended.transpose(1, 2).contiguous(), None
    weights = torch.matmul(query * (scaling or query.shape[-1] ** -0.5), key.transpose(2, 3))
    if attention_mask is not None:
        weights = weights + attention_mask
    # In fp32: more exact, and five times faster than bf16 for lengths that are no multiple of 16.
    weights = weights.softmax(dim=-1, dtype=torch.float32).to(value.dtype)
    weights = site(weights) if isinstance(site, Dropout) else F.dropout(weights, dropout, module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


def fused_attention_fits(device: str) -> bool:
    """Tell whether torch's fused attention is the faster one on a device."""
    return device != "cpu"


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, eager_mask)


@dataclass(frozen=True)
class DropoutSite:
    """A dropout module, and whether it drops attention weights or hidden states."""

    module: nn.Dropout
    attention: bool


def dropout_sites(model: nn.Module) -> list[DropoutSite]:
    """List every dropout site of ``model`` in module order."""
    parents = dict(model.named_modules())
    sites = []
    for name, module in parents.items():
        if isinstance(module, nn.Dropout):
            # An attention block is the module that holds the query projection, under any of its usual names, or the
            # rate of its attention, which ``install_dropout`` gives a module of its own.
            above, _, last = name.rpartition(".")
            block = parents[above]
            own = any(hasattr(block, q) for q in ("query", "q_lin", "q", "query_proj"))
            sites.append(DropoutSite(module, own or (last == "dropout" and hasattr(block, "attention_dropout"))))
    return sites


def install_dropout(model: PreTrainedModel) -> None:
    """Give ``model`` our dropout modules, and our attention where it is a bidirectional encoder.

    Decoders have attention of other kinds, too (with a cap on its logits, with sinks), which ours would not compute.
    """
    ours = model._can_set_attn_implementation() and type(model.config) in MODEL_FOR_MASKED_LM_MAPPING
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Dropout:
                setattr(module, name, Dropout(child.p).train(child.training))
        # ModernBERT and its like keep the rate of their attention as a number, which ours takes from a module.
        rate = getattr(module, "attention_dropout", None)
        if ours and isinstance(rate, float) and not hasattr(module, "dropout"):
            module.dropout = Dropout(rate).train(module.training)
    if ours:
        model.set_attn_implementation(ATTENTION)


def dropout_rates(encoder: SentenceTransformer) -> dict[str, float]:
    """Return the highest rate over the ``hidden`` and over the ``attention`` sites; empty where there is no site."""
    rates: dict[str, float] = {}
    for site in dropout_sites(encoder):
        kind = "attention" if site.attention else "hidden"
        rates[kind] = max(rates.get(kind, 0.0), site.module.p)
    return rates


def set_dropout(encoder: SentenceTransformer, rate: float, attention: float | None = None) -> None:
    """Set the rate of every site; ``attention``, where given, is that of the attention sites."""
    attention = rate if attention is None else attention
    for value in (rate, attention):
        if not 0 <= value < 1:
            raise UserError(f"dropout rate {value} is out of range: give one from 0 up to, not including, 1")
    for site in dropout_sites(encoder):
        site.module.p = attention if site.attention else rate


@contextmanager
def dropout_rate(encoder: SentenceTransformer, rate: float, attention: float | None = None) -> Iterator[None]:
    """Set the rate of every site for the block, as ``set_dropout`` does, and restore the encoder's own rates."""
    own = [(site.module, site.module.p) for site in dropout_sites(encoder)]
    try:
        set_dropout(encoder, rate, attention)
        yield
    finally:
        for module, p in own:
            module.p = p


@contextmanager
def dropout_rows(
    encoder: SentenceTransformer, rates: tuple[float, ...], attention: tuple[float, ...] | None = None
) -> Iterator[None]:
    """Give each of ``len(rates)`` equal, consecutive shares of the rows of a batch its own rate, for the block."""
    model = transformer_of(encoder)
    if model is not None and model._can_set_attn_implementation():
        active = model.config._attn_implementation
        if active != ATTENTION:
            raise UserError(f"rates by row need the attention {ATTENTION!r}, not {active!r}: use two passes")
    sites = [(cast(Dropout, site.module), site.attention) for site in dropout_sites(encoder)]
    assert all(isinstance(module, Dropout) for module, _ in sites)
    try:
        for module, in_attention in sites:
            module.rows = attention if attention is not None and in_attention else rates
        yield
    finally:
        for module, _ in sites:
            module.rows = None
