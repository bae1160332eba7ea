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
