"""The masked-LM head and the masking of tokens, against transformers' own."""

import shutil

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tiny import FAMILIES, TEXTS, make_base, make_tokenizer, masked_language_model
from transformers import AutoModel, AutoModelForMaskedLM

from selfsent.encoder.assemble import quietly
from selfsent.encoder.embed import collate, embed_tokens
from selfsent.encoder.inspect import mask_id
from selfsent.encoder.load import load_encoder
from selfsent.encoder.mlm_head import load_mlm_head, mask_tokens, word_embeddings
from selfsent.errors import UserError


@pytest.mark.parametrize("family", FAMILIES)
def test_the_mlm_head_gives_the_logits_and_the_loss_of_the_family_s_own_masked_lm(family, tmp_path):
    reference = masked_language_model(tmp_path, family)
    encoder = load_encoder(tmp_path, pooling="first_last")
    tokens = collate(encoder, encoder.tokenizer(TEXTS)["input_ids"])
    torch.manual_seed(0)
    masked, chosen = mask_tokens(encoder, tokens, 0.5)
    with torch.no_grad():
        expected = reference(**masked, labels=tokens["input_ids"].masked_fill(~chosen, -100))
        states, words = embed_tokens(encoder, masked)[chosen], word_embeddings(encoder)
        head = load_mlm_head(encoder)
        torch.testing.assert_close(head(states, words), expected.logits[chosen], atol=1e-5, rtol=1e-5)
        loss = head.loss(states, words, tokens["input_ids"][chosen])
    torch.testing.assert_close(loss, expected.loss, atol=1e-5, rtol=0)


