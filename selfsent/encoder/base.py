"""What every encoder is asked, whatever computes its vectors: their width, its length, its prompts, its digest.

``open.open_encoder`` opens a folder as one of four kinds: ``BertEncoder`` and ``StaticEncoder`` need no transformers,
``EncoderPair`` joins two encoders, and ``TransformersEncoder`` wraps a SentenceTransformer.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from tokenizers import Encoding, Tokenizer

from selfsent.errors import ConfigurationError, EncoderError, unknown
from selfsent.progress import SILENT, Progress
from selfsent.runtime.precision import require_dimensions, require_precision
from selfsent.text import clean

UNLIMITED = 1 << 20  # tokens: the maximum length of static vectors, which have none
Role = Literal["default", "query", "document"]  # what a text is to an encoder, which chooses its prompt
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


class TextReader:
    """A tokenizer of an encoder, which several threads may use while the encoder computes."""

    def __init__(
        self, tokenizer: Tokenizer, *, max_length: int, size: int, unknown: int | None, special: bool = True
    ) -> None:
        """Take a tokenizer as this reader's own.

        Args:
            max_length: tokens of a text, special tokens included.
            size: ids are 0 to ``size`` - 1.
            unknown: the id of unknown tokens; None where there is none.
            special: put special tokens around a text.
        """
        self.max_length, self.unknown, self._size = max_length, unknown, size
        self.tokenizer = tokenizer
        tokenizer.no_truncation()
        tokenizer.no_padding()
        bare = tokenizer.encode("a")
        inside = [position for position, sequence in enumerate(bare.sequence_ids) if sequence is not None]
        framed = special and inside
        self._before = tuple(bare.ids[: inside[0]]) if framed else ()
        self._after = tuple(bare.ids[inside[-1] + 1 :]) if framed else ()

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Return what the tokenizer makes of whole texts, no special tokens added."""
        return self.tokenizer.encode_batch(list(texts), add_special_tokens=False)

    def known_tokens(self, texts: Sequence[str]) -> list[list[str | None]]:
        """Return the tokens of each text, no special tokens added, and None for each that is unknown."""
        return [
            [None if number == self.unknown else token for number, token in zip(read.ids, read.tokens, strict=True)]
            for read in self.encode(texts)
        ]

    def tokenize(self, texts: Sequence[str], direction: str) -> list[tuple[tuple[int, ...], bool]]:
        """Return the token ids of each text, cut at its ``direction`` end, and whether it was cut."""
        return [self._frame(read.ids, direction) for read in self.encode(texts)]

    def frame(self, ids: Sequence[int], prompt: str, direction: str) -> tuple[tuple[int, ...], bool]:
        """Put a prompt and special tokens around token ids that may have them already, and cut them.

        Raises:
            EncoderError: an id outside the vocabulary.
        """
        for number in ids:
            if not 0 <= number < self._size:
                raise EncoderError(f"token id {number} is outside the vocabulary: ids are 0 to {self._size - 1}")
        before, after, inner = self._before, self._after, tuple(ids)
        if (before or after) and inner[: len(before)] == before and inner[len(inner) - len(after) :] == after:
            inner = inner[len(before) : len(inner) - len(after)]
        own = tuple(self.encode([prompt])[0].ids) if prompt else ()
        return self._frame([*(() if inner[: len(own)] == own else own), *inner], direction)

    def _frame(self, inner: list[int], direction: str) -> tuple[tuple[int, ...], bool]:
        room = max(0, self.max_length - len(self._before) - len(self._after))
        cut = len(inner) > room and self.max_length < UNLIMITED
        if cut:
            inner = inner[:room] if direction == "right" else inner[len(inner) - room :]
        return (*self._before, *inner, *self._after), cut


