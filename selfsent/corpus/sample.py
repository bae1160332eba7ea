"""Whole documents drawn from the sources; which ones depends on their content alone."""

import heapq
from collections.abc import Sequence
from itertools import islice

import xxhash

from selfsent.corpus import prepare
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import Document, resolve_sources
from selfsent.progress import SILENT, Progress

_SOURCES = 20  # at most, that a first look opens
_SPARE = 1.5  # documents drawn for each that is wanted: some turn out to be near-duplicates


def first_texts(sources: Sequence[str], config: CorpusConfig, size: int) -> list[str]:
    """Return about ``size`` uncleaned texts from the beginnings of some sources, evenly spread over all."""
    resolved = resolve_sources(sources)
    chosen = resolved[:: -(-len(resolved) // _SOURCES)]
    each = -(-size // len(chosen))
    return [document.text for source in chosen for document in islice(source.documents(config.columns), each)]


def draw_documents(
    sources: Sequence[str], config: CorpusConfig, size: int, progress: Progress = SILENT
) -> list[Document]:
    """Draw the documents with the smallest content hashes: ``size``, and half as many to spare."""
    hashed = (
        (xxhash.xxh3_64_intdigest(document.text.encode(errors="replace")), -number, document)
        for number, document in enumerate(prepare.corpus_documents(sources, config, progress))
        if document.text.strip()
    )
    return [document for *_, document in heapq.nsmallest(round(size * _SPARE), hashed)]