def test_the_mlm_head_has_no_matrix_as_large_as_the_vocabulary(encoder):
    shapes = {name: tuple(p.shape) for name, p in load_mlm_head(encoder).named_parameters()}
    assert shapes == {
        "dense.weight": (32, 32),
        "dense.bias": (32,),
        "norm.weight": (32,),
        "norm.bias": (32,),
        "bias": (len(encoder.tokenizer),),
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_without_an_mlm_head_gets_a_fresh_one_and_says_so(family, tmp_path):
    with quietly():
        AutoModel.from_pretrained(make_base(tmp_path / "whole", family)).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    encoder = load_encoder(tmp_path, pooling="mean")
    with pytest.warns(UserWarning, match="holds no masked-LM head: a fresh one"):
        head = load_mlm_head(encoder)
    usual = {"modernbert": 0.02 / (2 * 2) ** 0.5}.get(family, 0.02)  # which divides by the root of twice its layers
    assert head.dense.weight.std().item() == pytest.approx(usual, rel=0.15)
    assert not head.bias.any()


def test_the_built_in_encoder_brings_its_mlm_head_and_guesses_with_it():
    encoder = load_encoder("builtin-mlm")
    text = encoder.tokenizer("the capital of france is the city of paris .")["input_ids"]
    tokens = collate(encoder, [text])
    place = text.index(encoder.tokenizer.convert_tokens_to_ids(encoder.tokenizer.tokenize(" of")[0]))
    truth = tokens["input_ids"][0, place].item()
    tokens["input_ids"][0, place] = encoder.tokenizer.mask_token_id
    with torch.no_grad():
        state = embed_tokens(encoder, tokens)[0, place : place + 1]
        logits = load_mlm_head(encoder)(state, word_embeddings(encoder))
    assert logits.argmax().item() == truth


def test_an_encoder_that_cannot_have_an_mlm_head_is_refused(bert, tmp_path):
    static = SentenceTransformer(modules=[Pooling(32, "cls")], device="cpu")
    with pytest.raises(UserError, match=r"static vectors are trained with objective\.mlm_weight=0"):
        load_mlm_head(static)

    gone = load_encoder(shutil.copytree(bert, tmp_path / "gone"))
    shutil.rmtree(tmp_path / "gone")
    with pytest.raises(UserError, match=r"cannot open .*gone"):
        load_mlm_head(gone)

    with quietly():
        untied = AutoModelForMaskedLM.from_pretrained(bert, tie_word_embeddings=False)
        untied.save_pretrained(shutil.copytree(bert, tmp_path / "untied"))
    with pytest.raises(UserError, match=r"the masked-LM head of '.*untied' \(bert\) is not one dense layer"):
        load_mlm_head(load_encoder(tmp_path / "untied"))


def test_masking_keeps_its_rates_and_spares_special_tokens_and_padding(encoder):
    vocabulary, special = len(encoder.tokenizer), set(encoder.tokenizer.all_special_ids)
    words = np.setdiff1d(np.arange(vocabulary), list(special))
    lengths = np.random.default_rng(0).integers(0, 40, 10_000)
    texts = [[2, *np.random.default_rng(n).choice(words, n).tolist(), 3] for n in lengths]
    tokens = collate(encoder, texts)
    torch.manual_seed(0)
    masked, chosen = mask_tokens(encoder, tokens, 0.15)
    before, after = tokens["input_ids"], masked["input_ids"]

    assert torch.equal(masked["attention_mask"], tokens["attention_mask"])
    assert torch.equal(before, collate(encoder, texts)["input_ids"])
    assert torch.equal(after[~chosen], before[~chosen])
    assert special.isdisjoint(before[chosen].tolist())
    assert tokens["attention_mask"][chosen].all()

    def within_three_sigma(count, rate, draws):
        return abs(count - rate * draws) < 3 * (draws * rate * (1 - rate)) ** 0.5

    hidden = int(chosen.sum())
    assert within_three_sigma(hidden, 0.15, lengths.sum())
    became, was = after[chosen], before[chosen]
    is_mask, is_kept = became == encoder.tokenizer.mask_token_id, became == was
    # A random token is, once in a vocabulary, the mask token or the one it replaces.
    assert within_three_sigma(int(is_mask.sum()), 0.8 + 0.1 / vocabulary, hidden)
    assert within_three_sigma(int(is_kept.sum()), 0.1 + 0.1 / vocabulary, hidden)
    others = torch.bincount(became[~is_mask & ~is_kept], minlength=vocabulary).double()
    expected = 0.1 * hidden * (1 - (torch.bincount(was, minlength=vocabulary) / hidden)) / vocabulary
    expected[encoder.tokenizer.mask_token_id] = 0
    assert ((others - expected).abs() <= 4 * expected.sqrt()).all()  # as many tests as words: a wider margin for each


def test_a_tokenizer_without_a_mask_token_cannot_mask(encoder, batch):
    encoder.tokenizer.mask_token = None
    with pytest.raises(UserError, match=r"the tokenizer of .* has no mask token: masked language modelling needs one"):
        mask_tokens(encoder, batch["text"], 0.15)


def test_masking_spares_the_hole_of_a_prompt(prompted):
    tokens = collate(prompted, prompted.tokenizer(TEXTS * 20)["input_ids"])
    hole = tokens["input_ids"] == mask_id(prompted)
    masked, chosen = mask_tokens(prompted, tokens, 0.9)
    assert hole.sum(1).eq(1).all()
    assert not (hole & chosen).any()
    assert (masked["input_ids"][chosen] == mask_id(prompted)).double().mean() > 0.7


def test_masking_is_drawn_from_the_global_generator(encoder, batch):
    def chosen(seed):
        torch.manual_seed(seed)
        masked, where = mask_tokens(encoder, batch["text"], 0.5)
        return masked["input_ids"].tolist(), where.tolist()

    assert chosen(0) == chosen(0)
    assert all(first != second for first, second in zip(chosen(0), chosen(1), strict=True))


def test_the_mlm_head_takes_a_bf16_embedding_matrix_and_still_gives_fp32_logits(encoder):
    head, words, states = load_mlm_head(encoder), word_embeddings(encoder), torch.randn(5, 32)
    exact, rounded = head(states, words), head(states, words.bfloat16())
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, exact, atol=0.02, rtol=0.02)
    with torch.autocast("cpu", torch.bfloat16):
        assert head(states, words).dtype == torch.float32
