"""Caption-image retrieval on made features."""

import pickle

import numpy as np
import pytest
import torch

from selfsent.errors import DataError
from selfsent.evaluation.senteval import caption_retrieval
from selfsent.evaluation.senteval.declutr_averages import DOWNSTREAM


def write(folder, images=40, width=6):
    """Caption words name the image; its features are random."""
    place = folder / "COCO"
    place.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for file in caption_retrieval.FILES.values():
        content = {
            "features": rng.normal(size=(images, width)).astype(np.float32),
            "image_to_caption_ids": {image: [10 * image + k for k in range(6)] for image in range(images)},
            "captions": {
                10 * image + k: {"cleaned_caption": f"{file} image {image} said {k}"}
                for image in range(images)
                for k in range(6)
            },
        }
        (place / file).write_bytes(pickle.dumps(content, protocol=2))
    return folder


def embedded(task, noise):
    """Vectors of captions: a turned copy of their image's features, and noise."""
    rng = np.random.default_rng(1)
    turn = rng.normal(size=(6, 8))
    parts = [np.repeat(images.features, 5, axis=0) @ turn for images in task.splits.values()]
    vectors = np.concatenate(parts)
    return (vectors + noise * rng.normal(size=vectors.shape)).astype(np.float32)


def test_five_captions_an_image_are_read_in_its_order(tmp_path):
    task = caption_retrieval.read_captions(write(tmp_path))
    test = task.splits["test"]
    assert len(task.texts) == 3 * 200
    assert test.captions[5:11:5] == ["test.pkl image 1 said 0 .", "test.pkl image 2 said 0 ."]
    assert test.features.shape == (40, 6)


def test_captions_that_know_their_image_find_it_and_others_guess(tmp_path, monkeypatch, reports):
    monkeypatch.setattr(caption_retrieval, "WIDTH", 200)  # small enough for a test
    monkeypatch.setattr(caption_retrieval, "CONTRASTS", 8)
    monkeypatch.setattr(caption_retrieval, "BATCH_SIZE", 25)
    task = caption_retrieval.read_captions(write(tmp_path))
    scores = task.score(embedded(task, 0.1), resamples=20, seed=0, progress=reports)
    main = scores[0]
    assert (main.metric, main.aggregation) == DOWNSTREAM["captions"][0]
    assert main.value == pytest.approx(np.mean([score.value for score in scores[1:7]]))
    assert main.value > 70
    assert main.low <= main.value <= main.high
    assert scores[-1].split == "dev"
    assert reports[-1][0] == "captions: passes"
    blind = np.random.default_rng(2).normal(size=(600, 8)).astype(np.float32)
    # Guessing: 1, 5 and 10 of 40 images for captions; for images the best of five captions among 200.
    assert task.score(blind, resamples=0, seed=0)[0].value < 40


def test_the_hinge_loss_is_its_formula_with_the_published_margin():
    torch.manual_seed(0)
    images, texts = torch.nn.functional.normalize(torch.randn(2, 4, 3), dim=-1)
    other_images, other_texts = torch.nn.functional.normalize(torch.randn(2, 4, 6, 3), dim=-1)
    expected = 0.0
    for n in range(4):
        match = images[n] @ texts[n]
        for k in range(6):
            expected += max(0.0, (0.2 - match + images[n] @ other_texts[n, k]).item())
            expected += max(0.0, (0.2 - match + texts[n] @ other_images[n, k]).item())
    assert caption_retrieval.hinge_loss(images, texts, other_images, other_texts).item() == pytest.approx(expected)


def test_every_row_of_a_batch_has_thirty_contrasts_in_each_direction(monkeypatch):
    seen = []
    monkeypatch.setattr(caption_retrieval, "WIDTH", 4)
    monkeypatch.setattr(caption_retrieval, "MAX_PASSES", 1)
    original = caption_retrieval.hinge_loss
    monkeypatch.setattr(
        caption_retrieval,
        "hinge_loss",
        lambda *g: seen.append([len(g[0]), *(x.shape[:2] for x in g[2:])]) or original(*g),
    )
    images, texts = torch.randn(40, 3), torch.randn(200, 3)
    caption_retrieval.train_caption_retrieval((images, texts), (images, texts))
    assert seen == [[rows, (rows, 30), (rows, 30)] for rows in (128, 72)]


