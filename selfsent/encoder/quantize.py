"""Vectors of unit length; in 8 bits or 1 bit a dimension, as sentence-transformers' ``quantize_embeddings`` packs them.

    int8, uint8        floor((x - low) / ((high - low) / 255)), clipped to 0..255; int8 less 128
    ubinary, binary    one bit a dimension, 1 where x > 0, eight to a byte, the first the highest; binary less 128

low and high are those of a dimension over the texts that the ranges are taken from.
"""

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from selfsent.errors import unknown

QUANTIZED = {"int8": np.int8, "uint8": np.uint8, "binary": np.int8, "ubinary": np.uint8}
Ranges = Float[np.ndarray, "2 D"]


def unit(x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
    """Scale rows to unit length, in float64; zero rows stay zero."""
    x = x.astype(np.float64)
    norms = np.sqrt(np.einsum("nd,nd->n", x, x))[:, None]  # twice as fast as linalg.norm
    return np.divide(x, norms, out=np.zeros_like(x), where=norms > 0)


def needs_ranges(kind: str) -> bool:
    """Tell whether a kind of ``QUANTIZED`` depends on the ranges of the dimensions."""
    return kind.endswith("int8")


def ranges_of(vectors: Float[np.ndarray, "N D"]) -> Ranges:
    """Return the smallest and the largest value of every dimension."""
    return np.stack([vectors.min(axis=0), vectors.max(axis=0)]).astype(np.float32)


def quantized_width(width: int, kind: str) -> int:
    """Return how many values a vector of ``width`` dimensions has when it is quantised."""
    return width if needs_ranges(kind) else -(-width // 8)


def quantize(vectors: Float[np.ndarray, "N D"], kind: str, ranges: Ranges | None = None) -> NDArray[np.integer]:
    """Quantise vectors.

    Args:
        kind: a key of ``QUANTIZED``.
        ranges: for int8 and uint8; values outside are clipped.

    Raises:
        ConfigurationError: an unknown kind.
    """
    if kind not in QUANTIZED:
        raise unknown("dtype", kind, QUANTIZED)
    if not needs_ranges(kind):
        packed = np.packbits(vectors > 0, axis=-1)
        return packed if kind == "ubinary" else (packed - 128).astype(np.int8)
    if ranges is None:
        raise ValueError(f"{kind} needs the ranges of the dimensions")
    low, high = ranges.astype(np.float32)
    step = (high - low) / 255
    levels = np.clip(np.floor((vectors - low) / np.where(step == 0, 1, step)), 0, 255)
    return levels.astype(np.uint8) if kind == "uint8" else (levels - 128).astype(np.int8)
