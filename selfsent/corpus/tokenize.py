"""Texts on their way from documents to rows: cleaned, cut, tokenised and hashed, copies still among them."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from selfsent.corpus import clean, dedup
from selfsent.corpus.columns import ColumnFile, Table
from selfsent.corpus.heldout import Selection
from selfsent.corpus.read import Document
from selfsent.corpus.tokens import WordPieces

_TEXTS = 4096  # tokenised at a time,
_LETTERS = 1 << 20  # or as many as make up so many letters


@dataclass
class Counts:
    """What the reading of documents came upon; fields as in ``Account``."""

    documents: int = 0
    empty_documents: int = 0
    cleaned_documents: int = 0
    texts: int = 0
    too_short: int = 0
    too_long: int = 0
    identical_pairs: int = 0
    held_out_texts: int = 0  # of documents that are no pairs
    held_out_pairs: int = 0


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What makes a text of a document."""

    split: bool  # into sentences
    whole: bool  # keep the document in one piece; its sentences only serve the held-out test
    language: str
    min_words: int
    max_words: int | None
    pair_min_words: int  # a pair's text stays in one piece, so no split can have failed

    def fits(self, text: str) -> bool:
        """Tell whether a text is neither too short nor too long."""
        words = clean.count_words(text)
        return words >= self.min_words and (self.max_words is None or words <= self.max_words)

    def of_pairs(self) -> "Rules":
        """Return the rules of the source's rows that have a positive."""
        return replace(self, split=False, whole=False, min_words=self.pair_min_words, max_words=None)


def open_document(document: Document, rules: Rules) -> tuple[str, str, list[str]]:
    """Return the cleaned text and summary of a document, and the sentences or the line that they hold."""
    text = clean.clean_text(document.text)
    if not rules.split:
        return text, "", [line] if (line := clean.one_line(text)) else []
    summary = clean.clean_text(document.summary)
    return text, summary, clean.sentences(summary, rules.language) + clean.sentences(text, rules.language)


@dataclass
class _Chunk:
    texts: list[str] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    positives: list[str] = field(default_factory=list)  # empty where a text has none
    letters: int = 0

    @property
    def full(self) -> bool:
        return len(self.texts) >= _TEXTS or self.letters >= _LETTERS


