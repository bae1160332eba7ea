"""A labelled task: texts or pairs of texts with a class, and the accuracy of a classifier on their vectors.

Examples are sorted by their number of tokens and then by label, as in SentEval: the folds and the orders of training
depend on it.  The interval is that of a bootstrap over the test rows with the classifiers as trained: it covers the
sampling of the test set, not the variance of training or of the seed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from selfsent.errors import DataError
from selfsent.evaluation import bootstrap
from selfsent.evaluation.score import Score, measured
from selfsent.evaluation.senteval.batched_classifier import SEED, Features, Rows
from selfsent.evaluation.senteval.cross_validation import Classifier, cross_validate
from selfsent.evaluation.task import FORM, LabelledExamples, Task, Vectors
from selfsent.progress import SILENT, Prefixed, Progress

PROCEDURES = {  # by the split whose rows choose the regulariser: the first of these that a task has
    "all": "nested cross-validation",
    "dev": "train, dev and test set",
    "train": "cross-validation on train, test set",
}
FEATURES = {"text": "u", "pair": "|u-v|, u*v", "entailment": "u, v, u*v, |u-v|"}


@dataclass(frozen=True, kw_only=True)
class Classification(Task):
    """One labelled task, with the classifier that will score it."""

    splits: Mapping[str, LabelledExamples]  # "train", "dev", "test" as far as there are such; nested: "all"
    classifier: Classifier
    kind: Literal["text", "pair", "entailment"] = "text"
    with_f1: bool = False  # of class 1, beside the accuracy
    facts: Mapping[str, object] = field(default_factory=dict)  # for the protocol of the scores

    @property
    def texts(self) -> list[str]:
        """The texts of all splits in order."""
        return [text for examples in self.splits.values() for text in examples.texts]

    def content(self) -> Iterator[str | bytes]:
        """Yield texts and labels."""
        yield from super().content()
        yield from (f"{name} {examples.labels}" for name, examples in self.splits.items())

    def score(self, vectors: Vectors, *, resamples: int, seed: int, progress: Progress = SILENT) -> list[Score]:
        """Score vectors given in the order of ``texts``: test accuracy, F1 where it is usual, development accuracy.

        Raises:
            DataError: the labels cannot be learned: one class only, or one too rare for the folds.
        """
        features, rows = self._features(vectors.astype(np.float32, copy=False))
        labels = np.concatenate([np.array(examples.labels, dtype=np.int64) for examples in self.splits.values()])
        try:
            result = cross_validate(
                features, labels, rows, self.classifier, progress=Prefixed(progress, f"{self.name}: ")
            )
        except DataError as error:
            raise DataError(f"{self.name} cannot be scored: {error}") from None

        chosen_by = next(split for split in PROCEDURES if split in rows)
        protocol: dict[str, object] = {
            "classifier": self.classifier.name,
            "procedure": PROCEDURES[chosen_by],
            "folds": None if chosen_by == "dev" else self.classifier.folds,
            "classifier_seed": SEED,
            "features": FEATURES[self.kind],
            "texts": FORM,
            "regulariser": " ".join(result.chosen),
            "fits": result.fits,
            "interval": "over test rows",
            **self.facts,
        }
        truth = labels[rows.get("test", rows[chosen_by])]
        actual, predicted = truth == 1, result.predictions == 1
        correct = (truth == result.predictions) * result.shares  # a row's part of the accuracy
        # Beside it, whether a row is a true, a false or a missed positive.
        columns = np.stack([correct, actual & predicted, ~actual & predicted, actual & ~predicted], axis=1)
        drawn = bootstrap.means(columns, resamples, seed=seed, name=self.name)
        parts = [("test", "accuracy", result.accuracy, 100 * drawn[0], len(columns))]
        if self.with_f1:
            value = round(100 * float(_f1(columns.mean(axis=0)[1:, None])[0]), 2)
            parts.append(("test", "f1", value, 100 * _f1(drawn[1:]), len(columns)))
        scores = [measured(self.name, *part, protocol) for part in parts]
        # The best of several on the rows it was chosen by: an interval would not say how it does on other rows.
        return [*scores, measured(self.name, "dev", "accuracy", result.devacc, None, len(rows[chosen_by]), protocol)]

    def _features(self, vectors: Float[np.ndarray, "N D"]) -> tuple[Features, dict[str, Rows]]:
        """Return the features of all examples, and which of them are in which split."""
        values = torch.from_numpy(np.ascontiguousarray(vectors))
        counts = [len(examples.labels) for examples in self.splits.values()]
        rows = dict(zip(self.splits, np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1]), strict=True))
        if self.kind == "text":
            return Features.of(values), rows
        sides = torch.arange(len(values)).split(np.repeat(counts, 2).tolist())  # of every split left, then right
        left, right = torch.cat(sides[::2]), torch.cat(sides[1::2])
        if self.kind == "entailment":
            return entailment_features(values, left, right), rows
        return Features.of(pair_features(values[left], values[right])), rows


def entailment_features(vectors: Float[Tensor, "N D"], left: Int[Tensor, " M"], right: Int[Tensor, " M"]) -> Features:
    """Return [u, v, u*v, |u-v|], computed when needed: half a million rows of them would fill the memory."""

    def take(rows: Int[Tensor, " K"]) -> Float[Tensor, "K F"]:
        u, v = vectors[left[rows]], vectors[right[rows]]
        return torch.cat([u, v, u * v, (u - v).abs()], dim=1)

    return Features(4 * vectors.shape[1], take)


def pair_features(u: Float[Tensor, "N D"], v: Float[Tensor, "N D"]) -> Float[Tensor, "N F"]:
    """Return [|u-v|, u*v], (N, 2 D)."""
    return torch.cat([(u - v).abs(), u * v], dim=1)


def _f1(counts: Float[np.ndarray, "3 R"]) -> Float[np.ndarray, " R"]:
    true, false, missed = counts
    total = 2 * true + false + missed
    return np.divide(2 * true, total, out=np.zeros_like(total), where=total > 0)
