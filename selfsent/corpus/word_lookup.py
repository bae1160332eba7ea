"""Token ids of many texts at once, for tokenizers of BERT's kind: words are looked up as numbers, not as strings.

    bytes of all texts -> where words begin and end -> two 64-bit numbers a word -> known words -> ids of their pieces

A word that was not met before goes through the tokenizer itself, once.  This gives the tokenizer's own ids, because
BERT's normalization and splitting look at one character at a time: the ids of a text are those of its parts between
ASCII white space and punctuation.  What does not follow that rule is left to the tokenizer: texts with a special token
in them, and those with a combining character behind a punctuation mark, which NFC may compose into another.
"""

import json
from collections.abc import Sequence
from threading import Lock

import numpy as np
import xxhash
from numpy.typing import NDArray
from tokenizers import Tokenizer

_SPACE, _MARK, _WORD = 0, 1, 2  # what a byte is
_KEPT_WHOLE = 64  # bytes of a word
_INLINE = 16  # bytes of a word that fit into two numbers
_LEAST, _MOST = 1 << 16, 1 << 21  # words that there is room for at first, and at last
_MULTIPLIERS = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
_KEPT = np.array([(1 << 8 * length) - 1 for length in range(9)], np.uint64)  # the first bytes of eight
_COMBINING = 0xCC, 0xCD  # first bytes of U+0300 to U+036F
_NORMALIZERS = {"NFC", "BertNormalizer"}

Numbers = NDArray[np.int64]


