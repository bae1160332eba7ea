"""bf16 weights with fp32 copies take the steps that fp32 weights would take."""

import copy

import torch
from torch.optim import AdamW

from selfsent.encoder.embed import collate, embed
from selfsent.optimizer import MasterWeights


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
        every = [torch.cat([g.flatten() for g in side]) for side in zip(*seen, strict=True)]
        assert (every[0] - every[1]).norm() < 1e-6 * every[1].norm()
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
    tables = {id(part.weight) for part in encoder.modules() if isinstance(part, torch.nn.Embedding)}
    for working, master in zip(encoder.parameters(), masters.parameters(), strict=True):
        assert torch.equal(working, master.to(working.dtype))
        low = working.ndim >= 2 and id(working) not in tables
        assert working.dtype == (torch.bfloat16 if low else torch.float32)


def test_the_gradient_of_a_frequent_word_is_the_sum_over_all_its_places():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Embedding(2, 8), torch.nn.Linear(8, 8, bias=False))
    masters = MasterWeights(module)
    with torch.autocast("cpu", torch.bfloat16):
        states = module(torch.zeros(4096, dtype=torch.long))
    slope = torch.rand(4096, 8).bfloat16()
    states.backward(slope)
    masters.collect_gradients()
    table, matrix = masters.parameters()
    expected = (slope.double() @ matrix.detach().bfloat16().double()).sum(0)
    torch.testing.assert_close(table.grad[0].double(), expected, rtol=0.01, atol=0.01 * expected.abs().max().item())
