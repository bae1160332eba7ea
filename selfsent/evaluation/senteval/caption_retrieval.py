"""Caption-image retrieval on frozen sentence vectors and given image features, as in SentEval's COCO task.

Vectors of captions and features of images are projected linearly to one space of unit vectors; a hinge loss with margin
0.2 compares each matching pair with 30 random captions for its image and 30 random images for its caption.  Adam,
batches of 128.  After each pass the recalls of the development set are taken; training ends after the fourth pass that
does not improve them, or after 20 passes.

    recall    the mean of recall@1, @5 and @10, from images to captions (any of the five counts) and back; sets of
              several thousand images are ranked in parts of 1,000.  Ties with the answer rank above it.

Files: ``COCO/{train,valid,test}.pkl`` as SentEval distributes them: ``features`` (N, F), ``image_to_caption_ids`` and
``captions``.  They are unpickled without executing code.  Their size makes this a task for a GPU.
Source: the protocol of facebookresearch/SentEval @ 5d6dc11, senteval/rank.py, with our own random draws.
"""

import pickle
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from selfsent.errors import DataError
from selfsent.evaluation import bootstrap
from selfsent.evaluation.score import Score, measured
from selfsent.evaluation.senteval.batched_classifier import SEED, Stopping
from selfsent.evaluation.task import Task, Vectors
from selfsent.progress import SILENT, Prefixed, Progress

FILES = {"train": "train.pkl", "dev": "valid.pkl", "test": "test.pkl"}
CAPTIONS = 5  # of an image
PART = 1000  # images ranked together
WIDTH = 1000  # of the common space
MARGIN = 0.2
CONTRASTS = 30
BATCH_SIZE = 128
MAX_PASSES = 20
TENACITY = 3
AT = (1, 5, 10)
AGGREGATION = "mean of 1, 5 and 10 in both directions"
# What a pickle may name.
ALLOWED = re.compile(
    r"numpy\._?core\.(multiarray\.(_reconstruct|scalar)|numeric\.(_reconstruct|_frombuffer))"
    r"|numpy\.(ndarray|dtype)|_codecs\.encode"
)


@dataclass(frozen=True, kw_only=True)
class Images:
    """Image features and the captions of each image, five in a row."""

    features: Float[np.ndarray, "I F"]
    captions: list[str]


@dataclass(frozen=True, kw_only=True)
class Captions(Task):
    """The three splits."""

    splits: Mapping[str, Images]

    @property
    def texts(self) -> list[str]:
        """The captions of all splits in order."""
        return [text for images in self.splits.values() for text in images.captions]

    def content(self) -> Iterator[str | bytes]:
        """Yield captions and features."""
        for images in self.splits.values():
            yield "\n".join(images.captions)
            yield np.ascontiguousarray(images.features).tobytes()

    def score(self, vectors: Vectors, *, resamples: int, seed: int, progress: Progress = SILENT) -> list[Score]:
        """Score vectors given in the order of ``texts``; intervals resample the images, each with its captions."""
        sizes = [len(images.captions) for images in self.splits.values()]
        texts = torch.from_numpy(vectors.astype(np.float32)).split(sizes)
        train, dev, test = zip([torch.from_numpy(part.features) for part in self.splits.values()], texts, strict=True)
        model, best = train_caption_retrieval(train, dev, progress=Prefixed(progress, f"{self.name}: "))
        by_image = recalls(model, *test)  # (I, 6)
        columns = np.column_stack([by_image.mean(axis=1), by_image])
        drawn = bootstrap.means(columns, resamples, seed=seed, name=self.name)
        counts = {split: len(images.features) for split, images in self.splits.items()}
        protocol = {
            "classifier": f"projections to {WIDTH}, margin {MARGIN:g}",
            "classifier_seed": SEED,
            "images": "/".join(map(str, counts.values())),
            "ranked_together": _part(counts["test"]),
            "interval": "over test images",
        }
        names = [("recall", AGGREGATION)]
        names += [(f"recall@{k}", way) for way in ("image to captions", "caption to images") for k in AT]
        scores = [
            measured(self.name, "test", name, float(values.mean()), means, len(values), protocol, aggregation=way)
            for (name, way), values, means in zip(names, columns.T, drawn, strict=True)
        ]
        parts = self.name, "dev", "recall", best, None, counts["dev"], protocol
        return [*scores, measured(*parts, aggregation=AGGREGATION)]


class Projections(nn.Module):
    """Two linear maps to one space of unit vectors."""

    def __init__(self, image_width: int, text_width: int) -> None:
        super().__init__()
        self.image, self.text = nn.Linear(image_width, WIDTH), nn.Linear(text_width, WIDTH)

    def forward(self, images: Float[Tensor, "N F"], texts: Float[Tensor, "M D"]) -> tuple[Tensor, Tensor]:
        """Return unit vectors, (N, P) and (M, P)."""
        return nn.functional.normalize(self.image(images), dim=1), nn.functional.normalize(self.text(texts), dim=1)


