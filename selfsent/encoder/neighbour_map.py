"""Neighbour map: every text moves towards the texts nearest to it, by one linear map that new texts take, too.

    t_i = sum over the k nearest x_j of  softmax_j(cos(x_i, x_j) / temperature) x_j
    W   = argmin over W of  sum_i |(x_i - m) W - (t_i - mean of t)|^2 + ridge tr(C) / D |W|^2 N
    y   = (x - m)(I + dose W)

x are embeddings of length 1, m their mean and C their covariance.  Texts of one topic come closer together, which helps
clusters and classifiers of short texts; a text and its paraphrase come a little apart (decision 0033).
"""

import numpy as np
import torch
from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize
from torch import nn

from selfsent.encoder.affine import AffineMap
from selfsent.encoder.pair_module import PairModule
from selfsent.encoder.partial_whitening import whole_width
from selfsent.encoder.quantize import unit
from selfsent.errors import EncoderError

NEIGHBOURS, TEMPERATURE, RIDGE = 50, 0.05, 0.1
BESIDE = 0.3  # weight of the cosines of other vectors of the same texts
_LEAST_VARIANCE = 1e-12  # below it is rounding
_BLOCK = 1024  # texts whose neighbours are looked for at a time


def fit_neighbour_map(
    vectors: Float[np.ndarray, "N D"],
    beside: Float[np.ndarray, "N E"] | None = None,
    *,
    dose: float = 1.0,
    neighbours: int = NEIGHBOURS,
    temperature: float = TEMPERATURE,
    ridge: float = RIDGE,
) -> AffineMap:
    """Fit the map to embeddings of texts.

    Args:
        beside: other vectors of the texts, whose cosines are added when neighbours are looked for, by ``BESIDE``.
        dose: how much of W is applied; 0 only takes the mean off.
        neighbours: of a text, that it moves towards.
        temperature: of the weights of neighbours, in cosines.
        ridge: the penalty, in parts of the mean variance of a dimension.

    Raises:
        EncoderError: fewer than twice as many texts as neighbours, or embeddings that do not vary.
    """
    if len(vectors) < 2 * neighbours:
        raise EncoderError(
            f"a neighbour map of {neighbours} neighbours needs {2 * neighbours} texts or more, and {len(vectors)} "
            "were given"
        )
    x = unit(vectors)
    mean = x.mean(axis=0)
    centred, targets = x - mean, _neighbour_means(x, beside, neighbours, temperature)
    covariance = centred.T @ centred / len(x)
    variance = float(covariance.trace()) / len(covariance)
    if not variance > _LEAST_VARIANCE:
        raise EncoderError("a neighbour map needs texts with different embeddings: these are all equal, or not finite")
    products = centred.T @ (targets - targets.mean(axis=0)) / len(x)
    weights = np.linalg.solve(covariance + ridge * variance * np.eye(len(covariance)), products)
    matrix = np.eye(len(weights)) + dose * weights
    return AffineMap(matrix.astype(np.float32), (-mean @ matrix).astype(np.float32))


def _neighbour_means(
    x: Float[np.ndarray, "N D"], beside: Float[np.ndarray, "N E"] | None, count: int, temperature: float
) -> Float[np.ndarray, "N D"]:
    """Return the weighted mean of the texts nearest to each, itself left out."""
    narrow, means = x.astype(np.float32), np.empty_like(x)
    if beside is not None:
        narrow = np.hstack([narrow, BESIDE**0.5 * unit(beside)], dtype=np.float32)
    for start in range(0, len(x), _BLOCK):
        cosines = narrow[start : start + _BLOCK] @ narrow.T
        rows = np.arange(len(cosines))
        cosines[rows, rows + start] = -np.inf
        nearest = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
        near = np.take_along_axis(cosines, nearest, axis=1).astype(np.float64)
        weights = np.exp((near - near.max(axis=1, keepdims=True)) / temperature)
        weights /= weights.sum(axis=1, keepdims=True)
        means[start : start + _BLOCK] = np.einsum("nk,nkd->nd", weights, x[nearest])
    return means


def map_encoder(encoder: SentenceTransformer, affine: AffineMap) -> SentenceTransformer:
    """Put a map behind an encoder, in place, as stock modules, and return it; behind a pair the pair holds it.

    Raises:
        EncoderError: it is a smaller pair of encoders, or the map is of another width.
    """
    with whole_width(encoder):
        affine.require(width := encoder.get_embedding_dimension() or 0)
    if isinstance(pair := encoder[0], PairModule):
        pair.put_behind(affine)
        return encoder
    dense = Dense(width, width, activation_function=nn.Identity()).to(encoder.device)
    with torch.no_grad():
        dense.linear.weight.copy_(torch.from_numpy(affine.matrix.T))
        dense.linear.get_parameter("bias").copy_(torch.from_numpy(affine.offset))
    modules = [dense, Normalize()] if isinstance(encoder[-1], Normalize) else [Normalize(), dense, Normalize()]
    for module in modules:
        encoder.append(module)
    return encoder
