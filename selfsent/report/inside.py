"""What only the encoders can tell: base and trained model read the same few held-out texts.

At most ``CAP`` held-out texts, and at most ``CAP`` texts of STS-B dev where there is data: drawn once, with a fixed
seed, the same for every encoder.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from selfsent.corpus.heldout import HeldOut
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.errors import UserError
from selfsent.evaluation import hub, sts
from selfsent.evaluation.geometry import unit
from selfsent.evaluation.senteval import files
from selfsent.report.read import Record, corpus_of_run

CAP = 500  # texts
QUERIES = 4  # sentences whose neighbours are shown
NEIGHBOURS = 3
MARKS = 6  # groups of texts that a map tells apart
RANDOM_PAIRS = 5000
PARAPHRASE = 4.0  # gold score above which two sentences are called the same
_KINDS = {
    "summary-body": "a first sentence and the passage that follows it",
    "halves": "the two halves of a line",
    "pairs": "a text and its positive",
}

Report = Callable[[str, int, int | None], None]
Vectors = Float[np.ndarray, "N D"]


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A text near another one."""

    text: str
    cosine: float
    own: bool  # the passage that belongs to the query


@dataclass(frozen=True, kw_only=True)
class View:
    """What one encoder makes of the sample."""

    random: Float[np.ndarray, " R"]  # cosines of pairs that have nothing to do with each other
    adjacent: Float[np.ndarray, " P"]  # of held-out pairs
    paraphrase: Float[np.ndarray, " Q"] | None  # of STS-B pairs of gold > 4
    predicted: Float[np.ndarray, " S"] | None  # of STS-B pairs
    places: Float[np.ndarray, "N 2"]  # on the first two principal components
    shares: tuple[float, float]  # of the variance that these two hold
    neighbours: list[list[Neighbour]]


@dataclass(frozen=True, kw_only=True)
class Inside:
    """Base and trained encoder side by side."""

    texts: list[str]  # queries, then the passage of each
    kind: str  # what the two sides of a held-out pair are
    gold: Float[np.ndarray, " S"] | None
    marks: list[int]  # the group of every text
    typical: list[str]  # the text in the middle of each group
    queries: list[str]
    base: View
    trained: View


class Skipped(Exception):
    """The encoders or their texts cannot be opened any more; the message is for the page."""


def look_inside(run: Record, data: Path | None, seen: dict[object, Vectors], report: Report) -> Inside:
    """Encode the sample with base and trained model.

    Args:
        data: a folder in SentEval's layout, or ``hub``, for STS-B.
        seen: vectors by encoder and texts, so that one base is not read again for each of its runs.

    Raises:
        Skipped: something that this needs is no longer there.
    """
    if run.kind == "pretrain":
        if run.recipe.get("base"):
            raise Skipped(
                "This run trained a masked language model: selfsent verdict sets its embeddings beside others."
            )
        raise Skipped("This run did not begin with an encoder: there is no base to set beside its own.")
    if not run.has_model:
        raise Skipped("The run has no finished model yet.")
    opened = corpus_of_run(run)
    if opened is None:
        raise Skipped(
            "The prepared corpus of this run is no longer in the cache, and with it its held-out texts are gone: "
            "the command below prepares it again."
        )
    queries, passages = _held_out(opened.held_out)
    pairs = _stsb(data)
    texts, extra = [*queries, *passages], [] if pairs is None else [*pairs.left, *pairs.right]
    recipe = run.recipe
    asked = recipe.get("encoder", {})
    sources = {
        "base": (str(recipe.get("base")), asked.get("pooling"), asked.get("template")),
        "trained": (str(run.folder / "model"), None, None),
    }
    vectors = {}
    for who, source in sources.items():
        key = (source, tuple(texts), tuple(extra))
        if key not in seen:
            report(f"encoding {len(texts) + len(extra):,} texts with the {who} encoder of {run.name}", 0, None)
            try:
                encoder = load_encoder(source[0], pooling=source[1], template=source[2])
                seen[key] = encode(encoder, [*texts, *extra])
            except (UserError, OSError) as error:
                raise Skipped(f"The {who} encoder cannot be opened any more: {error}.") from error
            if not np.isfinite(seen[key]).all():
                raise Skipped(f"The {who} encoder gives NaN or infinity: its weights are broken.")
        vectors[who] = seen[key]
    gold = None if pairs is None else np.array(pairs.gold, dtype=np.float64)
    chosen = sorted(np.random.default_rng(0).permutation(len(queries))[:QUERIES].tolist())
    marks, typical = _marks(unit(vectors["trained"][: len(texts)]), texts)
    views = {who: _view(found, texts, len(queries), gold, chosen) for who, found in vectors.items()}
    return Inside(
        texts=texts,
        kind=_KINDS[opened.held_out.kind],
        gold=gold,
        marks=marks,
        typical=typical,
        queries=[queries[i] for i in chosen],
        **views,
    )


