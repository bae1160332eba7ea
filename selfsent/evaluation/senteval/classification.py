"""A labelled task: texts or pairs of texts with a class, and the accuracy of a classifier on their vectors.

Examples are sorted by their number of tokens and then by label, as SentEval feeds them: the folds and the orders of
training depend on it.  The interval is that of a bootstrap over the test rows, with the trained classifiers as they
are: it holds the luck of which texts were drawn for the test, not that of training or of the seed.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from selfsent.errors import UserError
from selfsent.evaluation import bootstrap
from selfsent.evaluation.score import Score, measured
from selfsent.evaluation.senteval import cross_validation
from selfsent.evaluation.senteval.batched_classifier import Features, Matrix
from selfsent.evaluation.senteval.classifiers import SEED, Classifier
from selfsent.evaluation.sts import FORM
from selfsent.evaluation.task import Task
from selfsent.progress import SILENT, Progress

PROCEDURES = {
    "nested": "nested cross-validation",
    "cross": "cross-validation on train, test set",
    "split": "train, dev and test set",
}
FEATURES = {"text": "u", "pair": "|u-v|, u*v", "entailment": "u, v, u*v, |u-v|"}


@dataclass(frozen=True, kw_only=True)
class LabelledExamples:
    """Texts, or pairs of them, with labels from 0: a split of a task."""

    left: list[str]
    right: list[str] | None = None
    labels: list[int]

    @property
    def texts(self) -> list[str]:
        """All left sides, then all right sides if there are any."""
        return self.left + (self.right or [])


@dataclass(frozen=True, kw_only=True)
class Classification(Task):
    """One labelled task, with the classifier that will score it."""

    splits: Mapping[str, LabelledExamples]  # "train", "dev", "test" as far as there are such; nested: "all"
    procedure: Literal["nested", "cross", "split"]
    classifier: Classifier
    kind: Literal["text", "pair", "entailment"] = "text"
    with_f1: bool = False  # of class 1, beside the accuracy
    note: str = ""  # what makes the data other than the literature's
    facts: Mapping[str, object] = field(default_factory=dict)  # for the protocol of the scores

    @property
    def texts(self) -> list[str]:
        """The texts of all splits in order."""
        return [text for examples in self.splits.values() for text in examples.texts]

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits of texts and labels."""
        digest = hashlib.sha256()
        for text in self.texts:
            digest.update(text.encode() + b"\n")
        for name, examples in self.splits.items():
            digest.update(f"{name} {examples.labels}".encode())
        return digest.hexdigest()[:16]

    def score(
        self, vectors: Float[np.ndarray, "N D"], *, resamples: int, seed: int, progress: Progress = SILENT
    ) -> list[Score]:
        """Score vectors given in the order of ``texts``: test accuracy, F1 where it is usual, development accuracy.

        Raises:
            UserError: the labels cannot be learned: one class only, or one too rare for the folds.
        """
        features, rows = self._features(vectors.astype(np.float32, copy=False))
        labels = np.concatenate([np.array(examples.labels, dtype=np.int64) for examples in self.splits.values()])

        def tick(done: int, total: int) -> None:
            progress.report(f"{self.name}: classifiers trained", done, total)

        try:
            if self.procedure == "nested":
                outcome = cross_validation.nested_cross_validation(features, labels, self.classifier, tick=tick)
                tested = chosen_by = rows["all"]
            elif self.procedure == "cross":
                tested, chosen_by = rows["test"], rows["train"]
                outcome = cross_validation.cross_validation(
                    features, labels, chosen_by, tested, self.classifier, tick=tick
                )
            else:
                tested, chosen_by = rows["test"], rows["dev"]
                outcome = cross_validation.validation_split(
                    features, labels, rows["train"], chosen_by, tested, self.classifier, tick=tick
                )
        except UserError as error:
            raise UserError(f"{self.name} cannot be scored: {error}") from None

        protocol: dict[str, object] = {
            "classifier": self.classifier.name,
            "procedure": PROCEDURES[self.procedure],
            "folds": self.classifier.folds if self.procedure != "split" else None,
            "classifier_seed": SEED,
            "features": FEATURES[self.kind],
            "texts": FORM,
            "regulariser": " ".join(outcome.chosen),
            "fits": outcome.fits,
            "interval": "over test rows",
            **self.facts,
        }
        answers = labels[tested]
        drawn = bootstrap.means(
            _columns(answers, outcome.predictions, outcome.shares), resamples, seed=seed, name=self.name
        )
        found: list[tuple[str, str, float, Float[np.ndarray, " R"] | None, int]] = [
            ("test", "accuracy", outcome.accuracy, None if drawn is None else 100 * drawn[0], len(tested))
        ]
        if self.with_f1:
            columns = _columns(answers, outcome.predictions, outcome.shares).mean(axis=0)
            value = round(100 * float(_f1(columns[1:, None])[0]), 2)
            found.append(("test", "f1", value, None if drawn is None else 100 * _f1(drawn[1:]), len(tested)))
        # The best of several on the rows it was chosen by: no interval would say what it is worth elsewhere.
        found.append(("dev", "accuracy", outcome.devacc, None, len(chosen_by)))
        return [measured(self.name, *parts, protocol) for parts in found]

    def _features(self, vectors: Float[np.ndarray, "N D"]) -> tuple[Features, dict[str, Int[np.ndarray, " M"]]]:
        """Return the features of all examples, and which of them are in which split."""
        rows, lefts, rights = {}, [], []
        text = example = 0
        for name, examples in self.splits.items():
            count = len(examples.labels)
            rows[name] = np.arange(example, example + count)
            lefts.append(np.arange(text, text + count))
            rights.append(np.arange(text + count, text + 2 * count))
            example += count
            text += len(examples.texts)
        values = torch.from_numpy(np.ascontiguousarray(vectors))
        if self.kind == "text":
            return Matrix(values), rows
        left, right = torch.from_numpy(np.concatenate(lefts)), torch.from_numpy(np.concatenate(rights))
        if self.kind == "entailment":
            return Entailment(values, left, right), rows
        return Matrix(pair_features(values[left], values[right])), rows