class WordLookup:
    """A tokenizer's ids of many texts, and the words that were met so far."""

    def __init__(self, tokenizer: Tokenizer, *, lowercase: bool) -> None:
        self._tokenizer = tokenizer
        self._lock = Lock()
        self._special = [token.content.encode() for token in tokenizer.get_added_tokens_decoder().values()]
        self._kinds = np.full(256, _WORD, np.uint8)
        self._kinds[list(b" \t\n\r")] = _SPACE
        self._kinds[[byte for byte in range(33, 127) if not chr(byte).isalnum()]] = _MARK
        self._plain = np.arange(256, dtype=np.uint8)
        if lowercase:
            self._plain[ord("A") : ord("Z") + 1] += 32
        self._forget()

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "WordLookup | None":
        """Return them for a tokenizer of BERT's kind, and None for any other."""
        parts = json.loads(tokenizer.to_str())
        normalizer, splitter = parts["normalizer"] or {}, parts["pre_tokenizer"] or {}
        steps = normalizer.get("normalizers", [normalizer])
        bert = steps[-1]
        fits = (
            bert.get("type") == "BertNormalizer"
            and bert["clean_text"]
            and {step["type"] for step in steps} <= _NORMALIZERS
            and splitter.get("type") == "BertPreTokenizer"
            and parts["model"]["type"] == "WordPiece"
            and parts["truncation"] is None
            and parts["padding"] is None
            and all(token["special"] and not token["normalized"] for token in parts["added_tokens"])
        )
        return cls(tokenizer, lowercase=bert["lowercase"]) if fits else None

    def __call__(self, texts: Sequence[str]) -> tuple[Numbers, Numbers]:
        """Return the ids of all texts end to end, without special tokens, and where those of each text begin."""
        rows = [text.encode() for text in texts]
        joined = b" ".join([*rows, b" " * 8])  # behind every word eight bytes can be read
        if any(special in joined for special in self._special) or self._composes(joined):
            return self._one_by_one(texts)
        data = np.frombuffer(joined, np.uint8)
        starts, ends = self._split(data)
        with self._lock:
            words = self._look_up(self._plain[data], starts, ends)
            counts, begins, pieces = self._counts[words], self._firsts[words], self._pieces
        before = np.concatenate([[0], np.cumsum(counts)])  # pieces before each word
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        row_starts = np.cumsum(lengths + 1) - lengths - 1
        positions = np.repeat(begins - before[:-1], counts) + np.arange(before[-1])
        return pieces[positions], before[np.searchsorted(starts, row_starts)]

    def _one_by_one(self, texts: Sequence[str]) -> tuple[Numbers, Numbers]:
        rows = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]
        lengths = np.array([len(row) for row in rows], np.int64)
        return np.array([piece for row in rows for piece in row], np.int64), np.cumsum(lengths) - lengths

    def _composes(self, joined: bytes) -> bool:
        """Tell whether a combining character stands behind a punctuation mark."""
        if joined.isascii():
            return False
        if b"\xcc\xb8" in joined:  # U+0338 composes with < = > from behind other combining characters, too
            return True
        data = np.frombuffer(joined, np.uint8)
        return bool((self._kinds[data[:-1]][np.isin(data[1:], _COMBINING)] == _MARK).any())

    def _split(self, data: NDArray[np.uint8]) -> tuple[Numbers, Numbers]:
        """Return where words and punctuation marks begin and end."""
        kinds = self._kinds[data]
        word, mark = kinds == _WORD, kinds == _MARK
        begins, ends = mark.copy(), mark
        begins[0] |= word[0]
        begins[1:] |= word[1:] & ~word[:-1]
        ends[:-1] |= word[:-1] & ~word[1:]
        return np.flatnonzero(begins), np.flatnonzero(ends) + 1

    def _look_up(self, data: NDArray[np.uint8], starts: Numbers, ends: Numbers) -> Numbers:
        """Return the number of each word; those that are new are learnt."""

        def contents(words: Numbers) -> list[bytes]:
            return [data[starts[word] : ends[word]].tobytes() for word in words]

        lengths = ends - starts
        inline = np.flatnonzero(lengths <= _INLINE)
        keys = _keys(data, starts[inline], lengths[inline])
        long = np.flatnonzero(lengths > _INLINE)
        named = contents(long)
        if len(self._counts) > _MOST:
            self._forget()
        ids = np.empty(len(starts), np.int64)
        names = [*map(_name, named)]
        if new := {name: content for name, content in zip(names, named, strict=True) if name not in self._long}:
            self._long.update(zip(new, range(len(self._counts), len(self._counts) + len(new)), strict=True))
            self._learn(np.zeros((len(new), 2), np.uint64), [*new.values()])
        ids[long] = [self._long[name] for name in names]
        slots = self._find(keys)
        while (unknown := np.flatnonzero(slots < 0)).size:  # once more only where two new words share a hash
            first_unknown = unknown[np.unique(_hashes(keys[unknown]), return_index=True)[1]]
            self._enter(np.arange(len(self._counts), len(self._counts) + len(first_unknown)), keys[first_unknown])
            self._learn(keys[first_unknown], contents(inline[first_unknown]))
            slots[unknown] = self._find(keys[unknown])
        ids[inline] = slots
        return ids

    def _forget(self) -> None:
        self._table = np.full(2 * _LEAST, -1, np.int64)  # from the hash of a word to its number
        self._words = np.zeros((0, 2), np.uint64)  # by number: its bytes, zero where they are more than 16
        self._firsts = np.zeros(0, np.int64)  # its first piece
        self._counts = np.zeros(0, np.int64)  # its pieces
        self._pieces = np.zeros(0, np.int64)
        self._long: dict[bytes, int] = {}

    def _learn(self, keys: NDArray[np.uint64], contents: Sequence[bytes]) -> None:
        """Take new words, numbered from the last one on, through the tokenizer."""
        ids, firsts = self._one_by_one([content.decode() for content in contents])
        self._words = np.concatenate([self._words, keys])
        self._firsts = np.concatenate([self._firsts, firsts + len(self._pieces)])
        self._counts = np.concatenate([self._counts, np.diff(firsts, append=len(ids))])
        self._pieces = np.concatenate([self._pieces, ids])

    def _find(self, keys: NDArray[np.uint64]) -> Numbers:
        """Return the number of each word, -1 of those that are not known: open addressing with linear probing."""
        slots = _slots(keys, len(self._table))
        numbers = np.full(len(keys), -1, np.int64)
        left = np.arange(len(keys))
        while left.size:
            words = self._table[slots[left]]
            left, words = left[words >= 0], words[words >= 0]
            same = (self._words[words] == keys[left]).all(axis=1)
            numbers[left[same]] = words[same]
            left = left[~same]
            slots[left] = (slots[left] + 1) % len(self._table)
        return numbers

    def _enter(self, words: Numbers, keys: NDArray[np.uint64]) -> None:
        """Put words into the table, which is kept at most half full."""
        if 2 * (words[-1] + 1) > len(self._table):
            used = np.flatnonzero(self._words.any(axis=1))
            words, keys = np.concatenate([used, words]), np.concatenate([self._words[used], keys])
            self._table = np.full(4 * (words[-1] + 1), -1, np.int64)
        slots = _slots(keys, len(self._table))
        left = np.arange(len(words))
        while left.size:
            free = left[self._table[slots[left]] < 0]
            self._table[slots[free]] = words[free]  # of several, the last
            left = left[self._table[slots[left]] != words[left]]
            slots[left] = (slots[left] + 1) % len(self._table)


def _name(content: bytes) -> bytes:
    """Return what a long word is known by: itself, or its digest, so that what is no word takes no room."""
    return content if len(content) <= _KEPT_WHOLE else b"\0" + xxhash.xxh3_128_digest(content)


def _keys(data: NDArray[np.uint8], starts: Numbers, lengths: Numbers) -> NDArray[np.uint64]:
    """Return the bytes of words as two numbers each; no byte of a word is zero, so that they tell words apart."""
    eight: NDArray[np.uint64] = np.ndarray((len(data) - 7,), "<u8", data.data, strides=(1,))
    keys = np.zeros((len(starts), 2), np.uint64)
    keys[:, 0] = eight[starts] & _KEPT[np.minimum(lengths, 8)]
    longer = np.flatnonzero(lengths > 8)
    keys[longer, 1] = eight[starts[longer] + 8] & _KEPT[lengths[longer] - 8]
    return keys


def _hashes(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed = keys[:, 0] * np.uint64(_MULTIPLIERS[0]) ^ keys[:, 1] * np.uint64(_MULTIPLIERS[1])
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(_MULTIPLIERS[0])
    return mixed ^ mixed >> np.uint64(29)


def _slots(keys: NDArray[np.uint64], size: int) -> Numbers:
    return (_hashes(keys) % np.uint64(size)).astype(np.int64)