def by_hand(similarity):
    """Ranks one by one."""
    images = len(similarity)
    found = np.zeros((images, 6))
    for image in range(images):
        order = np.argsort(-similarity[image], kind="stable").tolist()
        best = min(order.index(5 * image + k) for k in range(5))
        for place, at in enumerate((1, 5, 10)):
            found[image, place] = 100 * (best < at)
            for k in range(5):
                column = similarity[:, 5 * image + k]
                rank = np.argsort(-column, kind="stable").tolist().index(image)
                found[image, 3 + place] += 20 * (rank < at)
    return found


def test_recalls_equal_those_counted_one_by_one():
    torch.manual_seed(0)
    model = caption_retrieval.Projections(4, 5)
    images, texts = torch.randn(30, 4), torch.randn(150, 5)
    with torch.no_grad():
        similarity = (lambda pair: pair[0] @ pair[1].T)(model(images, texts)).numpy()
    np.testing.assert_allclose(caption_retrieval.recalls(model, images, texts), by_hand(similarity), atol=1e-4)


def test_images_are_ranked_in_parts_of_a_thousand(monkeypatch):
    torch.manual_seed(0)
    model = caption_retrieval.Projections(4, 5)
    images, texts = torch.randn(30, 4), torch.randn(150, 5)
    assert caption_retrieval.PART == 1000
    monkeypatch.setattr(caption_retrieval, "PART", 10)
    parts = [caption_retrieval.recalls(model, images[i : i + 10], texts[5 * i : 5 * i + 50]) for i in (0, 10, 20)]
    np.testing.assert_array_equal(caption_retrieval.recalls(model, images, texts), np.concatenate(parts))


def test_a_collapsed_encoder_finds_nothing():
    model = caption_retrieval.Projections(4, 5)
    torch.nn.init.zeros_(model.text.weight)
    found = caption_retrieval.recalls(model, torch.randn(30, 4), torch.randn(150, 5))
    assert found[:, :3].max() == 0


class Harm:
    """Would run a command when opened carelessly."""

    def __reduce__(self):
        return print, ("harm",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps({"features": Harm()}), "asks for builtins.print"),
        (pickle.dumps({"features": np.zeros((2, 3))})[:-20], "not one of SentEval's caption files"),
        (pickle.dumps({"features": np.zeros((2, 3))}), "not one of SentEval's caption files"),
        (
            pickle.dumps(
                {
                    "features": np.full((1, 3), np.nan),
                    "image_to_caption_ids": [[0] * 5],
                    "captions": {0: {"cleaned_caption": "a"}},
                }
            ),
            "NaN or infinite",
        ),
        (
            pickle.dumps(
                {
                    "features": np.zeros((1, 3)),
                    "image_to_caption_ids": [[0] * 4],
                    "captions": {0: {"cleaned_caption": "a"}},
                }
            ),
            "at least 5 captions",
        ),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_refused_and_never_run(tmp_path, capsys, content, message):
    folder = write(tmp_path)
    (folder / "COCO" / "test.pkl").write_bytes(content)
    with pytest.raises(DataError, match=message):
        caption_retrieval.read_captions(folder)
    assert capsys.readouterr().out == ""


def test_a_missing_file_is_refused_and_a_missing_folder_is_a_place(tmp_path):
    assert caption_retrieval.read_captions(tmp_path) == tmp_path / "COCO"
    folder = write(tmp_path)
    (folder / "COCO" / "valid.pkl").unlink()
    with pytest.raises(DataError, match=r"COCO is incomplete: .*valid\.pkl is missing"):
        caption_retrieval.read_captions(folder)
