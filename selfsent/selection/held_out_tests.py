"""Scores of candidates on held-out documents: dev documents choose, test documents decide.

score    the mean of the tests of ``evaluation.label_free.scores``
mrr@10   the summary, or else the first sentence, of a document finds its passage among those of all others
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from selfsent.corpus.held_out import SPLITS, HeldOutPairs
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import Document, resolve_sources
from selfsent.evaluation import bootstrap
from selfsent.evaluation.comparison import Comparison, compare_scores
from selfsent.evaluation.label_free.document_tests import LEAST, build_tests
from selfsent.evaluation.label_free.documents import parse_rows
from selfsent.evaluation.label_free.held_out_retrieval import (
    DEPTH,
    count_nearer,
    expected_scores,
    read_heldout_retrieval,
)
from selfsent.evaluation.label_free.scores import SCORE, has_structure, score_bm25, score_vectors
from selfsent.evaluation.score import Results, Score, measured
from selfsent.selection.material import Material
from selfsent.selection.settings import FitConfig
from selfsent.text.bm25 import bm25_scores, fuse_ranks

MRR = f"mrr@{DEPTH}"
GENERAL = Path(__file__).parent.parent / "builtin" / "general.jsonl.xz"
_RETRIEVAL = "retrieval"
_SHOWN = 3  # passages that a search shows


class HeldOutTests:
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
        self.texts = list(dict.fromkeys([*self.tests.texts, *queries.queries, *queries.passages]))
        self._row = {text: number for number, text in enumerate(self.texts)}

    @property
    def structured(self) -> bool:
        """Whether there are tests made of the structure of documents; halves alone reward word overlap."""
        return has_structure(self.tests)

    @property
    def paired(self) -> bool:
        """Whether there are enough queries and passages to judge by alone."""
        return len(self._queries) >= LEAST

    def score(self, vectors: Float[np.ndarray, "N D"], name: str) -> Results:
        """Score an encoder by its vectors of ``texts``."""
        results = Results(scores=[])
        if self.tests.every:
            rows = [self._row[text] for text in self.tests.texts]
            drawn = {"resamples": self._resamples, "seed": self._seed}
            results = score_vectors(self.tests, vectors[rows], name=name, with_geometry=False, **drawn)
        if not self.paired:
            return results
        task = replace(read_heldout_retrieval(self._texts), clusters=self._clusters)
        own = vectors[[self._row[text] for text in task.texts]]
        return replace(results, scores=results.scores + task.score(own, resamples=self._resamples, seed=self._seed))

    def search(self, systems: Mapping[str, Float[np.ndarray, "N D"]], count: int) -> list[dict[str, Any]]:
        """Return what some queries, drawn at random, find among all passages: by BM25, and by vectors of ``texts``.

        Of each: the query, and by system the place of its own passage and the first ``_SHOWN`` passages.
        """
        queries, passages = self._queries.queries, self._queries.passages
        drawn = np.random.default_rng(self._seed).permutation(len(queries))[:count]
        similar = {"BM25": bm25_scores([queries[row] for row in drawn], passages)}
        for name, vectors in systems.items():
            units = unit_vectors(vectors)
            asked = units[[self._row[queries[row]] for row in drawn]]
            similar[name] = asked @ units[[self._row[text] for text in passages]].T
        examples = []
        for number, own in enumerate(drawn):
            example: dict[str, Any] = {"query": queries[own], "systems": {}}
            for name, values in similar.items():
                order = np.argsort(-values[number], kind="stable")
                first = [{"text": passages[row], "own": bool(row == own)} for row in order[:_SHOWN]]
                example["systems"][name] = {"place": int(np.flatnonzero(order == own)[0]) + 1, "first": first}
            examples.append(example)
        return examples

    def score_bm25(self) -> Results:
        """Score word matching, which has no nearness."""
        results = score_bm25(self.tests, resamples=self._resamples, seed=self._seed)
        return replace(results, scores=[*results.scores, *self._retrieval(self._matches)]) if self.paired else results

    def score_hybrid(self, vectors: Float[np.ndarray, "N D"]) -> Results:
        """Score an encoder and word matching together, by the ranks of both, in ``mrr@10`` alone."""
        sides = [unit_vectors(vectors[[self._row[text] for text in texts]]) for texts in self._texts]
        return Results(scores=self._retrieval(fuse_ranks(self._matches, sides[0] @ sides[1].T)))

    @cached_property
    def _matches(self) -> Float[np.ndarray, "N N"]:
        """BM25's score of every passage for every query."""
        return bm25_scores(*self._texts)

    @property
    def _texts(self) -> tuple[Sequence[str], Sequence[str]]:
        return self._queries.queries, self._queries.passages

    def _retrieval(self, similarities: Float[np.ndarray, "N N"]) -> list[Score]:
        values = 100 * expected_scores(*count_nearer(similarities, similarities.diagonal()))
        drawn = bootstrap.means(
            np.column_stack([values, values[:, 0]]),
            self._resamples,
            seed=self._seed,
            name=_RETRIEVAL,
            clusters=self._clusters,
        )
        protocol = {"similarity": "cosine", "passages": len(values), "ties": "expected rank"}
        return [measured(_RETRIEVAL, "held-out", MRR, float(values[:, 0].mean()), drawn[0], len(values), protocol)]


def make_tests(text: Material, config: FitConfig) -> dict[str, HeldOutTests]:
    """Make the tests of the held-out documents, and those of general text, half to choose and half to decide by."""
    tests = {}
    general = [row for source in resolve_sources([str(GENERAL)]) for row in source.documents(CorpusConfig().columns)]
    make = partial(HeldOutTests, resamples=config.bootstrap)
    for number, split in enumerate(SPLITS):
        (documents, owners), pairs, language = text.held_out(split), text.queries(split), config.corpus.language
        tests[str(split)] = make(documents, owners, pairs, language=language, clusters=text.clusters(split))
        half = general[number::2]
        tests[f"general {split}"] = make(half, np.arange(len(half)), HeldOutPairs(), language="en")
    return tests


def unit_vectors(vectors: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
    """Scale every vector to length 1; one of zeros stays as it is."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def figure(results: Results, name: str) -> float | None:
    """Return ``score`` or ``mrr@10`` of results, or None where the text allows no such test."""
    try:
        return results.get(SCORE, "mean").value if name == SCORE else results.get(_RETRIEVAL, MRR).value
    except KeyError:
        return None


def difference(first: Results, second: Results, name: str) -> Comparison:
    """Return by how much the first is above the second in ``score`` or ``mrr@10``, with its paired interval."""
    task = SCORE if name == SCORE else _RETRIEVAL
    metric = "mean" if name == SCORE else MRR
    return compare_scores(first.get(task, metric), second.get(task, metric))
