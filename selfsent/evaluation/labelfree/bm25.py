"""Word matching: BM25, and negatives that it cannot tell from the answer.

    BM25(q, d) = sum over the words w of q of  idf(w) tf(w, d) (k1 + 1) / (tf(w, d) + k1 (1 - b + b |d| / mean |d|))

with k1 = 1.5, b = 0.75 and idf(w) = ln(1 + (N - n(w) + 0.5) / (n(w) + 0.5)), as in Lucene.  Source: Robertson &
Zaragoza 2009, https://doi.org/10.1561/1500000019; the scores are computed by bm25s, https://arxiv.org/abs/2407.03618.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

HARD = 3  # negatives on either side of the answer


def bm25(
    queries: Sequence[Sequence[str]], passages: Sequence[Sequence[str]], *, k1: float = 1.5, b: float = 0.75
) -> Float[np.ndarray, "N M"]:
    """Score passages for queries, both given as words; 0 where they share none."""
    import bm25s

    index = bm25s.BM25(method="lucene", k1=k1, b=b)
    index.index([list(words) for words in passages], show_progress=False)
    scores = np.zeros((len(queries), len(passages)))
    for row, words in zip(scores, queries, strict=True):
        if words:
            row[:] = index.get_scores(list(words))
    return scores


def hard_negatives(scores: Float[np.ndarray, "N N"], each: int = HARD) -> list[Int[np.ndarray, " K"]]:
    """Return, per query, the passages next to the answer in BM25's order: as many above it as below.

    By construction BM25 itself is right about exactly half of them.  A query that BM25 answers first, and one that it
    answers last, gets none: there matching words is enough, or against it.

    Args:
        scores: of every passage for every query; the answer to query i is passage i.
        each: at most, on either side.
    """
    found = []
    for answer, row in enumerate(scores):
        order = np.argsort(-row, kind="stable")
        above, below = order[row[order] > row[answer]], order[row[order] < row[answer]]
        count = min(each, len(above), len(below))
        found.append(np.r_[above[len(above) - count :], below[:count]])
    return found
