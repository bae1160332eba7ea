"""SCD against the authors' code and against its own definition, worked out the slow way."""

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch.nn import functional as F

from selfsent.encoder.dropout import dropout_sites
from selfsent.encoder.embed import collate, embed
from selfsent.encoder.inspect import transformer_of
from selfsent.errors import UserError
from selfsent.objectives.scd import SCD

DTYPES = {"f64": (torch.float64, 1e-7, 1e-8), "f32": (torch.float32, 1e-4, 1e-5)}
ATTENTIONS = ["eager", "sdpa", "selfsent"]
LAYERS = {"W1": "0.weight", "b1": "0.bias", "W2": "3.weight", "W3": "6.weight"}
NORMS = {"bn1_weight": "1.weight", "bn1_bias": "1.bias", "bn2_weight": "4.weight", "bn2_bias": "4.bias"}


class Watched(SCD):
    """SCD that remembers the embeddings of its two views."""

    def terms(self, h, k):
        self.h, self.k = h.detach(), k.detach()
        return super().terms(h, k)


def make(width=32, **changes):
    """The objective for embeddings of this width, which need no encoder to be worked on."""
    encoder = SentenceTransformer(modules=[Pooling(width, "cls")], device="cpu")
    return Watched(Watched.Config(**{"projector_width": 8, **changes}), encoder)


