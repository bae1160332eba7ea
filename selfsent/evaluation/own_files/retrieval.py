"""Retrieval and reranking: nDCG@10, MRR@10, MAP and recall, computed by ``ir_measures``.

    retrieval   each query ranks all documents           reranking   each query ranks its own candidates

Ties are broken in an order that depends neither on relevance nor on the place in the file.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from selfsent.encoder.quantize import unit
from selfsent.errors import DataError
from selfsent.evaluation import bootstrap
from selfsent.evaluation.score import Score, measured
from selfsent.evaluation.task import Prompted, Task, Vectors, queries_and_documents
from selfsent.progress import SILENT, Progress

DEPTH = 1000  # documents kept of each ranking
BLOCK = 4_000_000  # cosines at a time


@dataclass(frozen=True, kw_only=True)
class Ranking(Task):
    """Queries, documents, and relevance grades."""

    queries: list[str]
    documents: list[str]
    grades: Sequence[Mapping[int, int]]  # of each query: document -> grade, above 0 if relevant
    candidates: Sequence[Sequence[int]] | None = None  # of each query, the documents to rank; None: all
    themselves: Sequence[int | None] | None = None  # of each query, the document that it is itself, which is not ranked

    def __post_init__(self) -> None:
        """Refuse queries without a relevant document."""
        unanswered = [i for i, graded in enumerate(self.grades) if not any(grade > 0 for grade in graded.values())]
        if unanswered:
            raise DataError(
                f"{self.name} has no relevant document for {len(unanswered)} of {len(self.queries)} queries, first for "
                f"{self.queries[unanswered[0]][:60]!r}: give one, or leave the query out"
            )

    @property
    def texts(self) -> list[str]:
        """All queries, then all documents."""
        return self.queries + self.documents

    @property
    def prompted(self) -> list[Prompted]:
        """Queries and documents."""
        return queries_and_documents(self.queries, self.documents)

    def content(self) -> Iterable[str | bytes]:
        """Yield texts, grades and candidates."""
        yield from super().content()
        yield repr([sorted(graded.items()) for graded in self.grades])
        yield repr(self.candidates and [list(row) for row in self.candidates])
        if self.themselves is not None:
            yield repr(list(self.themselves))

    def score(self, vectors: Vectors, *, resamples: int, seed: int, progress: Progress = SILENT) -> list[Score]:
        """Compute each measure as a mean over queries; intervals resample the queries."""
        cut = len(self.queries)
        by_query = self._measure(unit(vectors[:cut]), unit(vectors[cut:]))
        values = np.stack(list(by_query.values()), axis=1)  # (Q, measures)
        drawn = bootstrap.means(100 * values, resamples, seed=seed, name=self.name)
        protocol = {
            "similarity": "cosine",
            "documents": len(self.documents),
            "ranks": "all documents" if self.candidates is None else "each query's candidates",
        }
        return [
            measured(self.name, "test", metric, float(100 * column.mean()), replicates, cut, protocol)
            for metric, column, replicates in zip(by_query, values.T, drawn, strict=True)
        ]

    def _measure(
        self, queries: Float[np.ndarray, "Q D"], documents: Float[np.ndarray, "M D"]
    ) -> dict[str, Float[np.ndarray, " Q"]]:
        import ir_measures
        from ir_measures import AP, RR, R, nDCG

        kinds = {"ndcg@10": nDCG @ 10, "mrr@10": RR @ 10, "map": AP}
        if self.candidates is None:
            kinds |= {"recall@10": R @ 10, "recall@100": R @ 100}
        # ir_measures breaks ties by name: names in random order favour no document.
        names = [f"d{number}" for number in np.random.default_rng(0).permutation(len(documents))]
        relevant = {
            str(query): {names[document]: int(grade) for document, grade in graded.items()}
            for query, graded in enumerate(self.grades)
        }
        values = {kind: np.zeros(len(queries)) for kind in kinds.values()}
        evaluator = ir_measures.evaluator(list(kinds.values()), relevant)
        step = max(1, BLOCK // len(documents))
        for first in range(0, len(queries), step):
            # Cosines of equal rows differ by 1e-16: rounded, they tie.
            cosines = np.round(queries[first : first + step] @ documents.T, 12)
            for row, own in enumerate(self.themselves[first : first + step] if self.themselves else ()):
                if own is not None:
                    cosines[row, own] = -np.inf
            run = {
                str(query): {
                    names[document]: float(row[document])
                    for document in self._ranked(query, row)
                    if np.isfinite(row[document])
                }
                for query, row in enumerate(cosines, start=first)
            }
            for metric in evaluator.iter_calc(run):
                if metric.query_id in run:
                    values[metric.measure][int(metric.query_id)] = metric.value
        return {name: values[kind] for name, kind in kinds.items()}

    def _ranked(self, query: int, cosines: Float[np.ndarray, " M"]) -> Iterable[int]:
        """Return the candidates of a query, or the documents nearest to it."""
        if self.candidates is not None:
            return self.candidates[query]
        return np.argpartition(-cosines, DEPTH)[:DEPTH].tolist() if len(cosines) > DEPTH else range(len(cosines))
