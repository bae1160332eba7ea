"""From documents to tokenised and hashed texts in reading order, before any is dropped as a duplicate."""

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, starmap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray
from tokenizers import Tokenizer

from selfsent.corpus import clean, dedup
from selfsent.corpus.columns import Table
from selfsent.corpus.heldout import Kind, Selection
from selfsent.corpus.read import Document
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.statistics import CorpusStatistics
from selfsent.errors import EncoderError
from selfsent.word_lookup import WordLookup

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_TEXTS = 4096  # tokenised at a time,
_LETTERS = 1 << 20  # or as many as have so many letters together
_CHAIN = 8  # consecutive rows that are neighbours at most: pairs tied by a common side never share a batch


class WordPieces:
    """A copy of a fast tokenizer that neither truncates nor pads, and the special tokens that it would add.

    Calling the Rust tokenizer itself is four times faster than calling its transformers wrapper, and looking words up
    faster again, where the tokenizer is of BERT's kind.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        if not tokenizer.is_fast:
            raise EncoderError(f"{type(tokenizer).__name__} is a slow tokenizer: use one that has a tokenizer.json")
        self._backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._backend.no_truncation()
        self._backend.no_padding()
        self._backend.encode_special_tokens = tokenizer.split_special_tokens  # not part of the definition
        self._lookup = WordLookup.of(self._backend)
        framed = self._backend.encode("a")
        inner = [place for place, special in enumerate(framed.special_tokens_mask) if not special]
        self.before, self.after = framed.ids[: inner[0]], framed.ids[inner[-1] + 1 :]
        self.specials = len(self.before) + len(self.after)
        self.unknown: int | None = tokenizer.unk_token_id
        self.dtype = np.dtype(np.uint16 if self._backend.get_vocab_size() <= 1 << 16 else np.uint32)
        # Of our copy: a tokenizer that was called with truncation or padding keeps both in its definition.
        flag = "special tokens are split" if tokenizer.split_special_tokens else ""
        self.identity = xxhash.xxh3_128_hexdigest((self._backend.to_str() + flag).encode())

    def encode(self, texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the word pieces of all texts end to end, without special tokens, and the length of each text."""
        if self._lookup is not None:
            ids, firsts = self._lookup(texts)
            return ids.astype(np.uint32), np.diff(firsts, append=len(ids))
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return np.fromiter(chain.from_iterable(rows), np.uint32, int(lengths.sum())), lengths


class TextRules(NamedTuple):
    """How the texts of a document are made."""

    config: CorpusConfig
    split: bool  # into sentences
    whole: bool  # keep the document in one piece; its sentences serve the held-out test only

    @property
    def words(self) -> range:
        """The numbers of words that a text may have."""
        sentences = self.split and not self.whole
        least, most = self.config.min_words, self.config.max_words
        least = (5 if sentences else 1) if least is None else least
        return range(least, most + 1 if sentences and most is not None else sys.maxsize)


def split_document(document: Document, rules: TextRules) -> tuple[str, str, list[str]]:
    """Return the cleaned text and summary of a document, and its sentences, or its single line if it is not split.

    Without cleaning a line is what it was, an empty one a space, and a whole document loses runs of white space alone.
    """
    if not rules.config.clean and not rules.split:
        text = clean.encodable(document.text)
        return document.text, "", [(clean.one_line(text) if rules.whole else text) or " "]
    text = clean.clean_text(document.text)
    if not rules.split:
        return text, "", [line] if (line := clean.one_line(text)) else []
    summary = clean.clean_text(document.summary)
    language = rules.config.language
    return text, summary, clean.sentences(summary, language) + clean.sentences(text, language)


class _Text(NamedTuple):
    text: str
    key: int
    positive: str  # empty if it has none
    first: bool  # of its document, as it was read,
    last: bool  # and likewise


