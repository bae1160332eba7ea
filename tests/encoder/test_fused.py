"""Fused products against torch's own layers, in every family, and nothing of them left behind."""

import copy

import numpy as np
import pytest
import torch
from tiny import FAMILIES, TEXTS, make_base

from selfsent.encoder import batches as fused
from selfsent.encoder.embed import collate, embed
from selfsent.encoder.encode import encode
from selfsent.encoder.inspect import transformer_of
from selfsent.encoder.load import load_encoder


def cosines(a, b):
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def plain(encoder):
    with torch.no_grad():
        return embed(encoder.eval(), collate(encoder, encoder.tokenizer(TEXTS)["input_ids"])).numpy()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pooling", ["cls", "mean", "first_last"])
def test_fused_layers_give_what_plain_ones_give(family, pooling, tmp_path):
    encoder = load_encoder(make_base(tmp_path, family), pooling=pooling)
    assert fused.fused_products_fit(transformer_of(encoder), "cpu")
    exact = plain(encoder)
    np.testing.assert_allclose(encode(encoder, TEXTS, precision="fp32"), exact, atol=2e-6)
    assert cosines(encode(encoder, TEXTS, precision="bf16"), exact).min() > 0.999


def test_the_gelu_goes_into_the_product_where_the_family_keeps_them_together(encoder):
    model = transformer_of(encoder)
    seen = []
    layer = model.encoder.layer[0].intermediate
    handle = layer.intermediate_act_fn.register_forward_hook(lambda _, given, out: seen.append(given[0] is out))
    encode(encoder, TEXTS[:1], precision="fp32")
    handle.remove()
    assert seen == [True]


def test_another_activation_is_left_alone(encoder):
    model = transformer_of(encoder)
    for layer in model.encoder.layer:
        layer.intermediate.intermediate_act_fn = torch.nn.SiLU()
    np.testing.assert_allclose(encode(encoder, TEXTS, precision="fp32"), plain(encoder), atol=2e-6)


def test_a_processor_without_fused_products_in_bf16_computes_them_plainly(encoder, monkeypatch):
    exact = plain(encoder)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    monkeypatch.setattr("selfsent.encoder.batches.fused_products", None)
    assert cosines(encode(encoder, TEXTS, precision="bf16"), exact).min() > 0.999


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_and_layers_are_given_back_even_after_an_error(encoder, dtype):
    model = transformer_of(encoder)
    if not fused.fused_products_fit(model, "cpu", dtype):
        pytest.skip("this processor has no fused products in bf16")
    before, state = plain(encoder), copy.deepcopy(model.state_dict())
    with pytest.raises(RuntimeError), fused.fused_products(model, dtype):
        raise RuntimeError
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not [child for child in model.modules() if "forward" in vars(child)]
    np.testing.assert_array_equal(plain(encoder), before)


def test_double_precision_is_not_narrowed(encoder):
    assert not fused.fused_products_fit(transformer_of(encoder).double(), "cpu")
