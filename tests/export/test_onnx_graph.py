"""A graph gives the vectors of the folder, under the names that other libraries look for."""

import json
import logging
import shutil
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tiny import HARD
from torch import nn
from transformers import AutoTokenizer

from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.quantize import unit
from selfsent.errors import ConfigurationError, EncoderError
from selfsent.export import onnx as onnx_module
from selfsent.export.export import export_model
from selfsent.export.onnx_session import OnnxEncoder

KINDS = ["mean", "cls head", "prompt", "whitened first_last"]  # of the fixture ``folders``


def cosines(ours, theirs):
    return (ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)


def opened_alone(folder):
    """Return the outputs of a graph by name, and the mask, by onnxruntime and transformers alone."""
    session = onnxruntime.InferenceSession(str(folder / "onnx" / "model.onnx"), providers=["CPUExecutionProvider"])
    tokens = AutoTokenizer.from_pretrained(folder)(HARD, padding=True, truncation=True, return_tensors="np")
    vectors = session.run(None, {entry.name: tokens[entry.name] for entry in session.get_inputs()})
    names = [entry.name for entry in session.get_outputs()]
    return dict(zip(names, vectors, strict=True)), tokens["attention_mask"][:, :, None]


@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_gives_the_vectors_of_the_folder_here_and_by_onnxruntime_and_transformers_alone(
    kind, folders, exported
):
    folder = exported(kind, "onnx").folder
    theirs = SentenceTransformer(str(folders[kind]), device="cpu").encode(HARD)
    assert cosines(OnnxEncoder(folder).encode(HARD), theirs).min() >= 0.9999
    assert cosines(opened_alone(folder)[0]["sentence_embedding"], theirs).min() >= 0.9999


def graph_of(folder):
    return onnx.load(folder / "onnx" / "model.onnx").graph


def test_hidden_states_come_first_where_others_pool_them_and_not_at_all_where_they_cannot(exported):
    """And pooling the first output, as sentence-transformers' own onnx backend does, gives its direction."""
    vectors, mask = opened_alone(exported("mean", "onnx").folder)
    assert list(vectors) == ["last_hidden_state", "sentence_embedding"]
    pooled = (vectors["last_hidden_state"] * mask).sum(1) / mask.sum(1)
    np.testing.assert_allclose(unit(pooled), vectors["sentence_embedding"], atol=1e-5)
    for kind in ("cls head", "prompt", "whitened first_last"):
        outputs = graph_of(exported(kind, "onnx").folder).output
        assert [entry.name for entry in outputs] == ["sentence_embedding"]


def test_both_axes_of_the_graph_are_free_and_named(exported):
    for entry in graph_of(exported("mean", "onnx").folder).input:
        assert [axis.dim_param for axis in entry.type.tensor_type.shape.dim] == ["batch", "sequence"]


def test_an_int8_graph_has_int8_products_and_a_quarter_of_the_weights(folders, exported):
    small = exported("mean", "onnx-int8").folder
    graph = onnx.load(small / "onnx" / "model_quantized.onnx").graph
    products = sum(node.op_type == "MatMulInteger" for node in graph.node)
    assert products == 12  # query, key, value, out and two dense, twice

    def weights(graph):
        return sum(len(onnx.numpy_helper.to_array(tensor).tobytes()) for tensor in graph.initializer)

    assert weights(graph) < 0.5 * weights(graph_of(exported("mean", "onnx").folder))
    theirs = SentenceTransformer(str(folders["mean"]), device="cpu").encode(HARD)
    assert cosines(OnnxEncoder(small).encode(HARD), theirs).min() > 0.98
    assert [path.name for path in (small / "onnx").iterdir()] == ["model_quantized.onnx"]


def test_the_log_of_the_process_is_as_before(exported, tmp_path, monkeypatch):
    """onnxruntime logs by the root logger, which adds a handler that prints what any library logs afterwards."""
    monkeypatch.setattr(logging.root, "handlers", [])
    onnx_module.quantize_graph(exported("mean", "onnx").folder / "onnx" / "model.onnx", tmp_path / "small.onnx")
    assert logging.root.handlers == []


def test_the_weights_of_the_layers_are_written_once(exported):
    folder = exported("cls head", "onnx").folder
    assert not list(folder.glob("*.safetensors"))
    assert json.loads((folder / "config.json").read_text())["model_type"] == "bert"


def test_no_argument_of_the_torch_class_is_left_for_the_loader_of_a_graph(folders, exported):
    """sentence-transformers hands model_args on; optimum's class raises a TypeError at them."""
    assert "model_args" in json.loads((folders["mean"] / "sentence_bert_config.json").read_text())
    settings = json.loads((exported("mean", "onnx").folder / "sentence_bert_config.json").read_text())
    assert "model_args" not in settings
    assert settings["max_seq_length"] == 32


class Unknown(nn.Module):
    """A module without an ONNX operator."""

    def forward(self, features):
        return features | {"sentence_embedding": torch.special.bessel_j1(features["sentence_embedding"])}


def test_a_layer_without_an_operator_is_refused_in_one_sentence_and_the_encoder_is_as_before(folders, tmp_path):
    encoder = SentenceTransformer(modules=[*load_encoder(folders["mean"]), Unknown()], device="cpu").train()
    attention = encoder[0].model.config._attn_implementation
    with pytest.raises(EncoderError, match=r"cannot be written as ONNX: .*bessel_j1") as caught:
        onnx_module.write_graph(encoder, tmp_path / "model.onnx")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "model.onnx").exists()
    assert encoder.training
    assert encoder[0].model.config._attn_implementation == attention != "eager"


def test_static_vectors_are_a_graph_that_others_pool_and_no_special_token_is_read(corpus, tmp_path):
    folder = export_model("builtin-static", "onnx", corpus=corpus, out=tmp_path / "out").folder
    theirs = encode(load_encoder("builtin-static"), HARD, precision="fp32")
    np.testing.assert_allclose(OnnxEncoder(folder).encode(HARD), theirs, atol=1e-5)
    vectors, mask = opened_alone(folder)
    assert list(vectors) == ["last_hidden_state", "sentence_embedding"]
    pooled = (vectors["last_hidden_state"] * mask).sum(1) / np.maximum(mask.sum(1), 1)
    np.testing.assert_allclose(unit(pooled), theirs, atol=1e-5)
    np.testing.assert_allclose(vectors["sentence_embedding"], theirs, atol=1e-5)


def test_without_the_extra_it_says_what_to_install(folders, corpus, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[onnx\]'"):
        export_model(folders["mean"], "onnx", corpus=corpus, out=tmp_path / "out")


def test_a_damaged_graph_is_refused(exported, tmp_path):
    shutil.copytree(exported("mean", "onnx").folder, tmp_path / "copy")
    graph = tmp_path / "copy" / "onnx" / "model.onnx"
    graph.write_bytes(graph.read_bytes()[:5000])
    with pytest.raises(EncoderError, match="cannot be opened"):
        OnnxEncoder(tmp_path / "copy")
    with pytest.raises(EncoderError, match="holds no exported graph"):
        OnnxEncoder(tmp_path)


def test_no_texts_give_a_matrix_without_rows(exported):
    assert OnnxEncoder(exported("cls head", "onnx").folder).encode([]).shape == (0, 24)


def test_a_lone_surrogate_is_read_as_the_encoder_reads_it(folders, exported):
    text = ["the cat \ud800 sat"]
    expected = encode(load_encoder(folders["mean"]), text, precision="fp32")
    np.testing.assert_allclose(OnnxEncoder(exported("mean", "onnx").folder).encode(text), expected, atol=1e-5)
