"""Latent semantic analysis of a text, as further columns of a table of static vectors.

    T(n, g) = (1 + ln tf(n, g)) idf(g), rows of length 1        T ~ U S V^T, its first K axes
    row of token t = idf(g)^2 V(g)                              g: the stem of t; 0 for stop words and punctuation

n: texts; idf(g) = ln(1 + (N - df(g) + 1/2) / (df(g) + 1/2)), as in BM25.  Stems of the same documents lie near each
other, which co-occurrences in windows of a few words do not see, and rare ones count for more, as in word matching.
Source: Deerwester et al. 1990, "Indexing by latent semantic analysis", JASIS 41 (6).
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from scipy import sparse
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer

from selfsent.encoder.static import flattened
from selfsent.errors import EncoderError
from selfsent.text import clean
from selfsent.text.stems import stems

AXES = 128
_NO_DIRECTION = 1e-5  # of the largest singular value: axes below it are arbitrary
_BATCH = 1024  # texts
_CONTINUED = "##"  # before a token that does not begin a word


def add_latent_axes(
    encoder: SentenceTransformer, texts: Sequence[str], language: str, *, axes: int = AXES, seed: int = 42
) -> SentenceTransformer:
    """Return static vectors with further columns; the mean rows of the texts are as long in both parts, on average.

    Args:
        axes: of the text, at most: one of fewer directions has fewer.
        language: of the stems, by its code (ISO 639-1).

    Raises:
        EncoderError: the encoder holds no static vectors.
    """
    tokenizer, own = _table_of(encoder)
    counts = count_tokens(tokenizer, texts, len(own))
    further = latent_table(counts, stem_groups(tokenizer, len(own), language), axes, seed)
    means = sparse.csr_array(counts / np.maximum(counts.sum(axis=1), 1)[:, None])
    scaled = [part / max(float(np.linalg.norm(means @ part, axis=1).mean()), 1e-12) for part in (own, further)]
    return _static(tokenizer, np.hstack(scaled))


def latent_vectors(
    encoder: SentenceTransformer, texts: Sequence[str], language: str, *, axes: int = AXES, seed: int = 42
) -> SentenceTransformer | None:
    """Return static vectors that are those columns alone, of an encoder's tokens; None: the texts share no word.

    Raises:
        EncoderError: the encoder holds no static vectors.
    """
    tokenizer, own = _table_of(encoder)
    counts = count_tokens(tokenizer, texts, len(own))
    table = latent_table(counts, stem_groups(tokenizer, len(own), language), axes, seed)
    return _static(tokenizer, table) if table.shape[1] else None


def _table_of(encoder: SentenceTransformer) -> tuple[Tokenizer, Float[np.ndarray, "V D"]]:
    static = encoder[0]
    if not isinstance(static, StaticEmbedding):
        raise EncoderError("only static word vectors can have latent axes")
    return static.tokenizer, static.get_parameter("embedding.weight").numpy(force=True)


def _static(tokenizer: Tokenizer, table: Float[np.ndarray, "V D"]) -> SentenceTransformer:
    weights = torch.from_numpy(table.astype(np.float32))
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu")


def latent_table(
    counts: sparse.csr_array, groups: sparse.csr_array, axes: int = AXES, seed: int = 42
) -> Float[np.ndarray, "V K"]:
    """Return a row for every token.

    Args:
        counts: of the tokens of the texts, N x V.
        groups: 1 where a token is of a stem, V x G; the row of a token without a stem is zero.
    """
    from sklearn.utils.extmath import randomized_svd

    table = sparse.csr_array(counts @ groups)
    frequency = np.bincount(table.indices, minlength=table.shape[1])
    idf = np.log1p((table.shape[0] - frequency + 0.5) / (frequency + 0.5))
    table.data = (1 + np.log(table.data)) * idf[table.indices]
    table.data /= np.repeat(np.sqrt(table.power(2).sum(axis=1)), np.diff(table.indptr))
    if not table.nnz:  # no word that is no stop word
        return np.zeros((groups.shape[0], 0), np.float32)
    _, values, right = randomized_svd(sparse.csr_matrix(table), min(axes, *table.shape), random_state=seed)
    right = right[values > _NO_DIRECTION * values[0]]
    rows: Float[np.ndarray, "V K"] = (groups @ (idf[:, None] ** 2 * right.T)).astype(np.float32)
    return rows


def count_tokens(tokenizer: Tokenizer, texts: Sequence[str], vocabulary: int) -> sparse.csr_array:
    """Count the tokens of texts: N x V."""
    counts = []
    for first in range(0, len(texts), _BATCH):  # what the tokenizer says of a token is some hundred bytes
        read = tokenizer.encode_batch_fast(list(texts[first : first + _BATCH]), add_special_tokens=False)
        ids, starts = flattened([text.ids for text in read])
        shape = len(read), vocabulary
        counts.append(sparse.csr_array((np.ones(len(ids), np.float32), ids, [*starts, len(ids)]), shape=shape))
        counts[-1].sum_duplicates()
    return sparse.csr_array(sparse.vstack(counts))


def stem_groups(tokenizer: Tokenizer, vocabulary: int, language: str) -> sparse.csr_array:
    """Return 1 where a token (row) is of a stem (column): V x G."""
    numbers: dict[str, int] = {}
    tokens, columns = [], []
    for token, number in sorted(tokenizer.get_vocab().items(), key=lambda each: each[1]):
        inner = token.startswith(_CONTINUED)
        found = [token] * bool(clean.words(token)) if inner else stems(token, language)
        if len(found) == 1 and not (token.startswith("[") and token.endswith("]")):
            tokens.append(number)
            columns.append(numbers.setdefault(found[0], len(numbers)))
    return sparse.csr_array((np.ones(len(tokens)), (tokens, columns)), shape=(vocabulary, len(numbers)))
