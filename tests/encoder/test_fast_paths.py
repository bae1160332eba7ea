"""What training does fast equals what is slow and plain: values and gradients, against loops and torch's own."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.optim import AdamW

from selfsent.encoder.dropout import Dropout, attend, dropout_rate
from selfsent.encoder.embed import collate, embed, embed_columns
from selfsent.optimizer import MasterWeights


class Block(nn.Module):
    """An attention block as far as ``attend`` looks at it."""

    def __init__(self, kept):
        super().__init__()
        self.dropout = Dropout(0.25)
        self.dropout.forward = lambda weights: weights * kept  # a mask that is known


def attention_by_loops(query, key, value, mask, kept, scaling):
    rows = []
    for n in range(query.shape[0]):
        for head in range(query.shape[1]):
            for place in range(query.shape[2]):
                scores = [scaling * (query[n, head, place] * k).sum() for k in key[n, head]]
                scores = torch.stack([s + m for s, m in zip(scores, mask[n, 0, place], strict=True)])
                weights = (scores - scores.logsumexp(0)).exp() * kept[n, head, place]
                rows.append((weights[:, None] * value[n, head]).sum(0))
    return torch.stack(rows).view_as(query).transpose(1, 2)


@pytest.mark.parametrize("scaling", [None, 0.3])
def test_attention_and_its_gradients_are_those_of_loops(scaling):
    torch.manual_seed(0)
    shape = (2, 3, 5, 4)  # (N, H, T, K), laid out as transformers hands them over
    given = [torch.randn(2, 5, 3, 4, dtype=torch.float64).transpose(1, 2).requires_grad_() for _ in range(3)]
    mask = torch.zeros(2, 1, 5, 5, dtype=torch.float64)
    mask[1, :, :, 3:] = torch.finfo(torch.float64).min
    kept = (torch.rand(2, 3, 5, 5) > 0.25).double() / 0.75
    slope = torch.randn(2, 5, 3, 4, dtype=torch.float64)

    found, _ = attend(Block(kept).train(), *given, mask, scaling)
    fast = torch.autograd.grad((found * slope).sum(), given)
    expected = attention_by_loops(*given, mask, kept, scaling or shape[-1] ** -0.5)
    slow = torch.autograd.grad((expected * slope).sum(), given)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)  # its softmax is in fp32, whatever comes in
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-6)


def test_attention_in_bf16_is_that_in_double_precision_within_its_rounding():
    torch.manual_seed(1)
    exact = [torch.randn(4, 9, 2, 32, dtype=torch.float64).transpose(1, 2).requires_grad_() for _ in range(3)]
    rough = [x.detach().bfloat16().requires_grad_() for x in exact]
    slope = torch.randn(4, 9, 2, 32, dtype=torch.float64)
    kept = torch.ones(4, 2, 9, 9, dtype=torch.float64)
    expected = attention_by_loops(*exact, torch.zeros(4, 1, 9, 9), kept, 32**-0.5)
    found, _ = attend(Block(1.0).train(), *rough, None)
    torch.testing.assert_close(found.double(), expected, rtol=0.02, atol=0.02)
    slow = torch.autograd.grad((expected * slope).sum(), exact)
    fast = torch.autograd.grad((found * slope).sum(), rough)
    for one, other in zip(fast, slow, strict=True):
        error = (one.double() - other).norm() / other.norm()
        assert error < 0.02  # bf16 keeps 8 bits: 0.4 % a rounding, several of them


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rates", [None, (0.05, 0.155, 0.5)])
def test_dropout_is_a_mask_of_nothing_and_the_inverse_of_what_is_kept_forth_and_back(dtype, rates):
    site = Dropout(0.1).train()
    site.rows = rates
    each = rates or (0.1,) * 3
    torch.manual_seed(3)
    x = (torch.rand(6, 50, 7) + 0.5).to(dtype).requires_grad_()
    found = site(x)
    slope = torch.randn_like(found)
    (gradient,) = torch.autograd.grad(found, x, slope)
    for share, rate in enumerate(each):
        rows = slice(2 * share, 2 * share + 2)
        mask = (found[rows] != 0).to(dtype)
        level = 2**15 / (2**15 - round(rate * 2**15))  # the rate that 15 bits can say
        scale = torch.tensor(level, dtype=dtype)
        assert torch.equal(found[rows], x[rows] * (mask * scale))
        assert torch.equal(gradient[rows], slope[rows] * (mask * scale))
        assert math.isclose(1 - mask.double().mean().item(), rate, abs_tol=0.06)


def test_master_weights_give_the_gradients_of_autocast_and_take_the_steps_of_adam(encoder, rows):
    tokens = collate(encoder, rows)
    plain = copy.deepcopy(encoder)
    masters = MasterWeights(encoder)
    fast = AdamW(masters.parameters(), lr=1e-2)
    slow = AdamW(plain.parameters(), lr=1e-2)
    slope = torch.randn(len(rows), 32, generator=torch.Generator().manual_seed(0))
    for step in range(3):
        for model in (encoder, plain):
            torch.manual_seed(step)  # the same dropout
            with torch.autocast("cpu", torch.bfloat16):
                embeddings = embed(model, tokens)
            (embeddings * slope).sum().backward()
        masters.collect_gradients()
        pairs = list(zip(masters.parameters(), plain.parameters(), strict=True))
        seen = [(one.grad, other.grad) for one, other in pairs if other.grad is not None]
        assert len(seen) > 20
        # Autocast leaves the tables of embeddings in fp32, so that the first layer reads other values: by 1 in 256.
        every = [torch.cat([g.flatten() for g in side]) for side in zip(*seen, strict=True)]
        assert (every[0] - every[1]).norm() < 0.02 * every[1].norm()
        for one, other in pairs:
            if other.grad is not None:
                one.grad = other.grad.clone()  # from here on the optimizer alone is compared
        fast.step()
        slow.step()
        fast.zero_grad()
        slow.zero_grad()
        masters.publish()
        for one, other in pairs:
            assert torch.equal(one, other)
    for working, master in zip(encoder.parameters(), masters.parameters(), strict=True):
        assert torch.equal(working, master.to(working.dtype))
        assert working.dtype == (torch.bfloat16 if working.ndim >= 2 else torch.float32)


def test_two_views_in_one_pass_are_two_passes(encoder, batch):
    encoder.double()
    with dropout_rate(encoder, 0.0):
        first, second = embed_columns(encoder, batch, ("text", "text"))
        (first * 2 + second).sum().backward()
        together = [p.grad.clone() for p in encoder.parameters() if p.grad is not None]
        encoder.zero_grad()
        apart = [embed(encoder, batch["text"]) for _ in range(2)]
        (apart[0] * 2 + apart[1]).sum().backward()
    torch.testing.assert_close(torch.stack((first, second)), torch.stack(apart), rtol=0, atol=1e-6)
    alone = [p.grad for p in encoder.parameters() if p.grad is not None]
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