@dataclass
class Entailment:
    """[u, v, u*v, |u-v|], made when asked for: half a million rows of them would fill the memory."""

    vectors: Float[Tensor, "N D"]
    left: Int[Tensor, " M"]
    right: Int[Tensor, " M"]

    @property
    def width(self) -> int:
        """Return 4 D."""
        return 4 * self.vectors.shape[1]

    def take(self, rows: Int[Tensor, " K"]) -> Float[Tensor, "K F"]:
        """Return the features of these rows."""
        u, v = self.vectors[self.left[rows]], self.vectors[self.right[rows]]
        return torch.cat([u, v, u * v, (u - v).abs()], dim=1)


def pair_features(u: Float[Tensor, "N D"], v: Float[Tensor, "N D"]) -> Float[Tensor, "N F"]:
    """Return [|u-v|, u*v], (N, 2 D)."""
    return torch.cat([(u - v).abs(), u * v], dim=1)


def sorted_examples(
    left: Sequence[str], right: Sequence[str] | None, labels: Iterable[int], ranks: Iterable[object] | None = None
) -> LabelledExamples:
    """Join tokens by single spaces and sort by their number and then by label.

    Args:
        ranks: what to sort by in place of the labels.
    """
    labels = list(labels)
    tokens = [text.split() for text in left]
    others = [text.split() for text in right] if right is not None else None
    ties = list(ranks) if ranks is not None else labels
    keys = [(len(one), len(others[i]) if others is not None else 0, ties[i]) for i, one in enumerate(tokens)]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return LabelledExamples(
        left=[" ".join(tokens[i]) for i in order],
        right=None if others is None else [" ".join(others[i]) for i in order],
        labels=[labels[i] for i in order],
    )


def _columns(
    answers: Int[np.ndarray, " N"], predictions: Int[np.ndarray, " N"], shares: Float[np.ndarray, " N"]
) -> Float[np.ndarray, "N 4"]:
    """Return, of each test row: its part of the accuracy, and whether it is a true, false or missed positive."""
    return np.stack(
        [
            (answers == predictions) * shares,
            (answers == 1) & (predictions == 1),
            (answers != 1) & (predictions == 1),
            (answers == 1) & (predictions != 1),
        ],
        axis=1,
    ).astype(np.float64)


def _f1(counts: Float[np.ndarray, "3 R"]) -> Float[np.ndarray, " R"]:
    true, false, missed = counts
    total = 2 * true + false + missed
    return np.divide(2 * true, total, out=np.zeros_like(total), where=total > 0)
