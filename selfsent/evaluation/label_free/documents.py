"""The documents that tests are made of: cut into sentences, near-duplicates removed; and perturbed sentences.

A perturbed sentence means nearly the same, so that an encoder should retrieve the sentence by it: typos, another case,
truncated, words dropped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from jaxtyping import Bool

from selfsent.corpus import deduplicate
from selfsent.corpus.columns import Table
from selfsent.corpus.sources import Document
from selfsent.text import clean

Perturbation = Callable[[str, np.random.Generator], str]

TYPOS = 0.6  # fraction of the words of four letters or more
DROPPED = 0.5  # fraction of the words
NEAR_THRESHOLD = 0.5  # Jaccard similarity of word bigrams from which on two texts are near-duplicates


@dataclass(frozen=True)
class ParsedDocument:
    """A cleaned document in its parts."""

    title: str
    summary: str
    sentences: list[str]  # of its text, without the summary


def parse_documents(documents: Sequence[Document], language: str, size: int) -> list[ParsedDocument]:
    """Return at most ``size`` documents in their parts; of near-duplicates the first is kept."""
    return [document for document, _ in parse_rows(documents, language)][:size]


def parse_rows(documents: Sequence[Document], language: str) -> list[tuple[ParsedDocument, int]]:
    """Return documents in their parts and the place of each; of near-duplicates the first is kept."""
    parsed = []
    for place, document in enumerate(documents):
        summary = clean.one_line(clean.clean_text(document.summary))
        sentences = clean.sentences(clean.clean_text(document.text), language)
        if summary or sentences:
            title = clean.one_line(clean.clean_text(document.title))
            parsed.append((ParsedDocument(title, summary, sentences), place))
    distinct = distinct_texts([" ".join([document.summary, *document.sentences]) for document, _ in parsed])
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


def typos(text: str, draw: np.random.Generator) -> str:
    """Swap two neighbouring letters inside some of the longer words, at least one."""
    words = clean.with_gaps(text)
    long = [place for place, word in enumerate(words) if len(word.strip()) >= 4]
    if not long:
        return text
    for place in draw.choice(long, max(1, round(TYPOS * len(long))), replace=False):
        word = words[place]
        at = int(draw.integers(1, len(word.strip()) - 2))
        words[place] = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return "".join(words)


def dropped_words(text: str, draw: np.random.Generator, fraction: float = DROPPED) -> str:
    """Leave out a fraction of the words, at least one and never all."""
    words = clean.with_gaps(text)
    count = min(len(words) - 1, max(1, round(fraction * len(words))))
    dropped = set(draw.choice(len(words), count, replace=False).tolist())
    return clean.one_line("".join(word for place, word in enumerate(words) if place not in dropped))


PERTURBATIONS: dict[str, Perturbation] = {
    "typos": typos,
    "case": lambda text, draw: text.upper(),
    "truncation": lambda text, draw: clean.text_halves(text)[0],  # the first half of the words
    "dropped words": dropped_words,
}
