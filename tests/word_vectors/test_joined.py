"""Word vectors of one text beside general ones: every row has two halves, and nothing general is lost."""

import json

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from two_subjects import KITCHEN, SEA

from selfsent.encoder.load import load_encoder
from selfsent.errors import EncoderError
from selfsent.word_vectors.joined import build_joined_vectors, compose_rows

WIDTH = 6  # of the general vectors
# Some words of the text, some that it lacks, and letters to spell the others with.
PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("the", "of", "ship", "bread", "zebra", "planet", "cap", "##tain", "har", "##bour"),
    *"abcdefghijklmnopqrstuvwxyz.",
    *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"),
]


@pytest.fixture(scope="module")
def general():
    tokenizer = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    table = np.random.default_rng(1).normal(size=(len(PIECES), WIDTH)).astype(np.float32)
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=table)], device="cpu")


@pytest.fixture(scope="module")
def folder(general, text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("joined") / "model"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SELFSENT_CACHE", str(tmp_path_factory.getbasetemp() / "pretrain-cache"))
        build_joined_vectors(text, general, folder, seed=7)
    return folder


@pytest.fixture(scope="module")
def table(folder):
    """The vocabulary and the two halves of the table."""
    static = load_encoder(folder)[0]
    weight = static.embedding.weight.detach()
    return static.tokenizer.get_vocab(), weight[:, :-WIDTH], weight[:, -WIDTH:]


def general_row(general, *pieces):
    return general[0].embedding.weight.detach()[[PIECES.index(piece) for piece in pieces]].sum(dim=0)


def test_the_vocabulary_of_the_general_tokenizer_is_kept_and_words_of_the_text_join_it(table):
    vocabulary, _, _ = table
    assert all(vocabulary[piece] == number for number, piece in enumerate(PIECES))
    assert set(SEA + KITCHEN) <= set(vocabulary)
    assert sorted(vocabulary.values()) == list(range(len(vocabulary)))


def test_known_pieces_keep_their_general_vector_but_for_one_scale(general, table):
    vocabulary, _, half = table
    scale = half[vocabulary["ship"]].norm() / general_row(general, "ship").norm()
    for piece in PIECES:
        torch.testing.assert_close(half[vocabulary[piece]], scale * general_row(general, piece))


@pytest.mark.parametrize(
    ("word", "spelled"),
    [("captain", ["cap", "##tain"]), ("harbour", ["har", "##bour"]), ("tide", ["t", "##i", "##d", "##e"])],
)
def test_an_unknown_word_has_the_sum_of_the_pieces_that_it_was_spelled_with(word, spelled, general, table):
    vocabulary, _, half = table
    assert word not in PIECES
    scale = half[vocabulary["ship"]].norm() / general_row(general, "ship").norm()
    torch.testing.assert_close(half[vocabulary[word]], scale * general_row(general, *spelled))


def test_a_piece_inside_words_is_spelled_with_pieces_inside_words(general):
    wider = Tokenizer(models.WordPiece({"[UNK]": 0, "##bread": 1}, unk_token="[UNK]"))
    rows = compose_rows(wider, general[0].tokenizer, general[0].embedding.weight.detach())
    # "bread" begins a word: inside one there is no such piece, so that nothing is known of it.
    assert rows[1].tolist() == [0.0] * WIDTH
    wider = Tokenizer(models.WordPiece({"[UNK]": 0, "##abc": 1}, unk_token="[UNK]"))
    rows = compose_rows(wider, general[0].tokenizer, general[0].embedding.weight.detach())
    torch.testing.assert_close(rows[1], general_row(general, "##a", "##b", "##c"))


def test_pieces_that_the_text_lacks_have_zeros_where_they_would_have_been_counted(table):
    vocabulary, counted, _ = table
    for piece in ("zebra", "planet", "[PAD]", "[CLS]", "q"):
        assert not counted[vocabulary[piece]].any()
    for word in SEA + KITCHEN:
        assert counted[vocabulary[word]].any()


def test_either_half_is_one_long_on_average_over_the_pieces_of_the_text(table):
    _, counted, half = table
    of_text = counted.any(dim=1)
    assert of_text.sum() > len(SEA + KITCHEN)
    assert counted[of_text].norm(dim=1).mean().item() == pytest.approx(1, abs=1e-4)
    assert half[of_text].norm(dim=1).mean().item() == pytest.approx(1, abs=1e-4)


def test_the_folder_opens_in_sentence_transformers_and_a_text_is_the_mean_of_its_rows(folder, table):
    vocabulary, counted, half = table
    found = SentenceTransformer(str(folder), device="cpu").encode(["The ship", "zebra"])
    rows = torch.cat([counted, half], dim=1)
    means = torch.stack([rows[[vocabulary["the"], vocabulary["ship"]]].mean(dim=0), rows[vocabulary["zebra"]]])
    np.testing.assert_allclose(found, torch.nn.functional.normalize(means), atol=1e-5)  # of length 1


def test_the_same_text_and_seed_give_the_same_bytes(folder, general, text, tmp_path):
    build_joined_vectors(text, general, tmp_path / "again", seed=7)
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_what_tokenizes_the_general_text_is_not_changed(general, text, tmp_path):
    before = general.encode(["the captain of the ship"])
    build_joined_vectors(text, general, tmp_path / "again")
    np.testing.assert_array_equal(general.encode(["the captain of the ship"]), before)
    assert json.loads((tmp_path / "again" / "modules.json").read_text())[0]["type"].endswith("StaticEmbedding")


def test_an_encoder_with_layers_cannot_be_the_general_half(bert, text, tmp_path):
    with pytest.raises(EncoderError, match="only static word vectors"):
        build_joined_vectors(text, load_encoder(bert), tmp_path / "model")