def train_caption_retrieval(
    train: tuple[Tensor, Tensor], dev: tuple[Tensor, Tensor], *, progress: Progress = SILENT
) -> tuple[Projections, float]:
    """Train the projections on image features (I, F) and caption vectors (5 I, D); return them and the best recall."""
    images, texts = train
    count = len(texts)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = Projections(images.shape[1], texts.shape[1]).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    draws = np.random.RandomState(SEED)
    stopping = Stopping((1,), TENACITY)
    kept, passes = model.state_dict(), 0
    while stopping.running.any() and passes < MAX_PASSES:
        order = draws.permutation(count)
        for start in range(0, count, BATCH_SIZE):
            rows = torch.from_numpy(order[start : start + BATCH_SIZE])
            # Contrasts are drawn from the captions and images of all other rows.
            others = draws.randint(0, count - len(rows), size=(2, len(rows) * CONTRASTS))
            contrasts = torch.from_numpy(order[np.where(others >= start, others + len(rows), others)])
            image, text = model(images[rows // CAPTIONS].to(device), texts[rows].to(device))
            other = model(images[contrasts[0] // CAPTIONS].to(device), texts[contrasts[1]].to(device))
            optimizer.zero_grad()
            hinge_loss(image, text, *(vectors.view(len(rows), CONTRASTS, -1) for vectors in other)).backward()
            optimizer.step()
        passes += 1
        progress.report("passes", passes, MAX_PASSES)
        if stopping.update(np.array([recalls(model, *dev).mean()])):
            kept = {key: value.clone() for key, value in model.state_dict().items()}
    model.load_state_dict(kept)
    return model, float(stopping.best[0])


def hinge_loss(
    images: Float[Tensor, "N P"],
    texts: Float[Tensor, "N P"],
    other_images: Float[Tensor, "N K P"],
    other_texts: Float[Tensor, "N K P"],
) -> Float[Tensor, ""]:
    """Sum over all contrasts how much less than the margin the similarity of a matching pair lies above theirs."""
    match = (images * texts).sum(dim=1, keepdim=True)
    to_texts = (MARGIN - match + (images[:, None] * other_texts).sum(dim=2)).clamp(min=0)
    to_images = (MARGIN - match + (texts[:, None] * other_images).sum(dim=2)).clamp(min=0)
    return to_texts.sum() + to_images.sum()


@torch.no_grad()
def recalls(model: Projections, images: Float[Tensor, "I F"], texts: Float[Tensor, "M D"]) -> Float[np.ndarray, "I 6"]:
    """Return, of each image in points: recall@1, 5, 10 of its captions, then those of the image for its captions."""
    device = next(model.parameters()).device
    part = _part(len(images))
    parts = []
    for x, y in zip(images.split(part), texts.split(CAPTIONS * part), strict=True):
        image, text = model(x.to(device), y.to(device))
        similarity = image @ text.T  # (I, 5 I)
        size = len(similarity)
        own = torch.arange(size * CAPTIONS, device=device).view(size, CAPTIONS)
        answers = similarity.gather(1, own)  # (I, 5)
        # The best of the five is ranked among the captions of other images only.
        rivals = similarity.scatter(1, own, -torch.inf)
        of_image = (rivals >= answers.max(dim=1, keepdim=True).values).sum(dim=1)  # rank from 0
        of_caption = (similarity >= answers.view(1, -1)).sum(dim=0).view(size, CAPTIONS) - 1
        columns = [(of_image < k).float() for k in AT] + [(of_caption < k).float().mean(dim=1) for k in AT]
        parts.append(100 * torch.stack(columns, dim=1).double().cpu().numpy())
    return np.concatenate(parts)


def read_captions(folder: Path) -> Captions | Path:
    """Read SentEval's COCO files from its ``downstream`` folder, or return where they should have been.

    Raises:
        DataError: a file is missing beside others, or does not hold what it should.
    """
    place = folder / "COCO"
    if not place.is_dir():
        return place
    return Captions(name="captions", splits={split: _images(place / file) for split, file in FILES.items()})


def _images(path: Path) -> Images:
    try:
        with path.open("rb") as file:
            content = _PlainUnpickler(file, encoding="latin1").load()
        features = np.asarray(content["features"], dtype=np.float32)
        ids = [list(content["image_to_caption_ids"][image])[:CAPTIONS] for image in range(len(features))]
        texts = [content["captions"][caption]["cleaned_caption"] for five in ids for caption in five]
    except FileNotFoundError:
        raise DataError(f"COCO is incomplete: {path} is missing; unpack the whole set again") from None
    except (pickle.UnpicklingError, EOFError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path} is not one of SentEval's caption files ({error}): get it again") from None
    if features.ndim != 2 or not len(features) or any(len(five) != CAPTIONS for five in ids):
        raise DataError(f"{path} must hold features of images, a row each, and at least {CAPTIONS} captions for each")
    if not np.isfinite(features).all():
        raise DataError(f"{path} has image features that are NaN or infinite: get it again")
    return Images(features=features, captions=[" ".join(f"{text} .".split()) for text in texts])


class _PlainUnpickler(pickle.Unpickler):
    """Reads arrays, dicts, lists, numbers and strings, and refuses everything that would run code."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        if not ALLOWED.fullmatch(f"{module}.{name}"):
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)


def _part(images: int) -> int:
    return PART if images % PART == 0 else images
