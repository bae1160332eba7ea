"""The gate of every export: the verdict between an encoder and what was made of it, and a card with its figures."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from selfsent.config import Table
from selfsent.corpus.settings import CorpusConfig
from selfsent.evaluation.comparison import Comparison, compare_scores
from selfsent.evaluation.label_free.document_tests import DocumentTests
from selfsent.evaluation.label_free.scores import SCORE, score_vectors
from selfsent.evaluation.label_free.verdict import describe_tests
from selfsent.evaluation.score import Results
from selfsent.runs.card import OPENING, figures_of, front_matter, score_table
from selfsent.runtime.printed import Printed, Shown

NOISE = 0.05  # points: a difference that is printed as 0.0 is none


@dataclass(frozen=True, repr=False)
class ExportJudgement(Printed):
    """The verdict's figures of an encoder and of its export, on the same tests."""

    original: Results
    exported: Results
    comparison: Comparison  # of the score: export less original
    cosine: float | None  # smallest between the two vectors of a text; None where their widths differ
    sentence: str
    note: str  # on the text

    @property
    def lost(self) -> bool:
        """Whether the 95 % interval of the difference lies below zero, by more than is printed as 0.0."""
        return self.comparison.decision == "worse"

    def shown(self) -> Shown:
        """Return the sentence."""
        return Shown([self.sentence])

    def as_dict(self) -> dict[str, Any]:
        """Return what belongs into a JSON file."""
        return {
            "sentence": self.sentence,
            "text": self.note,
            "lost": self.lost,
            "smallest_cosine": self.cosine,
            "difference": asdict(self.comparison),
            "original": self.original.as_dict(),
            "exported": self.exported.as_dict(),
        }


def judge_export(
    tests: DocumentTests,
    original: Float[np.ndarray, "N D"],
    exported: Float[np.ndarray, "N E"],
    *,
    note: str = "",
    same_axes: bool = True,
    resamples: int = 1000,
) -> ExportJudgement:
    """Compare the vectors of ``tests.texts`` before and after an export.

    Args:
        same_axes: whether both lie in the same coordinates, so that the cosine of a text's two vectors means something.

    Raises:
        EncoderError: one of them holds values that are not finite.
    """
    before = score_vectors(tests, original, name="the encoder", resamples=resamples)
    after = score_vectors(tests, exported, name="its export", resamples=resamples)
    cosine = _smallest_cosine(original, exported) if same_axes and original.shape == exported.shape else None
    comparison = guard_noise(compare_scores(after.get(SCORE, "mean"), before.get(SCORE, "mean")))
    return ExportJudgement(before, after, comparison, cosine, comparison.sentence(describe_tests(tests, after)), note)


def guard_noise(comparison: Comparison) -> Comparison:
    """Withhold the decision that an export lost where the loss is printed as 0.0."""
    if comparison.high is None or not -NOISE <= comparison.high < 0:
        return comparison
    return comparison.undecided("a difference that is printed as 0.0 is none")


def _smallest_cosine(before: Float[np.ndarray, "N D"], after: Float[np.ndarray, "N D"]) -> float:
    """Return the smallest cosine between rows; two rows of zeros are equal."""
    before, after = before.astype(np.float64), after.astype(np.float64)
    lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    both_zero = ~before.any(axis=1) & ~after.any(axis=1)
    cosines = np.divide((before * after).sum(axis=1), lengths, out=np.zeros(len(before)), where=lengths > 0)
    return float(np.where(both_zero, 1.0, cosines).min(initial=1.0))


_GRAPH = """`{graph}` opens in onnxruntime: its inputs are what `tokenizer.json` gives, its output
`sentence_embedding` is the vector."""
_EACH = """`{graph}` opens in onnxruntime: its inputs that end in `_0` are what `0/tokenizer.json` gives, and so on for
every number, its output `sentence_embedding` is the vector."""
_GRAPHS = {"onnx": ("onnx/model.onnx", ""), "onnx-int8": ("onnx/model_quantized.onnx", "  Its weights are int8.")}
_EXTRA_TAGS = {"onnx": ["onnx"], "onnx-int8": ["onnx", "int8"], "static": ["static-embeddings"]}
_AS = {"whitened": "with partly whitened embeddings", "smaller": "with fewer dimensions"}


def export_card(facts: Table, judgement: ExportJudgement, *, name: str, language: str) -> str:
    """Return the card of an export; every figure of it is one of export.json."""
    scores = {"original": figures_of(judgement.original.scores), "export": figures_of(judgement.exported.scores)}
    tags, change, cosine = _EXTRA_TAGS.get(facts["to"], []), judgement.comparison, judgement.cosine
    lost = "  **It was kept although it lost.**" if judgement.lost else ""
    equal = "" if cosine is None else f"The smallest cosine between both vectors of a text is {cosine:.6f}."
    interval = f"{change.value:+.2f} points (95 % interval {change.low:+.2f} to {change.high:+.2f})"
    opened = OPENING.format(name=name, more="")
    if facts["to"] in _GRAPHS:
        graph, weights = _GRAPHS[facts["to"]]
        opened = (_EACH if facts.get("tokenizers", 1) > 1 else _GRAPH).format(graph=graph) + weights
    told = None if language == CorpusConfig.language else language  # the default tells nothing of the text
    return f"""{front_matter(name, scores["export"], base=facts["model"], language=told, tags=tags)}
# {name}

`{facts["model"]}` {_AS.get(facts["to"], "as " + facts["to"])}, {facts["megabytes"]:.2f} MB, written by selfsent.

{opened}

## Beside the encoder that it was made from

{interval} in the score of tests made of raw text.{lost}
{equal}

{score_table(scores)}

Points of 100; in brackets 95 % intervals of a bootstrap.  {judgement.note[:1].upper()}{judgement.note[1:]}.
Every figure is one of `export.json`.
"""
