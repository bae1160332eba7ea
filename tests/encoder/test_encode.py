"""Texts to a matrix: in order, without dropout, with a folder's prompts, in bf16 or fp32."""

import numpy as np
import torch
from tiny import TEXTS

from selfsent.encoder.encode import encode


def test_encode_keeps_the_order_and_does_not_depend_on_the_batch(encoder, monkeypatch):
    texts = [*TEXTS, "", "rain " * 40]
    together = encode(encoder, texts, precision="fp32")
    alone = np.concatenate([encode(encoder, [text], precision="fp32") for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    for budget in (1, 64):
        monkeypatch.setattr("selfsent.encoder.encode._TOKENS_A_BATCH", budget)
        np.testing.assert_allclose(encode(encoder, texts, precision="fp32"), together, atol=1e-5)


def test_encode_runs_without_dropout_and_gives_the_mode_back(encoder):
    encoder.train()
    first, second = (encode(encoder, TEXTS, precision="fp32") for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert encoder.training
    assert not encode(encoder.eval(), []).size
    assert not encoder.training


def test_bf16_agrees_with_fp32_and_leaves_the_weights_alone(encoder):
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    exact = encode(encoder, TEXTS, precision="fp32")
    low = encode(encoder, TEXTS, precision="bf16")
    cosine = (exact * low).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(low, axis=1)
    assert cosine.min() > 0.999
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
