"""Encoders side by side are one graph, whose products are the weighted sums of the cosines of each."""

import json
import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from tiny import HARD, PROMPT, make_base, make_tokenizer
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from selfsent.encoder.affine import AffineMap
from selfsent.encoder.load import load_encoder
from selfsent.encoder.neighbour_map import map_encoder
from selfsent.encoder.pair_module import join_encoders
from selfsent.encoder.principal_axes import turn_encoder
from selfsent.encoder.save import save_encoder
from selfsent.errors import EncoderError
from selfsent.export import export as export_module
from selfsent.export import onnx as onnx_module
from selfsent.export.export import export_model
from selfsent.export.onnx_session import OnnxEncoder

WEIGHTS = 0.3, 0.7
KINDS = ["beside words", "one tokenizer"]


@pytest.fixture(scope="module")
def encoders(folders, tmp_path_factory):
    """Two transformers of one tokenizer, the second cut earlier and with a prompt; static vectors far from length 1."""
    where = tmp_path_factory.mktemp("bases")
    other = make_base(where / "other", "distilbert", seed=1)
    table = np.random.default_rng(0).normal(size=(len(make_tokenizer()), 12)).astype(np.float32) * 7
    static = StaticEmbedding(make_tokenizer()._tokenizer, embedding_weights=table)  # its tokenizer adds [CLS], if asked
    return {
        "bert": load_encoder(folders["mean"]),
        "other": load_encoder(other, pooling="cls", max_length=32),
        "shorter": load_encoder(other, pooling="cls", max_length=16),
        "prompt": load_encoder(other, pooling="prompt", template=PROMPT, max_length=32),
        "words": SentenceTransformer(modules=[static], device="cpu"),
    }


@pytest.fixture(scope="module")
def pairs(encoders, tmp_path_factory):
    """The folder of each kind of pair."""
    where = tmp_path_factory.mktemp("pairs")
    made = {"beside words": ("bert", "words"), "one tokenizer": ("bert", "other")}
    for kind, names in made.items():
        save_encoder(join_encoders([encoders[name] for name in names], WEIGHTS), where / kind.replace(" ", "-"))
    return {kind: where / kind.replace(" ", "-") for kind in made}


@pytest.fixture(scope="module")
def graphs(pairs, corpus, tmp_path_factory):
    """What each is exported to, judged by the gate as any other."""
    where = tmp_path_factory.mktemp("graphs")
    return {
        kind: export_model(folder, "onnx", corpus=corpus, out=where / folder.name, precision="fp32")
        for kind, folder in pairs.items()
    }


def unit(vectors):
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths, lengths, 1)


def expected(folder):
    """The weighted sum of both cosines, by sentence-transformers alone: each side is a folder of its own.

    Of a text without words one side is zero, and the length of the other is made 1.
    """
    sides = [unit(SentenceTransformer(str(folder / name), device="cpu").encode(HARD)) for name in "01"]
    products = sum(weight * side @ side.T for weight, side in zip(WEIGHTS, sides, strict=True))
    lengths = np.sqrt(np.diag(products))
    return products / np.outer(lengths, lengths)


def feeds(tokens, end=""):
    return {f"{name}{end}": rows for name, rows in tokens.items() if name != "token_type_ids"}


