"""A saved folder opens without this package, in old and new versions of others, with the same vectors."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer, WordWeights
from tiny import HARD, TEXTS, make_base, make_tokenizer
from torch import nn
from transformers import AutoModel

from selfsent.encoder.assemble import quietly
from selfsent.encoder.embed import collate, embed
from selfsent.encoder.encode import encode
from selfsent.encoder.inspect import transformer_of
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import as_encoder
from selfsent.encoder.quantize import unit
from selfsent.encoder.save import save_encoder
from selfsent.errors import EncoderError


def test_saved_encoders_open_without_us_and_give_the_same_vectors(encoder, prompted, tmp_path):
    for name, saved in {"plain": encoder, "prompted": prompted}.items():
        save_encoder(saved, tmp_path / name)
        np.save(tmp_path / f"{name}.npy", unit(encode(saved, HARD, precision="fp32")))
        modules = json.loads((tmp_path / name / "modules.json").read_text())
        assert all(module["type"].startswith("sentence_transformers.") for module in modules)
    (tmp_path / "texts.json").write_text(json.dumps(HARD))
    program = (
        "import json, sys, numpy as np; from sentence_transformers import SentenceTransformer\n"
        "for name in ('plain', 'prompted'):\n"
        "    found = SentenceTransformer(name, device='cpu').encode(json.load(open('texts.json')))\n"
        "    assert 'selfsent' not in sys.modules; assert abs(found - np.load(f'{name}.npy')).max() < 1e-5, name\n"
    )
    words = [sys.executable, "-W", "ignore", "-c", program]
    said = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert said.returncode == 0, said.stderr
    assert "MISSING" not in said.stderr  # no report of pooler weights that nobody uses


def test_a_saved_encoder_reloaded_as_plain_transformers_gives_the_same_bits(encoder, tmp_path):
    save_encoder(encoder, tmp_path)
    with quietly():
        plain = AutoModel.from_pretrained(tmp_path, attn_implementation="eager", add_pooling_layer=False).eval()
    tokens = collate(encoder, [encoder.tokenizer(TEXTS[0])["input_ids"]])
    transformers_model = transformer_of(encoder.eval())
    transformers_model.set_attn_implementation("eager")
    with torch.no_grad():
        assert torch.equal(plain(**tokens).last_hidden_state[:, 0], embed(encoder, tokens))


def test_an_exported_head_is_dense_and_tanh_behind_the_pooling(encoder, tmp_path):
    head = nn.Linear(32, 32)
    save_encoder(encoder, tmp_path, head=head)
    pooled = torch.from_numpy(encode(encoder, TEXTS, precision="fp32"))
    with torch.no_grad():
        expected = unit(torch.tanh(head(pooled)).numpy())
    again = SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(again, expected, atol=1e-5)


def test_weights_of_words_keep_their_digits_beside_a_model_saved_in_fp16(tmp_path):
    words = sorted(make_tokenizer().get_vocab(), key=make_tokenizer().get_vocab().__getitem__)
    given = {word: 0.123457 + 0.01 * number for number, word in enumerate(words)}
    inner = Transformer(str(make_base(tmp_path / "base")))
    inner.model.half()
    modules = [inner, WordWeights(words, given, unknown_word_weight=1.0), Pooling(32, "mean")]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "model"))
    encoder = load_encoder(tmp_path / "model")
    assert encoder[1].emb_layer.weight.flatten().tolist() == pytest.approx(list(given.values()), abs=1e-7)
    save_encoder(encoder, tmp_path / "again")
    again = load_encoder(tmp_path / "again")
    assert np.array_equal(encode(encoder, TEXTS), as_encoder(again).before_unit().embed(TEXTS))


@pytest.mark.parametrize("pooling", ["cls", "mean", "first_last"])
def test_a_saved_folder_has_the_names_that_older_libraries_read(bert, tmp_path, pooling):
    encoder = load_encoder(bert, pooling=pooling, max_length=17)
    save_encoder(encoder, tmp_path, head=nn.Linear(32, 8))

    def settings(name):
        return json.loads((tmp_path / name).read_text())

    modules = settings("modules.json")
    names = [module["type"].rpartition(".")[2] for module in modules]
    assert [module["type"] for module in modules] == [f"sentence_transformers.models.{name}" for name in names]
    paths = {name: module["path"] for name, module in zip(names, modules, strict=True)}
    pooled = settings(f"{paths['Pooling']}/config.json")
    flags = {flag: value for flag, value in pooled.items() if flag.startswith("pooling_mode_")}
    expected = "pooling_mode_cls_token" if pooling == "cls" else "pooling_mode_mean_tokens"
    assert [flag for flag, value in flags.items() if value] == [expected]
    assert (len(flags), pooled["word_embedding_dimension"]) == (6, 32)
    # sentence-transformers 5.0 hands every key to the constructor, and has these parameters alone.
    assert set(settings("sentence_bert_config.json")) == {"max_seq_length", "do_lower_case", "model_args"}
    assert settings("sentence_bert_config.json")["max_seq_length"] == 17
    assert set(settings(f"{paths['Dense']}/config.json")) == {
        "in_features",
        "out_features",
        "bias",
        "activation_function",
    }
    again = SentenceTransformer(str(tmp_path), device="cpu")
    assert again.max_seq_length == 17
    np.testing.assert_allclose(again.encode(TEXTS), encode(load_encoder(tmp_path), TEXTS, precision="fp32"), atol=1e-6)


@pytest.mark.parametrize("poolings", [("cls", "mean"), ("mean", "max")])  # in the order of the flags, and in another
def test_several_poolings_side_by_side_are_saved_in_their_order(bert, tmp_path, poolings):
    modules = [Transformer(str(bert)), Pooling(32, poolings)]
    encoder = SentenceTransformer(modules=modules, device="cpu")
    save_encoder(encoder, tmp_path)
    again = SentenceTransformer(str(tmp_path), device="cpu")
    assert again[1].pooling_mode == poolings
    np.testing.assert_allclose(again.encode(TEXTS), unit(encoder.encode(TEXTS)), atol=1e-6)


@pytest.mark.parametrize("pooling", [None, "cls"])
def test_length_and_lower_case_of_a_folder_stay_whatever_the_pooling(bert, tmp_path, pooling):
    modules = [Transformer(str(bert), max_seq_length=9, do_lower_case=True), Pooling(32, "mean")]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "theirs"))
    settings = tmp_path / "theirs" / "sentence_bert_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"do_lower_case": True}))  # which 6.2 leaves out
    encoder = load_encoder(tmp_path / "theirs", pooling=pooling)
    assert (encoder.max_seq_length, encoder[0].do_lower_case) == (9, True)
    save_encoder(encoder, tmp_path / "ours")
    saved = json.loads((tmp_path / "ours" / "sentence_bert_config.json").read_text())
    assert (saved["max_seq_length"], saved["do_lower_case"]) == (9, True)


def test_no_text_becomes_a_chat(bert, tmp_path):
    plain = shutil.copytree(bert, tmp_path / "plain")
    settings = json.loads((plain / "tokenizer_config.json").read_text())
    chat = {"chat_template": "{% for m in messages %}cat {{ m['content'] }}{% endfor %}"}
    (plain / "tokenizer_config.json").write_text(json.dumps(settings | chat))
    expected = encode(load_encoder(bert), TEXTS, precision="fp32")
    encoder = load_encoder(plain)
    save_encoder(encoder, tmp_path / "saved")
    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(encode(encoder, TEXTS, precision="fp32"), expected, atol=1e-6)
    np.testing.assert_allclose(theirs, unit(expected), atol=1e-5)
    SentenceTransformer(modules=[Transformer(str(plain)), Pooling(32)], device="cpu").save(str(tmp_path / "chat"))
    with pytest.raises(EncoderError, match="puts its texts into a template of chats"):
        load_encoder(tmp_path / "chat")
