"""Encoders are opened as asked, and what is no encoder is refused."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from tiny import PROMPT, TEXTS
from transformers import PreTrainedModel, ViTConfig, ViTModel

from selfsent.encoder.assemble import quietly
from selfsent.encoder.encode import encode
from selfsent.encoder.inspect import mask_id, pooling_name, template_length
from selfsent.encoder.load import load_encoder
from selfsent.encoder.mlm_head import load_mlm_head
from selfsent.encoder.open import as_encoder
from selfsent.encoder.quantize import unit
from selfsent.encoder.save import save_encoder
from selfsent.errors import ConfigurationError, EncoderError, UserError


def test_a_prompted_folder_keeps_its_prompt_under_any_pooling(prompted, tmp_path):
    save_encoder(prompted, tmp_path)
    expected = unit(encode(prompted, TEXTS, precision="fp32"))
    for again in (load_encoder(tmp_path), load_encoder(tmp_path, pooling="prompt")):
        assert pooling_name(again) == "prompt"
        assert (template_length(again), mask_id(again)) == (6, 4)
        assert not any(p.requires_grad for p in again[1].parameters())
        np.testing.assert_allclose(encode(again, TEXTS, precision="fp32"), expected, atol=1e-6)
    by_cls = load_encoder(tmp_path, pooling="cls")
    assert (pooling_name(by_cls), template_length(by_cls)) == ("cls", 6)
    with pytest.raises(UserError, match="has a prompt already"):
        load_encoder(tmp_path, pooling="prompt", template=PROMPT)


def test_without_a_prompt_its_length_is_none_and_its_pooling_refused(encoder, bert):
    assert (template_length(encoder), mask_id(encoder)) == (0, 4)
    with pytest.raises(UserError, match="opened without a prompt"):
        as_encoder(encoder).embed_poolings(TEXTS, ["prompt"])
    with pytest.raises(UserError, match="does not fit pooling 'mean': give it with pooling 'prompt'"):
        load_encoder(bert, pooling="mean", template=PROMPT)
    with pytest.raises(UserError, match=r"template 'means' does not fit: it holds \[X\] once"):
        load_encoder(bert, pooling="prompt", template="means")


def test_the_usual_prompt_goes_around_the_built_in_encoder():
    encoder = load_encoder("builtin", pooling="prompt")
    assert template_length(encoder) == 5
    tokens = encoder.tokenizer("the cat")["input_ids"]
    assert tokens == load_encoder("builtin").tokenizer('"the cat" means [MASK].')["input_ids"]
    # 37: the longest row that the authors' code makes of texts cut at 32.
    assert load_encoder("builtin", pooling="prompt", max_length=32).max_seq_length == 37
    load_mlm_head(encoder)  # needs no mask token among the tokenizer's own


def test_what_is_no_encoder_is_refused(tmp_path, bert):
    with quietly():
        ViTModel(ViTConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2)).save_pretrained(
            tmp_path / "vit"
        )
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("no model")
    save_encoder(load_encoder(bert), tmp_path / "exported")
    for name in ("model.safetensors", ".checksums"):
        (tmp_path / "exported" / name).unlink()
    (tmp_path / "exported" / "onnx").mkdir()
    for name, message in {
        tmp_path / "vit": "is no encoder: its model type is 'vit'",
        tmp_path / "empty": "holds no encoder",
        tmp_path / "file": "is a file",
        tmp_path / "exported": "holds ONNX alone, .* give the folder that it was exported from",
        tmp_path / "a" / "b" / "nowhere": "cannot be found .no such folder",
    }.items():
        with pytest.raises(UserError, match=message):
            load_encoder(name)
    with pytest.raises(UserError, match="unknown pooling 'clss': did you mean 'cls'"):
        load_encoder(bert, pooling="clss")


def test_a_base_without_a_pooling_of_its_own_is_averaged(bert, encoder, tmp_path):
    assert pooling_name(load_encoder(bert)) == "mean"
    save_encoder(encoder, tmp_path)
    assert pooling_name(load_encoder(tmp_path)) == "cls"


@pytest.mark.parametrize("pooling", [None, "cls"])
def test_damaged_weights_are_one_sentence(bert, tmp_path, pooling):
    save_encoder(load_encoder(bert), tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(EncoderError, match=r"model.safetensors was cut off or changed"):
        load_encoder(tmp_path / "model", pooling=pooling)
    (tmp_path / "model" / ".checksums").unlink()
    with pytest.raises(EncoderError, match=r"model are cut short or damaged .*: wait if they are still being written"):
        load_encoder(tmp_path / "model", pooling=pooling)


@pytest.mark.parametrize(("pooling", "template", "prompt"), [("mean", None, 0), ("prompt", PROMPT, 6)])
def test_a_length_cuts_the_text_and_never_the_prompt_and_is_saved(bert, tmp_path, pooling, template, prompt):
    encoder = load_encoder(bert, pooling=pooling, template=template, max_length=6)
    text, beginning = "the cat sat on the mat", "the cat sat on"  # with [CLS] and [SEP] 6 tokens
    assert encoder.max_seq_length == 6 + prompt
    long, short = encode(encoder, [text, beginning], precision="fp32")
    np.testing.assert_array_equal(long, short)
    save_encoder(encoder, tmp_path)
    for again in (load_encoder(tmp_path), SentenceTransformer(str(tmp_path), device="cpu")):
        assert again.max_seq_length == 6 + prompt
        np.testing.assert_allclose(again.encode([text])[0], unit(short[None])[0], atol=1e-6)
    whole = load_encoder(bert, pooling=pooling, template=template)
    assert not np.allclose(*encode(whole, [text, beginning], precision="fp32"), atol=1e-4)


def test_a_length_that_the_encoder_cannot_read_is_refused(bert):
    with pytest.raises(ConfigurationError, match="max_length 75 does not fit: the encoder reads 74 tokens"):
        load_encoder(bert, pooling="prompt", template=PROMPT, max_length=75)


def test_encoders_that_are_opened_in_several_threads_leave_transformers_as_it_was(bert):
    before = PreTrainedModel.tie_weights
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(load_encoder, [bert] * 12))
    assert PreTrainedModel.tie_weights is before