class Encoder(ABC):
    """Turns texts into vectors; ``load_encoder`` opens the same folder as a SentenceTransformer, for training.

    Attributes:
        prompts: texts that are put before a text, by name.
        default_prompt_name: that of the prompt for every text of which nothing else is said.
        truncate_dim: how many dimensions are kept; None for all.
        pooling: the name of the pooling, as ``inspect.pooling_name`` gives it.
        max_length: how many tokens, special tokens included, are read of a text.
        parameters: how many weights there are.
    """

    pooling: str
    max_length: int
    parameters: int
    unit_added = False  # whether the last module is the Normalize that ``save_encoder`` adds
    _dimensions: int  # of which ``truncate_dim`` are kept

    def __init__(self) -> None:
        self.prompts: Mapping[str, str | None] = {}
        self.default_prompt_name: str | None = None
        self.truncate_dim: int | None = None

    @property
    def width(self) -> int:
        """D, how wide the embeddings are where the folder's ``truncate_dim`` is kept."""
        return min(self.truncate_dim or self._dimensions, self._dimensions)

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
    def encoders(self) -> "Sequence[Encoder]":
        """The encoders of a pair; of any other itself alone."""
        return [self]

    @property
    def weights(self) -> Sequence[float]:
        """The fractions of the cosine that the encoders of a pair have."""
        return [1.0]

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

    def before_unit(self) -> "Encoder":
        """Return the encoder without the Normalize that ``save_encoder`` added, for whoever looks at lengths."""
        if not self.unit_added:
            return self
        plain = copy(self)
        vars(plain).pop("digest", None)
        plain._drop_unit()
        plain.unit_added = False
        return plain

    def _drop_unit(self) -> None:
        raise NotImplementedError

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

    def task_prompt(self, task: Role) -> str:
        """Return the prompt for search, as sentence-transformers' ``encode_query`` and ``encode_document`` choose it.

        "default" is the one for texts of which nothing else is said.

        Some folders have a ``passage`` or ``corpus`` prompt beside an empty ``document`` that sentence-transformers
        adds itself: the first with text in it is taken.
        """
        names = {"default": [], "query": ["query"], "document": ["document", "passage", "corpus"]}[task]
        present = sorted((name for name in names if name in self.prompts), key=lambda name: not self.prompts[name])
        return self.resolve_prompt(next(iter(present), None))

    def prepare(self, precision: str = "auto") -> None:
        """Make ready for many small batches: ``tokenize`` in any thread, ``embed_tokenized`` in one at a time.

        ``embed`` prepares the layers anew in every call, which a large batch does not notice and a single text does.
        ``close`` undoes what was prepared.

        Raises:
            EncoderError: the encoder has no tokenizer of the kind that can be copied (tokenizer.json).
        """
        list(self.readers)  # which are made once

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
        framed = [self.readers[0].frame(row, prompt, direction) for row in rows]
        return [TokenizedText((row,), prompt, cut) for row, cut in framed]

    def encodings(self, texts: Sequence[str], prompt: str = "", *, special: bool = True) -> list[Encoding]:
        """Return what the (first) tokenizer makes of whole texts, with offsets."""
        texts = [prompt + clean.encodable(text) for text in texts]
        return self.readers[0].tokenizer.encode_batch(texts, add_special_tokens=special)

    def knows_nothing(self, text: str) -> bool:
        """Tell whether no tokenizer knows a token of a text that has a letter or digit in it."""
        rows = [reader.known_tokens([clean.encodable(text)])[0] for reader in self.readers]
        return not any(has_letter(token or "") for row in rows for token in row)

    def known_tokens(self, texts: Sequence[str]) -> list[list[list[str | None]]]:
        """Return the tokens of each text for each tokenizer, no special tokens added, and None for unknown ones."""
        return [reader.known_tokens(texts) for reader in self.readers]

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


def require_finite(
    vectors: Float[np.ndarray, "N D"], texts: Sequence[str], name: str = "the encoder", of: str = ""
) -> None:
    """Refuse vectors that hold NaN or infinity.

    Raises:
        EncoderError: it names the first of their texts.
    """
    if broken := list(dict.fromkeys(texts[row] for row in np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist())):
        raise EncoderError(
            f"{name} gives NaN or infinity for {len(broken)} texts{of}, first for {broken[0][:60]!r}: its weights are "
            "broken or its precision is too low"
        )


def require_finite_weights(vectors: Float[np.ndarray, "*N D"], name: str) -> None:
    """Refuse an encoder whose first vectors hold NaN or infinity.

    Raises:
        EncoderError: its weights are broken.
    """
    if not np.isfinite(vectors).all():
        raise EncoderError(f"the weights of {name} are broken: a vector holds values that are not finite")
