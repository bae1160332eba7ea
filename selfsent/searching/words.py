"""Word matching over the documents of an index: BM25 on disk, and its fusion with the ranking by meaning.

    RRF(d) = sum over the rankings r of  1 / (60 + rank of d in r)

Source: Cormack, Clarke & Buettcher 2009, https://doi.org/10.1145/1571941.1572114; BM25 as in
``text.bm25``, with the same parameters.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

from selfsent.progress import SILENT, Progress
from selfsent.runtime.imports import import_bm25s
from selfsent.storage import atomic
from selfsent.text import clean
from selfsent.text.bm25 import FUSION, PARAMETERS

POOL = 100  # documents of each ranking that are fused


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
        known = [word for word in clean.words(query) if word in self._index.vocab_dict]
        if not known:
            return np.zeros(0, np.int64), np.zeros(0)
        scores = self._index.get_scores(known)[: len(hidden)].astype(np.float64)
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
    wanted = {*clean.words(query)}
    return int(np.argmax([len(wanted & {*clean.words(passage)}) for passage in passages]))


def fuse_rankings(rankings: Sequence[Int[np.ndarray, " _"]]) -> list[tuple[int, float]]:
    """Return the documents of several rankings and their reciprocal rank scores, the best first."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, document in enumerate(ranking.tolist(), start=1):
            scores[document] = scores.get(document, 0.0) + 1 / (FUSION + rank)
    return sorted(scores.items(), key=lambda scored: (-scored[1], scored[0]))