class TokenizedTexts:
    """All texts read so far with their word pieces and hashes, in columns of a temporary folder."""

    def __init__(self, table: Table, pieces: WordPieces, config: CorpusConfig, kind: Kind) -> None:
        self.counts = CorpusStatistics()
        self.folder = table.folder
        self.pieces = pieces
        self.has_pairs = False  # whether a row came with its own positive
        # A row of no word piece at all has no hash.
        self._drops_empty = config.clean or config.deduplicate == "near" or not pieces.specials
        # The positive of a sentence is the next one; positives in rows are ignored.
        self._adjacent = config.positives == "adjacent"
        self.rows_adjacent = self._adjacent and config.order == "meaningful"
        size, share = config.held_out, config.held_out_share
        self.documents = Selection(kind, size, share, table.folder / "held_out_documents.jsonl")
        self.pairs = Selection("pairs", size, share, table.folder / "held_out_pairs.jsonl")
        self.texts = table.ragged("texts", np.uint8)
        self.ids = table.ragged("ids", pieces.dtype)
        self.keys = table.column("keys", np.uint64)
        self.positives = table.ragged("positives", pieces.dtype)
        self.positive_keys = table.column("positive_keys", np.uint64)
        self._width = dedup.band_width(config.near_threshold)
        bands = range(dedup.MINIMA // self._width if config.deduplicate == "near" else 0)
        self.bands = [table.column(f"band_{band}", np.uint64) for band in bands]
        self._submitted = 0  # texts passed to the worker thread
        self.without_pieces = 0  # of these, texts in which the tokenizer found nothing

    def __len__(self) -> int:
        return self.keys.rows

    @property
    def paired(self) -> bool:
        """Whether the rows to keep are pairs."""
        return self.has_pairs or self._adjacent

    @property
    def selection(self) -> Selection:
        """What is held out: pairs if any row came with a positive, otherwise documents."""
        return self.pairs if self.has_pairs else self.documents

    def fill(self, documents: Iterator[tuple[Document, TextRules]], limit: int | None) -> bool:
        """Store texts until there are ``limit``; return whether documents may be left.

        The tokenizer works in a thread beside the reading: it releases Python's lock and uses all cores.
        """
        with ThreadPoolExecutor(1) as worker:
            last: Future[None] | None = None
            for chunk in self._chunks(documents):
                self._submitted += len(chunk)
                if last:
                    last.result()
                last = worker.submit(self._store, chunk)
                if limit is not None and self._submitted >= limit:
                    break
            if last:
                last.result()
        return limit is not None and self._submitted >= limit

    def text(self, row: int) -> str:
        """Return the text of one row."""
        return self.texts.rows([row])[0].tobytes().decode()

    def _chunks(self, documents: Iterator[tuple[Document, TextRules]]) -> Iterator[list[_Text]]:
        chunk: list[_Text] = []
        letters = 0
        for new in self._linked(documents) if self.rows_adjacent else starmap(self._texts_of, documents):
            chunk += new
            letters += sum(len(one.text) + len(one.positive) for one in new)
            if len(chunk) >= _TEXTS or letters >= _LETTERS:
                yield chunk
                chunk, letters = [], 0
        yield chunk

    def _linked(self, documents: Iterator[tuple[Document, TextRules]]) -> Iterator[list[_Text]]:
        """Yield the texts of ``_CHAIN`` rows at a time, the last text of each row paired with the first of the next.

        Rows of two sources are no neighbours, nor are rows with an empty, a held-out or a too short one between them.
        """
        found: list[_Text] = []
        source: TextRules | None = None
        rows, joined = 0, False
        for document, rules in documents:
            new = self._texts_of(document, rules)
            joined = joined and bool(new) and rules is source  # each source has a TextRules of its own
            if joined and found[-1].last and new[0].first and found[-1].key != new[0].key:
                found[-1] = found[-1]._replace(positive=new[0].text)
            found += new
            rows, source, joined = rows + 1, rules, bool(new)
            if rows == _CHAIN:
                yield found
                found, rows, joined = [], 0, False
        yield found

    def _texts_of(self, document: Document, rules: TextRules) -> list[_Text]:
        """Return the texts of one document; none if it is held out."""
        counts = self.counts
        counts.documents += 1
        positive = "" if self._adjacent else clean.encodable(document.positive)
        if rules.config.clean:
            positive = clean.one_line(clean.clean_text(positive))
        if positive:
            self.has_pairs = True
            rules = rules._replace(split=False)  # texts of pairs are short on purpose
        text, summary, sentences = split_document(document, rules)
        counts.cleaned_documents += text != document.text
        counts.empty_documents += not sentences
        candidates = [" ".join(sentences)] if rules.whole and sentences else sentences
        counts.texts += len(candidates)
        words = [clean.count_words(candidate) for candidate in candidates]
        places = [place for place, number in enumerate(words) if number in rules.words]
        too_short = sum(number < rules.words.start for number in words)
        counts.too_short += too_short
        counts.too_long += len(words) - len(places) - too_short
        texts = [candidates[place] for place in places]
        if not texts:
            return []
        keys = [clean.content_key(text) for text in texts]
        if positive:
            key = clean.content_key(positive)
            identical = rules.config.clean and key == keys[0]
            counts.identical_pairs += identical
            if identical or self.pairs.take(document, texts[0], [positive], [*keys, key]):
                return []
        elif self.documents.take(document, clean.one_line(summary), sentences if rules.whole else texts, keys):
            return []
        positives = [positive] * len(texts)
        if self._adjacent:  # the sentence directly after, if its content differs
            for n in range(len(texts) - 1):
                if places[n + 1] == places[n] + 1 and keys[n + 1] != keys[n]:
                    positives[n] = texts[n + 1]
        end = len(candidates) - 1
        return [
            _Text(text, key, other, first=place == 0, last=place == end)
            for text, key, other, place in zip(texts, keys, positives, places, strict=True)
        ]

    def _store(self, chunk: list[_Text]) -> None:
        """Tokenise, hash and write one chunk; runs in the worker thread, one chunk after the other."""
        ids, lengths = self.pieces.encode([one.text for one in chunk])
        if self._drops_empty:
            chunk = [one for one, length in zip(chunk, lengths, strict=True) if length]
            self.without_pieces += len(lengths) - len(chunk)
            lengths = lengths[lengths > 0]
        if not chunk:
            return
        encoded = [one.text.encode() for one in chunk]
        self.texts.append(np.frombuffer(b"".join(encoded), np.uint8), np.array([len(text) for text in encoded]))
        self.ids.append(ids, lengths)
        self.positives.append(*self.pieces.encode([one.positive for one in chunk]))
        self.positive_keys.append(np.array([clean.content_key(one.positive) for one in chunk], np.uint64))
        if self.bands:
            hashes = dedup.shingles(ids, lengths)
            for column, band in zip(self.bands, dedup.band_keys(hashes, lengths, self._width), strict=True):
                column.append(band)
        self.keys.append(np.array([one.key for one in chunk], np.uint64))
