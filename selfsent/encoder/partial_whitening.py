"""Partial whitening: embeddings x become  U diag(l)^(-power/2) U^T x,  U diag(l) U^T the covariance of those of texts.

Directions in which all texts vary most count less in the cosine.  Power 1 is ZCA whitening without taking the mean off,
power 0 changes nothing; in between what whitening gains is kept, and the noise of small variances is not lifted
(decision 0014).  It is a linear map: static vectors take it into their table, other encoders into their last ``Dense``
or a new one.

Source of whitening: BERT-whitening, Su et al. 2021, https://arxiv.org/abs/2103.15316.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, StaticEmbedding
from torch import nn

from selfsent.encoder.inspect import is_linear_map
from selfsent.encoder.pair_module import parts_of
from selfsent.errors import EncoderError

POWER = 0.2
_LEAST_VARIANCE = 1e-3  # of the largest one: a direction in which nothing varies is not lifted without end


def fit_partial_whitening(vectors: Float[np.ndarray, "N D"], power: float = POWER) -> Float[np.ndarray, "D D"]:
    """Return the symmetric matrix that embeddings are multiplied by.

    Raises:
        EncoderError: fewer than two texts a dimension, or embeddings that do not vary.
    """
    rows, width = vectors.shape
    if rows < 2 * width:
        raise EncoderError(f"whitening {width} dimensions needs {2 * width} texts or more, and {rows} were given")
    covariance = np.cov(vectors.astype(np.float64).T).reshape(width, width)
    if not (np.isfinite(covariance).all() and covariance.trace() > 0):
        raise EncoderError("whitening needs texts with different embeddings: these are all equal, or not finite")
    variances, directions = np.linalg.eigh(covariance)
    variances = np.maximum(variances, _LEAST_VARIANCE * variances[-1])
    # Nothing depends on the scale of the variances: the cosine is that of x times any number.
    scaled = directions * (variances / variances.mean()) ** (-power / 2)
    found: Float[np.ndarray, "D D"] = (scaled @ directions.T).astype(np.float32)
    return found


def require_one_encoder(encoder: SentenceTransformer) -> None:
    """Refuse a pair of encoders.

    Raises:
        EncoderError: it holds two.
    """
    if parts_of(encoder):
        raise EncoderError("a pair of encoders is not whitened: whiten each of them")


@contextmanager
def whole_width(encoder: SentenceTransformer) -> Iterator[None]:
    """Let an encoder give all of its dimensions, where its folder says to keep the first of them."""
    kept, encoder.truncate_dim = encoder.truncate_dim, None
    try:
        yield
    finally:
        encoder.truncate_dim = kept


def whiten_encoder(encoder: SentenceTransformer, matrix: Float[np.ndarray, "D D"]) -> SentenceTransformer:
    """Give an encoder, in place, embeddings that are multiplied by a symmetric matrix, and return it.

    Raises:
        EncoderError: it is a pair of encoders, or the matrix is of another width.
    """
    require_one_encoder(encoder)
    with whole_width(encoder):
        width = encoder.get_embedding_dimension()
    if width != len(matrix):
        raise EncoderError(f"a matrix for {len(matrix)} dimensions does not fit an encoder of {width}")
    weights = torch.from_numpy(matrix).to(encoder.device)
    place = len(encoder)
    while isinstance(encoder[place - 1], Normalize):
        place -= 1
    if place == 1 and isinstance(encoder[0], StaticEmbedding):
        table = encoder[0].get_parameter("embedding.weight")
        with torch.no_grad():
            table.copy_(table @ weights.to(table.dtype))  # the mean of rows is linear in them
        return encoder
    dense = Dense(matrix.shape[0], matrix.shape[1], bias=False, activation_function=nn.Identity()).to(encoder.device)
    with torch.no_grad():
        dense.linear.weight.copy_(weights)
    last = encoder[place - 1]
    if isinstance(last, Dense) and is_linear_map(last):  # two maps are one
        with torch.no_grad():
            last.linear.weight.copy_(weights.to(last.linear.weight.dtype) @ last.linear.weight)
        return encoder
    encoder.insert(place, dense)
    return encoder
