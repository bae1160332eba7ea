"""Searching by words, and by both: BM25 on disk, its fusion with the ranking by meaning, and which finds more.

    RRF(d) = sum over the rankings r of  1 / (60 + rank of d in r)

Source: Cormack, Clarke & Buettcher 2009, https://doi.org/10.1145/1571941.1572114; BM25 as in
``text.bm25``, with the same parameters.

Which mode finds more in a corpus is measured on its own documents, when an index is made: the first sentence of a
document has to find the rest of it among the rests of the others, as in
``evaluation.label_free.held_out_retrieval``.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

from selfsent.encoder.base import Encoder
from selfsent.encoder.quantize import unit
from selfsent.progress import SILENT, Progress
from selfsent.runtime.imports import import_bm25s
from selfsent.searching.nearest import exact_nearest
from selfsent.searching.passages import SearchText
from selfsent.storage import atomic
from selfsent.text import clean
from selfsent.text.bm25 import FUSION, PARAMETERS, bm25_rows

POOL = 100  # documents of each ranking that are fused
PASSAGES, QUERIES = 1000, 300
_FEWEST = 50  # documents, for a figure that decides anything
_QUERY, _PASSAGE = 5, 15  # words, at least
_DEPTH = 10


class WordIndex:
    """BM25 of every document, from a folder of ``write_word_index``.

    Raises:
        ResumeError: a file is missing or was changed.
    """

    def __init__(self, folder: Path, advice: str) -> None:
        atomic.verify(folder, advice)
        self._index = import_bm25s().BM25.load(str(folder), mmap=True, show_progress=False, load_corpus=False)

    def rank_words(
        self, query: str, hidden: Bool[np.ndarray, " N"], count: int
    ) -> tuple[Int[np.ndarray, " K"], Float[np.ndarray, " K"]]:
        """Return the documents that share a word with the query and their scores, the best first."""
        words = [word for word in clean.words(query) if word in self._index.vocab_dict]
        if not words:
            return np.zeros(0, np.int64), np.zeros(0)
        scores = self._index.get_scores(words)[: len(hidden)].astype(np.float64)
        scores[hidden[: len(scores)]] = 0
        count = min(count, int(np.count_nonzero(scores)))
        best = np.argpartition(-scores, count - 1)[:count] if count else np.zeros(0, np.int64)
        best = best[np.lexsort((best, -scores[best]))]
        return best, scores[best]


def write_word_index(folder: Path, texts: Iterable[tuple[str, str]], progress: Progress = SILENT) -> None:
    """Count the words of titles and texts, and write the folder, whole or not at all."""
    bm25s = import_bm25s()
    vocabulary: dict[str, int] = {}
    rows: list[list[int]] = []
    for title, text in texts:
        rows.append([vocabulary.setdefault(word, len(vocabulary)) for word in clean.words(f"{title} {text}")])
        progress.report("words", len(rows))
    if not vocabulary:  # bm25s wants one
        vocabulary[""] = 0
    index = bm25s.BM25(**PARAMETERS)
    index.index(bm25s.tokenization.Tokenized(ids=rows, vocab=vocabulary), show_progress=False)
    with atomic.build_folder(folder) as scratch:
        index.save(str(scratch), show_progress=False)


def passage_with(query: str, passages: Sequence[str]) -> int:
    """Return which passage holds most words of a query, the first of several."""
    words = {*clean.words(query)}
    return int(np.argmax([len(words & {*clean.words(passage)}) for passage in passages]))


def fuse_rankings(rankings: Sequence[Int[np.ndarray, " _"]]) -> list[tuple[int, float]]:
    """Return the documents of several rankings and their reciprocal rank scores, the best first."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, document in enumerate(ranking.tolist(), start=1):
            scores[document] = scores.get(document, 0.0) + 1 / (FUSION + rank)
    return sorted(scores.items(), key=lambda scored: (-scored[1], scored[0]))


def measure_modes(encoder: Encoder, texts: Sequence[SearchText], query: str, document: str) -> dict[str, float] | None:
    """Return MRR@10 (0 to 100) of each mode; None where too few documents have a first sentence and a rest.

    Args:
        query: the prompt for queries.
        document: the prompt for documents.
    """
    begin = [(text.opening, text.passages[0]) for text in texts]
    pairs = [(opening, passage[len(opening) :]) for opening, passage in begin if passage.startswith(opening)]
    pairs = [pair for pair in pairs if len(pair[0].split()) >= _QUERY and len(pair[1].split()) >= _PASSAGE]
    if len(pairs) < _FEWEST:
        return None
    pairs = pairs[:: -(-len(pairs) // PASSAGES)]
    queries, passages = [first for first, _ in pairs[:QUERIES]], [rest for _, rest in pairs]
    query_vectors = unit(encoder.embed(queries, prompt=query)).astype(np.float32)
    passage_vectors = unit(encoder.embed(passages, prompt=document)).astype(np.float16)
    dense, _ = exact_nearest(query_vectors, [passage_vectors], None, POOL)
    ranks: dict[str, list[float]] = {"dense": [], "bm25": [], "hybrid": []}
    for answer, (by_meaning, scores) in enumerate(zip(dense, bm25_rows(queries, passages), strict=True)):
        by_words = np.argsort(-scores, kind="stable")[: min(POOL, int(np.count_nonzero(scores)))]
        fused = np.array([number for number, _ in fuse_rankings([by_meaning, by_words])], np.int64)
        for mode, ranking in (("dense", by_meaning), ("bm25", by_words), ("hybrid", fused)):
            rank = np.flatnonzero(ranking[:_DEPTH] == answer)
            ranks[mode].append(1 / (1 + int(rank[0])) if len(rank) else 0.0)
    return {mode: round(100 * float(np.mean(values)), 2) for mode, values in ranks.items()}
