"""Static vectors from raw text, and from files of word vectors."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from small_runs import Told

from selfsent.errors import ConfigurationError, DataError, UserError
from selfsent.progress import SILENT
from selfsent.word_vectors import factorization, static_vectors

SMALL = static_vectors.StaticConfig(vocabulary=120, factors=factorization.FactorConfig(width=8))


@pytest.fixture(scope="module")
def folder(text, tmp_path_factory):
    return static_vectors.build_static_vectors([str(text)], tmp_path_factory.mktemp("static") / "run", SMALL)


@pytest.fixture
def read(tmp_path):
    """Make an encoder of a file of vectors, given as its content."""

    def read(content, progress=SILENT):
        (tmp_path / "vectors.txt").write_text(content, encoding="utf-8")
        folder = static_vectors.read_word_vectors(tmp_path / "vectors.txt", tmp_path / "run", progress=progress)
        return SentenceTransformer(str(folder))

    return read


def test_texts_of_one_subject_are_nearer_than_those_of_two(folder):
    model = SentenceTransformer(str(folder))
    sea, more_sea, kitchen = model.encode(["the ship and the storm", "captain of the harbour", "bread with butter"])
    cosine = torch.nn.functional.cosine_similarity
    near, far = (cosine(*map(torch.from_numpy, pair), dim=0) for pair in ((sea, more_sea), (sea, kitchen)))
    assert near > far + 0.5


def test_frequent_words_weigh_less_and_special_tokens_nothing(folder):
    model = SentenceTransformer(str(folder))
    known, weight = model[0].tokenizer.get_vocab(), model[0].embedding.weight
    assert weight[known["the"]].norm() < 0.5 * weight[known["ship"]].norm()
    assert not weight[[known["[CLS]"], known["[MASK]"], known["[UNK]"]]].any()


def test_the_sif_coefficient_scales_each_word_by_a_over_a_plus_p(text, tmp_path):
    found = []
    for coefficient in (0.05, 1e9):  # the second weighs all words alike
        settings = replace(SMALL, factors=factorization.FactorConfig(width=8, sif_coefficient=coefficient, common=0))
        model = SentenceTransformer(
            str(static_vectors.build_static_vectors([str(text)], tmp_path / str(coefficient), settings))
        )
        found.append(model[0].embedding.weight[model[0].tokenizer.get_vocab()["the"]].norm().item())
    texts = [json.loads(line)["text"] for line in text.read_text(encoding="utf-8").splitlines()]
    pieces = [piece for encoded in model[0].tokenizer.encode_batch(texts) for piece in encoded.tokens]
    share = pieces.count("the") / len([piece for piece in pieces if not piece.startswith("[")])
    assert found[0] / found[1] == pytest.approx(0.05 / (0.05 + share), rel=0.02)


def test_the_same_text_and_seed_give_the_same_vectors(folder, text, tmp_path):
    again = static_vectors.build_static_vectors([str(text)], tmp_path / "again", SMALL)
    assert (again / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_a_folder_that_holds_something_is_left_alone(text, tmp_path):
    (tmp_path / "note").write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match="exists: choose another --out"):
        static_vectors.build_static_vectors([str(text)], tmp_path, SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["note"]


def test_vectors_wider_than_the_vocabulary_are_refused(text, tmp_path):
    wide = static_vectors.StaticConfig(vocabulary=120, factors=factorization.FactorConfig(width=120))
    with pytest.raises(ConfigurationError, match="120 tokens cannot have vectors 120 wide"):
        static_vectors.build_static_vectors([str(text)], tmp_path / "run", wide)
    assert not (tmp_path / "run").exists()


GLOVE = "the 0.5 0 0\nship 0 1 0\nship 9 9 9\nsoup 0 0 1\n"


@pytest.mark.parametrize("header", ["", "3 3\n", "\ufeff3 3\n", "\ufeff"])  # with a byte-order mark, too
def test_a_file_of_vectors_becomes_an_encoder(header, read):
    vectors = read(header + GLOVE).encode(["The ship", "soup", "unheard"])
    assert np.allclose(vectors, [[0.2**0.5, 0.8**0.5, 0], [0, 0, 1], [0, 0, 0]])


def test_a_file_with_capitals_keeps_them_apart(read):
    assert np.allclose(read("Turkey 1 0\nturkey 0 1\n").encode(["Turkey", "turkey"]), np.eye(2))


def test_words_with_spaces_as_glove_840b_has_them_are_read(tmp_path):
    (tmp_path / "vectors.txt").write_text("a 1 0\n. . . 0 1\n", encoding="utf-8")
    words, rows = static_vectors._parse(tmp_path / "vectors.txt", SILENT)
    assert words == ["a", ". . ."]
    assert rows.tolist() == [[1, 0], [0, 1]]


def test_one_capital_in_a_large_file_is_no_reason_to_keep_capitals(read):
    words = "".join(f"word{number} {number} 1\n" for number in range(300))
    assert np.allclose(read(f"UNK 5 5\n{words}").encode(["WORD7"]), [[0.98**0.5, 0.02**0.5]])


def test_words_that_no_text_can_hold_are_counted_aloud(read):
    told = Told()
    model = read("ship 1 0\nn't 0 1\nu.s. 1 1\n北京 2 0\n", told)
    assert told.said == [
        "4 words, without capitals; 2 of them are never looked up, because texts are split at spaces and punctuation"
    ]
    assert np.allclose(model.encode(["北京"]), [[1, 0]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a 1 0\nb 1\n", "line 2 of .* is not a word and 2 numbers"),
        (b"a 1 0\nb 1 x\n", "line 2 of .* is not a word and 2 numbers"),
        (b"a 1 0\nb 1 nan\n", "line 2 of .* is not a word and 2 numbers"),
        (b"a 1 0\n\xff\xfe\x00", "line 2 of .* is not a word and 2 numbers between spaces in UTF-8"),
        (b"a 1 0\n", "holds no word vectors"),
        (b"", "holds no word vectors"),
    ],
)
def test_a_file_of_something_else_is_named_with_its_line(content, message, tmp_path):
    (tmp_path / "vectors.txt").write_bytes(content)
    with pytest.raises(DataError, match=message):
        static_vectors.read_word_vectors(tmp_path / "vectors.txt", tmp_path / "run")
    assert not (tmp_path / "run").exists()
