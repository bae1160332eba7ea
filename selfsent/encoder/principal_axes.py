"""Fewer dimensions: embeddings on their principal axes, of which the leading ones are the best smaller embeddings.

    y = A^T x        A the first K eigenvectors of  X^T X  by their eigenvalues, X embeddings of length 1 of texts

No mean is taken off: of every matrix of rank k, that of the first k axes leaves the least squared error of X, and at
full width every cosine is as before.  It is a linear map: static vectors take it into their table, a ``Dense`` in front
takes it into its own, a pair of encoders has it behind both, and every other encoder has a new ``Dense``.
Source of leading dimensions that serve alone: Kusupati et al. 2022, https://arxiv.org/abs/2205.13147.
"""

import numpy as np
import torch
from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, StaticEmbedding
from torch import nn

from selfsent.encoder.affine import AffineMap
from selfsent.encoder.encode import encode
from selfsent.encoder.inspect import is_linear_map
from selfsent.encoder.pair_module import PairModule
from selfsent.encoder.quantize import unit
from selfsent.errors import ConfigurationError, EncoderError
from selfsent.progress import SILENT, Progress


def principal_axes(vectors: Float[np.ndarray, "N D"], width: int) -> Float[np.ndarray, "D K"]:
    """Return the first axes of embeddings, the one with the largest part of them first.

    Raises:
        EncoderError: embeddings that are all zero, or not finite.
        ConfigurationError: there are not so many dimensions.
    """
    whole = vectors.shape[1]
    if not 1 <= width <= whole:
        raise ConfigurationError(f"{width} dimensions do not fit: this encoder has {whole}; give 1 to {whole}")
    if not (np.isfinite(vectors).all() and vectors.any()):
        raise EncoderError("axes need texts with embeddings: these are all zero, or not finite")
    x = unit(vectors).astype(np.float64)
    _, axes = np.linalg.eigh(x.T @ x)
    leading = axes[:, ::-1][:, :width]
    leading = leading * np.where(leading[np.abs(leading).argmax(axis=0), range(width)] < 0, -1, 1)  # either sign fits
    found: Float[np.ndarray, "D K"] = np.ascontiguousarray(leading, np.float32)
    return found


def learn_axes(
    encoder: SentenceTransformer, texts: list[str], width: int, *, precision: str = "auto", progress: Progress = SILENT
) -> Float[np.ndarray, "D K"]:
    """Return the first axes of an encoder's embeddings of texts; see ``principal_axes``."""
    return principal_axes(encode(encoder, texts, precision=precision, progress=progress), width)


def turn_encoder(encoder: SentenceTransformer, axes: Float[np.ndarray, "D K"]) -> SentenceTransformer:
    """Give an encoder, in place, its embeddings on some axes, of length 1, and return it.

    Raises:
        EncoderError: the axes are of another width.
    """
    if (given := encoder.get_embedding_dimension()) != len(axes):
        raise EncoderError(f"axes of {len(axes)} dimensions do not fit an encoder of {given}")
    encoder.truncate_dim = None
    width = encoder.get_embedding_dimension() or given  # those that were cut off count nothing
    turned = torch.from_numpy(np.pad(axes, ((0, width - given), (0, 0)))).to(encoder.device)
    if isinstance(first := encoder[0], PairModule):
        first.put_behind(AffineMap(turned.numpy(force=True), np.zeros(axes.shape[1], np.float32)))
        return encoder
    unit_length = encoder[-1] if isinstance(encoder[-1], Normalize) else None
    while isinstance(encoder[-1], Normalize):  # a length in front of a map is none behind it
        encoder.pop(len(encoder) - 1)
    last = encoder[-1]
    with torch.no_grad():
        if isinstance(last, StaticEmbedding):
            table = last.get_parameter("embedding.weight") @ turned  # the mean of rows is linear in them
            encoder[0] = StaticEmbedding(last.tokenizer, embedding_weights=table.numpy(force=True)).to(encoder.device)
        else:
            front = last if isinstance(last, Dense) and is_linear_map(last, affine=True) else None
            weight = torch.eye(width) if front is None else front.linear.weight
            bias = None if front is None else front.linear.bias
            dense = Dense(weight.shape[1], axes.shape[1], bias=bias is not None, activation_function=nn.Identity())
            dense.linear.weight.copy_(turned.T @ weight.to(turned.device))
            if bias is not None:
                dense.linear.get_parameter("bias").copy_(turned.T @ bias)
            if front is not None:
                encoder.pop(len(encoder) - 1)
            encoder.append(dense.to(encoder.device))
    if unit_length is not None:
        encoder.append(unit_length)
    return encoder
