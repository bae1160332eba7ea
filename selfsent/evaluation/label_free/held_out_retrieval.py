"""Held-out retrieval, without labels: rank the passage that belongs to a query among all passages.

The answer to query i is passage i.  Passages that tie with the answer share their ranks: each score is the expected one
over a random order of the ties, so that an encoder that maps everything to one point scores as well as chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from selfsent.encoder.quantize import unit
from selfsent.errors import DataError
from selfsent.evaluation import bootstrap
from selfsent.evaluation.comparison import Comparison
from selfsent.evaluation.geometry import uniformity
from selfsent.evaluation.score import Results, Score, measured
from selfsent.evaluation.task import Prompted, Task, Vectors, fingerprint, queries_and_documents
from selfsent.progress import SILENT, Progress
from selfsent.text.bm25 import bm25_rows

BLOCK = 2_000_000  # entries of a block of similarities: 16 MB
DEPTH = 10  # ranks that count for the reciprocal rank
METRICS = (f"mrr@{DEPTH}", "recall@1", "recall@10")
LEAST_HELD_OUT = 20  # queries, below which intervals of a bootstrap are too short: equal encoders seem to differ
LABELS = "give whole documents of several sentences, or labels (`selfsent evaluate --tasks classification:FILE`)"
TIE = 1e-9  # cosines that differ by less are equal: matrix products of equal rows differ by 1e-16


@dataclass(frozen=True, kw_only=True)
class HeldOutRetrieval(Task):
    """Line-aligned queries and passages."""

    split: str
    queries: list[str]
    passages: list[str]
    clusters: Int[np.ndarray, " N"] | None = None  # of the queries, if they are not drawn each for itself

    @property
    def texts(self) -> list[str]:
        """All queries, then all passages."""
        return self.queries + self.passages

    @property
    def prompted(self) -> list[Prompted]:
        """Queries and passages."""
        return queries_and_documents(self.queries, self.passages)

    def score(self, vectors: Vectors, *, resamples: int, seed: int, progress: Progress = SILENT) -> list[Score]:
        """Score vectors given in the order of ``texts``; intervals resample the queries.

        The alignment is that of each query and its passage, the uniformity that of all texts.
        """
        half = len(vectors) // 2
        values = 100 * expected_scores(*expected_ranks(vectors[:half], vectors[half:]))  # (N, 3)
        distances = np.square(unit(vectors[:half]) - unit(vectors[half:])).sum(axis=1)
        columns = np.column_stack([values, distances, np.full(half, uniformity(vectors))])
        means = bootstrap.means(columns[:, :4], resamples, seed=seed, name=self.name, clusters=self.clusters)
        drawn = [*means, None]
        protocol = {"similarity": "cosine", "passages": half, "ties": "expected rank"}
        metrics = (*METRICS, "alignment", "uniformity")
        return [
            measured(self.name, self.split, metric, float(columns[:, place].mean()), drawn[place], half, protocol)
            for place, metric in enumerate(metrics)
        ]


def read_heldout_retrieval(held_out: tuple[Sequence[str], Sequence[str]]) -> HeldOutRetrieval:
    """Make the task of queries and passages, line by line; their numbers must be equal, and two at least."""
    queries, passages = (list(texts) for texts in held_out)
    if len(queries) != len(passages):
        raise DataError(
            f"retrieval got {len(queries)} queries and {len(passages)} passages: "
            "passage k must be the answer to query k"
        )
    if len(queries) < 2:
        raise DataError(f"retrieval got {len(queries)} query: it needs at least 2 to rank")
    return HeldOutRetrieval(name="retrieval", split="held-out", queries=queries, passages=passages)


def score_bm25_retrieval(
    held_out: tuple[Sequence[str], Sequence[str]], *, resamples: int = 1000, seed: int = 0
) -> Results:
    """Score BM25, which has no vectors and so neither alignment nor uniformity, on queries and passages.

    The resamples are those of an encoder that is scored on the same queries: differences are paired.

    Raises:
        DataError: as ``read_heldout_retrieval``.
    """
    task = read_heldout_retrieval(held_out)
    counts = [
        count_nearer(row[None], row[[answer]]) for answer, row in enumerate(bm25_rows(task.queries, task.passages))
    ]
    nearer, tied = (np.concatenate(one) for one in zip(*counts, strict=True))
    values = 100 * expected_scores(nearer, tied)
    drawn = bootstrap.means(values, resamples, seed=seed, name=task.name)
    protocol = {
        "similarity": "BM25",
        "passages": len(task.passages),
        "ties": "expected rank",
        "data": task.fingerprint,
        "bootstrap": f"{resamples} resamples, seed {seed}",
    }
    scores = [
        measured(task.name, task.split, metric, float(of_queries.mean()), replicates, len(of_queries), protocol)
        for metric, of_queries, replicates in zip(METRICS, values.T, drawn, strict=True)
    ]
    return Results(scores=scores, fingerprint=fingerprint([f"{task.name} {task.fingerprint}"]))


def guard_held_out(comparison: Comparison, *, structured: bool) -> Comparison:
    """Withhold the decision of a comparison on held-out queries that cannot show it.

    Args:
        structured: False where the queries are halves of single lines.
    """
    if comparison.n < LEAST_HELD_OUT:
        return comparison.undecided(
            f"only {comparison.n} queries were held out to test it on, and {LEAST_HELD_OUT} are needed; "
            "give more text, or set corpus.held_out_share=0.2"
        )
    if structured:
        return comparison
    return comparison.undecided(
        "single lines have no structure to judge by: their halves share words, so that a higher MRR@10 decides "
        f"nothing; {LABELS}",
        unless="worse",
    )


def expected_ranks(
    queries: Float[np.ndarray, "N D"], passages: Float[np.ndarray, "N D"]
) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"]]:
    """Return, per query, how many passages are nearer than the answer and how many others tie with it."""
    queries, passages = unit(queries), unit(passages)
    blocks, step = [], max(1, BLOCK // len(passages))
    for start in range(0, len(queries), step):
        similarity = queries[start : start + step] @ passages.T
        blocks.append(count_nearer(similarity, similarity.diagonal(start)))
    nearer, tied = (np.concatenate(counts) for counts in zip(*blocks, strict=True))
    return nearer, tied


def count_nearer(
    similarity: Float[np.ndarray, "N M"], answer: Float[np.ndarray, " N"]
) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"]]:
    """Return, per row of similarities, how many are above the answer's and how many others tie with it."""
    nearer = np.count_nonzero(similarity > answer[:, None] + TIE, axis=1)
    return nearer, np.count_nonzero(similarity >= answer[:, None] - TIE, axis=1) - nearer - 1


def expected_scores(nearer: Int[np.ndarray, " N"], tied: Int[np.ndarray, " N"]) -> Float[np.ndarray, "N 3"]:
    """Return reciprocal rank within ``DEPTH``, recall@1 and recall@10, expected over the order of ties.

    The answer's rank is any of nearer + 1, ..., nearer + tied + 1, all equally likely.
    """
    last = nearer + tied + 1
    harmonic = np.r_[0.0, np.cumsum(1 / np.arange(1, DEPTH + 1))]  # sum of 1/r for r up to the index
    total = [harmonic[np.minimum(last, DEPTH)] - harmonic[np.minimum(nearer, DEPTH)]]
    total += [np.minimum(last, k) - np.minimum(nearer, k) for k in (1, 10)]
    return np.stack(total, axis=1) / (tied + 1)[:, None]
