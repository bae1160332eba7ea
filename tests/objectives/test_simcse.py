"""SimCSE against the authors' code and against its definition."""

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

from selfsent.encoder.dropout import dropout_rate
from selfsent.encoder.embed import collate, embed
from selfsent.encoder.mlm_head import word_embeddings
from selfsent.objectives.simcse import SimCSE
from selfsent.training.optimizer import MasterWeights

DTYPES = {"f64": (torch.float64, 1e-7, 1e-8), "f32": (torch.float32, 1e-4, 1e-5)}


def make(width=32, **changes):
    """The objective for embeddings of this width, which need no encoder to be worked on."""
    return SimCSE(SimCSE.Config(**changes), SentenceTransformer(modules=[Pooling(width, "cls")], device="cpu"))


@pytest.mark.parametrize("precision", DTYPES)
def test_the_loss_and_its_gradients_are_those_of_the_authors(golden, precision):
    values, (dtype, rtol, atol) = golden("simcse_loss"), DTYPES[precision]
    simcse = make(16, temperature=float(values["a_tau"])).to(dtype)
    linear = simcse.head[0]
    with torch.no_grad():
        linear.weight.copy_(torch.tensor(values["a_head_W"]))
        linear.bias.copy_(torch.tensor(values["a_head_b"]))
    z1, z2 = (torch.tensor(values[f"a_{name}"], dtype=dtype, requires_grad=True) for name in ("z1", "z2"))
    loss = simcse.terms(z1, z2)["contrast"]
    loss.backward()
    gradients = {"z1": z1.grad, "z2": z2.grad, "W": linear.weight.grad, "b": linear.bias.grad}
    for name, actual in {"loss": loss, **{f"grad_{key}": value for key, value in gradients.items()}}.items():
        expected = torch.tensor(values[f"a_withhead_{name}_{precision}"])
        torch.testing.assert_close(actual.detach(), expected, rtol=rtol, atol=atol)


def test_two_dropout_masks_make_the_two_views(encoder, batch):
    simcse = make()
    simcse(encoder, batch)
    assert simcse.figures()["view_cosine"] < 0.999
    simcse(encoder.eval(), batch)
    assert simcse.figures()["view_cosine"] == pytest.approx(1.0, abs=1e-6)


def with_masked_lm(encoder, weight=0.1, **changes):
    return SimCSE(SimCSE.Config(mlm_weight=weight, **changes), encoder)


def masked_lm_after(seed, simcse, encoder, batch):
    torch.manual_seed(seed)
    return simcse(encoder, batch)["masked_lm"]


def test_without_a_weight_the_masked_lm_costs_no_parameter_no_term_and_no_draw(encoder, batch):
    simcse = SimCSE(SimCSE.Config(), encoder)
    assert {name: tuple(p.shape) for name, p in simcse.named_parameters()} == {
        "head.0.weight": (32, 32),
        "head.0.bias": (32,),
    }
    torch.manual_seed(0)
    assert list(simcse(encoder, batch)) == ["contrast"]
    after = torch.rand(1)
    torch.manual_seed(0)
    embed(encoder, {name: tokens.repeat(2, 1) for name, tokens in batch["text"].items()})
    assert torch.equal(torch.rand(1), after)


def test_the_masked_lm_leaves_the_contrast_as_it_is(encoder, batch):
    torch.manual_seed(0)
    alone = SimCSE(SimCSE.Config(), encoder)
    contrast = alone(encoder, batch)["contrast"]
    torch.manual_seed(0)
    both = with_masked_lm(encoder)
    assert list(terms := both(encoder, batch)) == ["contrast", "masked_lm"]
    assert torch.equal(terms["contrast"], contrast)


def test_the_masked_lm_trains_its_head_and_through_the_tie_every_word_embedding(encoder, batch):
    simcse = with_masked_lm(encoder, mlm_probability=0.5)
    mine = {id(p) for p in simcse.parameters()}
    assert mine.isdisjoint(id(p) for p in encoder.parameters())
    masked_lm_after(0, simcse, encoder, batch).backward()
    assert all(p.grad is not None and p.grad.any() for p in simcse.mlm.parameters())
    gradient = word_embeddings(encoder).grad
    unread = encoder.tokenizer.unk_token_id  # in no text, so that only the projection can reach it
    assert unread not in batch["text"]["input_ids"]
    assert gradient.any(dim=1).all()


def test_a_batch_without_a_masked_word_gives_a_zero_that_keeps_the_graph(encoder):
    empty = {"text": collate(encoder, [[2, 3], [2, 3]])}
    simcse = with_masked_lm(encoder)
    term = masked_lm_after(0, simcse, encoder, empty)
    assert term.item() == 0.0
    term.backward()
    assert all(p.grad is not None and not p.grad.any() for p in simcse.mlm.parameters())


def test_the_masked_lm_survives_bf16_arithmetic_and_bf16_matrices(encoder, batch):
    simcse = with_masked_lm(encoder, weight=1.0, mlm_probability=0.5)
    with dropout_rate(encoder, 0.0):
        exact = masked_lm_after(0, simcse, encoder, batch)
        with torch.autocast("cpu", torch.bfloat16):
            rough = masked_lm_after(0, simcse, encoder, batch)
        masters = MasterWeights(torch.nn.ModuleList([encoder, simcse]))
        assert word_embeddings(encoder).dtype == torch.float32  # whose gradients are long sums
        with torch.autocast("cpu", torch.bfloat16):
            rounded = masked_lm_after(0, simcse, encoder, batch)
    for term in (rough, rounded):
        assert term.dtype == torch.float32
        torch.testing.assert_close(term, exact, rtol=0.02, atol=0.0)
    rounded.backward()
    masters.collect_gradients()
    matrices = {id(p): p for p in masters.parameters()}.values()
    assert all(p.grad is None or (p.grad.dtype == torch.float32 and p.grad.isfinite().all()) for p in matrices)
    assert sum(p.grad is not None for p in matrices) > 4
