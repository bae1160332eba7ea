"""Base and trained encoder on the same sample of held-out texts: cosines, a map, and nearest neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from selfsent.corpus.held_out import HeldOut
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.quantize import unit
from selfsent.errors import UserError
from selfsent.progress import Progress
from selfsent.runs.read import Record, corpus_of_run

MAX_PAIRS = 250  # held-out pairs that are encoded
QUERIES = 4  # sentences whose neighbours are shown
NEIGHBOURS = 3
CLUSTERS = 6  # of the map
RANDOM_PAIRS = 5000
_KINDS = {
    "summary-body": "a first sentence and the passage that follows it",
    "halves": "the two halves of a line",
    "pairs": "a text and its positive",
}

Vectors = Float[np.ndarray, "N D"]


@dataclass(frozen=True, kw_only=True)
class EncoderView:
    """The sample as one encoder embeds it."""

    random: Float[np.ndarray, " R"]  # cosines of pairs of different documents
    adjacent: Float[np.ndarray, " P"]  # cosines of held-out pairs
    points: Float[np.ndarray, "N 2"]  # on the first two principal components
    variances: list[float]  # shares that these two explain
    neighbours: list[list[tuple[int, float]]]  # of each query: place and cosine


@dataclass(frozen=True, kw_only=True)
class EmbeddedSample:
    """Base and trained encoder side by side."""

    texts: list[str]  # queries, then the passage of each
    kind: str  # what the two sides of a held-out pair are
    clusters: list[int]  # of every text, by the trained encoder; the largest is 0
    centres: list[int]  # the text nearest to the centre of each cluster
    queries: list[int]  # whose neighbours are shown
    views: dict[str, EncoderView]  # base and trained


def embed_sample(run: Record, cache: dict[object, Vectors], progress: Progress) -> EmbeddedSample:
    """Embed the sample with base and trained encoder.

    Args:
        cache: embeddings by encoder and texts, so that one base is encoded once for several runs.

    Raises:
        UserError: an encoder, or the corpus, no longer exists; the page shows the message.
    """
    if run.pretraining:
        raise UserError("Base and trained encoder are compared here for runs of selfsent train only.")
    if not run.has_model:
        raise UserError("The run has no finished model yet.")
    corpus = corpus_of_run(run)
    if corpus is None:
        raise UserError(
            "The prepared corpus of this run, with its held-out texts, is no longer in the cache: the command below "
            "prepares it again."
        )
    texts = _sample_texts(corpus.held_out)
    settings = run.recipe.get("encoder", {})
    opened = {name: settings.get(name) for name in ("pooling", "template", "max_length")}
    encoders = {"base": (str(run.recipe.get("base")), opened), "trained": (str(run.folder / "model"), {})}
    rows = {side: _embed(texts, *encoder, cache, progress) for side, encoder in encoders.items()}
    return compare_embeddings(texts, rows["base"], rows["trained"], _KINDS[corpus.held_out.kind])


def _sample_texts(held_out: HeldOut) -> list[str]:
    """Return queries, then the passage of each."""
    pairs = held_out.test if len(held_out.test) > 1 else held_out.dev
    if len(pairs) < 2:
        raise UserError("Fewer than two documents were held out of this corpus: there is nothing to show.")
    chosen = np.sort(np.random.default_rng(0).permutation(len(pairs))[:MAX_PAIRS])
    return [side[i] for side in (pairs.queries, pairs.passages) for i in chosen]


def _embed(
    texts: list[str], source: str, opened: dict[str, Any], cache: dict[object, Vectors], progress: Progress
) -> Vectors:
    """Return unit vectors of the encoder that ``source`` names, opened with these settings."""
    key = source, tuple(opened.items()), tuple(texts)
    if key not in cache:
        progress.report(f"encoding {len(texts):,} texts with {source}", 0)
        cache[key] = unit(encode(load_encoder(source, **opened), texts))
        if not np.isfinite(cache[key]).all():
            raise UserError(f"The embeddings of {source} hold NaN or infinity: its weights are broken.")
    return cache[key]


def compare_embeddings(texts: list[str], base: Vectors, trained: Vectors, kind: str) -> EmbeddedSample:
    """Measure the unit vectors of texts of which i and N / 2 + i belong together."""
    shown = sorted(np.random.default_rng(0).permutation(len(texts) // 2)[:QUERIES].tolist())
    clusters, centres = cluster_texts(trained)
    views = {"base": _view(base, shown), "trained": _view(trained, shown)}
    return EmbeddedSample(texts=texts, kind=kind, clusters=clusters, centres=centres, queries=shown, views=views)


def _view(rows: Vectors, queries: Sequence[int]) -> EncoderView:
    half = len(rows) // 2
    first, second = random_pairs(half, RANDOM_PAIRS)
    points, variances = principal_components(rows)
    return EncoderView(
        random=np.einsum("nd,nd->n", rows[first], rows[second]),
        adjacent=np.einsum("nd,nd->n", rows[:half], rows[half:]),
        points=points,
        variances=variances,
        neighbours=[nearest_texts(rows, query) for query in queries],
    )


def random_pairs(half: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw pairs of 2 * half rows, of which i and half + i belong together, so that the two never do."""
    draw = np.random.default_rng(0)
    first = draw.integers(2 * half, size=count)
    # Another document: 1 to half - 1 further on, and either of its two texts.
    second = (first + draw.integers(1, half, size=count)) % half + half * draw.integers(2, size=count)
    return first, second


def principal_components(rows: Vectors) -> tuple[Float[np.ndarray, "N 2"], list[float]]:
    """Return the rows on their first two principal components, and the shares of variance that these explain."""
    from sklearn.decomposition import PCA

    with np.errstate(invalid="ignore"):  # 0 / 0 where all rows are equal
        fitted = PCA(2, svd_solver="full").fit(rows)
    return fitted.transform(rows), np.nan_to_num(fitted.explained_variance_ratio_).tolist()


def cluster_texts(rows: Vectors) -> tuple[list[int], list[int]]:
    """Return the k-means cluster of each row, the largest cluster first, and the row nearest to each centre."""
    from sklearn.cluster import KMeans

    count = min(CLUSTERS, len(np.unique(rows.round(6), axis=0)))
    fitted = KMeans(count, n_init=4, random_state=0).fit(rows)
    order = np.argsort(-np.bincount(fitted.labels_, minlength=count), kind="stable")
    return np.argsort(order)[fitted.labels_].tolist(), fitted.transform(rows).argmin(axis=0)[order].tolist()


def nearest_texts(rows: Vectors, query: int) -> list[tuple[int, float]]:
    """Return places and cosines of the rows nearest to one of them."""
    cosines = rows @ rows[query]
    cosines[query] = -np.inf
    nearest = np.argsort(-cosines, kind="stable")[:NEIGHBOURS]
    return list(zip(nearest.tolist(), cosines[nearest].tolist(), strict=True))
