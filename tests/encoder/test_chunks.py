"""Passes in chunks: the gradients of one pass, dropout included, for every method that embeds sentences."""

import numpy as np
import pytest
import torch
from tiny import TEXTS

from selfsent.encoder import embed as chunks
from selfsent.encoder.dropout import set_dropout
from selfsent.encoder.embed import collate
from selfsent.encoder.load import load_encoder
from selfsent.objectives import registry
from selfsent.objectives.base import Examples

METHODS = {
    "simcse": {"mlm_weight": 0.1, "mlm_probability": 0.4},
    "scd": {"projector_width": 16},
    "whitenedcse": {},
    "denosent": {"decoder_layers": 2, "decoder_width": 32},
    "distil": {},
    "simcse+whitenedcse": {},
}


def gradients(folder, method, settings, dropout, size):
    """The terms of one batch, and the gradients of encoder and heads, in double precision."""
    encoder = load_encoder(folder, pooling="cls").train()
    torch.manual_seed(3)
    given = settings | ({"teacher": str(folder)} if method == "distil" else {})
    objective = registry.plan_objective(method, given).build(encoder)
    encoder.double(), objective.double()
    if dropout is not None:
        set_dropout(encoder, dropout)
    rows = encoder.tokenizer(TEXTS)["input_ids"] + encoder.tokenizer(TEXTS[::-1])["input_ids"][:1]
    columns = objective.views(Examples(rows, rows[::-1], lambda i: np.random.default_rng(i)))
    batch = {name: collate(encoder, column) for name, column in columns.items()}
    torch.manual_seed(5)
    with chunks.chunked(size):
        terms = objective(encoder, batch)
        torch.stack(list(terms.values())).sum().backward()
    both = [*encoder.named_parameters(), *objective.named_parameters()]
    return terms, {name: parameter.grad for name, parameter in both if parameter.grad is not None}


def same(one, other):
    assert one[1].keys() == other[1].keys()
    for name, term in one[0].items():
        torch.testing.assert_close(term, other[0][name], rtol=1e-10, atol=1e-10)
    for name, gradient in one[1].items():
        torch.testing.assert_close(gradient, other[1][name], rtol=1e-8, atol=1e-8, msg=name)


@pytest.mark.filterwarnings("ignore:dropout_low 0.0 is not below")
@pytest.mark.parametrize("size", [1, 3, 7])
@pytest.mark.parametrize("method", METHODS)
def test_chunks_give_the_gradients_of_the_whole_batch(method, size, bert):
    settings = METHODS[method] | ({"decoder_dropout": 0.0, "noise": 0.0} if method == "denosent" else {})
    settings |= {"dropout_low": 0.0, "dropout_high": 0.0} if method == "scd" else {}
    same(gradients(bert, method, settings, 0.0, size), gradients(bert, method, settings, 0.0, None))


@pytest.mark.parametrize("passes", ["one", "two"])
@pytest.mark.parametrize("method", METHODS)
def test_a_chunk_that_is_computed_again_has_the_dropout_of_the_first_time(method, passes, bert, monkeypatch):
    settings = METHODS[method] | ({"passes": passes} if method == "scd" else {})
    found = gradients(bert, method, settings, None, 3)
    # The same chunks in one graph, nothing computed twice.
    monkeypatch.setattr(chunks, "checkpoint", lambda run, *given, use_reentrant: run(*given))
    same(found, gradients(bert, method, settings, None, 3))


def test_one_chunk_is_the_plain_step(bert):
    found, plain = (gradients(bert, "simcse", METHODS["simcse"], None, size) for size in (7, None))
    assert all(torch.equal(found[1][name], plain[1][name]) for name in plain[1])


def test_only_one_chunk_has_a_graph_at_a_time(bert):
    encoder = load_encoder(bert, pooling="cls").train()
    rows = encoder.tokenizer(TEXTS)["input_ids"]
    alive = most = 0

    def kept(tensor):
        nonlocal alive, most
        alive += tensor.numel()
        most = max(most, alive)
        return Held(tensor)

    class Held:
        def __init__(self, tensor):
            self.tensor = tensor

        def __del__(self):
            nonlocal alive
            alive -= self.tensor.numel()

    sizes = {}
    objective = registry.plan_objective("simcse", {}).build(encoder)
    for size in (None, 1):
        alive = most = 0
        with torch.autograd.graph.saved_tensors_hooks(kept, lambda held: held.tensor), chunks.chunked(size):
            sum(objective(encoder, {"text": collate(encoder, rows)}).values()).backward()
        sizes[size] = most
    assert sizes[1] < sizes[None] / 3
