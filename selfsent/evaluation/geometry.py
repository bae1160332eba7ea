"""Alignment, uniformity, and measures of collapse of a set of vectors.

    alignment        mean |f(x) - f(y)|^2 over pairs with a human score above 4
    uniformity       log mean exp(-2 |f(x_i) - f(x_j)|^2) over all unordered pairs i < j
    mean cosine      over all unordered pairs i < j; near 1 when all vectors have one direction
    effective rank   exp of the entropy of the normalised singular values; 1 when all lie on one line
    dimension std    of the unit vectors, times sqrt(D); 1 when spread evenly, 0 when collapsed
    hubness          skewness of N_k, the number of rows that have a row among their k nearest; 0 without hubs

Every function normalises rows to unit length first.  Alignment and uniformity: Wang & Isola 2020,
https://arxiv.org/abs/2005.10242; effective rank: Roy & Vetterli 2007, as in RankMe,
https://arxiv.org/abs/2210.02885; hubness: Radovanovic et al. 2010, https://jmlr.org/papers/v11/radovanovic10a.html.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, nan

import numpy as np
from jaxtyping import Float

from selfsent.encoder.quantize import unit
from selfsent.evaluation import bootstrap
from selfsent.evaluation.score import Score, measured
from selfsent.evaluation.sts import STS
from selfsent.evaluation.task import Vectors
from selfsent.progress import SILENT, Progress

TILE = 1024  # rows and columns of a tile of pairs: 8 MB, however many rows there are
_TIE = 1e-9  # cosines closer than this are equal


def alignment(
    x: Float[np.ndarray, "N D"],
    y: Float[np.ndarray, "N D"],
    gold: Float[np.ndarray, " N"] | None = None,
    *,
    inclusive: bool = False,
) -> float:
    """Return the mean squared distance of positive pairs: those with gold > 4, or >= 4 if inclusive; all without gold.

    Raises:
        ValueError: no pair is positive.
    """
    if gold is not None:
        positive = gold >= 4 if inclusive else gold > 4
        x, y = x[positive], y[positive]
    if not len(x):
        raise ValueError("no pair has a gold score above 4: alignment needs one")
    return float(_distances(x, y).mean())


def uniformity(x: Float[np.ndarray, "N D"], *, t: float = 2.0) -> float:
    """Return log mean exp(-t |x_i - x_j|^2) over unordered pairs i < j, exactly and in flat memory.

    Raises:
        ValueError: fewer than two rows.
    """
    return float(np.log(_potentials(unit(x), t).mean()))


def mean_cosine(x: Float[np.ndarray, "N D"]) -> float:
    """Return the mean cosine over all unordered pairs, exactly."""
    return float(_cosines(unit(x)).mean())


def effective_rank(x: Float[np.ndarray, "N D"]) -> float:
    """Return exp(entropy) of the singular values of the unit rows, normalised to sum 1; 0 of zero rows."""
    rows = unit(x)
    # From the smaller Gram matrix: the singular values alone, much faster than their decomposition.
    gram = rows.T @ rows if rows.shape[0] > rows.shape[1] else rows @ rows.T
    squares = np.linalg.eigvalsh(gram)
    noise = squares[-1] * max(rows.shape) * np.finfo(np.float64).eps
    values = np.sqrt(squares[squares > noise])
    if not len(values):
        return 0.0
    shares = values / values.sum()
    return float(np.exp(-np.sum(shares * np.log(shares))))


def hubness(x: Float[np.ndarray, "N D"], *, k: int = 10) -> float:
    """Return the skewness of N_k by cosine; 0 where all rows have equal counts.

    Rows at the distance of the k-th share the remaining places, so that the order of the rows does not matter.

    Raises:
        ValueError: there are not more than k rows.
    """
    rows = unit(x)
    if len(rows) <= k:
        raise ValueError(f"the {k} nearest of {len(rows)} rows: hubness needs at least {k + 1}")
    occurrences = np.zeros(len(rows))
    for start in range(0, len(rows), TILE):
        tile = rows[start : start + TILE] @ rows.T
        np.fill_diagonal(tile[:, start:], -np.inf)  # a row is no neighbour of itself
        least = np.partition(tile, -k, axis=1)[:, -k][:, None]
        inside, tied = tile > least + _TIE, np.abs(tile - least) <= _TIE
        left = k - inside.sum(axis=1)
        occurrences += inside.sum(axis=0) + (tied * (left / tied.sum(axis=1))[:, None]).sum(axis=0)
    centred = occurrences - occurrences.mean()
    variance = np.square(centred).mean()
    return float((centred**3).mean() / variance**1.5) if variance > _TIE else 0.0


def collapse_alarms(scores: Mapping[str, float], start: Mapping[str, float]) -> list[str]:
    """Return a warning for each sign that the embeddings collapse, compared with the figures at the start.

    The thresholds are loose on purpose: a healthy run never reaches them.
    """
    alarms = []
    cosine, rank, spread = (scores.get(name, nan) for name in ("mean_cosine", "effective_rank", "uniformity"))
    if cosine > 0.95 and cosine > start.get("mean_cosine", 0.0):
        alarms.append(
            f"embeddings are collapsing into one direction: random texts have cosine {cosine:.3f} "
            f"({start.get('mean_cosine', nan):.3f} at the start); lower the rate or stop earlier"
        )
    if rank < 0.25 * start.get("effective_rank", 0.0):
        alarms.append(
            f"embeddings are collapsing into few dimensions: effective rank {rank:.1f} "
            f"({start['effective_rank']:.1f} at the start)"
        )
    if spread > -0.2 and spread > start.get("uniformity", -inf):
        alarms.append(f"embeddings are hardly spread out any more: uniformity {spread:.2f} (0 is a single point)")
    return alarms


@dataclass(frozen=True, kw_only=True)
class Geometry(STS):
    """The geometry of STS-B: alignment on its pairs with gold > 4, the rest on all of its sentences."""

    def score(self, vectors: Vectors, *, resamples: int, seed: int, progress: Progress = SILENT) -> list[Score]:
        """Compute the measures.

        Intervals: alignment resamples positive pairs; uniformity and mean cosine are means over pairs of sentences and
        resample the sentences through the mean of each sentence's pairs (the linear part of the bootstrap); the others
        have none.
        """
        left, right = np.split(vectors, 2)
        positive = self.gold > 4
        rows, distances = unit(vectors), _distances(left[positive], right[positive])
        potentials, cosines = _potentials(rows, 2.0), _cosines(rows)

        (aligned,) = bootstrap.means(distances[:, None], resamples, seed=seed, name=f"{self.name}/pairs")
        # A pair holds two sentences, so a sentence's weight in the mean over pairs counts twice.
        linear = np.stack([2 * potentials - potentials.mean(), 2 * cosines - cosines.mean()], axis=1)
        potential, cosine = bootstrap.means(linear, resamples, seed=seed, name=f"{self.name}/sentences")

        found = [
            ("alignment", distances.mean(), len(distances), aligned),
            ("uniformity", np.log(potentials.mean()), len(rows), np.log(potential)),
            ("mean_cosine", cosines.mean(), len(rows), cosine),
            ("effective_rank", effective_rank(vectors), len(rows), None),
            ("dimension_std", rows.std(axis=0).mean() * np.sqrt(rows.shape[1]), len(rows), None),
        ]
        protocol = {"positives": "gold > 4", "texts": self.form}
        return [
            measured(self.name, self.split, metric, float(value), replicates, n, protocol)
            for metric, value, n, replicates in found
        ]


def _distances(x: Float[np.ndarray, "N D"], y: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
    return np.square(unit(x) - unit(y)).sum(axis=1)


def _cosines(rows: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
    """Return each unit row's mean cosine with all others: no pair is formed."""
    own = np.square(rows).sum(axis=1)
    return (rows @ rows.sum(axis=0) - own) / (len(rows) - 1)


def _potentials(rows: Float[np.ndarray, "N D"], t: float) -> Float[np.ndarray, " N"]:
    """Return each unit row's mean exp(-t distance^2) to all others; their mean is that over pairs i < j."""
    if len(rows) < 2:
        raise ValueError(f"uniformity needs at least 2 rows, got {len(rows)}")
    # Two more columns on either side make the product the whole exponent, -t |a|^2 + 2 t a b - t |b|^2.
    squares, ones = -t * np.square(rows).sum(axis=1, keepdims=True), np.ones((len(rows), 1))
    left, right = np.hstack([2 * t * rows, squares, ones]), np.hstack([rows, ones, squares])
    sums = np.zeros(len(rows))
    for start in range(0, len(rows), TILE):
        for other in range(start, len(rows), TILE):
            tile = left[start : start + TILE] @ right[other : other + TILE].T
            np.exp(tile, out=tile)
            if other == start:
                np.fill_diagonal(tile, 0)  # a row is no pair with itself
            else:
                sums[other : other + TILE] += tile.sum(axis=0)
            sums[start : start + TILE] += tile.sum(axis=1)
    return sums / (len(rows) - 1)
