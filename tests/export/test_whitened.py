"""An export that is partly whitened has the encoder's embeddings times a power of their covariance."""

import shutil

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from tiny import TEXTS

from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.pair_module import join_encoders
from selfsent.encoder.save import save_encoder
from selfsent.encoder.search_settings import SearchSettings, read_search_settings, write_search_settings
from selfsent.errors import EncoderError
from selfsent.export import export
from selfsent.export.export import export_model

GERMAN = SearchSettings(words=0.2, feedback=5, language="de")


@pytest.fixture(scope="module")
def whitened(folders, corpus, tmp_path_factory):
    """An export, the texts that it learned from, and the documents that judged it."""
    seen = {}
    texts_of = export._texts

    def kept(drawn, material, language):
        seen["judged"] = {document.text for document in material.documents}
        seen["learned"] = texts_of(drawn, material, language)
        return seen["learned"]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(export, "_texts", kept)
        where = tmp_path_factory.mktemp("whitened")
        model = shutil.copytree(folders["mean"], where / "model")
        write_search_settings(model, GERMAN)
        done = export_model(model, "whitened", corpus=corpus, out=where / "out", accept_loss=True)
    return done.folder, seen["learned"], seen["judged"]


def test_vectors_are_those_of_the_encoder_times_the_power_of_the_covariance(folders, whitened):
    folder, learned, _ = whitened
    *modules, _ = SentenceTransformer(str(folders["mean"]), device="cpu")  # before its Normalize
    before = SentenceTransformer(modules=modules, device="cpu")
    values, axes = np.linalg.eigh(np.cov(before.encode(learned).T))
    expected = before.encode(TEXTS) @ (axes * np.maximum(values, values[-1] / 1000) ** -0.1) @ axes.T
    vectors = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
    assert ((vectors * expected).sum(1) / lengths).min() > 0.999
    plain = before.encode(TEXTS)  # far from the encoder's own
    assert (np.linalg.norm(plain, axis=1) * np.linalg.norm(vectors, axis=1) * 0.999 > (plain * vectors).sum(1)).all()
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "with partly whitened embeddings" in card
    assert "smallest cosine" not in card
    assert read_search_settings(folder) == GERMAN


def test_it_learns_from_no_document_that_judges_it(whitened):
    _, learned, judged = whitened
    assert len(judged) >= 50
    assert not any(text in document for text in learned for document in judged)


def test_two_encoders_side_by_side_are_refused_before_anything_is_read(folders, tmp_path):
    pair = join_encoders([load_encoder(folders["mean"]), load_encoder("builtin-static")], (0.5, 0.5))
    save_encoder(pair, tmp_path / "pair")
    with pytest.raises(EncoderError, match="whiten each of them"):
        export_model(tmp_path / "pair", "whitened", corpus=tmp_path / "not there", out=tmp_path / "out")


def test_all_dimensions_of_an_encoder_that_is_cut_are_whitened(folders, corpus, tmp_path):
    short = load_encoder(folders["mean"])
    short.truncate_dim = 10
    save_encoder(short, tmp_path / "short")
    made = [
        load_encoder(
            export_model(folder, "whitened", corpus=corpus, out=out, accept_loss=True, precision="fp32").folder
        )
        for folder, out in ((tmp_path / "short", tmp_path / "a"), (folders["mean"], tmp_path / "b"))
    ]
    vectors = [encode(one, TEXTS, precision="fp32") for one in made]
    assert vectors[0] == pytest.approx(vectors[1][:, :10], rel=1e-3, abs=1e-4)


def test_a_smaller_export_has_the_first_dimensions_of_the_encoder_on_the_axes_of_the_text(folders, corpus, tmp_path):
    done = export_model(folders["mean"], "smaller", corpus=corpus, width=6, out=tmp_path / "out", accept_loss=True)
    small, whole = (SentenceTransformer(str(folder), device="cpu") for folder in (done.folder, folders["mean"]))
    vectors, before = small.encode(TEXTS), whole.encode(TEXTS)
    assert vectors.shape[1] == 6
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    axes = np.linalg.lstsq(before, vectors, rcond=None)[0]  # a linear map but for the length
    assert vectors == pytest.approx(before @ axes, abs=0.05)
    assert "with fewer dimensions" in (done.folder / "README.md").read_text(encoding="utf-8")
