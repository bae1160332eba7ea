"""What is kept gives vectors of length 1, so that L2, inner product and cosine rank alike."""

import json

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from tiny import TEXTS, make_tokenizer
from torch import nn

from selfsent.encoder.affine import AffineMap
from selfsent.encoder.embed import collate, embed
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.neighbour_map import map_encoder
from selfsent.encoder.open import as_encoder, open_encoder
from selfsent.encoder.pair_module import join_encoders
from selfsent.encoder.save import save_encoder

QUERY, *FOUND = [*TEXTS, "a dog a dog ships", "beans late late"]


def static():
    tokenizer = make_tokenizer()
    table = np.random.default_rng(0).normal(size=(len(tokenizer), 12)).astype(np.float32) * 7
    table[tokenizer.convert_tokens_to_ids("cat")] = 0
    return SentenceTransformer(
        modules=[StaticEmbedding(tokenizer._tokenizer, embedding_weights=table)], device="cpu"
    ).eval()


def mapped(bert):
    draw = np.random.default_rng(1)
    affine = AffineMap(*(draw.normal(size=size).astype(np.float32) for size in ((32, 32), (32,))))
    return map_encoder(load_encoder(bert), affine)


KINDS = {
    "static": lambda bert: static(),
    "transformer": load_encoder,
    "map": mapped,
    "pair": lambda bert: join_encoders([load_encoder(bert), static()], [0.7, 0.3]),
}


@pytest.fixture(params=KINDS)
def encoder(request, bert):
    return KINDS[request.param](bert).eval()


def openings(folder):
    return {
        "sentence-transformers": SentenceTransformer(str(folder), device="cpu", trust_remote_code=True),
        "load": load_encoder(folder),
        "open_encoder": open_encoder(folder),
    }


def test_l2_inner_product_and_cosine_rank_alike(encoder, tmp_path):
    before = encode(encoder, [QUERY, *FOUND], precision="fp32").astype(np.float64)
    save_encoder(encoder, tmp_path / "kept")
    cosines = before[1:] @ before[0] / np.linalg.norm(before[1:], axis=1) / np.linalg.norm(before[0])
    for name, opened in openings(tmp_path / "kept").items():
        if name == "sentence-transformers":
            vectors = opened.encode([QUERY, *FOUND])
        else:
            vectors = encode(opened, [QUERY, *FOUND], precision="fp32")
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5, err_msg=name)
        query, found = vectors[0], vectors[1:]
        np.testing.assert_allclose(found @ query, cosines, atol=1e-5, err_msg=name)  # the angles are as they were
        order = np.argsort(-cosines).tolist()
        assert np.argsort(-(found @ query)).tolist() == order, name
        assert np.argsort(np.linalg.norm(found - query, axis=1)).tolist() == order, name


def test_a_text_that_one_encoder_of_a_pair_does_not_know_has_length_1(bert, tmp_path):
    save_encoder(KINDS["pair"](bert).eval(), tmp_path)  # the static vector of its only word is zero
    for name, opened in openings(tmp_path).items():
        vectors = opened.encode(["cat"]) if name == "sentence-transformers" else encode(opened, ["cat"])
        np.testing.assert_allclose(np.linalg.norm(vectors), 1, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("kind", ["static", "transformer"])
def test_training_and_classifiers_see_the_lengths_from_before(kind, bert, tmp_path):
    encoder = KINDS[kind](bert).eval()
    save_encoder(encoder, tmp_path / "once")
    again = load_encoder(tmp_path / "once")
    save_encoder(again, tmp_path / "twice")
    raw = encode(encoder, TEXTS, precision="fp32")
    assert np.abs(np.linalg.norm(raw, axis=1) - 1).max() > 0.1
    for folder in (tmp_path / "once", tmp_path / "twice"):
        kept, opened = load_encoder(folder), open_encoder(folder)
        assert len(kept) == len(encoder) + 1  # once, however often it is saved
        for reads in (opened, as_encoder(kept)):
            np.testing.assert_allclose(reads.before_unit().embed(TEXTS, precision="fp32"), raw, atol=1e-5)
        assert opened.digest == as_encoder(kept).digest != opened.before_unit().digest
        if kind == "transformer":
            tokens = collate(kept, kept.tokenizer(TEXTS)["input_ids"])
            with torch.no_grad():
                np.testing.assert_allclose(embed(kept, tokens).numpy(), raw, atol=1e-5)


def test_a_head_that_is_kept_stands_before_the_normalize(bert, tmp_path):
    save_encoder(load_encoder(bert), tmp_path / "base")
    head = nn.Linear(32, 32)
    save_encoder(load_encoder(tmp_path / "base"), tmp_path / "trained", head=head)
    with torch.no_grad():
        expected = torch.tanh(head(torch.from_numpy(encode(load_encoder(bert), TEXTS, precision="fp32"))))
    expected = nn.functional.normalize(expected, dim=1).numpy()
    np.testing.assert_allclose(encode(load_encoder(tmp_path / "trained"), TEXTS, precision="fp32"), expected, atol=1e-5)


def test_a_normalize_of_somebody_else_is_trained_through(bert, tmp_path):
    normal = load_encoder(bert)
    modules = SentenceTransformer(modules=[*normal, Normalize()], device="cpu")
    modules.save(str(tmp_path), create_model_card=False)
    opened = load_encoder(tmp_path)
    tokens = collate(opened, opened.tokenizer(TEXTS)["input_ids"])
    np.testing.assert_allclose(embed(opened, tokens).norm(dim=1).detach(), 1, atol=1e-5)
    assert not open_encoder(tmp_path).unit_added


def test_others_may_read_what_is_kept(encoder, tmp_path):
    save_encoder(encoder, tmp_path / "kept")
    (tmp_path / "new").write_text("")
    modes = {path.stat().st_mode for path in (tmp_path / "kept").rglob("*") if path.is_file()}
    assert modes == {(tmp_path / "new").stat().st_mode}


def test_model2vec_is_told_of_the_length_and_to_cut_nothing(bert, tmp_path):
    """It reads these two keys of the settings, and no module behind the vectors."""

    def said(encoder, name, **how):
        save_encoder(encoder, tmp_path / name, **how)
        settings = json.loads((tmp_path / name / "config_sentence_transformers.json").read_text())
        return {key: settings[key] for key in ("normalize", "max_length") if key in settings}

    assert said(static(), "static") == {"normalize": True, "max_length": None}
    assert said(static(), "as it was", as_is=True) == said(load_encoder(bert), "transformer") == {}
