"""From documents to tokenised and hashed texts in reading order, before any is dropped as a duplicate."""

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain, starmap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray
from tokenizers import Tokenizer

from selfsent.corpus import deduplicate
from selfsent.corpus.columns import Table
from selfsent.corpus.held_out import Kind, Selection
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import Document
from selfsent.corpus.statistics import CorpusStatistics
from selfsent.corpus.word_lookup import WordLookup
from selfsent.errors import EncoderError
from selfsent.text import clean

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_TEXTS = 4096  # tokenised at a time,
_LETTERS = 1 << 20  # or as many as have so many letters together
_PIECE = 200  # characters of a piece of markup that are kept to be shown
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
        inner = [position for position, special in enumerate(framed.special_tokens_mask) if not special]
        self.before, self.after = framed.ids[: inner[0]], framed.ids[inner[-1] + 1 :]
        self.specials = len(self.before) + len(self.after)
        self.unknown: int | None = tokenizer.unk_token_id
        self.dtype = np.dtype(np.uint16 if self._backend.get_vocab_size() <= 1 << 16 else np.uint32)
        # Of our copy: a tokenizer that was called with truncation or padding keeps both in its definition.
        flag = "special tokens are split" if tokenizer.split_special_tokens else ""
        self.identity = xxhash.xxh3_128_hexdigest((self._backend.to_str() + flag).encode())

    def __getstate__(self) -> dict[str, Any]:
        """Send the definition to another process, and not the words that were met."""
        split = self._backend.encode_special_tokens
        return {**self.__dict__, "_backend": (self._backend.to_str(), split), "_lookup": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        definition, split = state["_backend"]
        self._backend = Tokenizer.from_str(definition)
        self._backend.encode_special_tokens = split
        self._lookup = WordLookup.of(self._backend)

    def encode(self, texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the tokens of all texts end to end, without special tokens, and the length of each text."""
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


def split_document(document: Document, rules: TextRules, taken: list[str] | None = None) -> tuple[str, str, list[str]]:
    """Return the cleaned text and summary of a document, and its sentences, or its single line if it is not split.

    Without cleaning a line is what it was, an empty one a space, and a whole document loses runs of white space alone.

    Args:
        taken: is given the pieces of markup that cleaning removed.
    """
    if not rules.config.clean and not rules.split:
        text = clean.encodable(document.text)
        return document.text, "", [(clean.one_line(text) if rules.whole else text) or " "]
    read = partial(clean.clean_text, taken=taken) if rules.config.clean else clean.encodable
    text, summary = read(document.text), read(document.summary)
    if not rules.split:
        return text, "", [line] if (line := clean.one_line(text)) else []
    language = rules.config.language
    return text, summary, clean.sentences(summary, language) + clean.sentences(text, language)


class SplitDocument(NamedTuple):
    """The texts of one document: all that can be said of it without the others."""

    cleaned: bool  # whether cleaning changed it
    markup: list[str]  # the beginnings of the pieces of markup that cleaning removed
    summary: str  # cleaned, in one line
    sentences: list[str]  # of a document that is kept whole; otherwise those of ``texts``
    texts: list[str]  # that have a fitting number of words,
    keys: list[int]  # the keys of their content,
    places: list[int]  # and which of the ``candidates`` they are
    candidates: int
    too_short: int
    empty: bool
    positive: str  # of a row that has one, otherwise ""
    positive_key: int


def split_texts(document: Document, rules: TextRules) -> SplitDocument:
    """Clean and split one document."""
    taken: list[str] = []
    positive = "" if rules.config.positives == "adjacent" else clean.encodable(document.positive)
    if rules.config.clean:
        positive = clean.one_line(clean.clean_text(positive, taken))
    if positive:
        rules = rules._replace(split=False)  # texts of pairs are short on purpose
    text, summary, sentences = split_document(document, rules, taken)
    candidates = [" ".join(sentences)] if rules.whole and sentences else sentences
    words = [clean.count_words(candidate) for candidate in candidates]
    kept_places = [position for position, number in enumerate(words) if number in rules.words]
    texts = [candidates[position] for position in kept_places]
    return SplitDocument(
        cleaned=text != document.text,
        markup=[piece[:_PIECE] for piece in taken],
        summary=clean.one_line(summary),
        sentences=sentences if rules.whole else texts,
        texts=texts,
        keys=[clean.content_key(text) for text in texts],
        places=kept_places,
        candidates=len(candidates),
        too_short=sum(number < rules.words.start for number in words),
        empty=not sentences,
        positive=positive,
        positive_key=clean.content_key(positive) if positive else 0,
    )


class NewText(NamedTuple):
    """A text that is not held out, before it is tokenised."""

    text: str
    key: int
    positive: str  # empty if it has none
    first: bool  # of its document, as it was read,
    last: bool  # and likewise


class TokenizedChunk(NamedTuple):
    """Some texts with their tokens and hashes; rows of differing length stand end to end."""

    texts: bytes
    sizes: NDArray[np.int64]  # of the texts, in bytes
    ids: NDArray[np.uint32]
    lengths: NDArray[np.int64]
    positives: NDArray[np.uint32]
    positive_lengths: NDArray[np.int64]
    keys: NDArray[np.uint64]
    positive_keys: NDArray[np.uint64]
    bands: list[NDArray[np.uint64]]
    empty: int  # texts left out because they have no token


class ChunkTokenizer(NamedTuple):
    """Tokenises and hashes texts; it can be sent to another process."""

    pieces: WordPieces
    drops_empty: bool
    width: int | None  # of a band of MinHash; None: no bands

    def __call__(self, chunk: list[NewText]) -> TokenizedChunk:
        """Return the texts of a chunk, but those without a token if these are dropped."""
        ids, lengths = self.pieces.encode([new_text.text for new_text in chunk])
        before = len(chunk)
        if self.drops_empty:
            chunk = [new_text for new_text, length in zip(chunk, lengths, strict=True) if length]
            lengths = lengths[lengths > 0]
        encoded = [new_text.text.encode() for new_text in chunk]
        bands: list[NDArray[np.uint64]] = []
        if self.width and chunk:
            bands = list(deduplicate.band_keys(deduplicate.shingles(ids, lengths), lengths, self.width))
        return TokenizedChunk(
            b"".join(encoded),
            np.array([len(text) for text in encoded], np.int64),
            ids,
            lengths,
            *self.pieces.encode([new_text.positive for new_text in chunk]),
            np.array([new_text.key for new_text in chunk], np.uint64),
            np.array([clean.content_key(new_text.positive) for new_text in chunk], np.uint64),
            bands,
            before - len(chunk),
        )


Read = tuple[Document, TextRules]
Split = tuple[Document, TextRules, SplitDocument]


class CorpusEngine:
    """Where documents are split and texts tokenised: here, the next chunk in a thread beside the reading.

    The tokenizer releases Python's lock and uses all cores.
    """

    def split(self, documents: Iterator[Read]) -> Iterator[Split]:
        """Yield every document with its texts, in order."""
        return ((document, rules, split_texts(document, rules)) for document, rules in documents)

    def tokenize(self, work: ChunkTokenizer, chunks: Iterator[list[NewText]]) -> Iterator[TokenizedChunk]:
        """Yield every chunk tokenised, in order."""
        with ThreadPoolExecutor(1) as worker:
            last: Future[TokenizedChunk] | None = None
            for chunk in chunks:
                done, last = last, worker.submit(work.__call__, chunk)
                if done:
                    yield done.result()
            if last:
                yield last.result()


class TokenizedTexts:
    """All texts read so far with their tokens and hashes, in columns of a temporary folder."""

    def __init__(
        self, table: Table, pieces: WordPieces, config: CorpusConfig, kind: Kind, engine: CorpusEngine | None = None
    ) -> None:
        self.counts = CorpusStatistics()
        self.folder = table.folder
        self.pieces = pieces
        self.has_pairs = False  # whether a row came with its own positive
        self._engine = engine or CorpusEngine()
        # The positive of a sentence is the next one; positives in rows are ignored.
        self._adjacent = config.positives == "adjacent"
        self.rows_adjacent = self._adjacent and config.order == "meaningful"
        size, fraction = config.held_out, config.held_out_share
        self.documents = Selection(kind, size, fraction, table.folder / "held_out_documents.jsonl")
        self.pairs = Selection("pairs", size, fraction, table.folder / "held_out_pairs.jsonl")
        self.texts = table.ragged("texts", np.uint8)
        self.ids = table.ragged("ids", pieces.dtype)
        self.keys = table.column("keys", np.uint64)
        self.positives = table.ragged("positives", pieces.dtype)
        self.positive_keys = table.column("positive_keys", np.uint64)
        near = config.deduplicate == "near"
        width = deduplicate.band_width(config.near_threshold)
        self.bands = [
            table.column(f"band_{band}", np.uint64) for band in range(deduplicate.MINIMA // width if near else 0)
        ]
        # A row of no token at all has no hash.
        drops_empty = config.clean or near or not pieces.specials
        self._tokenize = ChunkTokenizer(pieces, drops_empty, width if near else None)
        self._submitted = 0  # texts passed to the tokenizer
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

    def fill(self, documents: Iterator[Split], limit: int | None) -> bool:
        """Store texts until there are ``limit``; return whether documents may be left."""
        for chunk in self._engine.tokenize(self._tokenize, self._chunks(documents, limit)):
            self._append(chunk)
        return limit is not None and self._submitted >= limit

    def text(self, row: int) -> str:
        """Return the text of one row."""
        return self.texts.rows([row])[0].tobytes().decode()

    def _chunks(self, documents: Iterator[Split], limit: int | None) -> Iterator[list[NewText]]:
        """Yield the texts that are not held out, some thousands at a time, until ``limit`` is reached."""
        chunk: list[NewText] = []
        letters = 0
        for new in self._linked(documents) if self.rows_adjacent else starmap(self._texts_of, documents):
            chunk += new
            letters += sum(len(new_text.text) + len(new_text.positive) for new_text in new)
            if len(chunk) >= _TEXTS or letters >= _LETTERS:
                self._submitted += len(chunk)
                yield chunk
                chunk, letters = [], 0
                if limit is not None and self._submitted >= limit:
                    return
        self._submitted += len(chunk)
        yield chunk

    def _linked(self, documents: Iterator[Split]) -> Iterator[list[NewText]]:
        """Yield the texts of ``_CHAIN`` rows at a time, the last text of each row paired with the first of the next.

        Rows of two sources are no neighbours, nor are rows with an empty, a held-out or a too short one between them.
        """
        linked: list[NewText] = []
        source: TextRules | None = None
        rows, joined = 0, False
        for document, rules, split in documents:
            new = self._texts_of(document, rules, split)
            joined = joined and bool(new) and rules is source  # each source has a TextRules of its own
            if joined and linked[-1].last and new[0].first and linked[-1].key != new[0].key:
                linked[-1] = linked[-1]._replace(positive=new[0].text)
            linked += new
            rows, source, joined = rows + 1, rules, bool(new)
            if rows == _CHAIN:
                yield linked
                linked, rows, joined = [], 0, False
        yield linked

    def _texts_of(self, document: Document, rules: TextRules, split: SplitDocument) -> list[NewText]:
        """Return the texts of one document; none if it is held out."""
        counts = self.counts
        counts.documents += 1
        positive, texts, keys, places = split.positive, split.texts, split.keys, split.places
        self.has_pairs = self.has_pairs or bool(positive)
        counts.cleaned_documents += split.cleaned
        counts.take_markup(split.markup)
        counts.empty_documents += split.empty
        counts.texts += split.candidates
        counts.too_short += split.too_short
        counts.too_long += split.candidates - len(places) - split.too_short
        if not texts:
            return []
        if positive:
            key = split.positive_key
            identical = rules.config.clean and key == keys[0]
            counts.identical_pairs += identical
            if identical or self.pairs.take(document, texts[0], [positive], [*keys, key], [*texts, positive]):
                return []
        elif self.documents.take(document, split.summary, split.sentences, keys, texts):
            return []
        positives = [positive] * len(texts)
        if self._adjacent:  # the sentence directly after, if its content differs
            for n in range(len(texts) - 1):
                if places[n + 1] == places[n] + 1 and keys[n + 1] != keys[n]:
                    positives[n] = texts[n + 1]
        end = split.candidates - 1
        return [
            NewText(text, key, other, first=position == 0, last=position == end)
            for text, key, other, position in zip(texts, keys, positives, places, strict=True)
        ]

    def _append(self, chunk: TokenizedChunk) -> None:
        """Write one chunk."""
        self.without_pieces += chunk.empty
        if not len(chunk.keys):
            return
        self.texts.append(np.frombuffer(chunk.texts, np.uint8), chunk.sizes)
        self.ids.append(chunk.ids, chunk.lengths)
        self.positives.append(chunk.positives, chunk.positive_lengths)
        self.positive_keys.append(chunk.positive_keys)
        for column, band in zip(self.bands, chunk.bands, strict=True):
            column.append(band)
        self.keys.append(chunk.keys)