class Stage:
    """Everything found so far, in reading order, in a folder that does not outlive the preparation."""

    def __init__(
        self,
        table: Table,
        pieces: WordPieces,
        documents: Selection,
        pairs: Selection,
        *,
        bands: int,
        width: int,
        adjacent: bool,
    ) -> None:
        self.counts = Counts()
        self.folder = table.folder
        self.pieces = pieces
        self.given = False  # whether a single row came with its positive
        self._adjacent = adjacent  # the positive of a sentence is the next one; what rows come with is not looked at
        self._documents, self._pairs = documents, pairs
        self.texts = table.ragged("texts", np.uint8)
        self.ids = table.ragged("ids", pieces.dtype)
        self.exact = table.column("exact", np.uint64)
        self.positives = table.ragged("positives", pieces.dtype)
        self.positive_exact = table.column("positive_exact", np.uint64)
        self._held_out_documents = table.column("held_out_documents", np.uint64)
        self._held_out_pairs = table.column("held_out_pairs", np.uint64)
        self.bands = [table.column(f"band_{band}", np.uint64) for band in range(bands)]
        self._width = width
        self.found = 0  # texts handed to the worker
        self.without_pieces = 0  # of these, texts in which the tokenizer found nothing

    @property
    def rows(self) -> int:
        """Count the texts stored."""
        return self.exact.rows

    @property
    def paired(self) -> bool:
        """Whether what is kept are pairs."""
        return self.given or self._adjacent

    @property
    def selection(self) -> Selection:
        """What is held out: pairs of a corpus that came with any, and otherwise documents."""
        return self._pairs if self.given else self._documents

    @property
    def held_out(self) -> ColumnFile:
        """The keys of all texts held out."""
        return self._held_out_pairs if self.given else self._held_out_documents

    def fill(self, documents: Iterator[tuple[Document, Rules]], enough: int | None) -> bool:
        """Store texts until there are ``enough``; say whether documents may be left.

        The tokenizer works in a thread of its own beside the reading, outside of Python's lock and on all
        cores, so that the machine is busy without a second process.
        """
        with ThreadPoolExecutor(1) as worker:
            waiting: deque[Future[None]] = deque()
            for chunk in self._chunks(documents):
                self.found += len(chunk.texts)
                waiting.append(worker.submit(self._store, chunk))
                while len(waiting) > 2:
                    waiting.popleft().result()
                if enough is not None and self.found >= enough:
                    break
            for future in waiting:
                future.result()
        return enough is not None and self.found >= enough

    def _chunks(self, documents: Iterator[tuple[Document, Rules]]) -> Iterator[_Chunk]:
        chunk = _Chunk()
        for document, rules in documents:
            self._cut(document, rules, chunk)
            if chunk.full:
                yield chunk
                chunk = _Chunk()
        yield chunk

    def _cut(self, document: Document, rules: Rules, chunk: _Chunk) -> None:
        """Add the texts of one document to ``chunk``, or hold it out."""
        counts = self.counts
        counts.documents += 1
        positive = "" if self._adjacent else clean.one_line(clean.clean_text(document.positive))
        if positive:
            self.given = True
            rules = rules.of_pairs()
        text, summary, sentences = open_document(document, rules)
        counts.cleaned_documents += text != document.text
        counts.empty_documents += not sentences
        found = [" ".join(sentences)] if rules.whole and sentences else sentences
        texts, places = [], []
        for place, one in enumerate(found):
            words = clean.count_words(one)
            if words < rules.min_words:
                counts.too_short += 1
            elif rules.max_words is not None and words > rules.max_words:
                counts.too_long += 1
            else:
                texts.append(one)
                places.append(place)
        counts.texts += len(found)
        if not texts:
            return
        keys = [clean.content_key(one) for one in texts]
        if positive:
            both = [*keys, clean.content_key(positive)]
            if both[0] == both[1]:
                counts.identical_pairs += 1
                return
            if self._pairs.take(document.title, texts[0], [positive], both):
                counts.held_out_pairs += 1
                self._held_out_pairs.append(np.array(both, np.uint64))
                return
        elif self._documents.take(document.title, clean.one_line(summary), sentences if rules.whole else texts, keys):
            counts.held_out_texts += len(texts)
            self._held_out_documents.append(np.array(keys, np.uint64))
            return
        positives = _following(texts, places, keys) if self._adjacent else [positive] * len(texts)
        chunk.texts += texts
        chunk.keys += keys
        chunk.positives += positives
        chunk.letters += sum(map(len, texts)) + sum(map(len, positives))

    def _store(self, chunk: _Chunk) -> None:
        """Tokenise, hash and write one chunk; runs in the worker thread, one chunk after the other."""
        if not chunk.texts:
            return
        ids, lengths = self.pieces.encode(chunk.texts)
        some = lengths > 0
        texts, positives, keys = chunk.texts, chunk.positives, np.array(chunk.keys, np.uint64)
        if not some.all():  # texts of nothing that the tokenizer sees
            self.without_pieces += int((~some).sum())
            texts = [text for text, seen in zip(texts, some, strict=True) if seen]
            positives = [text for text, seen in zip(positives, some, strict=True) if seen]
            keys, lengths = keys[some], lengths[some]
        if not texts:
            return
        encoded = [text.encode() for text in texts]
        sizes = np.fromiter(map(len, encoded), np.int64, len(encoded))
        self.texts.append(np.frombuffer(b"".join(encoded), np.uint8), sizes)
        self.ids.append(ids, lengths)
        if any(positives):
            self.positives.append(*self.pieces.encode(positives))
            self.positive_exact.append(np.array([clean.content_key(one) for one in positives], np.uint64))
        else:
            self.positives.append(np.empty(0, np.uint32), np.zeros(len(positives), np.int64))
            self.positive_exact.append(np.zeros(len(positives), np.uint64))
        if self.bands:
            hashes = dedup.shingles(ids, lengths)
            for column, band in zip(self.bands, dedup.band_keys(hashes, lengths, self._width), strict=True):
                column.append(band)
        self.exact.append(keys)

    def text(self, row: int) -> str:
        """Return the text of one row."""
        values, _ = self.texts.span(row, row + 1)
        return values.tobytes().decode()


def _following(texts: list[str], places: list[int], keys: list[int]) -> list[str]:
    """Give each sentence the one that follows it without a gap and says something else; "" where there is none."""
    pairs = zip(texts[1:], pairwise(places), pairwise(keys), strict=True)
    return [text * (after == before + 1 and one != other) for text, (before, after), (one, other) in pairs] + [""]
