"""Static vectors without torch: the vectors, digest and refusals of the same folder opened by sentence-transformers."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from damage import change_json, change_tensors, static_vectors
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize
from tiny import TEXTS

from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import as_encoder, open_encoder
from selfsent.encoder.static import StaticEncoder, mean_vectors
from selfsent.encoder.transformers_encoder import TransformersEncoder
from selfsent.errors import EncoderError

ODD = ["", " ", "zebra", "the zebra [SEP] cat", "Él é\u0301 ﬁ 北京 the", "the\tcat\ud800", "cat " * 900]


@pytest.fixture(params=["plain", "of length 1", "with prompts", "in float16"])
def folder(request, tmp_path):
    """A folder of random vectors, 12 wide."""
    prompts = {"query": "cat ", "document": ""} if request.param == "with prompts" else None
    encoder = static_vectors(None, *[Normalize()] * (request.param == "of length 1"), prompts=prompts)
    encoder.save(str(tmp_path / "static"), create_model_card=False)
    if request.param == "in float16":
        weights = tmp_path / "static" / "model.safetensors"
        save_file({name: table.astype(np.float16) for name, table in load_file(weights).items()}, weights)
    return tmp_path / "static"


def test_vectors_digest_and_tokens_are_those_of_sentence_transformers(folder):
    light, heavy, theirs = open_encoder(folder), as_encoder(load_encoder(folder)), SentenceTransformer(str(folder))
    assert isinstance(light, StaticEncoder)
    tolerance = 1e-2 if theirs.dtype == torch.float16 else 1e-5  # it adds in float16
    for task, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
        prompt = light.task_prompt(task)
        vectors = light.embed([*TEXTS, *ODD], prompt=prompt)
        texts = [text.encode(errors="replace").decode() for text in [*TEXTS, *ODD]]
        np.testing.assert_allclose(vectors, encode(texts, show_progress_bar=False), atol=tolerance)
        np.testing.assert_allclose(vectors, heavy.embed([*TEXTS, *ODD], prompt=prompt), atol=5e-6)
        assert light.embed(TEXTS, prompt=prompt, truncate_dim=5).shape == (len(TEXTS), 5)
    assert light.embed([]).shape == (0, light.width)
    assert light.known_tokens([*TEXTS, *ODD[:-2]]) == heavy.known_tokens([*TEXTS, *ODD[:-2]])
    assert light.digest == heavy.digest
    change_tensors(folder / "model.safetensors", lambda all_: all_["embedding.weight"].add_(1))
    assert open_encoder(folder).digest != light.digest


@pytest.mark.parametrize("texts", [7, 900])
def test_means_are_those_of_a_loop_and_of_torch(texts):
    draw = np.random.default_rng(0)
    table = draw.normal(size=(50, 6)).astype(np.float32)
    rows = [draw.integers(0, 50, draw.integers(0, 9)) for _ in range(texts)]
    ids, offsets = np.concatenate(rows), np.cumsum([0, *map(len, rows)])[:-1]
    means = mean_vectors(table, ids, offsets)
    assert means.dtype == np.float32
    for row, mean in zip(rows, means, strict=True):
        np.testing.assert_allclose(mean, table[row].mean(axis=0) if len(row) else np.zeros(6), atol=1e-6)
    bag = torch.nn.EmbeddingBag.from_pretrained(torch.from_numpy(table), mode="mean")
    torch.testing.assert_close(torch.from_numpy(means), bag(torch.from_numpy(ids), torch.from_numpy(offsets)))


def table(change):
    return lambda folder: change_tensors(
        folder / "model.safetensors", lambda all_: all_.update({name: change(value) for name, value in all_.items()})
    )


def vocabulary(change):
    """Change the words of a tokenizer, of which none is an added token then, as in model2vec's."""

    def changed(folder):
        definition = json.loads((folder / "tokenizer.json").read_text())
        definition["added_tokens"], definition["post_processor"] = [], None
        change(definition["model"]["vocab"])
        (folder / "tokenizer.json").write_text(json.dumps(definition))

    return changed


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer"),
        (lambda folder: (folder / "tokenizer.json").write_text("{"), "cannot open"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 80), "damaged"),
        (table(lambda values: values * torch.nan), "not finite"),
        (table(lambda values: values[:20].clone()), "not that of its weights"),
        (table(lambda values: values.to(torch.uint8)), "holds U8: give floats or int8"),
        (vocabulary(lambda words: words.update(gnu=words.pop("[UNK]"))), r"no token for words that .* add \[UNK\]"),
        (lambda folder: (folder / "config_sentence_transformers.json").write_text("[]"), "no table"),
        (
            lambda folder: change_json(folder / "config_sentence_transformers.json", default_prompt_name="none such"),
            "cannot open",
        ),
    ],
)
@pytest.mark.parametrize("folder", ["plain"], indirect=True)
def test_a_damaged_folder_is_refused_as_it_is_for_training(folder, damage, message):
    damage(folder)
    for opens in (open_encoder, load_encoder):
        with pytest.raises(EncoderError, match=message):
            opens(folder)


