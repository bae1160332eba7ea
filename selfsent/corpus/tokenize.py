"""From documents to tokenised and hashed texts in reading order, before any is dropped as a duplicate."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import numpy as np
import xxhash
from numpy.typing import NDArray
from tokenizers import Tokenizer

from selfsent.corpus import clean, dedup
from selfsent.corpus.columns import ColumnFile, Table
from selfsent.corpus.heldout import Selection
from selfsent.corpus.read import Document
from selfsent.corpus.statistics import CorpusStatistics
from selfsent.errors import EncoderError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TEXTS = 4096  # tokenised at a time,
_LETTERS = 1 << 20  # or as many as have so many letters together


class WordPieces:
    """A copy of a fast tokenizer that neither truncates nor pads, and the special tokens that it would add.

    Calling the Rust tokenizer itself is four times faster than calling its transformers wrapper.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        if not tokenizer.is_fast:
            raise EncoderError(f"{type(tokenizer).__name__} is a slow tokenizer: use one that has a tokenizer.json")
        definition = tokenizer.backend_tokenizer.to_str()
        self._backend = Tokenizer.from_str(definition)
        self._backend.no_truncation()
        self._backend.no_padding()
        self._backend.encode_special_tokens = tokenizer.split_special_tokens  # not part of the definition
        framed = self._backend.encode("a")
        inner = [place for place, special in enumerate(framed.special_tokens_mask) if not special]
        self.before, self.after = framed.ids[: inner[0]], framed.ids[inner[-1] + 1 :]
        self.unknown: int | None = tokenizer.unk_token_id
        self.dtype = np.dtype(np.uint16 if self._backend.get_vocab_size() <= 1 << 16 else np.uint32)
        # Of our copy: a tokenizer that was called with truncation or padding keeps both in its definition.
        flag = "special tokens are split" if tokenizer.split_special_tokens else ""
        self.identity = xxhash.xxh3_128_hexdigest((self._backend.to_str() + flag).encode())

    @property
    def specials(self) -> int:
        """Count the special tokens around a text."""
        return len(self.before) + len(self.after)

    def encode(self, texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the word pieces of all texts end to end, without special tokens, and the length of each text."""
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return np.fromiter(chain.from_iterable(rows), np.uint32, int(lengths.sum())), lengths


@dataclass(frozen=True, kw_only=True)
class TextRules:
    """How the texts of a document are made."""

    split: bool  # into sentences
    whole: bool  # keep the document in one piece; its sentences serve the held-out test only
    language: str
    min_words: int
    max_words: int | None
    pair_min_words: int  # a pair's text is not split, so it is short on purpose

    def fits(self, text: str) -> bool:
        """Tell whether a text is neither too short nor too long."""
        words = clean.count_words(text)
        return words >= self.min_words and (self.max_words is None or words <= self.max_words)

    def of_pairs(self) -> "TextRules":
        """Return the rules for the source's rows that have a positive."""
        return replace(self, split=False, whole=False, min_words=self.pair_min_words, max_words=None)


def split_document(document: Document, rules: TextRules) -> tuple[str, str, list[str]]:
    """Return the cleaned text and summary of a document, and its sentences, or its single line if it is not split."""
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


class TokenizedTexts:
    """All texts read so far with their word pieces and hashes, in columns of a temporary folder."""

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
        self.counts = CorpusStatistics()  # those that are taken while documents are read
        self.folder = table.folder
        self.pieces = pieces
        self.has_pairs = False  # whether a row came with its own positive
        self._adjacent = adjacent  # the positive of a sentence is the next one; positives in rows are ignored
        self._documents, self._pairs = documents, pairs
        self.texts = table.ragged("texts", np.uint8)
        self.ids = table.ragged("ids", pieces.dtype)
        self.keys = table.column("keys", np.uint64)
        self.positives = table.ragged("positives", pieces.dtype)
        self.positive_keys = table.column("positive_keys", np.uint64)
        self._held_out_documents = table.column("held_out_documents", np.uint64)
        self._held_out_pairs = table.column("held_out_pairs", np.uint64)
        self.bands = [table.column(f"band_{band}", np.uint64) for band in range(bands)]
        self._width = width
        self._submitted = 0  # texts passed to the worker thread
        self.without_pieces = 0  # of these, texts in which the tokenizer found nothing

    @property
    def rows(self) -> int:
        """Count the texts stored."""
        return self.keys.rows

    @property
    def paired(self) -> bool:
        """Whether the rows to keep are pairs."""
        return self.has_pairs or self._adjacent

    @property
    def selection(self) -> Selection:
        """What is held out: pairs if any row came with a positive, otherwise documents."""
        return self._pairs if self.has_pairs else self._documents

    @property
    def held_out_keys(self) -> ColumnFile:
        """The keys of all texts held out."""
        return self._held_out_pairs if self.has_pairs else self._held_out_documents

    def fill(self, documents: Iterator[tuple[Document, TextRules]], limit: int | None) -> bool:
        """Store texts until there are ``limit``; return whether documents may be left.

        The tokenizer works in a thread beside the reading: it releases Python's lock and uses all cores.
        """
        with ThreadPoolExecutor(1) as worker:
            waiting: deque[Future[None]] = deque()
            for chunk in self._chunks(documents):
                self._submitted += len(chunk.texts)
                waiting.append(worker.submit(self._store, chunk))
                while len(waiting) > 2:
                    waiting.popleft().result()
                if limit is not None and self._submitted >= limit:
                    break
            for future in waiting:
                future.result()
        return limit is not None and self._submitted >= limit

    def text(self, row: int) -> str:
        """Return the text of one row."""
        values, _ = self.texts.span(row, row + 1)
        return values.tobytes().decode()

    def _chunks(self, documents: Iterator[tuple[Document, TextRules]]) -> Iterator[_Chunk]:
        chunk = _Chunk()
        for document, rules in documents:
            self._add(document, rules, chunk)
            if chunk.full:
                yield chunk
                chunk = _Chunk()
        yield chunk

    def _add(self, document: Document, rules: TextRules, chunk: _Chunk) -> None:
        """Add the texts of one document to ``chunk``, or hold it out."""
        counts = self.counts
        counts.documents += 1
        positive = "" if self._adjacent else clean.one_line(clean.clean_text(document.positive))
        if positive:
            self.has_pairs = True
            rules = rules.of_pairs()
        text, summary, sentences = split_document(document, rules)
        counts.cleaned_documents += text != document.text
        counts.empty_documents += not sentences
        candidates = [" ".join(sentences)] if rules.whole and sentences else sentences
        counts.texts += len(candidates)
        texts, places = [], []
        for place, candidate in enumerate(candidates):
            words = clean.count_words(candidate)
            if words < rules.min_words:
                counts.too_short += 1
            elif rules.max_words is not None and words > rules.max_words:
                counts.too_long += 1
            else:
                texts.append(candidate)
                places.append(place)
        if not texts:
            return
        keys = [clean.content_key(text) for text in texts]
        if positive:
            pair_keys = [*keys, clean.content_key(positive)]
            if pair_keys[0] == pair_keys[1]:
                counts.identical_pairs += 1
                return
            if self._pairs.take(document, texts[0], [positive], pair_keys):
                self._held_out_pairs.append(np.array(pair_keys, np.uint64))
                return
        elif self._documents.take(document, clean.one_line(summary), sentences if rules.whole else texts, keys):
            counts.held_out_texts += len(texts)
            self._held_out_documents.append(np.array(keys, np.uint64))
            return
        positives = _next_sentences(texts, places, keys) if self._adjacent else [positive] * len(texts)
        chunk.texts += texts
        chunk.keys += keys
        chunk.positives += positives
        chunk.letters += sum(map(len, texts)) + sum(map(len, positives))

    def _store(self, chunk: _Chunk) -> None:
        """Tokenise, hash and write one chunk; runs in the worker thread, one chunk after the other."""
        if not chunk.texts:
            return
        ids, lengths = self.pieces.encode(chunk.texts)
        texts, positives, keys = chunk.texts, chunk.positives, np.array(chunk.keys, np.uint64)
        some = lengths > 0
        if not some.all():  # texts in which the tokenizer finds nothing
            self.without_pieces += int((~some).sum())
            texts = [text for text, kept in zip(texts, some, strict=True) if kept]
            positives = [text for text, kept in zip(positives, some, strict=True) if kept]
            keys, lengths = keys[some], lengths[some]
        if not texts:
            return
        encoded = [text.encode() for text in texts]
        self.texts.append(np.frombuffer(b"".join(encoded), np.uint8), np.array([len(text) for text in encoded]))
        self.ids.append(ids, lengths)
        if any(positives):
            self.positives.append(*self.pieces.encode(positives))
            self.positive_keys.append(np.array([clean.content_key(text) for text in positives], np.uint64))
        else:
            self.positives.append(np.empty(0, np.uint32), np.zeros(len(positives), np.int64))
            self.positive_keys.append(np.zeros(len(positives), np.uint64))
        if self.bands:
            hashes = dedup.shingles(ids, lengths)
            for column, band in zip(self.bands, dedup.band_keys(hashes, lengths, self._width), strict=True):
                column.append(band)
        self.keys.append(keys)


def _next_sentences(texts: list[str], places: list[int], keys: list[int]) -> list[str]:
    """Return for each sentence the one directly after it, if its content differs; "" where there is none."""
    pairs = zip(texts[1:], pairwise(places), pairwise(keys), strict=True)
    return [text * (after == before + 1 and one != other) for text, (before, after), (one, other) in pairs] + [""]
