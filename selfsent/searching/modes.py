"""Which way of searching finds more in a corpus: measured on its own documents, when an index is made.

The first sentence of a document has to find the rest of it among the rests of the others, as in
``evaluation.label_free.held_out_retrieval``.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from selfsent.encoder.base import Encoder
from selfsent.evaluation.geometry import unit
from selfsent.searching.nearest import exact_nearest
from selfsent.searching.passages import SearchText
from selfsent.searching.words import POOL, fuse_rankings
from selfsent.text.bm25 import bm25_rows

PASSAGES, QUERIES = 1000, 300
_FEWEST = 50  # documents, for a figure that decides anything
_QUERY, _PASSAGE = 5, 15  # words, at least
_DEPTH = 10


def measure_modes(encoder: Encoder, texts: Sequence[SearchText], query: str, document: str) -> dict[str, float] | None:
    """Return MRR@10 (0 to 100) of each mode; None where too few documents have a first sentence and a rest.

    Args:
        query: the prompt for queries.
        document: the prompt for documents.
    """
    begin = [(one.opening, one.passages[0]) for one in texts]
    pairs = [(opening, text[len(opening) :]) for opening, text in begin if text.startswith(opening)]
    pairs = [pair for pair in pairs if len(pair[0].split()) >= _QUERY and len(pair[1].split()) >= _PASSAGE]
    if len(pairs) < _FEWEST:
        return None
    pairs = pairs[:: -(-len(pairs) // PASSAGES)]
    queries, passages = [first for first, _ in pairs[:QUERIES]], [rest for _, rest in pairs]
    asked = unit(encoder.embed(queries, prompt=query)).astype(np.float32)
    found = unit(encoder.embed(passages, prompt=document)).astype(np.float16)
    dense, _ = exact_nearest(asked, [found], None, POOL)
    ranks: dict[str, list[float]] = {"dense": [], "bm25": [], "hybrid": []}
    for answer, (by_meaning, scores) in enumerate(zip(dense, bm25_rows(queries, passages), strict=True)):
        by_words = np.argsort(-scores, kind="stable")[: min(POOL, int(np.count_nonzero(scores)))]
        fused = np.array([number for number, _ in fuse_rankings([by_meaning, by_words])], np.int64)
        for mode, ranking in (("dense", by_meaning), ("bm25", by_words), ("hybrid", fused)):
            ranks[mode].append(_reciprocal_rank(ranking, answer))
    return {mode: round(100 * float(np.mean(values)), 2) for mode, values in ranks.items()}


def _reciprocal_rank(ranking: Int[np.ndarray, " _"], answer: int) -> float:
    places = np.flatnonzero(ranking[:_DEPTH] == answer)
    return 1 / (1 + int(places[0])) if len(places) else 0.0
