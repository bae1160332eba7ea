"""SimCSE against the authors' code and against its definition."""

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

from selfsent.encoder import dropout, embed
from selfsent.methods.simcse import SimCSE

DTYPES = {"f64": (torch.float64, 1e-7, 1e-8), "f32": (torch.float32, 1e-4, 1e-5)}


def make(width=32, **changes):
    """The objective for embeddings of this width, which need no encoder to be worked on."""
    return SimCSE(
        SimCSE.Config(**changes), SentenceTransformer(modules=[Pooling(width, "cls")], device="cpu")
    )


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


def test_the_loss_contrasts_the_head_s_outputs_one_way(encoder, batch):
    simcse = make(temperature=0.2)
    with dropout(encoder, 0.0):
        loss = simcse(encoder, batch)["contrast"]
        z = simcse.head(embed(encoder, batch["text"]))
    cosines = torch.nn.functional.cosine_similarity(z[:, None], z[None], dim=-1)
    expected = -(cosines / 0.2).log_softmax(-1).diagonal().mean()
    torch.testing.assert_close(loss, expected)


def test_two_dropout_masks_make_the_two_views(encoder, batch):
    simcse = make()
    simcse(encoder, batch)
    assert simcse.figures()["view_cosine"] < 0.999
    simcse(encoder.eval(), batch)
    assert simcse.figures()["view_cosine"] == pytest.approx(1.0, abs=1e-6)


def test_the_head_is_exported_only_if_asked():
    assert make().exported_head() is None
    simcse = make(eval_head=True)
    assert simcse.exported_head() is simcse.head[0]
