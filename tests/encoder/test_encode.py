"""Texts to a matrix: in order, without dropout, with a folder's prompts, in bf16 or fp32."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, StaticEmbedding, Transformer
from tiny import TEXTS, make_tokenizer

from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import as_encoder
from selfsent.errors import ConfigurationError, UserError


def test_encode_keeps_the_order_and_does_not_depend_on_the_batch(encoder, monkeypatch):
    texts = [*TEXTS, "", "rain " * 40]
    together = encode(encoder, texts, precision="fp32")
    alone = np.concatenate([encode(encoder, [text], precision="fp32") for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    for budget in (1, 64):
        monkeypatch.setattr("selfsent.encoder.batches._TOKENS_A_BATCH", budget)
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


# prompts and truncation, against sentence-transformers' own encode


def with_prompts(base, folder, *, include_prompt=True, **settings):
    """A folder as authors publish it: mean pooling, unit length, prompts in its settings."""
    modules = [Transformer(str(base)), Pooling(32, "mean", include_prompt=include_prompt), Normalize()]
    SentenceTransformer(modules=modules, device="cpu", **settings).save(str(folder), create_model_card=False)
    return folder


E5 = {"prompts": {"query": "the query ", "passage": "a passage "}, "default_prompt_name": "query"}
NOMIC = {"prompts": {"query": "she reads ", "document": "the book ", "clustering": "rain "}, "truncate_dim": 12}


@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("settings", [E5, NOMIC], ids=["E5", "nomic"])
def test_prompts_and_truncation_of_a_folder_are_those_of_sentence_transformers(
    bert, tmp_path, settings, include_prompt
):
    folder = with_prompts(bert, tmp_path, include_prompt=include_prompt, **settings)
    ours, theirs = load_encoder(folder), SentenceTransformer(str(folder), device="cpu")
    plain = encode(ours, TEXTS, prompt="", precision="fp32")
    cases = [
        {},
        {"prompt": "old ships "},
        {"truncate_dim": 5},
        *({"prompt_name": name} for name in settings["prompts"]),
    ]
    for case in cases:
        vectors = encode(ours, TEXTS, precision="fp32", **case)
        np.testing.assert_allclose(vectors, theirs.encode(TEXTS, **case), atol=1e-6)
        if "prompt_name" in case or "prompt" in case:
            assert abs(vectors - plain[:, : vectors.shape[1]]).max() > 1e-3
    assert ours.default_prompt_name == settings.get("default_prompt_name")
    assert encode(ours, []).shape == theirs.encode(TEXTS)[:0].shape


def test_the_prompts_for_search_are_those_of_encode_query_and_encode_document(bert, tmp_path):
    nomic = load_encoder(with_prompts(bert, tmp_path / "nomic", **NOMIC))
    for task, expected in {"query": nomic.encode_query, "document": nomic.encode_document}.items():
        vectors = encode(nomic, TEXTS, prompt=as_encoder(nomic).task_prompt(task), precision="fp32")
        np.testing.assert_allclose(vectors, expected(TEXTS), atol=1e-6)
    e5 = load_encoder(with_prompts(bert, tmp_path / "e5", **E5))
    assert (as_encoder(e5).task_prompt("query"), as_encoder(e5).task_prompt("document")) == ("the query ", "a passage ")
    bare = as_encoder(load_encoder(bert))
    assert (bare.task_prompt("query"), bare.task_prompt("document")) == ("", "")


def test_an_unknown_prompt_is_refused_with_the_known_ones(bert, encoder, tmp_path):
    with pytest.raises(ConfigurationError, match="unknown prompt 'pasage': did you mean 'passage'"):
        encode(load_encoder(with_prompts(bert, tmp_path, **E5)), TEXTS, prompt_name="pasage")
    with pytest.raises(ConfigurationError, match="unknown prompt 'query2': this encoder has no prompts"):
        encode(encoder, TEXTS, prompt_name="query2")


def test_static_vectors_take_prompts_and_truncation_too(tmp_path):
    vectors = StaticEmbedding(make_tokenizer().backend_tokenizer, embedding_dim=8)
    SentenceTransformer(modules=[vectors], device="cpu", **E5).save(str(tmp_path), create_model_card=False)
    theirs = SentenceTransformer(str(tmp_path), device="cpu")
    np.testing.assert_array_equal(encode(load_encoder(tmp_path), TEXTS, truncate_dim=3), theirs.encode(TEXTS)[:, :3])


@pytest.mark.parametrize("kind", ["generator", "numpy", "polars", "datasets"])
def test_texts_may_come_from_any_column(encoder, kind):
    column = {
        "generator": lambda: (text for text in TEXTS),
        "numpy": lambda: np.array(TEXTS, dtype=object),
        "polars": lambda: pytest.importorskip("polars").Series(TEXTS),
        "datasets": lambda: pytest.importorskip("datasets").Dataset.from_dict({"text": TEXTS})["text"],
    }[kind]()
    np.testing.assert_array_equal(encode(encoder, column), encode(encoder, TEXTS))


def test_one_string_is_no_list_of_texts(encoder):
    with pytest.raises(ValueError, match="not one string"):
        encode(encoder, TEXTS[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"truncate_dim": 0}, "truncate_dim = 0 does not fit: this encoder has 256 dimensions"),
        ({"truncate_dim": 257}, "truncate_dim = 257 does not fit"),
        ({"precision": "fp16"}, "fp16"),
    ],
)
def test_word_vectors_take_no_width_or_precision_that_is_not_there(options, message):
    with pytest.raises(UserError, match=message):
        encode(load_encoder("builtin-static"), ["a"], **options)


def test_a_table_is_not_encoded_by_the_names_of_its_columns(encoder):
    with pytest.raises(ValueError, match="encode takes texts, not a dict: give a list, or one column of strings"):
        encode(encoder, {"text": ["a"]})