def _held_out(held_out: HeldOut) -> tuple[list[str], list[str]]:
    pairs = held_out.test if len(held_out.test) > 1 else held_out.dev
    if len(pairs) < 2:
        raise Skipped("Fewer than two documents were held out of this corpus: there is nothing to show.")
    chosen = np.sort(np.random.default_rng(0).permutation(len(pairs))[: CAP // 2])
    return [pairs.queries[i] for i in chosen], [pairs.passages[i] for i in chosen]


def _stsb(data: Path | None) -> sts.SentencePairs | None:
    """Draw pairs of STS-B dev, or return None without data."""
    if data is None:
        return None
    pairs = hub.stsb("dev") if hub.hub_requested(data) else sts.read_stsb(files.find_folder(data), "dev")
    if isinstance(pairs, Path):
        raise UserError(f"STS-B is missing from the data folder: looked for {pairs}; leave --data out or complete it")
    chosen = np.sort(np.random.default_rng(0).permutation(len(pairs.gold))[: CAP // 2])
    left, right, gold = ([side[i] for i in chosen] for side in (pairs.left, pairs.right, pairs.gold))
    return sts.SentencePairs(name=pairs.name, left=left, right=right, gold=gold)


def _view(
    vectors: Vectors, texts: Sequence[str], half: int, gold: Float[np.ndarray, " S"] | None, chosen: Sequence[int]
) -> View:
    count = len(texts)
    rows = unit(vectors)
    held_out, further = rows[:count], rows[count:]
    first, second = random_pairs(half, RANDOM_PAIRS)
    predicted = None if gold is None else sts.cosine(further[: len(gold)], further[len(gold) :])
    places, shares = principal_components(held_out)
    return View(
        random=np.einsum("nd,nd->n", held_out[first], held_out[second]),
        adjacent=np.einsum("nd,nd->n", held_out[:half], held_out[half:]),
        paraphrase=None if predicted is None or gold is None else predicted[gold > PARAPHRASE],
        predicted=predicted,
        places=places,
        shares=shares,
        neighbours=[_neighbours(held_out, texts, i, half) for i in chosen],
    )


def random_pairs(half: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows of 2 * half texts, of which i and half + i belong together, so that no two of a pair do."""
    draw = np.random.default_rng(0)
    first = draw.integers(2 * half, size=count)
    # Another document: 1 to half - 1 further on, and either of its two texts.
    second = (first + draw.integers(1, half, size=count)) % half + half * draw.integers(2, size=count)
    return first, second


def principal_components(rows: Vectors) -> tuple[Float[np.ndarray, "N 2"], tuple[float, float]]:
    """Return the rows on their first two principal components, and the shares of variance that these hold."""
    centred = rows - rows.mean(axis=0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    places = np.zeros((len(rows), 2))
    kept = min(2, len(values))
    places[:, :kept] = left[:, :kept] * values[:kept]
    # A component's sign is arbitrary: the farther end points to the right, and up.
    ends = places[np.abs(places).argmax(axis=0), [0, 1]]
    total = float(np.square(values).sum()) or 1.0
    shares = [float(value) ** 2 / total for value in values[:kept]] + [0.0, 0.0]
    return places * np.where(ends < 0, -1.0, 1.0), (shares[0], shares[1])


def _marks(rows: Vectors, texts: Sequence[str]) -> tuple[list[int], list[str]]:
    """Group texts by k-means on their vectors, the largest group first; return each text's and the middles."""
    from sklearn.cluster import KMeans

    count = min(MARKS, len(np.unique(rows.round(6), axis=0)))
    found = KMeans(count, n_init=4, random_state=0).fit(rows)
    order = np.argsort(-np.bincount(found.labels_, minlength=count), kind="stable")
    rank = np.empty(count, dtype=np.int64)
    rank[order] = np.arange(count)
    middles = found.transform(rows).argmin(axis=0)
    return rank[found.labels_].tolist(), [texts[middles[i]] for i in order]


def _neighbours(rows: Vectors, texts: Sequence[str], query: int, half: int) -> list[Neighbour]:
    cosines = rows @ rows[query]
    cosines[query] = -np.inf
    nearest = np.argsort(-cosines, kind="stable")[:NEIGHBOURS]
    return [Neighbour(text=texts[i], cosine=float(cosines[i]), own=bool(i == query + half)) for i in nearest]
