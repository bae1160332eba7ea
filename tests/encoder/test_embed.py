"""From rows of tokens to embeddings with gradients."""

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tiny import FAMILIES, TEXTS, masked_language_model

from selfsent.encoder.dropout import dropout_rate
from selfsent.encoder.embed import collate, embed, embed_columns, embed_inputs
from selfsent.encoder.inspect import transformer_of
from selfsent.encoder.load import load_encoder
from selfsent.errors import UserError


def test_more_padding_changes_no_vector(encoder, rows):
    encoder.eval()
    tokens = collate(encoder, rows)
    wider = {
        name: torch.cat([column, torch.zeros(len(rows), 9, dtype=torch.long)], 1) for name, column in tokens.items()
    }
    torch.testing.assert_close(embed(encoder, tokens), embed(encoder, wider), atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_embedded_inputs_are_the_states_before_the_first_layer(family, tmp_path):
    masked_language_model(tmp_path, family)
    encoder = load_encoder(tmp_path)
    tokens = collate(encoder, encoder.tokenizer(TEXTS)["input_ids"])
    with torch.no_grad():
        states = embed_inputs(encoder, tokens)
        expected = transformer_of(encoder)(**tokens, output_hidden_states=True).hidden_states[0]
    real = tokens["attention_mask"].bool()  # DeBERTa's are zero at padding, which no other token sees
    torch.testing.assert_close(states[real], expected[real])


def test_a_family_without_an_embedding_layer_of_its_own_is_refused(bert, batch):
    static = SentenceTransformer(modules=[Pooling(32, "cls")], device="cpu")
    with pytest.raises(UserError, match="a 'Pooling' encoder has no embedding layer of its own"):
        embed_inputs(static, batch["text"])


def test_two_views_in_one_pass_are_two_passes(encoder, batch):
    encoder.double()
    with dropout_rate(encoder, 0.0):
        first, second = embed_columns(encoder, batch, ("text", "text"))
        (first * 2 + second).sum().backward()
        together = [p.grad.clone() for p in encoder.parameters() if p.grad is not None]
        encoder.zero_grad()
        apart = [embed(encoder, batch["text"]) for _ in range(2)]
        (apart[0] * 2 + apart[1]).sum().backward()
    torch.testing.assert_close(torch.stack((first, second)), torch.stack(apart), rtol=0, atol=1e-6)
    alone = [p.grad for p in encoder.parameters() if p.grad is not None]
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
