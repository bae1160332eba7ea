"""Encoders of every architecture give what sentence-transformers gives: last tokens, causal masks, prompts, padding."""

import json

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling
from tiny import FAMILIES, OTHERS, TEXTS, make_folder
from torch import nn
from transformers import AutoModel

from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import as_encoder, open_encoder
from selfsent.encoder.quantize import unit
from selfsent.encoder.save import save_encoder

DECODERS = ("qwen3", "llama", "mistral", "gemma2")
INSTRUCTION = "she reads old"  # a prompt, in words of the tiny tokenizer


def as_published(folder, pooling, prompts, modules=("Normalize",), **settings):
    """Put beside a transformer what a folder of sentence-transformers has."""
    entries = [
        ("Transformer", ""),
        ("Pooling", "1_Pooling"),
        *((name, f"{i}_{name}") for i, name in enumerate(modules, 2)),
    ]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(entries)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    for _, path in entries[1:]:
        (folder / path).mkdir(exist_ok=True)
    modes = {f"pooling_mode_{name}": name == pooling for name in ("cls_token", "mean_tokens", "lasttoken")}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **modes, **settings}))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    return folder


@pytest.mark.parametrize(
    ("family", "pooling"),
    [
        *((family, None) for family in (*FAMILIES, *OTHERS)),
        *((family, "lasttoken") for family in ("bert", "t5", "qwen3")),
    ],
)
def test_every_architecture_gives_what_sentence_transformers_gives(family, pooling, tmp_path):
    folder = make_folder(tmp_path / "base", family)
    encoder = load_encoder(folder, pooling=pooling)
    save_encoder(encoder, tmp_path / "saved", as_is=True)
    expected = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(TEXTS)
    usual = "lasttoken" if pooling or family in (*DECODERS, "gemma3_text") else "mean"
    assert open_encoder(tmp_path / "saved").pooling == usual
    for opened in (as_encoder(encoder), open_encoder(tmp_path / "saved")):
        found = opened.embed(TEXTS, precision="fp32")
        np.testing.assert_allclose(unit(found), unit(expected), atol=1e-5)
    with torch.no_grad():  # transformers alone, one text at a time, in its plainest attention
        model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
        model = model.get_encoder() if family in ("t5", "mt5", "umt5") else model
        rows = [encoder.tokenizer(text, return_tensors="pt", return_token_type_ids=False) for text in TEXTS]
        states = [model(**row).last_hidden_state[0] for row in rows]
    alone = torch.stack([state[-1] if usual == "lasttoken" else state.mean(0) for state in states])
    np.testing.assert_allclose(unit(found), unit(alone.numpy()), atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    ("family", "pooling", "prompts"),
    [
        ("qwen3", "lasttoken", {"query": INSTRUCTION, "document": ""}),  # Qwen3-Embedding
        ("gemma3_text", "mean_tokens", {"query": INSTRUCTION, "document": "about"}),  # EmbeddingGemma
        ("bert", "cls_token", {"query": INSTRUCTION}),  # BGE, arctic
        ("xlm-roberta", "mean_tokens", {"query": INSTRUCTION, "passage": "about"}),  # multilingual E5
        ("nomic_bert", "mean_tokens", {"query": INSTRUCTION, "document": "about"}),  # nomic
        ("modernbert", "cls_token", {}),  # GTE on ModernBERT
    ],
)
def test_a_base_that_people_use_is_opened_as_its_folder_says(family, pooling, prompts, side, tmp_path):
    folder = as_published(make_folder(tmp_path / "base", family, side), pooling, prompts)
    theirs, ours = SentenceTransformer(str(folder), device="cpu"), open_encoder(folder)
    assert ours.pooling == pooling.removesuffix("_token").removesuffix("_tokens")
    for role, encode in {"query": theirs.encode_query, "document": theirs.encode_document}.items():
        prompt = ours.task_prompt(role)
        found = ours.embed(TEXTS, prompt=prompt, precision="fp32")
        if not (role == "document" and "passage" in prompts):  # sentence-transformers adds an empty one of its own
            np.testing.assert_allclose(found, encode(TEXTS), atol=1e-5)
        assert (prompt == "") == (not prompts.get(role) and not (role == "document" and "passage" in prompts))
        ours.prepare("fp32")
        np.testing.assert_allclose(ours.embed_tokenized(ours.tokenize(TEXTS, prompt)), found, atol=1e-5)
        ours.close()


def test_embeddinggemma_s_dense_layers_are_computed(tmp_path):
    folder = make_folder(tmp_path / "base", "gemma3_text")
    theirs = SentenceTransformer(str(folder), device="cpu")
    parts = [Pooling(32, "mean"), *(Dense(32, 32, bias=False, activation_function=nn.Identity()) for _ in "ab")]
    whole = SentenceTransformer(modules=[theirs[0], *parts, Normalize()], device="cpu")
    save_encoder(whole, tmp_path / "whole")
    np.testing.assert_allclose(
        open_encoder(tmp_path / "whole").embed(TEXTS, precision="fp32"), whole.encode(TEXTS), atol=1e-5
    )


def test_a_text_without_tokens_has_a_finite_vector(tmp_path):
    folder = make_folder(tmp_path / "base", "llama", ends=False)
    encoder = open_encoder(folder)
    vectors = encoder.embed(["", *TEXTS, ""], precision="fp32")
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(vectors[1:-1], encoder.embed(TEXTS, precision="fp32"), atol=1e-5)


def test_a_t5_with_its_decoder_is_its_encoder(tmp_path):
    whole = AutoModel.from_pretrained(make_folder(tmp_path / "base", "t5"))
    assert any(name.startswith("decoder.") for name, _ in whole.named_parameters())
    assert not [name for name, _ in load_encoder(tmp_path / "base").named_parameters() if "decoder" in name]
