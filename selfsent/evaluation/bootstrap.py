"""Resample rows with replacement, without a loop over resamples and without sorting again.

A resample is a vector of counts, how often each row was drawn.  Everything here is a function of
counts, (N, R): the average rank of a value in a resample is the number of draws below it plus half the
draws that tie with it, so one cumulative sum over the values sorted once gives the exact ranks of all R
resamples.
"""

from collections.abc import Iterator
from zlib import crc32

import numpy as np
from jaxtyping import Float, Int

CHUNK = 128  # resamples at a time: keeps the (N, R) arrays of 5,000 rows in the CPU cache


def bootstrap_draws(rows: int, resamples: int, *, seed: int, name: str) -> Iterator[Float[np.ndarray, "N R"]]:
    """Yield counts of resamples of ``rows`` rows, a chunk of resamples at a time; (N, 0) once for no resamples.

    A pure function of its arguments: two models scored with one name and seed get the same resamples.
    """
    rng = np.random.default_rng((seed, crc32(name.encode())))
    for start in range(0, max(resamples, 1), CHUNK):
        width = min(CHUNK, resamples - start)
        cells = rng.integers(rows, size=(width, rows), dtype=np.int64)
        cells *= width
        cells += np.arange(width)[:, None]
        yield np.bincount(cells.ravel(), minlength=rows * width).reshape(rows, width).astype(np.float64)


def centred_ranks(
    values: Float[np.ndarray, " N"], counts: Float[np.ndarray, "N R"]
) -> tuple[Float[np.ndarray, "N R"], Float[np.ndarray, " R"]]:
    """Return the average ranks of every row in every resample less their mean, and their variance sums."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    drawn = counts[order]
    if len(starts) < len(values):
        drawn = np.add.reduceat(drawn, starts, axis=0)  # (G, R), G different values
    ranks = np.cumsum(drawn, axis=0)
    middle = ranks[-1] / 2  # half the draws: of clusters of rows their number differs between resamples
    ranks -= drawn / 2
    ranks -= middle
    variances = np.einsum("nr,nr,nr->r", drawn, ranks, ranks)
    group = np.empty(len(values), dtype=np.int64)
    group[order] = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(values)]))
    return ranks[group], variances


def spearman(
    x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], counts: Float[np.ndarray, "N R"]
) -> Float[np.ndarray, " R"]:
    """Return Spearman's correlation of every resample, exactly; 0 where x or y is constant."""
    of_x, variance_x = centred_ranks(x, counts)
    of_y, variance_y = centred_ranks(y, counts)
    of_x *= counts
    return _correlation(np.einsum("nr,nr->r", of_x, of_y), variance_x, variance_y)


def pearson(
    x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], counts: Float[np.ndarray, "N R"]
) -> Float[np.ndarray, " R"]:
    """Return Pearson's correlation of every resample; 0 where x or y is constant."""
    x, y = x - x.mean(), y - y.mean()
    columns = np.stack([x, y, x * x, y * y, x * y], axis=1)
    mean_x, mean_y, square_x, square_y, product = _weighted(columns, counts) / len(x)
    # Rounding leaves about 1e-16 of the scale where the variance is truly 0.
    variance_x, variance_y = square_x - mean_x**2, square_y - mean_y**2
    variance_x[variance_x < 1e-14 * np.square(x).max()] = 0
    variance_y[variance_y < 1e-14 * np.square(y).max()] = 0
    return _correlation(product - mean_x * mean_y, variance_x, variance_y)


def means(
    values: Float[np.ndarray, "N M"],
    resamples: int,
    *,
    seed: int,
    name: str,
    clusters: Int[np.ndarray, " N"] | None = None,
) -> Float[np.ndarray, "M R"]:
    """Return the mean of every column in every resample of the rows.

    Args:
        clusters: of each row, from 0 on without gaps; whole clusters are drawn, and a mean is over the rows that are in
            them.  Default: each row for itself.
    """
    if clusters is None:
        chunks = bootstrap_draws(len(values), resamples, seed=seed, name=name)
        return np.concatenate([_weighted(values, counts) for counts in chunks], axis=1) / len(values)
    columns = np.column_stack([values, np.ones(len(values))])
    sums = np.stack([np.bincount(clusters, column) for column in columns.T], axis=1)  # (clusters, M + 1)
    chunks = bootstrap_draws(len(sums), resamples, seed=seed, name=name)
    drawn = np.concatenate([_weighted(sums, counts) for counts in chunks], axis=1)
    return drawn[:-1] / drawn[-1]


def _weighted(columns: Float[np.ndarray, "N M"], counts: Float[np.ndarray, "N R"]) -> Float[np.ndarray, "M R"]:
    # Not a matrix product: for so few columns BLAS threads wait longer than they compute.
    return np.stack([np.einsum("n,nr->r", column, counts) for column in columns.T])


def _correlation(
    covariance: Float[np.ndarray, " R"],
    variance_x: Float[np.ndarray, " R"],
    variance_y: Float[np.ndarray, " R"],
) -> Float[np.ndarray, " R"]:
    scale = np.sqrt(variance_x * variance_y)
    return np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 0)
