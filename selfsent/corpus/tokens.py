"""Turn texts into word pieces with the fast half of a transformers tokenizer."""

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import xxhash
from numpy.typing import NDArray
from tokenizers import Tokenizer

from selfsent.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class WordPieces:
    """A private copy of a tokenizer that neither cuts nor pads, and the special tokens it would add.

    Calling the Rust tokenizer itself is four times faster than calling its transformers wrapper.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        if not tokenizer.is_fast:
            raise UserError(f"{type(tokenizer).__name__} is a slow tokenizer: use one that has a tokenizer.json")
        definition = tokenizer.backend_tokenizer.to_str()
        self._backend = Tokenizer.from_str(definition)
        self._backend.no_truncation()
        self._backend.no_padding()
        self._backend.encode_special_tokens = tokenizer.split_special_tokens  # not kept in a definition
        framed = self._backend.encode("a")
        inner = [place for place, special in enumerate(framed.special_tokens_mask) if not special]
        self.before, self.after = framed.ids[: inner[0]], framed.ids[inner[-1] + 1 :]
        self.unknown: int | None = tokenizer.unk_token_id
        self.dtype = np.dtype(np.uint16 if self._backend.get_vocab_size() <= 1 << 16 else np.uint32)
        # A tokenizer that was called with truncation or padding remembers both; they are no part of it.
        flag = "special tokens are split" if tokenizer.split_special_tokens else ""
        self.identity = xxhash.xxh3_128_hexdigest((self._backend.to_str() + flag).encode())

    @property
    def specials(self) -> int:
        """Count the special tokens around a text."""
        return len(self.before) + len(self.after)

    def encode(self, texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the word pieces of all texts end to end, special tokens excluded, and their numbers."""
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return np.fromiter(chain.from_iterable(rows), np.uint32, int(lengths.sum())), lengths
