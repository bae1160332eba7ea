"""Whole documents for tests that are made of their structure, no two of them alike.

Which ones are drawn hangs on their content and nothing else.  Of the text that an encoder was trained on, those that
its training held out can be asked for: they are found by the same rule.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import xxhash
from jaxtyping import Bool

from selfsent.corpus import clean, dedup, prepare
from selfsent.corpus.columns import Table
from selfsent.corpus.prepare import CorpusConfig
from selfsent.corpus.read import Document
from selfsent.progress import SILENT, Progress

ALIKE = 0.5  # Jaccard similarity of the pairs of neighbouring words, from which on two texts are near-duplicates
_SPARE = 1.5  # documents drawn for each that is wanted: some turn out to be near-duplicates


@dataclass(frozen=True)
class Structured:
    """A document in its parts."""

    title: str
    summary: str
    sentences: list[str]  # of its text, without the summary


def draw_documents(
    sources: Sequence[str], config: CorpusConfig, size: int, progress: Progress = SILENT
) -> list[Document]:
    """Draw documents by the hash of their content, from all sources alike.

    Raises:
        UserError: a source cannot be read.
    """
    wanted = round(size * _SPARE)
    kept: list[tuple[int, int, Document]] = []  # a heap with the largest hash first
    for number, (document, _) in enumerate(prepare.corpus_documents(sources, config, progress=progress)):
        if document.text.strip():
            key = xxhash.xxh3_64_intdigest(document.text.encode(errors="replace"))
            push = heapq.heappush if len(kept) < wanted else heapq.heappushpop
            push(kept, (-key, number, document))
    return [document for _, _, document in sorted(kept, reverse=True)]


def structured_documents(documents: Sequence[Document], language: str, size: int) -> list[Structured]:
    """Take documents apart and keep the first of those that are nearly the same, ``size`` at most."""
    found = []
    for document in documents:
        summary = clean.one_line(clean.clean_text(document.summary))
        sentences = clean.sentences(clean.clean_text(document.text), language)
        if summary or sentences:
            found.append(Structured(clean.one_line(clean.clean_text(document.title)), summary, sentences))
    alone = distinct_texts([" ".join([one.summary, *one.sentences]) for one in found])
    return [one for one, kept in zip(found, alone, strict=True) if kept][:size]


def distinct_texts(texts: Sequence[str], threshold: float = ALIKE) -> Bool[np.ndarray, " N"]:
    """Tell which texts are no near-duplicate of an earlier one that stays; a text without a word is none of them."""
    words = [clean.words(text) for text in texts]
    rows = np.flatnonzero([bool(row) for row in words])
    kept = np.zeros(len(texts), bool)
    if not len(rows):
        return kept
    lengths = np.array([len(words[row]) for row in rows])
    numbers: dict[str, int] = {}
    ids = np.array([numbers.setdefault(word, len(numbers)) for row in rows for word in words[row]], np.uint32)
    hashes = dedup.shingles(ids, lengths)
    width = dedup.band_width(threshold)
    fate = np.zeros(len(rows), np.uint8)
    with TemporaryDirectory() as place, Table(Path(place)) as table:
        column, exact = table.ragged("ids", np.uint32), table.column("exact", np.uint64)
        bands = [table.column(f"band_{band}", np.uint64) for band in range(dedup.MINIMA // width)]
        column.append(ids, lengths)
        exact.append(dedup.row_keys(ids, lengths))
        for band, keys in zip(bands, dedup.band_keys(hashes, lengths, width), strict=True):
            band.append(keys)
        table.flush()
        dedup.drop_exact(exact, fate)
        dedup.drop_near(bands, column, threshold, fate, Path(place))
    kept[rows[fate == dedup.KEPT]] = True
    return kept
