"""An affine map of embeddings: what can stand behind an encoder, or behind a pair of them."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from selfsent.encoder.quantize import unit
from selfsent.errors import EncoderError


@dataclass(frozen=True)
class AffineMap:
    """An affine map of embeddings of length 1: x becomes x @ matrix + offset."""

    matrix: Float[np.ndarray, "D K"]
    offset: Float[np.ndarray, " K"]

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or self.offset.shape != self.matrix.shape[1:]:
            raise EncoderError(f"a map of {self.matrix.shape} does not fit its offset of {self.offset.shape}")

    def require(self, width: int) -> None:
        """Refuse embeddings of another width than those that are mapped."""
        if width != len(self.matrix):
            raise EncoderError(f"a map of {len(self.matrix)} dimensions does not fit an encoder of {width}")

    def __call__(self, vectors: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N K"]:
        """Map embeddings of any length, and give them length 1 again."""
        mapped: np.ndarray = unit(unit(vectors) @ self.matrix + self.offset).astype(np.float32)
        return mapped
