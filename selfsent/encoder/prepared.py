"""An encoder kept ready for many small batches: its fast layers are prepared once, and its tokenizer is thread-safe.

``encode`` prepares the layers anew in every call, which a large batch does not notice and a single text does.  Here the
work is in two parts, so that a server can tokenise in several threads and compute in one.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Encoding, Tokenizer
from torch import nn

from selfsent.encoder.coverage import has_letter
from selfsent.encoder.direct import UNLIMITED
from selfsent.encoder.embed import collate
from selfsent.encoder.encode import computes_in_bf16, inference_weights, pool_states, prompt_features
from selfsent.encoder.inspect import max_length_of, tokenizer_of, transformer_of
from selfsent.encoder.pair import SideBySide
from selfsent.errors import EncoderError
from selfsent.text import clean

_SIMILAR = 0.5  # of the longest row of a group: shorter rows are computed in a group of their own


class Pieces(NamedTuple):
    """A text as token ids, one row for each encoder that stands side by side; an ordinary encoder has one."""

    rows: tuple[tuple[int, ...], ...]
    prompt: str = ""
    truncated: bool = False

    @property
    def tokens(self) -> int:
        """How many ids there are, special tokens and prompts included."""
        return sum(map(len, self.rows))


class PreparedEncoder:
    """Tokenise in any thread, embed in one thread at a time, and ``close`` at the end.

    The vectors are those of ``encode`` up to rounding: other batches add in another order.

    Raises:
        EncoderError: the encoder has no tokenizer of the kind that can be copied (tokenizer.json).
    """

    def __init__(self, encoder: SentenceTransformer, precision: str = "auto") -> None:
        self.encoder = encoder.eval()
        self._side_by_side = encoder[0] if isinstance(encoder[0], SideBySide) else None
        parts = self._side_by_side.parts if self._side_by_side else [encoder]
        self._parts = [_Part(part, precision) for part in parts]

    def close(self) -> None:
        """Undo what was prepared."""
        for part in self._parts:
            part.close()

    @property
    def max_length(self) -> int:
        """Word pieces, special tokens included, that are read of a text."""
        return min(part.max_length for part in self._parts)

    def tokenize(self, texts: Sequence[str], prompt: str = "", *, direction: str = "right") -> list[Pieces]:
        """Tokenise texts, each cut to the encoder's maximum length at its ``direction`` end, "right" or "left"."""
        texts = [prompt + clean.encodable(text) for text in texts]
        sides = [part.tokenize(texts, direction) for part in self._parts]
        return [
            Pieces(tuple(row for row, _ in one), prompt, any(cut for _, cut in one)) for one in zip(*sides, strict=True)
        ]

    def from_ids(self, rows: Sequence[Sequence[int]], prompt: str = "", *, direction: str = "right") -> list[Pieces]:
        """Take texts that are token ids of this encoder already, with or without its special tokens.

        Raises:
            EncoderError: an id outside the vocabulary, or two encoders side by side, which have a tokenizer each.
        """
        if self._side_by_side:
            raise EncoderError("two encoders side by side have a tokenizer each: send text, not token ids")
        found = [self._parts[0].framed(row, prompt, direction) for row in rows]
        return [Pieces((row,), prompt, cut) for row, cut in found]

    def encodings(self, texts: Sequence[str], prompt: str = "", *, special: bool = True) -> list[Encoding]:
        """Return what the (first) tokenizer makes of whole texts, with offsets."""
        return self._parts[0].whole.encode_batch(
            [prompt + clean.encodable(text) for text in texts], add_special_tokens=special
        )

    def knows_nothing(self, text: str) -> bool:
        """Tell whether no tokenizer knows a word of a text."""
        return all(part.knows_nothing(clean.encodable(text)) for part in self._parts)

    def embed_pieces(self, texts: Sequence[Pieces]) -> NDArray[np.float32]:
        """Return the (N, D) embeddings of tokenised texts, in their order, at the width that the folder says."""
        sides = [
            part.embed([text.rows[number] for text in texts], [text.prompt for text in texts])[
                :, : part.encoder.truncate_dim
            ]
            for number, part in enumerate(self._parts)
        ]
        joined = self._side_by_side.join(sides) if self._side_by_side else sides[0]
        return joined[:, : self.encoder.truncate_dim]


