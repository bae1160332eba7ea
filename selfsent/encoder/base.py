"""What every encoder is asked, whatever computes its vectors: their width, its length, its prompts, its digest.

``open.open_encoder`` opens a folder as one of four kinds: ``BertEncoder`` and ``StaticEncoder`` need no transformers,
``EncoderPair`` joins two encoders, and ``TransformersEncoder`` wraps a SentenceTransformer.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from tokenizers import Encoding, Tokenizer

from selfsent.encoder.folder import read_table
from selfsent.errors import ConfigurationError, EncoderError, unknown
from selfsent.progress import SILENT, Progress
from selfsent.runtime.precision import require_dimensions, require_precision
from selfsent.text import clean

UNLIMITED = 1 << 20  # tokens: the maximum length of static vectors, which have none
has_letter = re.compile(r"[^\W_]").search


@runtime_checkable
class TextEncoder(Protocol):
    """An ``Encoder``, or a SentenceTransformer, which ``open.as_encoder`` makes one."""

    prompts: Any  # texts by name
    default_prompt_name: Any
    truncate_dim: Any


class TokenizedText(NamedTuple):
    """A text as token ids: one row, and of a pair of encoders one for each of them."""

    rows: tuple[tuple[int, ...], ...]
    prompt: str = ""
    truncated: bool = False

    @property
    def tokens(self) -> int:
        """How many ids there are, special tokens and prompts included."""
        return sum(map(len, self.rows))


@runtime_checkable
class Vocabulary(Protocol):
    """What a tokenizer makes of words.

    Attributes:
        unknown: the id of unknown tokens; None where there is none.
    """

    unknown: int | None

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, no special tokens added."""

    def token_names(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens behind ids."""


class TextReader:
    """A tokenizer of an encoder, copied, so that several threads may use it while the encoder computes."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        max_length: int,
        size: int,
        unknown: int | None,
        special: bool = True,
        special_as_text: bool | None = None,
    ) -> None:
        """Copy a tokenizer.

        Args:
            max_length: tokens of a text, special tokens included.
            size: ids are 0 to ``size`` - 1.
            special: put special tokens around a text.
            special_as_text: special tokens that are typed in a text are words.  Default: as the tokenizer says.
        """
        self.max_length, self.unknown, self._size, self._special = max_length, unknown, size, special
        self.whole = Tokenizer.from_str(tokenizer.to_str())
        self.whole.no_truncation()
        self.whole.no_padding()
        self._as_text = special_as_text
        self._cut: dict[str, Tokenizer] = {}
        self._set(self.whole)

    def _set(self, tokenizer: Tokenizer) -> Tokenizer:
        if self._as_text is not None:
            tokenizer.encode_special_tokens = self._as_text
        return tokenizer

    def prepare(self) -> None:
        """Copy the tokenizer for either direction of truncation, and find what it puts around a text."""
        for direction in ("left", "right"):
            self._cut[direction] = self._set(Tokenizer.from_str(self.whole.to_str()))
            if self.max_length < UNLIMITED:
                self._cut[direction].enable_truncation(self.max_length, direction=direction)
        bare = self.whole.encode("a")
        inside = [place for place, sequence in enumerate(bare.sequence_ids) if sequence is not None]
        around = self._special and inside
        self._before = tuple(bare.ids[: inside[0]]) if around else ()
        self._after = tuple(bare.ids[inside[-1] + 1 :]) if around else ()

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, no special tokens added."""
        return [encoding.ids for encoding in self.whole.encode_batch(list(texts), add_special_tokens=False)]

    def token_names(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens behind ids."""
        return [self.whole.id_to_token(number) or "" for number in ids]

    def tokenize(self, texts: Sequence[str], direction: str) -> list[tuple[tuple[int, ...], bool]]:
        """Return the token ids of each text, cut at its ``direction`` end, and whether it was cut."""
        encodings = self._cut[direction].encode_batch(list(texts), add_special_tokens=self._special)
        return [(tuple(encoding.ids), bool(encoding.overflowing)) for encoding in encodings]

    def framed(self, ids: Sequence[int], prompt: str, direction: str) -> tuple[tuple[int, ...], bool]:
        """Put a prompt and special tokens around token ids that may have the latter already, and cut them.

        Raises:
            EncoderError: an id outside the vocabulary.
        """
        for number in ids:
            if not 0 <= number < self._size:
                raise EncoderError(f"token id {number} is outside the vocabulary: ids are 0 to {self._size - 1}")
        before, after, inner = self._before, self._after, tuple(ids)
        if (before or after) and inner[: len(before)] == before and inner[len(inner) - len(after) :] == after:
            inner = inner[len(before) : len(inner) - len(after)]
        inner = (*(self.token_ids([prompt])[0] if prompt else ()), *inner)
        room = max(0, self.max_length - len(before) - len(after))
        cut = len(inner) > room
        if cut:
            inner = inner[:room] if direction == "right" else inner[len(inner) - room :]
        return (*before, *inner, *after), cut

    def knows_nothing(self, text: str) -> bool:
        """Tell whether no known token of a text has a letter or digit in it."""
        known = (number for number in self.token_ids([text])[0] if number != self.unknown)
        return not any(map(has_letter, self.token_names(list(known))))


