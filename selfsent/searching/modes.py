"""Searching by words, and by both: BM25 on disk, its scores added to the cosines, and which mode finds more.

    score(q, d) = (1 - w) cos(q, d) + w BM25(q, d) / max over d' of BM25(q, d')

BM25 is that of ``text.bm25``, of stems.  Which mode finds more in a corpus is measured on its own documents when an
index is made: a sentence from inside a document has to find the rest of it among the rests of the others.  Where words
alone find more of these than meaning does, people find more by both together, elsewhere by meaning (decision 0032).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

from selfsent.encoder.base import Encoder
from selfsent.encoder.quantize import unit
from selfsent.progress import SILENT, Progress
from selfsent.runtime.imports import import_bm25s
from selfsent.searching.passages import SearchText, split_sentences
from selfsent.storage import atomic
from selfsent.text import clean
from selfsent.text.bm25 import PARAMETERS, bm25_scores
from selfsent.text.stems import stems

POOL = 100  # documents of each ranking whose scores are added
PASSAGES, QUERIES = 1000, 300
_FEWEST = 50  # documents, for a figure that decides anything
_QUERY, _PASSAGE = range(6, 61), 15  # words of a sentence that is a query; of the rest, at least
_DEPTH = 10


class WordIndex:
    """BM25 of every document that is not deleted, from a folder of ``write_word_index``.

    Raises:
        ResumeError: a file is missing or was changed.
    """

    def __init__(self, folder: Path, advice: str, language: str) -> None:
        atomic.verify(folder, advice)
        self._language = language
        self._index = import_bm25s().BM25.load(str(folder), mmap=True, show_progress=False, load_corpus=False)

    def score(self, query: str, hidden: Bool[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        """Return BM25 of every document; 0 of those that share no word with the query, and of hidden, deleted ones."""
        words = [word for word in stems(query, self._language) if word in self._index.vocab_dict]
        scores = np.zeros(len(hidden))
        if words:
            there = np.flatnonzero(~hidden)
            found = self._index.get_scores(words)[: len(there)]
            scores[there[: len(found)]] = found
        return scores


def best_words(scores: Float[np.ndarray, " N"], count: int) -> Int[np.ndarray, " K"]:
    """Return the documents with the highest scores above 0, the best first, of equal ones the first."""
    count = min(count, int(np.count_nonzero(scores)))
    best = np.argpartition(-scores, count - 1)[:count] if count else np.zeros(0, np.int64)
    return best[np.lexsort((best, -scores[best]))]


def write_word_index(
    folder: Path, texts: Iterable[tuple[str, str]], language: str, progress: Progress = SILENT
) -> None:
    """Count the stems of titles and texts, and write the folder, whole or not at all."""
    bm25s = import_bm25s()
    vocabulary: dict[str, int] = {}
    rows: list[list[int]] = []
    for title, text in texts:
        rows.append([vocabulary.setdefault(word, len(vocabulary)) for word in stems(f"{title} {text}", language)])
        progress.report("words", len(rows))
    if not vocabulary:  # bm25s wants one
        vocabulary[""] = 0
    index = bm25s.BM25(**PARAMETERS)
    with np.errstate(invalid="ignore"):  # where no text has a word, their mean length is 0
        index.index(bm25s.tokenization.Tokenized(ids=rows, vocab=vocabulary), show_progress=False)
    with atomic.build_folder(folder) as scratch:
        index.save(str(scratch), show_progress=False)


def passage_with(query: str, passages: Sequence[str]) -> int:
    """Return which passage holds most words of a query, the first of several."""
    words = {*clean.words(query)}
    return int(np.argmax([len(words & {*clean.words(passage)}) for passage in passages]))


def add_words(
    cosines: Float[np.ndarray, "*Q N"], matches: Float[np.ndarray, "*Q N"], weight: float
) -> Float[np.ndarray, "*Q N"]:
    """Return cosines and BM25 together: the latter in parts of the query's best score, which is never 0.

    Args:
        weight: of BM25; the cosines have the rest.
    """
    best = np.maximum(matches.max(axis=-1, keepdims=True, initial=0.0), 1e-12)
    return (1 - weight) * cosines + weight * matches / best


def measure_modes(
    encoder: Encoder, texts: Sequence[SearchText], query: str, document: str, *, words: float, language: str
) -> dict[str, float] | None:
    """Return MRR@10 (0 to 100) of each mode; None where too few documents have a sentence inside and a rest.

    Args:
        query: the prompt for queries.
        document: the prompt for documents.
        words: the weight of BM25 in "hybrid".
    """
    pairs = [pair for text in texts if (pair := inside_and_rest(text)) is not None]
    if len(pairs) < _FEWEST:
        return None
    pairs = pairs[:: -(-len(pairs) // PASSAGES)]
    queries, passages = [first for first, _ in pairs[:QUERIES]], [rest for _, rest in pairs]
    cosines = unit(encoder.embed(queries, prompt=query)) @ unit(encoder.embed(passages, prompt=document)).T
    matches = bm25_scores(queries, passages, language)
    measured = {}
    for mode, scores in (("dense", cosines), ("bm25", matches), ("hybrid", add_words(cosines, matches, words))):
        ranks = np.count_nonzero(scores > scores.diagonal()[:, None], axis=1)
        measured[mode] = round(100 * float(np.where(ranks < _DEPTH, 1 / (1 + ranks), 0).mean()), 2)
    return measured


def inside_and_rest(text: SearchText) -> tuple[str, str] | None:
    """Return a sentence from inside the first passage, and the passage without it; None where there is none."""
    sentences = split_sentences(text.passages[0])
    suits = [number for number, each in enumerate(sentences) if number and clean.count_words(each) in _QUERY]
    if not suits:
        return None
    chosen = suits[clean.content_key(text.passages[0]) % len(suits)]
    rest = " ".join(each for each in sentences if each != sentences[chosen])
    return (sentences[chosen], rest) if clean.count_words(rest) >= _PASSAGE else None
