"""Base and trained encoder on the same sample of held-out texts: cosines, a map, and nearest neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from selfsent.corpus.heldout import HeldOut
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.errors import UserError
from selfsent.evaluation.geometry import unit
from selfsent.progress import Progress
from selfsent.report.read import Record, corpus_of_run

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
class Neighbour:
    """A text near another one."""

    text: str
    cosine: float
    own: bool  # the passage that belongs to the query


@dataclass(frozen=True, kw_only=True)
class EncoderView:
    """The sample as one encoder embeds it."""

    random: Float[np.ndarray, " R"]  # cosines of pairs of different documents
    adjacent: Float[np.ndarray, " P"]  # cosines of held-out pairs
    points: Float[np.ndarray, "N 2"]  # on the first two principal components
    variances: tuple[float, float]  # shares that these two explain
    neighbours: list[list[Neighbour]]  # of each query


@dataclass(frozen=True, kw_only=True)
class EmbeddedSample:
    """Base and trained encoder side by side."""

    texts: list[str]  # queries, then the passage of each
    kind: str  # what the two sides of a held-out pair are
    clusters: list[int]  # of every text, by the trained encoder; the largest is 0
    centres: list[str]  # the text nearest to the centre of each cluster
    queries: list[str]  # whose neighbours are shown
    base: EncoderView
    trained: EncoderView


class Unavailable(Exception):
    """The encoders or their texts cannot be opened; the message is shown on the page."""


def embed_sample(run: Record, cache: dict[object, Vectors], progress: Progress) -> EmbeddedSample:
    """Embed the sample with base and trained encoder.

    Args:
        cache: embeddings by encoder and texts, so that one base is encoded once for several runs.

    Raises:
        Unavailable: an encoder, or the corpus, no longer exists.
    """
    if run.kind == "pretrain" and run.recipe.get("base"):
        raise Unavailable("This run trained a masked language model: selfsent verdict compares its embeddings.")
    if run.kind == "pretrain":
        raise Unavailable("This run did not start from an encoder: there is no base to compare it with.")
    if not run.has_model:
        raise Unavailable("The run has no finished model yet.")
    corpus = corpus_of_run(run)
    if corpus is None:
        raise Unavailable(
            "The prepared corpus of this run, with its held-out texts, is no longer in the cache: the command below "
            "prepares it again."
        )
    queries, passages = _sample_pairs(corpus.held_out)
    texts, half = [*queries, *passages], len(queries)
    settings = run.recipe.get("encoder", {})
    base = _embed(
        texts, str(run.recipe.get("base")), settings.get("pooling"), settings.get("template"), cache, progress
    )
    trained = _embed(texts, str(run.folder / "model"), None, None, cache, progress)
    shown = sorted(np.random.default_rng(0).permutation(half)[:QUERIES].tolist())
    clusters, centres = cluster_texts(trained, texts)
    return EmbeddedSample(
        texts=texts,
        kind=_KINDS[corpus.held_out.kind],
        clusters=clusters,
        centres=centres,
        queries=[queries[i] for i in shown],
        base=view_embeddings(base, texts, shown),
        trained=view_embeddings(trained, texts, shown),
    )


def _sample_pairs(held_out: HeldOut) -> tuple[list[str], list[str]]:
    pairs = held_out.test if len(held_out.test) > 1 else held_out.dev
    if len(pairs) < 2:
        raise Unavailable("Fewer than two documents were held out of this corpus: there is nothing to show.")
    chosen = np.sort(np.random.default_rng(0).permutation(len(pairs))[:MAX_PAIRS])
    return [pairs.queries[i] for i in chosen], [pairs.passages[i] for i in chosen]


def _embed(
    texts: Sequence[str],
    source: str,
    pooling: str | None,
    template: str | None,
    cache: dict[object, Vectors],
    progress: Progress,
) -> Vectors:
    """Return unit vectors."""
    key = source, pooling, template, tuple(texts)
    if key not in cache:
        progress.report(f"encoding {len(texts):,} texts with {source}", 0)
        try:
            cache[key] = unit(encode(load_encoder(source, pooling=pooling, template=template), list(texts)))
        except (UserError, OSError) as error:
            raise Unavailable(f"The encoder {source} cannot be opened: {error}.") from error
        if not np.isfinite(cache[key]).all():
            raise Unavailable(f"The embeddings of {source} hold NaN or infinity: its weights are broken.")
    return cache[key]


def view_embeddings(rows: Vectors, texts: Sequence[str], queries: Sequence[int]) -> EncoderView:
    """Measure the unit vectors of texts of which i and N / 2 + i belong together."""
    half = len(texts) // 2
    first, second = random_pairs(half, RANDOM_PAIRS)
    points, variances = principal_components(rows)
    return EncoderView(
        random=np.einsum("nd,nd->n", rows[first], rows[second]),
        adjacent=np.einsum("nd,nd->n", rows[:half], rows[half:]),
        points=points,
        variances=variances,
        neighbours=[nearest_texts(rows, texts, query) for query in queries],
    )


def random_pairs(half: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw pairs of 2 * half rows, of which i and half + i belong together, so that the two never do."""
    draw = np.random.default_rng(0)
    first = draw.integers(2 * half, size=count)
    # Another document: 1 to half - 1 further on, and either of its two texts.
    second = (first + draw.integers(1, half, size=count)) % half + half * draw.integers(2, size=count)
    return first, second


def principal_components(rows: Vectors) -> tuple[Float[np.ndarray, "N 2"], tuple[float, float]]:
    """Return the rows on their first two principal components, and the shares of variance that these explain."""
    left, values, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    points = np.zeros((len(rows), 2))
    kept = min(2, len(values))
    points[:, :kept] = left[:, :kept] * values[:kept]
    # A component's sign is arbitrary: the farther end points to the right, and up.
    ends = points[np.abs(points).argmax(axis=0), [0, 1]]
    total = float(np.square(values).sum()) or 1.0
    shares = [float(value) ** 2 / total for value in values[:kept]] + [0.0, 0.0]
    return points * np.where(ends < 0, -1.0, 1.0), (shares[0], shares[1])


def cluster_texts(rows: Vectors, texts: Sequence[str]) -> tuple[list[int], list[str]]:
    """Return the k-means cluster of each text, the largest cluster first, and the text nearest to each centre."""
    from sklearn.cluster import KMeans

    count = min(CLUSTERS, len(np.unique(rows.round(6), axis=0)))
    fitted = KMeans(count, n_init=4, random_state=0).fit(rows)
    order = np.argsort(-np.bincount(fitted.labels_, minlength=count), kind="stable")
    rank = np.argsort(order)
    nearest = fitted.transform(rows).argmin(axis=0)
    return rank[fitted.labels_].tolist(), [texts[nearest[i]] for i in order]


def nearest_texts(rows: Vectors, texts: Sequence[str], query: int) -> list[Neighbour]:
    """Return the texts nearest to one of them by cosine."""
    cosines = rows @ rows[query]
    cosines[query] = -np.inf
    nearest = np.argsort(-cosines, kind="stable")[:NEIGHBOURS]
    own = query + len(texts) // 2
    return [Neighbour(text=texts[i], cosine=float(cosines[i]), own=bool(i == own)) for i in nearest]
