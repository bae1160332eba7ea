"""Every setting of ``encoder`` does what it says to the encoder that a run trains and saves."""

import pytest
import torch
from contract import Contracts, build, write_lines
from tiny import PROMPT, TEXTS, make_base
from torch import nn
from transformers import AutoModel, AutoTokenizer

from selfsent.config import EncoderConfig
from selfsent.encoder.save import save_encoder

contract = Contracts()


def test_every_setting_has_a_contract():
    assert contract.missing({"encoder": EncoderConfig}) == []


@pytest.fixture
def opened(bert, tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    text = write_lines(tmp_path / "text.txt", 20)

    def opened(base=bert, **settings):
        return build(monkeypatch, tmp_path, base, text, encoder=settings, train={"batch_size": 8}).encoder

    return opened


def states(folder, texts, limit=64):
    """Return the hidden states of all layers by transformers, and which tokens are text."""
    tokens = AutoTokenizer.from_pretrained(folder)(
        texts, padding=True, truncation=True, max_length=limit, return_tensors="pt"
    )
    with torch.no_grad():
        layers = AutoModel.from_pretrained(folder).eval()(**tokens, output_hidden_states=True).hidden_states
    return layers, tokens["attention_mask"][..., None].float(), tokens["input_ids"]


def mean(layer, mask):
    return (layer * mask).sum(1) / mask.sum(1)


POOLINGS = {
    None: lambda layers, mask: mean(layers[-1], mask),
    "mean": lambda layers, mask: mean(layers[-1], mask),
    "cls": lambda layers, mask: layers[-1][:, 0],
    "first_last": lambda layers, mask: mean((layers[1] + layers[-1]) / 2, mask),
    "first_last_paper": lambda layers, mask: mean((layers[0] + layers[-1]) / 2, mask),
    "top2": lambda layers, mask: mean((layers[-2] + layers[-1]) / 2, mask),
}


@contract("encoder", "pooling")
@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooling(pooling, opened, tmp_path):
    base = make_base(tmp_path / "base", layers=3)
    layers, mask, _ = states(base, TEXTS)
    found = torch.from_numpy(opened(base, pooling=pooling).eval().encode(TEXTS))
    assert torch.allclose(found, POOLINGS[pooling](layers, mask), atol=1e-4)


@contract("encoder", "template")
@pytest.mark.parametrize("template", [PROMPT, "the [X] [MASK] moon"])
def test_template(template, opened, bert):
    filled = [template.replace("[X]", text) for text in TEXTS]
    layers, _, ids = states(bert, filled)
    found = torch.from_numpy(opened(pooling="prompt", template=template).eval().encode(TEXTS))
    assert torch.allclose(found, layers[-1][ids == 4], atol=1e-4)


@contract("encoder", "dropout")
@pytest.mark.parametrize(("dropout", "rate"), [(None, 0.1), (0.3, 0.3)])
def test_dropout(dropout, rate, opened):
    encoder = opened(dropout=dropout)
    assert {module.p for module in encoder.modules() if isinstance(module, nn.Dropout)} == {rate}


@contract("encoder", "max_length")
@pytest.mark.parametrize(("settings", "limit"), [({}, 64), ({"max_length": 6}, 6)])
def test_max_length(settings, limit, opened, bert, tmp_path):
    encoder, texts = opened(**settings), [" ".join(TEXTS), " ".join(TEXTS[::-1])]
    layers, mask, _ = states(bert, texts, limit)
    assert torch.allclose(torch.from_numpy(encoder.eval().encode(texts)), mean(layers[-1], mask), atol=1e-4)
    saved = save_encoder(encoder, tmp_path / "saved")
    assert saved is None
    assert AutoTokenizer.from_pretrained(tmp_path / "saved") is not None
    assert type(encoder)(str(tmp_path / "saved"), device="cpu").max_seq_length == limit
