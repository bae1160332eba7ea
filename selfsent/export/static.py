"""Any encoder distilled into static word vectors: hundreds of times as fast, without a word's context.

    y_n    unit vector that the encoder gives text n, in the first D right singular vectors of all (N, D)
    x_n    share of each token among those of text n (N, V)
    w0_v   a / (a + p_v) of the vector that the encoder gives token v alone, in the same D directions (V, D)
    W      = argmin  sum_n |x_n W - y_n|^2 + lambda |W - s W0|^2

s is the scale that fits s W0 best, lambda the one of ``PENALTIES`` whose W gives held-out texts the largest cosine to
their y.  So pieces that the texts lack keep what the encoder says of them alone.

Sources: PCA and SIF weights from Model2Vec (MinishLab/model2vec); a / (a + p) from Arora, Liang & Ma 2017.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy import sparse
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer

from selfsent.encoder.encode import encode
from selfsent.encoder.inspect import tokenizer_of
from selfsent.encoder.quantize import unit
from selfsent.errors import CorpusError, EncoderError
from selfsent.progress import SILENT, Prefixed, Progress
from selfsent.word_vectors.factorization import sif_weights

WIDTH = 256
PENALTIES = (0.1, 0.01, 0.001)  # strongest first: each solution starts from the one before
_SIF = 1e-3  # a
_HELD_OUT = 10  # the last of so many parts of the texts chooses the penalty
LEAST = 100  # texts
_ITERATIONS, _TOLERANCE = 25, 1e-2  # of the conjugate gradients


def distil_static(
    encoder: SentenceTransformer,
    texts: Sequence[str],
    *,
    width: int = WIDTH,
    precision: str = "auto",
    progress: Progress = SILENT,
) -> SentenceTransformer:
    """Return static word vectors that give texts like these nearly the vectors of ``encoder``.

    Args:
        width: D, at most that of the encoder and the number of texts.

    Raises:
        UserError: fewer than 100 different texts, or a tokenizer without a tokenizer.json.
    """
    texts = list(dict.fromkeys(text for text in texts if text.strip()))
    if len(texts) < LEAST:
        raise CorpusError(
            f"static vectors cannot be learned from {len(texts)} texts: give {LEAST} different sentences or more"
        )
    tokenizer = bare_tokenizer(encoder)
    targets = unit(encode(encoder, texts, precision=precision, progress=Prefixed(progress, "texts: ")))
    axes = np.linalg.svd(targets.T @ targets)[0][:, :width].astype(np.float32)
    targets = unit(targets @ axes).astype(np.float32)
    shares = piece_shares(tokenizer, texts)
    alone = encode(encoder, _spelled(tokenizer), precision=precision, progress=Prefixed(progress, "words: "))
    words = (unit(alone) @ axes).astype(np.float32)
    counts = np.asarray((shares > 0).sum(axis=0)).ravel()
    start = words * sif_weights(counts, _SIF)[:, None].astype(np.float32)
    start[~np.isfinite(start).all(axis=1)] = 0
    vectors = torch.from_numpy(regress(shares, targets, start, progress=progress))
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=vectors)], device="cpu")


def bare_tokenizer(encoder: SentenceTransformer) -> Tokenizer:
    """Return the encoder's tokenizer without special tokens, templates, truncation and padding.

    Raises:
        EncoderError: it is none of the library tokenizers.
    """
    backend = getattr(tokenizer_of(encoder), "backend_tokenizer", None)
    if backend is None:
        raise EncoderError("the tokenizer of this encoder is a slow one: static vectors need one with a tokenizer.json")
    definition: dict[str, Any] = json.loads(backend.to_str())
    definition |= {"post_processor": None, "truncation": None, "padding": None}
    return Tokenizer.from_str(json.dumps(definition))


def _spelled(tokenizer: Tokenizer) -> list[str]:
    """Return what every token stands for, in the order of their numbers."""
    pieces = {number: piece for piece, number in tokenizer.get_vocab().items()}
    found = []
    for number in range(max(pieces) + 1):
        text = tokenizer.decode([number], skip_special_tokens=False) if number in pieces else ""
        found.append(text.removeprefix("##").strip() or pieces.get(number, ""))
    return found


def piece_shares(tokenizer: Tokenizer, texts: Sequence[str]) -> sparse.csr_matrix:
    """Return x (N, V): the share of each token among those of each text; no share for a text without one."""
    rows = [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]
    size = 1 + max(tokenizer.get_vocab().values())
    starts = np.cumsum([0, *map(len, rows)])
    values = np.concatenate(
        [np.full(stop - start, 1 / (stop - start)) for start, stop in pairwise(starts) if stop > start]
    )
    ids = np.concatenate([np.array(row, np.int64) for row in rows])
    found = sparse.csr_matrix((values.astype(np.float32), ids, starts), shape=(len(rows), size))
    found.sum_duplicates()
    return found


def regress(
    shares: sparse.csr_matrix,
    targets: Float[np.ndarray, "N D"],
    start: Float[np.ndarray, "V D"],
    *,
    penalties: Sequence[float] = PENALTIES,
    progress: Progress = SILENT,
) -> NDArray[np.float32]:
    """Return W (V, D), under the penalty that suits the last tenth of the texts best when the others are fitted.

    Texts that overlap, as those of one document, have to stand next to each other.
    """
    held_out = np.arange(shares.shape[0]) >= shares.shape[0] - shares.shape[0] // _HELD_OUT
    first = shares @ start
    prior = start * np.float32((first * targets).sum() / max(float((first * first).sum()), 1e-12))
    best, chosen, vectors = -np.inf, penalties[0], prior
    for number, penalty in enumerate(penalties):
        vectors = ridge(shares[~held_out], targets[~held_out], prior, penalty, vectors)
        cosine = float((unit(shares[held_out] @ vectors) * targets[held_out]).sum(axis=1).mean())
        progress.report("regression", number + 1, len(penalties) + 1)
        if cosine > best:
            best, chosen = cosine, penalty
    progress.say(f"static vectors: penalty {chosen:g}, mean cosine to the encoder {best:.3f} on held-out texts")
    vectors = ridge(shares, targets, prior, chosen, vectors)
    progress.report("regression", len(penalties) + 1, len(penalties) + 1)
    return vectors.astype(np.float32)


def ridge(
    shares: sparse.csr_matrix,
    targets: Float[np.ndarray, "N D"],
    prior: Float[np.ndarray, "V D"],
    penalty: float,
    start: Float[np.ndarray, "V D"],
    *,
    iterations: int = _ITERATIONS,
    tolerance: float = _TOLERANCE,
) -> Float[np.ndarray, "V D"]:
    """Minimise |X W - Y|^2 + penalty |W - prior|^2 by conjugate gradients, every column on its own."""
    across = shares.T.tocsr()
    solution = start.copy()
    residual = across @ (targets - shares @ solution) + penalty * (prior - solution)
    direction, norms = residual.copy(), np.einsum("vd,vd->d", residual, residual)
    limit = tolerance**2 * np.maximum(norms, 1e-20)
    for _ in range(iterations):
        if (norms <= limit).all():
            break
        image = across @ (shares @ direction) + penalty * direction
        step = norms / np.maximum(np.einsum("vd,vd->d", direction, image), 1e-30)
        solution += step * direction
        residual -= step * image
        before, norms = norms, np.einsum("vd,vd->d", residual, residual)
        direction = residual + (norms / np.maximum(before, 1e-30)) * direction
    return solution
