"""The encoder: opened as asked, pooled as defined, steered at every dropout site, encoded in order."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import FAMILIES, TEXTS, make_base
from sentence_transformers import SentenceTransformer
from torch import nn
from transformers import AutoModel, GPT2Config, GPT2Model, ModernBertConfig, ModernBertForMaskedLM

from selfsent import encoder as encoders
from selfsent.dropout import ATTENTION, Dropout, sites
from selfsent.errors import UserError


def hidden_states(folder, texts):
    """The hidden states straight from transformers: the truth that poolings are held against."""
    with encoders.quietly():
        model = AutoModel.from_pretrained(folder).eval()
    tokenizer = encoders.tokenizer(encoders.load(folder))
    tokens = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        output = model(**tokens, output_hidden_states=True)
    return output.hidden_states, tokens["attention_mask"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_opens_and_its_dropout_is_reached(family, tmp_path):
    encoder = encoders.load(make_base(tmp_path, family), pooling="mean")
    encoders.require_dropout(encoder)
    assert encoders.dropout_rates(encoder) == {"hidden": 0.1, "attention": 0.1}
    assert not [module for module in encoder.modules() if type(module) is nn.Dropout]


@pytest.mark.parametrize("family", ["bert", "mpnet"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "first_last", "first_last_paper", "top2"])
def test_poolings_are_what_their_definition_says(family, pooling, tmp_path):
    folder = make_base(tmp_path, family)
    states, mask = hidden_states(folder, TEXTS)
    first = {"first_last": 1, "first_last_paper": 0, "top2": -2}
    expected = []
    for row, length in enumerate(mask.sum(1).tolist()):
        last = states[-1][row]
        if pooling == "cls":
            expected.append(last[0])
        elif pooling == "mean":
            expected.append(sum(last[t] for t in range(length)) / length)
        else:
            both = (states[first[pooling]][row] + last) / 2
            expected.append(sum(both[t] for t in range(length)) / length)
    expected = torch.stack(expected).numpy()
    as_modules = encoders.encode(encoders.load(folder, pooling=pooling), TEXTS, precision="fp32")
    in_one_pass = encoders.encode_poolings(encoders.load(folder), TEXTS, [pooling], precision="fp32")[pooling]
    np.testing.assert_allclose(as_modules, expected, atol=1e-5)
    np.testing.assert_allclose(in_one_pass, expected, atol=1e-5)


def test_cls_pooler_is_the_pretrained_dense_and_tanh(tmp_path):
    folder = make_base(tmp_path)
    with encoders.quietly():
        model = AutoModel.from_pretrained(folder)  # a random pooler, now saved as if it had been pretrained
        model.save_pretrained(folder)
    encoder = encoders.load(folder, pooling="cls_pooler")
    tokens = encoders.tokenizer(encoder)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = model.eval()(**tokens).pooler_output.numpy()
    np.testing.assert_allclose(encoders.encode(encoder, TEXTS, precision="fp32"), expected, atol=1e-5)


def test_a_pooler_that_was_never_trained_is_refused(bert):
    with pytest.raises(UserError, match="no pretrained pooler"):
        encoders.load(bert, pooling="cls_pooler")


def test_more_padding_changes_no_vector(encoder, rows):
    encoder.eval()
    tokens = encoders.collate(encoder, rows)
    wider = {name: torch.cat([column, torch.zeros(len(rows), 9, dtype=torch.long)], 1) for name, column in tokens.items()}
    torch.testing.assert_close(encoders.embed(encoder, tokens), encoders.embed(encoder, wider), atol=1e-5, rtol=0)


def test_encode_keeps_the_order_and_does_not_depend_on_the_batch(encoder, monkeypatch):
    texts = [*TEXTS, "", "rain " * 40]
    together = encoders.encode(encoder, texts, precision="fp32")
    alone = np.concatenate([encoders.encode(encoder, [text], precision="fp32") for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    for budget in (1, 64):
        monkeypatch.setattr(encoders, "_TOKENS_A_BATCH", budget)
        np.testing.assert_allclose(encoders.encode(encoder, texts, precision="fp32"), together, atol=1e-5)


def test_encode_runs_without_dropout_and_gives_the_mode_back(encoder):
    encoder.train()
    first, second = (encoders.encode(encoder, TEXTS, precision="fp32") for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert encoder.training
    assert not encoders.encode(encoder.eval(), []).size
    assert not encoder.training


def test_bf16_agrees_with_fp32_and_leaves_the_weights_alone(encoder):
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    exact = encoders.encode(encoder, TEXTS, precision="fp32")
    low = encoders.encode(encoder, TEXTS, precision="bf16")
    cosine = (exact * low).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(low, axis=1)
    assert cosine.min() > 0.999
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())


def test_a_saved_encoder_opens_without_us_and_gives_the_same_vectors(encoder, tmp_path):
    encoders.save(encoder, tmp_path / "model")
    np.save(tmp_path / "ours.npy", encoders.encode(encoder, TEXTS, precision="fp32"))
    program = (
        "import sys, numpy as np; from sentence_transformers import SentenceTransformer;"
        "m = SentenceTransformer(sys.argv[1], device='cpu'); v = m.encode(sys.argv[3:]);"
        "assert 'selfsent' not in sys.modules; assert abs(v - np.load(sys.argv[2])).max() < 1e-5;"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, str(tmp_path / "model"), str(tmp_path / "ours.npy"), *TEXTS]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    assert "MISSING" not in said.stderr  # no report of pooler weights that nobody uses
    names = [module["type"] for module in json.loads((tmp_path / "model" / "modules.json").read_text())]
    assert all(name.startswith("sentence_transformers.") for name in names)


def test_a_saved_encoder_reloaded_as_plain_transformers_gives_the_same_bits(encoder, tmp_path):
    encoders.save(encoder, tmp_path)
    with encoders.quietly():
        plain = AutoModel.from_pretrained(tmp_path, attn_implementation="eager", add_pooling_layer=False).eval()
    tokens = encoders.collate(encoder, [encoder.tokenizer(TEXTS[0])["input_ids"]])
    transformers_model = encoders.transformer(encoder.eval())
    transformers_model.set_attn_implementation("eager")
    with torch.no_grad():
        assert torch.equal(plain(**tokens).last_hidden_state[:, 0], encoders.embed(encoder, tokens))


def test_an_exported_head_is_dense_and_tanh_behind_the_pooling(encoder, tmp_path):
    head = nn.Linear(32, 32)
    encoders.save(encoder, tmp_path, head=head)
    pooled = torch.from_numpy(encoders.encode(encoder, TEXTS, precision="fp32"))
    with torch.no_grad():
        expected = torch.tanh(head(pooled)).numpy()
    again = SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(again, expected, atol=1e-5)


def test_dropout_rates_are_set_everywhere_and_given_back_after_an_error(encoder):
    before = [site.module.p for site in sites(encoder)]
    with pytest.raises(RuntimeError, match="on the way"), encoders.dropout(encoder, 0.3, attention=0.2):
        assert {site.module.p for site in sites(encoder) if site.attention} == {0.2}
        assert {site.module.p for site in sites(encoder) if not site.attention} == {0.3}
        raise RuntimeError("on the way")
    assert [site.module.p for site in sites(encoder)] == before


def test_rows_of_one_batch_can_have_rates_of_their_own(encoder, rows):
    tokens = encoders.collate(encoder, [rows[0]] * 6)
    encoder.eval()
    clean = encoders.embed(encoder, tokens)
    encoder.train()
    with encoders.dropout_rows(encoder, (0.0, 0.5)):
        noisy = encoders.embed(encoder, tokens)
    torch.testing.assert_close(noisy[:3], clean[:3])
    assert not torch.allclose(noisy[3:], clean[3:])
    assert all(site.module.rows is None for site in sites(encoder))


def test_dropout_keeps_the_mean_and_drops_at_its_rate_in_every_sixteen_bits_of_a_draw():
    torch.manual_seed(0)
    dropped = Dropout(0.155).train()(torch.ones(400_000))
    for lane in range(4):  # four elements share one 64-bit draw; the one with the sign bit must not differ
        share = (dropped[lane::4] == 0).double().mean().item()
        assert abs(share - 0.155) < 3 * (0.155 * 0.845 / 100_000) ** 0.5
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.005)
    assert dropped.max().item() == pytest.approx(1 / 0.845, rel=1e-3)


def test_dropout_of_neighbours_is_independent():
    torch.manual_seed(0)
    kept = (Dropout(0.5).train()(torch.ones(400_000)) > 0).double()
    for shift in (1, 2, 3, 4):
        correlation = torch.corrcoef(torch.stack([kept[shift:], kept[:-shift]]))[0, 1].item()
        assert abs(correlation) < 4 / 400_000**0.5


def test_our_attention_equals_the_eager_one(encoder, rows):
    tokens = encoders.collate(encoder.eval(), rows)
    model = encoders.transformer(encoder)
    assert model.config._attn_implementation == ATTENTION
    ours = encoders.embed(encoder, tokens)
    model.set_attn_implementation("eager")
    torch.testing.assert_close(ours, encoders.embed(encoder, tokens), atol=1e-6, rtol=1e-5)


def test_a_family_whose_dropout_is_out_of_reach_is_refused_by_name(bert, tmp_path):
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    tokens = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
    config = ModernBertConfig(vocab_size=64, **size, **tokens, attention_dropout=0.1, embedding_dropout=0.1, mlp_dropout=0.1)
    with encoders.quietly():
        ModernBertForMaskedLM(config).save_pretrained(tmp_path)
    encoders.tokenizer(encoders.load(bert)).save_pretrained(tmp_path)
    encoder = encoders.load(tmp_path, pooling="cls")
    with pytest.raises(UserError, match="dropout of a 'modernbert' encoder"):
        encoders.require_dropout(encoder)


def test_what_is_no_encoder_is_refused(tmp_path, bert):
    with encoders.quietly():
        GPT2Model(GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=64)).save_pretrained(tmp_path / "gpt")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("no model")
    for name, message in {
        tmp_path / "gpt": "is no encoder: its model type is 'gpt2'",
        tmp_path / "empty": "holds no encoder",
        tmp_path / "file": "is a file",
        tmp_path / "a" / "b" / "nowhere": "does not exist",
    }.items():
        with pytest.raises(UserError, match=message):
            encoders.load(name)
    with pytest.raises(UserError, match="unknown pooling 'clss': did you mean 'cls'"):
        encoders.load(bert, pooling="clss")
