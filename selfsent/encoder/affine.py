"""An affine map of embeddings: what can stand behind an encoder, or behind a pair of them."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from selfsent.encoder.quantize import unit


@dataclass(frozen=True)
class AffineMap:
    """An affine map of embeddings of length 1: x becomes x @ matrix + offset."""

    matrix: Float[np.ndarray, "D K"]
    offset: Float[np.ndarray, " K"]

    def __call__(self, vectors: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N K"]:
        """Map embeddings of any length, and give them length 1 again."""
        mapped: np.ndarray = unit(unit(vectors) @ self.matrix + self.offset).astype(np.float32)
        return mapped
