"""Dropout at any rate, for each row, and attention: against loops and torch's own."""

import math

import pytest
import torch
from torch import nn

from selfsent.encoder import dropout
from selfsent.encoder.dropout import ATTENTION, Dropout, attend, dropout_rate, dropout_rows, dropout_sites
from selfsent.encoder.embed import collate, embed
from selfsent.encoder.inspect import transformer_of


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


def test_dropout_rates_are_set_everywhere_and_given_back_after_an_error(encoder):
    before = [site.module.p for site in dropout_sites(encoder)]
    with pytest.raises(RuntimeError, match="on the way"), dropout_rate(encoder, 0.3, attention=0.2):
        assert {site.module.p for site in dropout_sites(encoder) if site.attention} == {0.2}
        assert {site.module.p for site in dropout_sites(encoder) if not site.attention} == {0.3}
        raise RuntimeError("on the way")
    assert [site.module.p for site in dropout_sites(encoder)] == before


def test_rows_of_one_batch_can_have_rates_of_their_own(encoder, rows):
    tokens = collate(encoder, [rows[0]] * 6)
    encoder.eval()
    clean = embed(encoder, tokens)
    encoder.train()
    with dropout_rows(encoder, (0.0, 0.5)):
        noisy = embed(encoder, tokens)
    torch.testing.assert_close(noisy[:3], clean[:3])
    assert not torch.allclose(noisy[3:], clean[3:])
    assert all(site.module.rows is None for site in dropout_sites(encoder))


def test_dropout_keeps_the_mean_and_drops_at_its_rate_in_every_sixteen_bits_of_a_draw():
    torch.manual_seed(0)
    dropped = Dropout(0.155).train()(torch.ones(400_000))
    for lane in range(4):  # four elements share one 64-bit draw; the one with the sign bit must not differ
        share = (dropped[lane::4] == 0).double().mean().item()
        assert abs(share - 0.155) < 3 * (0.155 * 0.845 / 100_000) ** 0.5
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.005)
    assert dropped.max().item() == pytest.approx(1 / 0.845, rel=1e-3)
    seldom = (Dropout(2**-15).train()(torch.ones(2**20)) == 0).sum().item()  # the lowest rate: one of its levels
    assert abs(seldom - 32) < 5 * 32**0.5


def test_dropout_of_neighbours_is_independent():
    torch.manual_seed(0)
    kept = (Dropout(0.5).train()(torch.ones(400_000)) > 0).double()
    for shift in (1, 2, 3, 4):
        correlation = torch.corrcoef(torch.stack([kept[shift:], kept[:-shift]]))[0, 1].item()
        assert abs(correlation) < 4 / 400_000**0.5


def test_our_attention_equals_the_eager_one(encoder, rows):
    tokens = collate(encoder.eval(), rows)
    model = transformer_of(encoder)
    assert model.config._attn_implementation == ATTENTION
    ours = embed(encoder, tokens)
    model.set_attn_implementation("eager")
    torch.testing.assert_close(ours, embed(encoder, tokens), atol=1e-6, rtol=1e-5)


def test_attention_is_fused_where_the_device_is_no_cpu():
    assert [dropout.fused_attention_fits(device) for device in ("cpu", "cuda", "mps")] == [False, True, True]
    query = torch.empty(2, 3, 5, 4, device="meta")
    attended, weights = attend(Block(1.0), query, query, query, None)
    assert (attended.shape, weights) == ((2, 5, 3, 4), None)  # no weights of (T, T) were made


def test_fused_attention_equals_ours_and_drops_at_the_site_s_rate(encoder, rows, monkeypatch):
    tokens = collate(encoder.eval(), rows)
    ours = embed(encoder, tokens)
    calls = []
    fused = nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(dropout, "fused_attention_fits", lambda device: True)
    monkeypatch.setattr(
        nn.functional, "scaled_dot_product_attention", lambda *given, **k: calls.append(given[4]) or fused(*given, **k)
    )
    torch.testing.assert_close(embed(encoder, tokens), ours, atol=1e-6, rtol=1e-5)
    assert calls == [0.0, 0.0]  # two layers
    encoder.train()
    with dropout_rate(encoder, 0.0, attention=0.0):
        torch.testing.assert_close(embed(encoder, tokens), ours, atol=1e-6, rtol=1e-5)
    with dropout_rate(encoder, 0.0, attention=0.4):
        assert not torch.allclose(embed(encoder, tokens), ours, atol=1e-3)
    assert calls[2:] == [0.0, 0.0, 0.4, 0.4]
    with dropout_rows(encoder, (0.0, 0.5)):
        noisy = embed(encoder, tokens)
    assert len(calls) == 6  # rates by row are beyond it
    torch.testing.assert_close(noisy[:3], ours[:3], atol=1e-6, rtol=1e-5)


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
