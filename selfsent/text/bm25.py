"""Word matching by BM25, and hard negatives of which BM25 ranks half above the answer.

    BM25(q, d) = sum over the words w of q of  idf(w) tf(w, d) (k1 + 1) / (tf(w, d) + k1 (1 - b + b |d| / mean |d|))

with k1 = 1.5, b = 0.75 and idf(w) = ln(1 + (N - n(w) + 0.5) / (n(w) + 0.5)), as in Lucene.  Source: Robertson &
Zaragoza 2009, https://doi.org/10.1561/1500000019; the scores are computed by bm25s, https://arxiv.org/abs/2407.03618.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from jaxtyping import Float, Int

from selfsent.runtime.imports import import_bm25s
from selfsent.text import clean
from selfsent.text.stems import stems

PARAMETERS = {"method": "lucene", "k1": 1.5, "b": 0.75}  # of bm25s
HARD = 3  # negatives on either side of the answer


def bm25_scores(
    queries: Sequence[str], passages: Sequence[str], language: str | None = None
) -> Float[np.ndarray, "N M"]:
    """Return BM25's score of every passage for every query; 0 where they share no word.

    Args:
        language: of the stems that are matched; None: whole words are.
    """
    scores = np.zeros((len(queries), len(passages)))
    for row, word_scores in zip(scores, bm25_rows(queries, passages, language), strict=True):
        row[:] = word_scores
    return scores


def bm25_rows(
    queries: Sequence[str], passages: Sequence[str], language: str | None = None
) -> Iterator[Float[np.ndarray, " M"]]:
    """Yield BM25's score of every passage, one query after the other."""
    words_of = clean.words if language is None else partial(stems, language=language)
    index = import_bm25s().BM25(**PARAMETERS)
    index.index([words_of(passage) for passage in passages], show_progress=False)
    for query in queries:
        words = words_of(query)
        yield index.get_scores(words).astype(np.float64) if words else np.zeros(len(passages))


def hard_negatives(scores: Float[np.ndarray, "N N"], each: int = HARD) -> list[Int[np.ndarray, " K"]]:
    """Return, per query, the passages next to the answer in BM25's order: as many above it as below.

    So BM25 itself is right about exactly half of them.  A query whose answer BM25 ranks first or last has none.

    Args:
        scores: of every passage for every query; the answer to query i is passage i.
        each: at most, on either side.
    """
    negatives = []
    for answer, row in enumerate(scores):
        order = np.argsort(-row, kind="stable")
        above, below = order[row[order] > row[answer]], order[row[order] < row[answer]]
        count = min(each, len(above), len(below))
        negatives.append(np.r_[above[len(above) - count :], below[:count]])
    return negatives
