"""A pair of encoders: their unit vectors, weighted and concatenated, so that cosines add up.

cos(a, b) = sum_k w_k cos_k(a, b)        with sum_k w_k = 1 and cos_k the cosine under encoder k

Behind them may be an affine map, x becomes x A + b of length 1 again: a smaller pair has their first principal axes
(``principal_axes``), one for grouping a neighbour map (``neighbour_map``).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xxhash
from jaxtyping import Float

from selfsent.encoder.affine import AffineMap
from selfsent.encoder.base import Encoder, TextReader, TokenizedText
from selfsent.progress import Progress

Scale = Callable[[Float[np.ndarray, "N _"], float], Float[np.ndarray, "N _"]]


class EncoderPair(Encoder):
    """Encoders whose vectors are joined."""

    def __init__(
        self,
        encoders: Sequence[Encoder],
        weights: Sequence[float],
        scale: Scale | None = None,
        behind: AffineMap | None = None,
    ) -> None:
        """Join encoders.

        Args:
            weights: their fractions of the cosine.
            scale: gives vectors the length that is the root of a weight.  Default: by numpy.
            behind: a map of the joined vectors.
        """
        super().__init__()
        self._behind = behind
        self._encoders, self._weights, self._scale = list(encoders), list(weights), scale or _scaled
        self.pooling, self.max_length = "none", min(encoder.max_length for encoder in encoders)
        self.parameters = sum(encoder.parameters for encoder in encoders)
        self._dimensions = sum(encoder.width for encoder in encoders)
        if behind is not None:
            behind.require(self._dimensions)
            self._dimensions = len(behind.offset)
        self.take_settings({})

    @property
    def encoders(self) -> Sequence[Encoder]:  # noqa: D102 - of the base class, as the others
        return self._encoders

    @property
    def weights(self) -> Sequence[float]:  # noqa: D102
        return self._weights

    @property
    def digest(self) -> str:  # noqa: D102
        facts: list[object] = [self._settings, self._weights, [encoder.digest for encoder in self._encoders]]
        if self._behind is not None:
            facts += [xxhash.xxh3_128_hexdigest(part.tobytes()) for part in (self._behind.matrix, self._behind.offset)]
        return xxhash.xxh3_128(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    @property
    def tokenizer(self) -> Any:  # noqa: ANN401, D102
        return self._encoders[0].tokenizer

    @property
    def readers(self) -> Sequence[TextReader]:  # noqa: D102
        return [reader for encoder in self._encoders for reader in encoder.readers]

    def known_tokens(self, texts: Sequence[str]) -> list[list[list[str | None]]]:  # noqa: D102
        return [rows for encoder in self._encoders for rows in encoder.known_tokens(texts)]

    def in_bf16(self, precision: str) -> bool:  # noqa: D102
        return any(encoder.in_bf16(precision) for encoder in self._encoders)

    def to(self, device: str) -> "EncoderPair":  # noqa: D102
        self._encoders = [encoder.to(device) for encoder in self._encoders]
        return self

    def prepare(self, precision: str = "auto") -> None:  # noqa: D102
        for encoder in self._encoders:
            encoder.prepare(precision)

    def close(self) -> None:  # noqa: D102
        for encoder in self._encoders:
            encoder.close()

    def _embed(
        self, texts: list[str], prompt: str, width: int | None, precision: str, progress: Progress
    ) -> Float[np.ndarray, "N E"]:
        return self._join(
            encoder.embed(texts, prompt=own, precision=precision, progress=progress)
            for encoder, own in zip(self._encoders, self._prompts_of_parts(prompt), strict=True)
        )

    def tokenize(self, texts: Sequence[str], prompt: str = "", *, direction: str = "right") -> list[TokenizedText]:  # noqa: D102
        columns = [
            encoder.tokenize(texts, own, direction=direction)
            for encoder, own in zip(self._encoders, self._prompts_of_parts(prompt), strict=True)
        ]
        return [
            TokenizedText(
                tuple(row for part in parts for row in part.rows), prompt, any(each.truncated for each in parts)
            )
            for parts in zip(*columns, strict=True)
        ]

    def _prompts_of_parts(self, prompt: str) -> list[str]:
        return spread_prompt(prompt, [encoder.prompts for encoder in self._encoders])

    def embed_tokenized(self, texts: Sequence[TokenizedText]) -> Float[np.ndarray, "N D"]:  # noqa: D102
        def columns() -> Iterator[Float[np.ndarray, "N _"]]:
            first = 0
            for encoder in self._encoders:
                last = first + len(encoder.readers)
                yield encoder.embed_tokenized([text._replace(rows=text.rows[first:last]) for text in texts])
                first = last

        return self._join(columns())[:, : self.truncate_dim]

    def _join(self, columns: Iterator[Float[np.ndarray, "N _"]]) -> Float[np.ndarray, "N E"]:
        joined = [self._scale(vectors, weight) for vectors, weight in zip(columns, self._weights, strict=True)]
        # Once more: a text of which one encoder knows no word has a part of zeros.
        whole = self._scale(np.hstack(joined, dtype=np.float32), 1.0)
        return whole if self._behind is None else self._scale(whole @ self._behind.matrix + self._behind.offset, 1.0)


def spread_prompt(prompt: str, known: Sequence[Mapping[str, str | None]]) -> list[str]:
    """Return what is put before the texts of each encoder: a prompt is for those that have some, where any has.

    Args:
        known: the prompts of each encoder, by name.
    """
    have = [any(prompts.values()) for prompts in known]
    return [prompt if own or not any(have) else "" for own in have]


def _scaled(vectors: Float[np.ndarray, "N _"], weight: float) -> Float[np.ndarray, "N _"]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return weight**0.5 * vectors / np.maximum(lengths, 1e-12)