class Encoder(ABC):
    """Turns texts into vectors; ``load_encoder`` opens the same folder as a SentenceTransformer, for training.

    Attributes:
        prompts: texts that are put before a text, by name.
        default_prompt_name: that of the prompt for every text of which nothing else is said.
        truncate_dim: how many dimensions are kept; None for all.
    """

    def __init__(self) -> None:
        self.prompts: Mapping[str, str | None] = {}
        self.default_prompt_name: str | None = None
        self.truncate_dim: int | None = None

    @property
    @abstractmethod
    def width(self) -> int:
        """D, how wide the embeddings are where the folder's ``truncate_dim`` is kept."""

    @property
    @abstractmethod
    def pooling(self) -> str:
        """The name of the pooling, as ``pooling.pooling_name`` gives it."""

    @property
    @abstractmethod
    def max_length(self) -> int:
        """How many tokens, special tokens included, are read of a text."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """Of all that an embedding depends on, however the folder was opened."""

    @property
    @abstractmethod
    def readers(self) -> Sequence[TextReader]:
        """The tokenizer, and of a pair of encoders that of each.

        Raises:
            EncoderError: there is none that can be copied (tokenizer.json).
        """

    @property
    def vocabularies(self) -> Sequence[Vocabulary]:
        """What the tokenizer makes of words, and of a pair of encoders that of each."""
        return self.readers

    @property
    @abstractmethod
    def parameters(self) -> int:
        """How many weights there are."""

    @property
    def tokenizer(self) -> Any:  # noqa: ANN401 - a PreTrainedTokenizerBase, whose import takes seconds
        """The tokenizer as a corpus is prepared with it.

        Raises:
            ValueError: the encoder was opened without transformers.
        """
        raise ValueError("this encoder has no tokenizer of transformers: open it with load_encoder")

    @property
    def _settings(self) -> list[Any]:
        return [self.prompts, self.default_prompt_name, self.truncate_dim]

    def _kept(self, dimensions: int) -> int:
        return min(self.truncate_dim or dimensions, dimensions)

    def embed(
        self,
        texts: Iterable[str],
        *,
        prompt: str = "",
        truncate_dim: int | None = None,
        precision: str = "auto",
        progress: Progress = SILENT,
    ) -> Float[np.ndarray, "N D"]:
        """Return the vectors of texts, float32, in their order.

        Args:
            prompt: what is put before every text.
            truncate_dim: keep this many leading dimensions.  Default: as many as the folder says, or all.
            precision: "fp32", "bf16", or "auto" for bf16 where this machine is faster at it.

        Raises:
            ConfigurationError: an unknown precision, or more dimensions than there are.
        """
        require_precision(precision)
        if truncate_dim is not None:  # more than the folder's own truncate_dim may be asked for
            require_dimensions(truncate_dim, self.width if self.truncate_dim is None else None)
        width = truncate_dim if truncate_dim is not None else self.truncate_dim
        texts = [clean.encodable(text) for text in texts]
        return self._embed(texts, prompt, width, precision, progress)[:, :width]

    @abstractmethod
    def _embed(
        self, texts: list[str], prompt: str, width: int | None, precision: str, progress: Progress
    ) -> Float[np.ndarray, "N _"]:
        """Return the vectors of texts, which may have more than ``width`` dimensions."""

    def embed_poolings(
        self, texts: Sequence[str], poolings: Sequence[str], *, precision: str = "auto", progress: Progress = SILENT
    ) -> dict[str, Float[np.ndarray, "N D"]]:
        """Encode texts once and pool them in several ways; nothing where there are no layers to pool."""
        return {}

    def in_bf16(self, precision: str) -> bool:
        """Tell whether a precision means bf16 here.

        Raises:
            ConfigurationError: an unknown precision.
        """
        require_precision(precision)
        return False

    def to(self, device: str) -> "Encoder":
        """Move to a device, where there is anything to move."""
        return self

    def resolve_prompt(self, prompt_name: str | None = None, prompt: str | None = None) -> str:
        """Return what is put before every text: ``prompt``, or the prompt of that name, or the folder's default one.

        Raises:
            UserError: there is no prompt of this name.
        """
        if prompt is not None:
            return prompt
        name = self.default_prompt_name if prompt_name is None else prompt_name
        if name is not None and name not in self.prompts:
            if any(self.prompts.values()):
                raise unknown("prompt", name, self.prompts)
            raise ConfigurationError(f"unknown prompt {name!r}: this encoder has no prompts; leave it out")
        return "" if name is None else self.prompts[name] or ""

    def task_prompt(self, task: Literal["query", "document"]) -> str:
        """Return the prompt for search, as sentence-transformers' ``encode_query`` and ``encode_document`` choose it.

        Some folders have a ``passage`` or ``corpus`` prompt beside an empty ``document`` that sentence-transformers
        adds itself: the first with text in it is taken.
        """
        names = ["query"] if task == "query" else ["document", "passage", "corpus"]
        present = sorted((name for name in names if name in self.prompts), key=lambda name: not self.prompts[name])
        return self.resolve_prompt(next(iter(present), None))

    def require_width(self, truncate_dim: int | None) -> None:
        """Refuse to keep no dimension, or more than there are.

        Raises:
            ConfigurationError: the message says how many there are.
        """
        require_dimensions(truncate_dim, self.width)

    def prepare(self, precision: str = "auto") -> None:
        """Make ready for many small batches: ``tokenize`` in any thread, ``embed_tokenized`` in one at a time.

        ``embed`` prepares the layers anew in every call, which a large batch does not notice and a single text does.
        ``close`` undoes what was prepared.

        Raises:
            EncoderError: the encoder has no tokenizer of the kind that can be copied (tokenizer.json).
        """
        for reader in self.readers:
            reader.prepare()

    def close(self) -> None:  # noqa: B027 - most have nothing to undo
        """Undo ``prepare``."""

    def tokenize(self, texts: Sequence[str], prompt: str = "", *, direction: str = "right") -> list[TokenizedText]:
        """Tokenise texts, each cut to the encoder's maximum length at its ``direction`` end, "right" or "left"."""
        texts = [prompt + clean.encodable(text) for text in texts]
        columns = [reader.tokenize(texts, direction) for reader in self.readers]
        return [
            TokenizedText(tuple(row for row, _ in rows), prompt, any(cut for _, cut in rows))
            for rows in zip(*columns, strict=True)
        ]

    def from_ids(
        self, rows: Sequence[Sequence[int]], prompt: str = "", *, direction: str = "right"
    ) -> list[TokenizedText]:
        """Take texts that are token ids of this encoder already, with or without its special tokens.

        Raises:
            EncoderError: an id outside the vocabulary, or a pair of encoders, which have a tokenizer each.
        """
        if len(self.readers) > 1:
            raise EncoderError("a pair of encoders has a tokenizer for each: send text, not token ids")
        framed = [self.readers[0].framed(row, prompt, direction) for row in rows]
        return [TokenizedText((row,), prompt, cut) for row, cut in framed]

    def encodings(self, texts: Sequence[str], prompt: str = "", *, special: bool = True) -> list[Encoding]:
        """Return what the (first) tokenizer makes of whole texts, with offsets."""
        texts = [prompt + clean.encodable(text) for text in texts]
        return self.readers[0].whole.encode_batch(texts, add_special_tokens=special)

    def knows_nothing(self, text: str) -> bool:
        """Tell whether no tokenizer knows a word of a text."""
        return all(reader.knows_nothing(clean.encodable(text)) for reader in self.readers)

    @abstractmethod
    def embed_tokenized(self, texts: Sequence[TokenizedText]) -> Float[np.ndarray, "N D"]:
        """Return the embeddings of tokenised texts, in their order, at the width that the folder says.

        They are those of ``embed`` up to rounding: other batches add in another order.
        """

    def take_settings(self, settings: dict[str, Any]) -> bool:
        """Take what ``config_sentence_transformers.json`` says; return False if it is not what is understood here.

        As in sentence-transformers there is an empty prompt for queries and for documents.
        """
        prompts, default = settings.get("prompts", {}), settings.get("default_prompt_name")
        if not isinstance(prompts, dict) or not all(isinstance(prompt, str | None) for prompt in prompts.values()):
            return False
        self.prompts = {"query": "", "document": ""} | {key: text or "" for key, text in prompts.items()}
        self.default_prompt_name, self.truncate_dim = default, settings.get("truncate_dim")
        understood = default is None or default in self.prompts
        return understood and isinstance(self.truncate_dim, int | None) and not settings.get("requirements")


def read_settings(folder: Path) -> dict[str, Any]:
    """Return what ``config_sentence_transformers.json`` says; nothing where there is none."""
    path = folder / "config_sentence_transformers.json"
    return read_table(path) if path.exists() else {}


def require_finite(vectors: Float[np.ndarray, "N D"], texts: Sequence[str]) -> None:
    """Refuse vectors that hold NaN or infinity.

    Raises:
        EncoderError: it names the first of their texts.
    """
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise EncoderError(
            f"the encoder gives NaN or infinity for {int((~finite).sum())} texts, first for "
            f"{texts[int(finite.argmin())][:60]!r}: its weights are broken or its precision is too low"
        )
