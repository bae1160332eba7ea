"""What encodes a folder by its own code, without the seconds that importing transformers takes."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from jaxtyping import Float
from tokenizers import Tokenizer

from selfsent.encoder.folder import read_table
from selfsent.errors import EncoderError
from selfsent.progress import SILENT, Progress

SHARES = "side_by_side.json"  # the settings of encoders side by side
UNLIMITED = 1 << 20  # word pieces: the maximum length of static vectors, which have none


class Vocabulary:
    """What a tokenizer makes of words.

    Attributes:
        unknown: the id of unknown pieces; None where there is none.
    """

    def __init__(self, tokenizer: Tokenizer, unknown: int | None) -> None:
        self._tokenizer, self.unknown = tokenizer, unknown

    def pieces(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of the word pieces of each text, no special tokens added."""
        return [one.ids for one in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def names(self, ids: Sequence[int]) -> list[str]:
        """Return the word pieces behind ids."""
        return [self._tokenizer.id_to_token(one) or "" for one in ids]


class DirectEncoder(ABC):
    """An encoder that is open for encoding alone; ``load_encoder`` opens the same folder for training.

    Attributes:
        prompts, default_prompt_name, truncate_dim: as of a SentenceTransformer.
    """

    def __init__(self) -> None:
        self.prompts: dict[str, str] = {}
        self.default_prompt_name: str | None = None
        self.truncate_dim: int | None = None

    @property
    @abstractmethod
    def width(self) -> int:
        """D, how wide the embeddings are."""

    @property
    @abstractmethod
    def pooling(self) -> str:
        """The name of the pooling, as ``pooling.pooling_name`` gives it."""

    @property
    @abstractmethod
    def max_length(self) -> int:
        """How many word pieces, special tokens included, are read of a text."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """That of all that an embedding depends on, the same as ``inspect.encoder_digest`` of the folder."""

    @property
    @abstractmethod
    def vocabularies(self) -> Sequence[Vocabulary]:
        """The vocabulary, or that of each encoder that stands side by side in this one."""

    @abstractmethod
    def encode_texts(
        self, texts: Iterable[str], prompt: str = "", *, precision: str = "auto", progress: Progress = SILENT
    ) -> Float[np.ndarray, "N D"]:
        """Return the vectors of texts, float32, each with ``prompt`` put before it."""

    def in_bf16(self, precision: str) -> bool:
        """Tell whether a precision means bf16 here."""
        return False

    def to(self, device: str) -> "DirectEncoder":
        """Move to a device, where there is anything to move."""
        return self

    def take_settings(self, settings: dict[str, Any]) -> bool:
        """Take what ``config_sentence_transformers.json`` says; return False if it is not what is understood here.

        As in sentence-transformers there is an empty prompt for queries and for documents.
        """
        prompts, default = settings.get("prompts", {}), settings.get("default_prompt_name")
        if not isinstance(prompts, dict) or not all(isinstance(one, str | None) for one in prompts.values()):
            return False
        self.prompts = {"query": "", "document": ""} | {key: text or "" for key, text in prompts.items()}
        self.default_prompt_name, self.truncate_dim = default, settings.get("truncate_dim")
        known = default is None or default in self.prompts
        return known and isinstance(self.truncate_dim, int | None) and not settings.get("requirements")


class JoinedEncoders(DirectEncoder):
    """Encoders side by side, as ``side_by_side.SideBySide`` joins them."""

    def __init__(self, parts: Sequence[DirectEncoder], weights: Sequence[float]) -> None:
        super().__init__()
        self._parts, self._weights = list(parts), list(weights)
        self.take_settings({})

    @property
    def width(self) -> int:  # noqa: D102 - of the base class, as the others
        return sum(part.truncate_dim or part.width for part in self._parts)

    @property
    def pooling(self) -> str:  # noqa: D102
        return "none"

    @property
    def max_length(self) -> int:  # noqa: D102
        return min(part.max_length for part in self._parts)

    @property
    def digest(self) -> str:  # noqa: D102
        settings = [self.prompts, self.default_prompt_name, self.truncate_dim]
        return joined_digest(settings, self._weights, [part.digest for part in self._parts])

    @property
    def vocabularies(self) -> Sequence[Vocabulary]:  # noqa: D102
        return [one for part in self._parts for one in part.vocabularies]

    def in_bf16(self, precision: str) -> bool:  # noqa: D102
        return any(part.in_bf16(precision) for part in self._parts)

    def to(self, device: str) -> "JoinedEncoders":  # noqa: D102
        self._parts = [part.to(device) for part in self._parts]
        return self

    def encode_texts(  # noqa: D102
        self, texts: Iterable[str], prompt: str = "", *, precision: str = "auto", progress: Progress = SILENT
    ) -> Float[np.ndarray, "N D"]:
        texts, sides = list(texts), []
        for part, weight in zip(self._parts, self._weights, strict=True):
            vectors = part.encode_texts(texts, prompt, precision=precision, progress=progress)[:, : part.truncate_dim]
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            sides.append(weight**0.5 * vectors / np.maximum(lengths, 1e-12))
        return np.hstack(sides, dtype=np.float32)


def joined_digest(settings: list[Any], weights: Sequence[float], digests: Sequence[str]) -> str:
    """Digest encoders side by side, however they were opened."""
    return xxhash.xxh3_128(json.dumps([settings, list(weights), list(digests)], sort_keys=True).encode()).hexdigest()


def read_settings(folder: Path) -> dict[str, Any]:
    """Return what ``config_sentence_transformers.json`` says; nothing where there is none."""
    path = folder / "config_sentence_transformers.json"
    return read_table(path) if path.exists() else {}


def read_shares(folder: Path) -> list[float]:
    """Return the shares of the cosine that encoders side by side have.

    Raises:
        EncoderError: the file is damaged.
    """
    weights = read_table(folder / SHARES).get("weights")
    if (
        not isinstance(weights, list)
        or len(weights) < 2
        or not all(isinstance(one, float) and one > 0 for one in weights)
    ):
        raise EncoderError(f"{folder / SHARES} is damaged: its weights are {str(weights)[:80]}, and they are shares")
    return weights
