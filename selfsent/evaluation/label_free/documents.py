"""The documents that tests are made of: cut into sentences, near-duplicates removed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from jaxtyping import Bool

from selfsent.corpus import deduplicate
from selfsent.corpus.columns import Table
from selfsent.corpus.sources import Document
from selfsent.text import clean

NEAR_THRESHOLD = 0.5  # Jaccard similarity of word bigrams from which on two texts are near-duplicates


@dataclass(frozen=True)
class ParsedDocument:
    """A cleaned document in its parts."""

    title: str
    summary: str
    sentences: list[str]  # of its text, without the summary


def parse_documents(documents: Sequence[Document], language: str, size: int) -> list[ParsedDocument]:
    """Return at most ``size`` documents in their parts; of near-duplicates the first is kept."""
    return [one for one, _ in parse_rows(documents, language)][:size]


def parse_rows(documents: Sequence[Document], language: str) -> list[tuple[ParsedDocument, int]]:
    """Return documents in their parts and the place of each; of near-duplicates the first is kept."""
    parsed = []
    for place, document in enumerate(documents):
        summary = clean.one_line(clean.clean_text(document.summary))
        sentences = clean.sentences(clean.clean_text(document.text), language)
        if summary or sentences:
            one = ParsedDocument(clean.one_line(clean.clean_text(document.title)), summary, sentences)
            parsed.append((one, place))
    distinct = distinct_texts([" ".join([one.summary, *one.sentences]) for one, _ in parsed])
    return [row for row, kept in zip(parsed, distinct, strict=True) if kept]


def distinct_texts(texts: Sequence[str], threshold: float = NEAR_THRESHOLD) -> Bool[np.ndarray, " N"]:
    """Mark the texts that are no near-duplicate of an earlier marked one; texts without words are not marked."""
    words = [clean.words(text) for text in texts]
    every = np.array([len(row) for row in words], np.int64)
    distinct = every > 0
    lengths = every[distinct]
    if not len(lengths):
        return distinct
    vocabulary: dict[str, int] = {}
    ids = np.array([vocabulary.setdefault(word, len(vocabulary)) for row in words for word in row], np.uint32)
    hashes = deduplicate.shingles(ids, lengths)
    width = deduplicate.band_width(threshold)
    drop_reason = np.zeros(len(lengths), np.uint8)
    with TemporaryDirectory() as folder, Table(Path(folder)) as table:
        column, exact = table.ragged("ids", np.uint32), table.column("exact", np.uint64)
        bands = [table.column(f"band_{band}", np.uint64) for band in range(deduplicate.MINIMA // width)]
        column.append(ids, lengths)
        exact.append(deduplicate.row_keys(ids, lengths))
        for band, keys in zip(bands, deduplicate.band_keys(hashes, lengths, width), strict=True):
            band.append(keys)
        deduplicate.drop_exact(exact, drop_reason)
        deduplicate.drop_near(bands, column, threshold, drop_reason, Path(folder))
    distinct[distinct] = drop_reason == deduplicate.KEPT
    return distinct
