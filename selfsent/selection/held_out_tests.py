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
from selfsent.evaluation.label_free.document_tests import LEAST, build_tests
from selfsent.evaluation.label_free.documents import parse_rows
from selfsent.evaluation.label_free.held_out_retrieval import read_heldout_retrieval
from selfsent.evaluation.label_free.scores import SCORE, score_vectors
from selfsent.evaluation.score import Results
from selfsent.evaluation.task import PromptedTexts
from selfsent.selection.material import GATE, Material
from selfsent.selection.search_scores import MOST, MRR, RETRIEVAL, SearchTest, inside_pairs
from selfsent.selection.settings import FitConfig

GENERAL = Path(__file__).parent.parent / "builtin" / "general.jsonl.xz"


class HeldOutTests(PromptedTexts):
    """The tests of one split of the held-out documents, and their texts in one list, so that they are encoded once."""

    def __init__(
        self,
        documents: Sequence[Document],
        owners: Int[np.ndarray, " N"],
        queries: HeldOutPairs,
        *,
        language: str,
        resamples: int,
        seed: int = 0,
        clusters: Int[np.ndarray, " Q"] | None = None,
    ) -> None:
        """Make the tests.

        Args:
            documents: held out; long ones in sections.
            owners: the document that each section is of: those of one document are resampled together.
            queries: and the passage that each is to find.
            resamples: behind each interval; 0: no intervals.
            clusters: the document that each query is of, where several are of one.
        """
        rows = parse_rows(documents, language)
        made = build_tests([document for document, _ in rows], seed=seed)
        # In place of the sections' numbers: those of their documents, without gaps.
        own = np.unique(owners[[place for _, place in rows]], return_inverse=True)[1]
        self.tests = replace(
            made,
            documents=int(own.max(initial=-1)) + 1,
            retrieval=[replace(test, documents=own[test.documents]) for test in made.retrieval],
            nearness=made.nearness and replace(made.nearness, documents=own[made.nearness.documents]),
        )
        self._queries = queries
        self._clusters = None if clusters is None else np.unique(clusters, return_inverse=True)[1]
        self._resamples, self._seed = resamples, seed
        of_tests = [text for test in self.tests.every for text in test.prompted]
        self._task = None
        if self.paired:
            task = read_heldout_retrieval((queries.queries, queries.passages))
            self._task = replace(task, clusters=self._clusters)
        super().__init__([*of_tests, *(self._task.prompted if self._task else ())])

    @property
    def paired(self) -> bool:
        """Whether there are enough queries and passages to judge by alone."""
        return len(self._queries) >= LEAST

    def score(self, vectors: Float[np.ndarray, "N D"], name: str) -> Results:
        """Score an encoder by its vectors of ``texts``."""
        results = Results(scores=[])
        if self.tests.every:
            of_tests = self.tests.prompted
            rows = self.rows((role, text) for role, part in of_tests.parts.items() for text in part)
            results = score_vectors(
                self.tests, vectors[rows], name=name, resamples=self._resamples, seed=self._seed, with_geometry=False
            )
        if self._task is None:
            return results
        own = vectors[self.rows(self._task.prompted)]
        scores = self._task.score(own, resamples=self._resamples, seed=self._seed)
        return replace(results, scores=results.scores + scores)


def make_tests(text: Material, config: FitConfig) -> dict[str, HeldOutTests | SearchTest]:
    """Make the tests of the held-out documents, and those of general text, half to choose and half to decide by."""
    tests: dict[str, HeldOutTests | SearchTest] = {}
    if text.facts.kind != "lines":  # no candidate is chosen by it: it may be made of what others learn from
        gate = text.queries(GATE)
        tests[GATE] = SearchTest(
            gate.queries[:MOST], gate.passages[:MOST], language=config.corpus.language, resamples=0
        )
    general = [row for source in resolve_sources([str(GENERAL)]) for row in source.documents(CorpusConfig().columns)]
    make = partial(HeldOutTests, resamples=config.bootstrap)
    for number, split in enumerate(SPLITS):
        (documents, owners), pairs, language = text.held_out(split), text.queries(split), config.corpus.language
        clusters = text.clusters(split)
        if text.facts.kind == "lines":
            tests[str(split)] = make(documents, owners, pairs, language=language, clusters=clusters)
        else:
            if text.facts.kind == "documents":
                pairs, places = inside_pairs(documents)
                clusters = owners[places]
            tests[str(split)] = SearchTest(
                pairs.queries, pairs.passages, language=language, resamples=config.bootstrap, clusters=clusters
            )
        half = general[number::2]
        tests[f"general {split}"] = make(half, np.arange(len(half)), HeldOutPairs(), language="en")
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
