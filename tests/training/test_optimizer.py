"""bf16 weights with fp32 copies take the steps that fp32 weights would take; rows of gradients join to whole ones."""

import copy

import pytest
import torch
from torch.optim import AdamW

from selfsent.encoder.embed import collate, embed
from selfsent.training import optimizer
from selfsent.training.optimizer import MasterWeights, row_gradients


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


@pytest.mark.parametrize("kind", [torch.nn.Embedding, torch.nn.EmbeddingBag])
def test_the_gradient_of_a_frequent_word_is_the_sum_over_all_its_places(kind):
    torch.manual_seed(0)
    module = torch.nn.Sequential(kind(2, 8), torch.nn.Linear(8, 8, bias=False))
    masters = MasterWeights(module)
    with torch.autocast("cpu", torch.bfloat16):
        states = module(torch.zeros(4096, 1, dtype=torch.long)).view(4096, 8)
    slope = torch.rand(4096, 8).bfloat16()
    states.backward(slope)
    masters.collect_gradients()
    table, matrix = masters.parameters()
    expected = (slope.double() @ matrix.detach().bfloat16().double()).sum(0)
    torch.testing.assert_close(table.grad[0].double(), expected, rtol=0.01, atol=0.01 * expected.abs().max().item())


def test_rows_of_a_large_table_are_joined_to_the_gradient_of_the_whole_table(encoder, rows, monkeypatch):
    tokens = collate(encoder.eval(), rows)
    plain = copy.deepcopy(encoder)
    monkeypatch.setattr(optimizer, "_LARGE_TABLE", 1)
    model = encoder[0].auto_model
    table = model.embeddings.position_embeddings.weight
    seen = []
    table.register_post_accumulate_grad_hook(lambda table: seen.append(table.grad.is_sparse))
    with row_gradients(encoder):
        for one in (encoder, plain):
            words = one[0].auto_model.get_input_embeddings().weight
            for _ in range(2):  # two backward passes, as of two batches that are accumulated
                (embed(one, tokens).square().sum() + embed(one, tokens).sum() + words[:3].sum()).backward()
    assert seen == [True, False]  # before it is joined; then rows are added to what is whole
    for one, other in zip(encoder.parameters(), plain.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None:
            torch.testing.assert_close(one.grad, other.grad, atol=1e-5, rtol=1e-5)
    assert not any(part.sparse for part in model.modules() if isinstance(part, torch.nn.Embedding))
    table.grad = None
    embed(encoder, tokens).sum().backward()
    assert not table.grad.is_sparse  # behind the block it is an encoder like any other


def test_rows_are_joined_to_the_same_bits_every_time(monkeypatch):
    monkeypatch.setattr(optimizer, "_LARGE_TABLE", 1)
    table = torch.nn.Embedding(5_000, 256)
    draw = torch.Generator().manual_seed(0)
    ids, slopes = torch.randint(5_000, (64, 100), generator=draw), torch.randn(64, 100, 256, generator=draw)

    def gradient(threads):
        torch.set_num_threads(threads)
        with row_gradients(table):
            ((table(ids) * slopes).sum() + (table(ids[:7]) * slopes[:7]).sum()).backward()
        grad, table.weight.grad = table.weight.grad, None
        return grad

    try:
        found = [gradient(threads) for threads in (1, 2, 2, 2)]
    finally:
        torch.set_num_threads(1)
    assert not found[0].is_sparse
    assert all(torch.equal(one, found[0]) for one in found)
