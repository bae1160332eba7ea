"""Latent semantic axes: slow loops and a dense singular value decomposition say what every row of the table is."""

import math

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from selfsent.encoder.load import load_encoder
from selfsent.errors import EncoderError
from selfsent.word_vectors.latent_axes import add_latent_axes, latent_vectors

PIECES = ["[UNK]", "the", "ship", "ships", "sails", "bread", "oven", "##s", "##,", ",", "bakes", "wind"]
STEMS = {"ship": "ship", "ships": "ship", "sails": "sail", "bread": "bread", "oven": "oven", "bakes": "bake"}
STEMS |= {"wind": "wind", "##s": "##s"}  # of "the" and of punctuation there are none
TEXTS = [
    "the ship sails, the ships",
    "ships wind wind wind",
    "the bread bakes, bread",
    "oven bread ovens",
    "wind sails",
    "the oven, the oven",
    "bread",
]
AXES = 3


@pytest.fixture(scope="module")
def encoder():
    tokenizer = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer()
    table = np.random.default_rng(1).normal(size=(len(PIECES), 5)).astype(np.float32)
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=table)], device="cpu")


def tokens(encoder, text):
    return encoder[0].tokenizer.encode(text, add_special_tokens=False).tokens


@pytest.fixture(scope="module")
def expected(encoder):
    """The table by the formula, word for word."""
    found = [[STEMS[token] for token in tokens(encoder, text) if token in STEMS] for text in TEXTS]
    known = sorted({*STEMS.values()})
    idf = {}
    for stem in known:
        holds = sum(stem in row for row in found)
        idf[stem] = math.log(1 + (len(TEXTS) - holds + 0.5) / (holds + 0.5))
    weights = np.array(
        [[(1 + math.log(row.count(stem))) * idf[stem] if stem in row else 0.0 for stem in known] for row in found]
    )
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    right = np.linalg.svd(weights)[2][:AXES]
    return {token: idf[stem] ** 2 * right[:, known.index(stem)] for token, stem in STEMS.items()}


def test_rows_are_those_of_the_formula_up_to_signs_and_one_factor(encoder, expected):
    wider = add_latent_axes(encoder, TEXTS, "en", axes=AXES)[0].embedding.weight.detach().numpy()
    assert wider.shape == (len(PIECES), 5 + AXES)
    slow = np.array([expected.get(piece, np.zeros(AXES)) for piece in PIECES])
    found, factor = wider[:, 5:], np.linalg.norm(wider[:, 5:]) / np.linalg.norm(slow)
    np.testing.assert_allclose(np.abs(found), np.abs(factor * slow), atol=1e-4)
    np.testing.assert_allclose(found @ found.T, factor**2 * slow @ slow.T, atol=1e-4)


def test_the_axes_alone_are_the_table_of_the_formula_and_none_where_no_text_has_a_word(encoder, expected):
    found = latent_vectors(encoder, TEXTS, "en", axes=AXES)[0].embedding.weight.detach().numpy()
    slow = np.array([expected.get(piece, np.zeros(AXES)) for piece in PIECES])
    np.testing.assert_allclose(found @ found.T, slow @ slow.T, atol=1e-5)
    assert latent_vectors(encoder, ["the", ", the"], "en", axes=AXES) is None


def test_what_is_of_no_stem_has_no_place_on_the_axes_and_stems_share_one(encoder):
    rows = dict(zip(PIECES, add_latent_axes(encoder, TEXTS, "en", axes=AXES)[0].embedding.weight[:, 5:], strict=True))
    assert all(not rows[piece].any() for piece in ("[UNK]", "the", ",", "##,"))
    assert rows["ship"].any()
    assert rows["ship"].equal(rows["ships"])


def test_both_parts_of_a_mean_text_have_the_same_length_and_what_was_there_keeps_its_directions(encoder):
    before, after = encoder.encode(TEXTS), add_latent_axes(encoder, TEXTS, "en", axes=AXES).encode(TEXTS)
    lengths = [np.linalg.norm(after[:, columns], axis=1).mean() for columns in (slice(0, 5), slice(5, None))]
    np.testing.assert_allclose(lengths, 1.0, rtol=1e-5)
    factor = np.linalg.norm(after[:, :5]) / np.linalg.norm(before)
    np.testing.assert_allclose(after[:, :5], factor * before, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("texts", "axes"), [(TEXTS[:2], 2), ([*TEXTS[:2]] * 9, 2), (["the, the", "the"], 0)], ids=str)
def test_a_text_has_no_more_axes_than_directions(encoder, texts, axes):
    wider = add_latent_axes(encoder, texts, "en")
    assert wider.get_embedding_dimension() == 5 + axes
    assert wider[0].embedding.weight.isfinite().all()
    unseen = wider[0].embedding.weight[PIECES.index("oven"), 5:]
    assert not unseen.any()


def test_an_encoder_with_layers_is_refused(bert):
    with pytest.raises(EncoderError, match="only static word vectors"):
        add_latent_axes(load_encoder(bert), TEXTS, "en")
