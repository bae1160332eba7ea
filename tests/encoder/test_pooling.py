"""Every pooling is its definition, as modules and in one pass with the others."""

import numpy as np
import pytest
import torch
from test_contract_encoder import POOLINGS, states
from tiny import FAMILIES, HARD, PROMPT, TEXTS, make_base
from transformers import AutoModel

from selfsent.encoder.assemble import quietly
from selfsent.encoder.embed import embed, embed_tokens
from selfsent.encoder.encode import encode
from selfsent.encoder.inspect import tokenizer_of
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import as_encoder
from selfsent.errors import UserError
from selfsent.runtime import hardware
from selfsent.training.optimizer import MasterWeights


@pytest.mark.parametrize("family", ["bert", "mpnet"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "first_last", "first_last_paper", "top2"])
def test_poolings_are_what_their_definition_says(family, pooling, tmp_path):
    folder = make_base(tmp_path, family)
    layers, mask, _ = states(folder, TEXTS)
    expected = POOLINGS[pooling](layers, mask).numpy()
    as_modules = encode(load_encoder(folder, pooling=pooling), TEXTS, precision="fp32")
    in_one_pass = as_encoder(load_encoder(folder)).embed_poolings(TEXTS, [pooling], precision="fp32")[pooling]
    np.testing.assert_allclose(as_modules, expected, atol=1e-5)
    np.testing.assert_allclose(in_one_pass, expected, atol=1e-5)


def test_cls_pooler_is_the_pretrained_dense_and_tanh(tmp_path):
    folder = make_base(tmp_path)
    with quietly():
        model = AutoModel.from_pretrained(folder)  # a random pooler, now saved as if it had been pretrained
        model.save_pretrained(folder)
    encoder = load_encoder(folder, pooling="cls_pooler")
    tokens = tokenizer_of(encoder)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = model.eval()(**tokens).pooler_output.numpy()
    np.testing.assert_allclose(encode(encoder, TEXTS, precision="fp32"), expected, atol=1e-5)


def test_a_pooler_that_was_never_trained_is_refused(bert):
    with pytest.raises(UserError, match="no pretrained pooler"):
        load_encoder(bert, pooling="cls_pooler")


@pytest.mark.parametrize("family", FAMILIES)
def test_prompt_pooling_is_the_state_of_the_mask_to_the_last_bit(family, tmp_path):
    encoder = load_encoder(make_base(tmp_path, family), pooling="prompt", template=PROMPT)
    tokens = encoder.tokenizer(HARD, padding=True, truncation=True, return_tensors="pt")
    tokens = {name: tokens[name] for name in ("input_ids", "attention_mask")}
    assert (tokens["input_ids"] == 4).sum(1).eq(1).all()

    def both():
        with torch.no_grad():
            states = embed_tokens(encoder, tokens).float()
            return embed(encoder, tokens), states[tokens["input_ids"] == 4]

    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            assert torch.equal(*both())
    with hardware.bf16_weights(encoder), torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(*both())
    masters = MasterWeights(encoder.train())
    assert not any(p is encoder[1].emb_layer.weight for p in masters.parameters())
    assert encoder[1].emb_layer.weight.dtype == torch.float32
    encoder.eval()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(*both())


def test_a_prompted_encoder_pools_the_mask_in_one_pass_with_the_others(prompted):
    whole = encode(prompted, HARD, precision="fp32")
    several = as_encoder(prompted).embed_poolings(HARD, ["cls", "prompt"], precision="fp32")
    np.testing.assert_allclose(several["prompt"], whole, atol=1e-6)
    assert abs(several["cls"] - whole).max() > 0.01