@pytest.mark.parametrize("name", ["embedding.weight", "embeddings"])  # sentence-transformers' and model2vec's
@pytest.mark.parametrize("folder", ["plain", "with prompts"], indirect=True)
def test_vectors_in_int8_are_opened_as_the_same_numbers_in_floats(folder, name):
    weights = folder / "model.safetensors"
    rows = np.clip(load_file(weights)["embedding.weight"] * 5, -127, 127).astype(np.int8)
    save_file({"embedding.weight": rows.astype(np.float32)}, weights)
    expected = SentenceTransformer(str(folder)).encode_query(TEXTS)
    back = {"mapping": np.arange(len(rows))[::-1].copy()}
    save_file({name: rows} if name == "embedding.weight" else {name: rows[::-1].copy()} | back, weights)
    light, heavy = open_encoder(folder), as_encoder(load_encoder(folder))
    assert light.digest == heavy.digest
    for opened in (light, heavy):
        np.testing.assert_allclose(opened.embed(TEXTS, prompt=opened.task_prompt("query")), expected, rtol=1e-5)


@pytest.mark.parametrize("folder", ["plain"], indirect=True)
def test_rows_and_weights_of_tokens_as_model2vec_writes_them_are_opened_without_torch(folder):
    weights = folder / "model.safetensors"
    rows = load_file(weights)["embedding.weight"]
    back, scale = np.arange(len(rows))[::-1].copy(), np.linspace(0.5, 2, len(rows))
    save_file({"embedding.weight": (rows[back] * scale[:, None]).astype(np.float32)}, weights)
    expected = open_encoder(folder).digest
    save_file({"embeddings": rows, "mapping": back, "weights": scale}, weights)
    opened = open_encoder(folder)
    assert isinstance(opened, StaticEncoder)
    assert opened.digest == expected


@pytest.mark.parametrize("folder", ["plain"], indirect=True)
def test_a_token_of_unknown_words_is_known_as_such_where_it_is_no_added_one(folder):
    vocabulary(lambda words: None)(folder)
    for opened in (open_encoder(folder), as_encoder(load_encoder(folder))):
        assert opened.known_tokens(["the 猫"]) == [[["the", None]]]
        assert opened.knows_nothing("猫 北京")


def test_other_encoders_are_opened_by_sentence_transformers(bert):
    assert isinstance(open_encoder(bert), TransformersEncoder)


def test_static_vectors_encode_and_search_without_torch(tmp_path):
    (tmp_path / "texts.txt").write_text("Delete a folder.\nOpen a file.\nAsk the user for a number.\n")
    commands = [
        ["encode", "texts.txt", "--model", "builtin-static", "--out", "vectors.npy"],
        ["search", "texts.txt", "delete the folder", "--model", "builtin-static", "--top", "1"],
        ["index", "texts.txt", "--model", "builtin-static", "--out", "index"],
        ["search", "index", "delete the folder", "--top", "1"],
    ]
    code = (
        "import sys; from selfsent.__main__ import main\n"
        f"for command in {commands}:\n"
        "    sys.argv = ['selfsent', *command]\n"
        "    try: main()\n"
        "    except SystemExit as end: assert not end.code, end.code\n"
        "assert not {'torch', 'transformers', 'sentence_transformers', 'pyarrow'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Delete a folder.") == 2