def vectors(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def rates(encoder):
    return [(site.module.p, site.module.rows) for site in dropout_sites(encoder)]


# the loss


@pytest.mark.parametrize("case", ["a", "b"])
@pytest.mark.parametrize("precision", DTYPES)
def test_the_loss_and_its_gradients_are_those_of_the_authors(golden, precision, case):
    values, (dtype, rtol, atol) = golden("scd_loss"), DTYPES[precision]

    def get(name):
        return torch.tensor(values[f"{case}_{name}"])

    scd = make(
        16,
        projector_width=24,
        temperature=get("tau").item(),
        self_contrast_weight=get("w_S").item(),
        decorrelation_weight=get("beta").item(),
        off_diagonal_weight=get("lambda").item(),
    ).to(dtype)
    weights = dict(scd.projector.named_parameters())
    assert set(weights) == {*LAYERS.values(), *NORMS.values()}
    with torch.no_grad():
        for name, parameter in (LAYERS | NORMS).items():
            weights[parameter].copy_(get(name))
    h, k = (get(name).to(dtype).requires_grad_() for name in ("h_A", "h_B"))
    terms = scd.terms(h, k)
    total = sum(terms.values())
    total.backward()

    def close(actual, name):
        torch.testing.assert_close(actual.detach(), get(f"{name}_{precision}").to(dtype), rtol=rtol, atol=atol)

    close(terms["self_contrast"] / scd.config.self_contrast_weight, "self_contrast_over_tau")
    close(terms["decorrelation"] / scd.config.decorrelation_weight, "decorrelation")
    close(total, "total")
    close(h.grad, "grad_hA")
    close(k.grad, "grad_hB")
    if precision == "f64":
        for name, parameter in (LAYERS | NORMS).items():
            close(weights[parameter].grad, f"grad_{name}")


def test_figures_are_the_means_over_views_and_matrix():
    scd, h, k = make().double(), vectors(6, 32), vectors(6, 32, seed=1)
    scd.terms(h, k)
    a, b = (F.batch_norm(scd.projector(view), None, None, training=True) for view in (h, k))
    matrix = a.mT @ b / 6
    apart = matrix[~torch.eye(8, dtype=torch.bool)]
    expected = {
        "view_cosine": F.cosine_similarity(h, k).mean().item(),
        "correlation_diagonal": matrix.diagonal().mean().item(),
        "correlation_off_diagonal_rms": apart.square().mean().sqrt().item(),
    }
    assert scd.figures() == pytest.approx(expected)


def test_the_projector_has_the_published_size():
    scd = make(768, projector_width=4096)
    assert sum(p.numel() for p in scd.parameters()) == 36_720_640


def test_one_text_is_refused():
    with pytest.raises(ValueError, match="at least 2 rows, got 1"):
        make().terms(torch.ones(1, 32), torch.ones(1, 32))


# the two views


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("site", ["attention", "hidden"])
def test_a_view_without_dropout_is_the_evaluated_one(encoder, batch, attention, site):
    transformer_of(encoder).set_attn_implementation(attention)
    changes = (
        {"dropout_low": 0.0, "dropout_high": 0.0, "attention_low": 0.0, "attention_high": 0.5}
        if site == "attention"
        else {"dropout_low": 0.0, "dropout_high": 0.5, "attention_low": 0.0, "attention_high": 0.0}
    )
    scd = make(**changes)
    with torch.no_grad():
        scd(encoder, batch)
        evaluated = embed(encoder.eval(), batch["text"])
    assert torch.equal(scd.h, evaluated)
    assert (scd.k - evaluated).abs().max() > 0.01


@pytest.mark.parametrize("passes", ["two", "one"])
def test_the_encoder_gets_its_own_rates_back_even_from_a_failed_step(encoder, batch, passes):
    before = rates(encoder)
    assert {rate for rate, _ in before} == {0.1}
    make(passes=passes)(encoder, batch)
    assert rates(encoder) == before
    broken = {"text": {**batch["text"], "input_ids": batch["text"]["input_ids"] + 10_000}}
    with pytest.raises(IndexError):
        make(passes=passes)(encoder, broken)
    assert rates(encoder) == before


@pytest.mark.parametrize(("attention", "passes"), [("eager", "two"), ("selfsent", "two"), ("selfsent", "one")])
def test_activations_are_dropped_as_often_as_the_rates_say(encoder, rows, attention, passes):
    model = transformer_of(encoder)
    model.set_attn_implementation(attention)
    zeros = {"hidden": [], "attention": []}  # for each site and view the (zeros, elements)

    def count(kind, dropped):
        for view in range(2 if passes == "one" else 1):
            ours = dropped.chunk(2)[view] if passes == "one" else dropped
            zeros[kind].append(((ours == 0).sum().item(), ours.numel()))

    for site in dropout_sites(encoder):
        if not site.attention:
            site.module.register_forward_hook(lambda module, inputs, output: count("hidden", output))
    for module in model.modules():
        if hasattr(module, "query"):  # eager attention drops by function; the weights it returns are the dropped ones
            module.register_forward_hook(lambda module, inputs, output: count("attention", output[1]))
    many = collate(encoder, [rows[0]] * 48)  # of one length: a weight on padding would be 0 without dropout
    torch.manual_seed(0)
    scd = make(dropout_low=0.1, dropout_high=0.3, attention_low=0.2, attention_high=0.45, passes=passes)
    with torch.no_grad():
        scd(encoder, {"text": many})
    for kind, expected in {"hidden": (0.1, 0.3), "attention": (0.2, 0.45)}.items():
        counts, half = zeros[kind], len(zeros[kind]) // 2
        views = (counts[0::2], counts[1::2]) if passes == "one" else (counts[:half], counts[half:])
        for view, rate in zip(views, expected, strict=True):
            dropped, total = (sum(column) for column in zip(*view, strict=True))
            assert abs(dropped / total - rate) < 3 * (rate * (1 - rate) / total) ** 0.5


def test_one_pass_is_refused_under_an_attention_that_takes_one_rate(encoder, batch):
    transformer_of(encoder).set_attn_implementation("eager")
    with pytest.raises(UserError, match="use two passes"):
        make(passes="one")(encoder, batch)


def test_sdpa_attention_drops_at_the_rate_of_the_view(encoder, batch):  # where no hook can count
    transformer_of(encoder).set_attn_implementation("sdpa")
    distance = []
    for rate in (0.05, 0.5):
        scd = make(dropout_low=0.0, dropout_high=0.0, attention_low=0.0, attention_high=rate)
        torch.manual_seed(0)
        with torch.no_grad():
            scd(encoder, batch)
        distance.append((scd.h - scd.k).norm().item())
    assert distance[1] > 2 * distance[0] > 0


# the config
