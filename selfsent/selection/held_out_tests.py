"""Scores of candidates on held-out documents: dev documents choose, test documents decide.

documents, pairs   ``search_scores``
single lines       a third of a line's words finds the line among all others (MRR@10)
general text       the mean of the tests of ``evaluation.label_free.scores``
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from selfsent.corpus.held_out import SPLITS, HeldOutPairs
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import Document, resolve_sources
from selfsent.evaluation.comparison import Comparison, compare_scores
from selfsent.evaluation.label_free.document_tests import build_tests
from selfsent.evaluation.label_free.documents import parse_rows
from selfsent.evaluation.label_free.held_out_retrieval import read_heldout_retrieval
from selfsent.evaluation.label_free.scores import SCORE, score_vectors
from selfsent.evaluation.score import Results
from selfsent.evaluation.task import PromptedTexts
from selfsent.selection.material import GATE, Material
from selfsent.selection.search_scores import MOST, MRR, RETRIEVAL, SearchTest, inside_pairs
from selfsent.selection.settings import FitConfig

GENERAL = Path(__file__).parent.parent / "builtin" / "general.jsonl.xz"


class LineTest(PromptedTexts):
    """A third of a line's words finds the line among all others."""

    paired = True  # ``gather_material`` refuses fewer lines than there is anything to judge by

    def __init__(self, pairs: HeldOutPairs, *, resamples: int, clusters: Int[np.ndarray, " Q"] | None = None) -> None:
        """Make the test of queries and the passage that each is to find; ``clusters`` as of ``SearchTest``."""
        clusters = None if clusters is None else np.unique(clusters, return_inverse=True)[1]
        self._task = replace(read_heldout_retrieval((pairs.queries, pairs.passages)), clusters=clusters)
        self._resamples = resamples
        super().__init__(self._task.prompted)

    def score(self, vectors: Float[np.ndarray, "N D"], name: str) -> Results:
        """Score an encoder by its vectors of ``texts``."""
        own = vectors[self.rows(self._task.prompted)]
        return Results(scores=self._task.score(own, resamples=self._resamples, seed=0))


class GeneralTest(PromptedTexts):
    """The tests of a half of the general text, and what they encode."""

    def __init__(self, documents: Sequence[Document], *, resamples: int) -> None:
        self._tests = build_tests([document for document, _ in parse_rows(documents, "en")])
        self._resamples = resamples
        super().__init__(text for test in self._tests.every for text in test.prompted)

    def score(self, vectors: Float[np.ndarray, "N D"], name: str) -> Results:
        """Score an encoder by its vectors of ``texts``."""
        return score_vectors(self._tests, vectors, name=name, resamples=self._resamples, with_geometry=False)


def make_tests(text: Material, config: FitConfig) -> dict[str, LineTest | GeneralTest | SearchTest]:
    """Make the tests of the held-out documents, and those of general text, half to choose and half to decide by."""
    tests: dict[str, LineTest | GeneralTest | SearchTest] = {}
    search = partial(SearchTest, language=config.corpus.language)
    if text.facts.kind != "lines":  # no candidate is chosen by it: it may be made of what others learn from
        gate = text.queries(GATE)
        tests[GATE] = search(gate.queries[:MOST], gate.passages[:MOST], resamples=0)
    general = [row for source in resolve_sources([str(GENERAL)]) for row in source.documents(CorpusConfig().columns)]
    for number, split in enumerate(SPLITS):
        pairs, clusters = text.queries(split), text.clusters(split)
        if text.facts.kind == "lines":
            tests[split] = LineTest(pairs, resamples=config.bootstrap, clusters=clusters)
        else:
            if text.facts.kind == "documents":
                documents, owners = text.held_out(split)
                pairs, sections = inside_pairs(documents)
                clusters = owners[sections]
            tests[split] = search(pairs.queries, pairs.passages, resamples=config.bootstrap, clusters=clusters)
        tests[f"general {split}"] = GeneralTest(general[number::2], resamples=config.bootstrap)
    return tests


def figure(results: Results, name: str) -> float | None:
    """Return the score, ``mrr@10`` or ``meaning`` of results, or None where the text allows no such test."""
    try:
        return results.get(SCORE, "mean").value if name == SCORE else results.get(RETRIEVAL, name).value
    except KeyError:
        return None


def difference(first: Results, second: Results, name: str) -> Comparison:
    """Return by how much the first is above the second in ``score`` or ``mrr@10``, with its paired interval."""
    task = SCORE if name == SCORE else RETRIEVAL
    metric = "mean" if name == SCORE else MRR
    return compare_scores(first.get(task, metric), second.get(task, metric))
