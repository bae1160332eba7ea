"""Whether an encoder's dropout can be set, probed before training."""

import pytest
from tiny import FAMILIES, make_base
from torch import nn
from transformers import ModernBertConfig, ModernBertForMaskedLM

from selfsent.encoder.checks import require_dropout
from selfsent.encoder.dropout import dropout_rates
from selfsent.encoder.inspect import tokenizer_of
from selfsent.encoder.load import load_encoder, quietly
from selfsent.errors import UserError


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_opens_and_its_dropout_is_reached(family, tmp_path):
    encoder = load_encoder(make_base(tmp_path, family), pooling="mean")
    require_dropout(encoder)
    assert dropout_rates(encoder) == {"hidden": 0.1, "attention": 0.1}
    assert not [module for module in encoder.modules() if type(module) is nn.Dropout]


def test_a_family_whose_dropout_is_out_of_reach_is_refused_by_name(bert, tmp_path):
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    tokens = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
    config = ModernBertConfig(
        vocab_size=39, **size, **tokens, attention_dropout=0.1, embedding_dropout=0.1, mlp_dropout=0.1
    )
    with quietly():
        ModernBertForMaskedLM(config).save_pretrained(tmp_path)
    tokenizer_of(load_encoder(bert)).save_pretrained(tmp_path)
    encoder = load_encoder(tmp_path, pooling="cls")
    with pytest.raises(UserError, match="dropout of a 'modernbert' encoder"):
        require_dropout(encoder)