class _Part:
    """One encoder with one tokenizer."""

    def __init__(self, encoder: SentenceTransformer, precision: str) -> None:
        self.encoder = encoder.eval()
        self.max_length = max_length_of(encoder)
        self._static = isinstance(encoder[0], StaticEmbedding)
        tokenizer = tokenizer_of(encoder)
        self._unknown = tokenizer.unk_token_id
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None or (not self._static and transformer_of(encoder) is None):
            raise EncoderError(
                "this encoder's first module is neither a transformer with a tokenizer.json nor static vectors: "
                "it cannot be served"
            )
        definition = backend.to_str()
        self.whole = Tokenizer.from_str(definition)
        self.whole.no_truncation()
        self.whole.no_padding()
        self._cut: dict[str, Tokenizer] = {}
        for direction in ("left", "right"):
            self._cut[direction] = Tokenizer.from_str(self.whole.to_str())
            if self.max_length < UNLIMITED:
                self._cut[direction].enable_truncation(self.max_length, direction=direction)
        if not self._static:  # as transformers tells its tokenizer at every call
            for one in (self.whole, *self._cut.values()):
                one.encode_special_tokens = bool(getattr(encoder.tokenizer, "split_special_tokens", False))
        bare = self.whole.encode("a")
        inside = [place for place, sequence in enumerate(bare.sequence_ids) if sequence is not None]
        self._before = tuple(bare.ids[: inside[0]]) if inside else ()
        self._after = tuple(bare.ids[inside[-1] + 1 :]) if inside else ()
        self._words = self._vocabulary()
        self._low = computes_in_bf16(encoder, precision)
        self._context = ExitStack()
        self._passing: Callable[[], AbstractContextManager[None]] | None = None

    def close(self) -> None:
        self._context.close()

    def _vocabulary(self) -> int:
        table = self.encoder[0].embedding if self._static else transformer_of(self.encoder).get_input_embeddings()  # type: ignore[union-attr]
        assert isinstance(table, nn.Module)
        return int(table.num_embeddings)  # type: ignore[arg-type]

    def knows_nothing(self, text: str) -> bool:
        found = self.whole.encode(text, add_special_tokens=False)
        return not any(
            has_letter(token) for one, token in zip(found.ids, found.tokens, strict=True) if one != self._unknown
        )

    def tokenize(self, texts: Sequence[str], direction: str) -> list[tuple[tuple[int, ...], bool]]:
        encodings = self._cut[direction].encode_batch(list(texts), add_special_tokens=not self._static)
        return [(tuple(one.ids), bool(one.overflowing)) for one in encodings]

    def framed(self, ids: Sequence[int], prompt: str, direction: str) -> tuple[tuple[int, ...], bool]:
        for one in ids:
            if not 0 <= one < self._words:
                raise EncoderError(f"token id {one} is outside the vocabulary: ids are 0 to {self._words - 1}")
        before, after = ((), ()) if self._static else (self._before, self._after)
        inner = tuple(ids)
        if (before or after) and inner[: len(before)] == before and inner[len(inner) - len(after) :] == after:
            inner = inner[len(before) : len(inner) - len(after)]
        inner = (*(self.whole.encode(prompt, add_special_tokens=False).ids if prompt else ()), *inner)
        room = max(0, self.max_length - len(before) - len(after))
        cut = len(inner) > room
        if cut:
            inner = inner[:room] if direction == "right" else inner[len(inner) - room :]
        return (*before, *inner, *after), cut

    def embed(self, rows: Sequence[Sequence[int]], prompts: Sequence[str]) -> NDArray[np.float32]:
        with torch.inference_mode():
            if self._static:
                return self._averages(rows)
            if self._passing is None:
                self._passing = self._context.enter_context(inference_weights(self.encoder, self._low))
            found: NDArray[np.float32] | None = None
            order = sorted(range(len(rows)), key=lambda row: (prompts[row], -len(rows[row])))
            while order:
                first = order[0]
                group = [
                    row
                    for row in order
                    if prompts[row] == prompts[first] and len(rows[row]) >= _SIMILAR * len(rows[first])
                ]
                features: dict[str, Any] = dict(collate(self.encoder, [rows[row] for row in group]))
                with self._passing():
                    states = self.encoder[0](features | prompt_features(self.encoder, prompts[first]))
                    vectors = pool_states(states, list(self.encoder)[1:]).float().cpu().numpy()
                found = np.empty((len(rows), vectors.shape[1]), np.float32) if found is None else found
                found[group] = vectors
                order = order[len(group) :]
            assert found is not None
            return found

    def _averages(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        counts = np.array([len(row) for row in rows])
        ids = torch.tensor([one for row in rows for one in row], dtype=torch.long)
        offsets = torch.from_numpy(np.cumsum(counts) - counts)
        device = self.encoder.device
        table = self.encoder[0].embedding
        assert isinstance(table, nn.Module)
        mean = table(ids.to(device), offsets.to(device))
        return pool_states({"sentence_embedding": mean}, list(self.encoder)[1:]).cpu().numpy()