def words_alone(folder):
    """Token ids of static vectors by the library tokenizers, padded by hand."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = [one.ids for one in tokenizer.encode_batch(HARD)]
    longest = max(map(len, ids))
    padded = np.array([[*row, *[0] * (longest - len(row))] for row in ids])
    mask = np.array([[1] * len(row) + [0] * (longest - len(row)) for row in ids])
    return {"input_ids": padded, "attention_mask": mask}


@pytest.mark.parametrize("kind", KINDS)
def test_its_products_are_the_weighted_sums_of_the_cosines_of_both(kind, pairs, graphs):
    vectors = OnnxEncoder(graphs[kind].folder).encode(HARD)
    np.testing.assert_allclose(vectors @ vectors.T, expected(pairs[kind]), atol=1e-5)
    assert graphs[kind].judgement.cosine >= 0.9999


@pytest.mark.parametrize("kind", KINDS)
def test_onnxruntime_alone_opens_it_with_the_tokenizers_beside_it(kind, pairs, graphs):
    folder = graphs[kind].folder
    session = onnxruntime.InferenceSession(str(folder / "onnx" / "model.onnx"), providers=["CPUExecutionProvider"])
    how = {"padding": True, "truncation": True, "return_tensors": "np"}
    if kind == "one tokenizer":
        given = feeds(AutoTokenizer.from_pretrained(folder)(HARD, **how))
    else:
        given = feeds(AutoTokenizer.from_pretrained(folder / "0")(HARD, **how), "_0")
        given |= feeds(words_alone(folder / "1"), "_1")
    (vectors,) = session.run(None, given)
    np.testing.assert_allclose(vectors @ vectors.T, expected(pairs[kind]), atol=1e-5)


def test_one_tokenizer_has_one_input_and_others_have_one_each(graphs):
    def inputs(kind):
        graph = onnx.load(graphs[kind].folder / "onnx" / "model.onnx").graph
        assert [one.name for one in graph.output] == ["sentence_embedding"]
        return {one.name: [axis.dim_param for axis in one.type.tensor_type.shape.dim] for one in graph.input}

    one = ["batch", "sequence"]
    assert inputs("one tokenizer") == {"input_ids": one, "attention_mask": one}
    first, second = ["batch", "sequence_0"], ["batch", "sequence_1"]
    assert inputs("beside words") == {
        "input_ids_0": first,
        "attention_mask_0": first,
        "input_ids_1": second,
        "attention_mask_1": second,
    }


def test_tokens_are_shared_only_where_every_text_is_read_alike(encoders):
    def share(*names):
        return onnx_module.share_tokens([encoders[name] for name in names])

    assert share("bert", "other")
    assert not share("bert", "shorter")  # the same pieces, cut elsewhere
    assert not share("bert", "prompt")
    assert not share("bert", "words")  # the same pieces without [CLS] and [SEP], never cut
    assert not share("words", "words")


def test_the_card_says_where_each_tokenizer_is(graphs):
    cards = {kind: (graphs[kind].folder / "README.md").read_text(encoding="utf-8") for kind in KINDS}
    assert "`0/tokenizer.json`" in cards["beside words"]
    assert "`0/tokenizer.json`" not in cards["one tokenizer"]
    assert "`tokenizer.json`" in cards["one tokenizer"]
    facts = {kind: json.loads((graphs[kind].folder / "export.json").read_text()) for kind in KINDS}
    assert facts["beside words"]["tokenizers"] == 2
    assert "tokenizers" not in facts["one tokenizer"]


def test_weights_are_written_once(graphs):
    for done in graphs.values():
        assert not list(done.folder.rglob("*.safetensors"))


def test_no_texts_give_a_matrix_without_rows(graphs):
    assert OnnxEncoder(graphs["beside words"].folder).encode([]).shape == (0, 32 + 12)


def test_a_missing_tokenizer_of_one_side_is_refused(graphs, tmp_path):
    shutil.copytree(graphs["beside words"].folder, tmp_path / "copy")
    (tmp_path / "copy" / "1" / "tokenizer.json").unlink()
    with pytest.raises(EncoderError, match="cannot be opened"):
        OnnxEncoder(tmp_path / "copy")


def test_a_side_that_no_graph_can_express_is_refused(encoders):
    modules = [encoders["bert"][0], Pooling(32, "mean", include_prompt=False)]
    encoder = join_encoders([encoders["words"], SentenceTransformer(modules=modules, device="cpu")], WEIGHTS)
    onnx_module.require_one_graph(encoder, "pair")
    encoder.prompts = {"query": "the old "}
    with pytest.raises(EncoderError, match="leaves the words of a prompt out"):
        onnx_module.require_one_graph(encoder, "pair")
    nested = join_encoders([encoder, encoders["words"]], WEIGHTS)
    with pytest.raises(EncoderError, match="begins with PairModule"):
        onnx_module.require_one_graph(nested, "pair")


def test_a_default_prompt_is_put_before_the_side_that_has_some(encoders, tmp_path):
    first = load_encoder(make_base(tmp_path / "base", seed=3), max_length=32)  # as the other: it would share its tokens
    first.prompts, first.default_prompt_name = {"query": "she reads ", "document": "a book "}, "query"
    both = first, encoders["other"]
    save_encoder(join_encoders(both, WEIGHTS), tmp_path / "pair")
    export_module._write_onnx(load_encoder(tmp_path / "pair"), tmp_path / "graph", int8=False)
    for name, given in (("query", None), ("document", "a book ")):
        sides = first.encode_query(HARD) if name == "query" else first.encode_document(HARD), both[1].encode(HARD)
        rows = [weight**0.5 * unit(side) for weight, side in zip(WEIGHTS, sides, strict=True)]
        found = OnnxEncoder(tmp_path / "graph").encode(HARD, prompt=given)
        np.testing.assert_allclose(found, unit(np.hstack(rows)), atol=1e-5)  # 1 where one side knows no word, too


def test_a_smaller_pair_of_which_a_map_is_taken_is_one_graph_of_its_own_width(encoders, corpus, tmp_path):
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(44, 7)))[0].astype(np.float32)
    affine = AffineMap(*(rng.normal(size=size).astype(np.float32) for size in ((44, 44), 44)))
    pair = turn_encoder(map_encoder(join_encoders([encoders["bert"], encoders["words"]], WEIGHTS), affine), axes)
    save_encoder(pair, tmp_path / "pair")
    done = export_model(tmp_path / "pair", "onnx", corpus=corpus, out=tmp_path / "out", precision="fp32")
    found = OnnxEncoder(done.folder).encode(HARD)
    assert found.shape == (len(HARD), 7)
    assert found == pytest.approx(pair.encode(HARD), abs=1e-4)
