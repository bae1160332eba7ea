"""Find exact and near-duplicates in memory that does not grow with the number of texts.

Exact duplicates share a 64-bit key of their normalised text.  Near-duplicates are found by MinHash over the
bigrams of tokens: 64 minima are folded into bands, texts that agree in a whole band are candidates, and a
candidate is dropped only if its true Jaccard similarity with a text that is kept reaches the threshold.  All keys are
on disk and are compared in partitions of bounded size.

MinHash is a dozen lines of NumPy here: rensa is fast but returns Python lists, and that conversion alone takes longer
than the whole computation below.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from selfsent.corpus.columns import CHUNK, Column, Ragged
from selfsent.progress import SILENT, Progress

KEPT, EXACT, NEAR, HELD_OUT, SURPLUS, UNPAIRED = range(6)  # drop reasons
MINIMA = 64
_PARTITION = 1 << 20  # keys compared at a time
_BLOCK = 1 << 18  # rows whose candidates are verified at a time
_COMPARED = 1 << 18  # tokens compared at a time
_EXAMPLES = 20
_BITS = 45  # a pair packed into one number: the earlier row in the lower bits, the later one within its block above

Keys = NDArray[np.uint64]


def band_width(threshold: float) -> int:
    """Return how many minima make a band: the most that still find 97 % of the pairs exactly at the threshold.

    A pair of similarity J agrees in a band of r minima with probability J^r, so 64 / r bands find it with
    1 - (1 - J^r)^(64 / r).  Wider bands give fewer candidates for verification to reject.
    """
    return next((r for r in (8, 4, 2) if 1 - (1 - threshold**r) ** (MINIMA // r) >= 0.97), 1)


def mix(x: Keys) -> Keys:
    """Permute 64-bit numbers pseudo-randomly.  Source: Steele et al. 2014, SplitMix64's finaliser."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def shingles(ids: NDArray[np.integer], lengths: NDArray[np.integer]) -> Keys:
    """Hash every token together with its right neighbour, the last one with the end of its text."""
    pairs = (ids.astype(np.uint64) + np.uint64(1)) << np.uint64(32)
    pairs[:-1] |= ids[1:].astype(np.uint64) + np.uint64(1)
    ends = np.cumsum(lengths) - 1
    pairs[ends] &= np.uint64(0xFFFFFFFF00000000)
    return mix(pairs)


def band_keys(hashes: Keys, lengths: NDArray[np.integer], width: int) -> Iterator[Keys]:
    """Yield the keys of all texts for each band of MinHash; no text may be empty."""
    starts = np.cumsum(lengths) - lengths
    multipliers = np.random.default_rng(0).integers(1, 1 << 63, MINIMA, dtype=np.uint64) | np.uint64(1)
    for band in multipliers.reshape(-1, width):
        key = np.zeros(len(lengths), np.uint64)
        for multiplier in band:
            minima = np.minimum.reduceat((hashes * multiplier) >> np.uint64(32), starts)
            key = mix(key + minima)
        yield key


def row_keys(ids: NDArray[np.integer], lengths: NDArray[np.integer]) -> Keys:
    """Hash whole rows of tokens; no row may be empty."""
    starts = np.cumsum(lengths) - lengths
    columns = np.arange(len(ids)) - np.repeat(starts, lengths)
    return mix(np.add.reduceat(mix((columns.astype(np.uint64) << np.uint64(32)) + ids), starts))


def similarities(ids: Ragged, earlier: NDArray[np.int64], later: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the Jaccard similarity of the shingles of each pair of rows."""
    rows, places = np.unique(np.concatenate([earlier, later]), return_inverse=True)
    return _jaccard(ids.rows(rows), *places.reshape(2, -1))


def _jaccard(
    pieces: Sequence[NDArray[np.integer]], first: NDArray[np.int64], second: NDArray[np.int64]
) -> NDArray[np.float64]:
    from scipy.sparse import csr_array

    lengths = np.array([len(row) for row in pieces])
    names = np.unique(shingles(np.concatenate(pieces), lengths), return_inverse=True)[1]
    # The sets of shingles as a sparse matrix: two rows' common shingles are where both hold a one.
    sets = csr_array((np.ones(len(names), np.int32), names, np.r_[0, np.cumsum(lengths)]))
    sets.sum_duplicates()
    sets.data[:] = 1
    sizes = np.diff(sets.indptr)
    both = sets[first].multiply(sets[second]).sum(axis=1)
    return both / (sizes[first] + sizes[second] - both)


def drop_held_out(keys: Column, held_out: Keys, drop_reason: NDArray[np.uint8]) -> None:
    """Mark every copy of a held-out text."""
    for start, chunk in keys.chunks():
        reasons = drop_reason[start : start + len(chunk)]
        reasons[(reasons == KEPT) & np.isin(chunk, held_out)] = HELD_OUT


def drop_near_held_out(
    bands: Sequence[Column] | None,
    ids: Ragged,
    held_ids: NDArray[np.integer],
    held_lengths: NDArray[np.int64],
    threshold: float,
    drop_reason: NDArray[np.uint8],
) -> None:
    """Mark every near-copy of a held-out text: with it, training would have read the test.

    Args:
        bands: of the rows; None: they are computed here.
        held_ids: tokens of the held-out texts, end to end; they are few and are held in memory.
    """
    held_lengths = held_lengths[held_lengths > 0]
    if not len(held_lengths):
        return
    held, width = np.split(held_ids, np.cumsum(held_lengths)[:-1]), band_width(threshold)
    held_keys = list(band_keys(shingles(held_ids, held_lengths), held_lengths, width))
    order = [np.argsort(keys, kind="stable") for keys in held_keys]
    for start in range(0, len(drop_reason), _BLOCK):
        rows = start + np.flatnonzero(drop_reason[start : start + _BLOCK] == KEPT)
        if not len(rows):
            continue
        keys = (_at(band, rows) for band in bands) if bands else _bands_of(ids, rows, width)
        pairs = []
        for own, theirs, at in zip(keys, held_keys, order, strict=True):
            # Equal held-out texts are as good as one: the first and the last of a key stand for all.
            first, last = (np.searchsorted(theirs[at], own, side=side) for side in ("left", "right"))
            met = np.flatnonzero(last > first)
            pairs += [np.stack([rows[met], at[first[met]]]), np.stack([rows[met], at[last[met] - 1]])]
        candidates = np.unique(np.concatenate(pairs, axis=1), axis=1)  # each is compared once, however many bands agree
        at_once = max(1, _COMPARED // max(1, int(held_lengths.mean())))
        for start in range(0, candidates.shape[1], at_once):
            row, held_row = candidates[:, start : start + at_once]
            different, row_number = np.unique(row, return_inverse=True)
            others, held_number = np.unique(held_row, return_inverse=True)
            pieces = [*ids.rows(different), *(held[text] for text in others)]
            near = _jaccard(pieces, row_number, held_number + len(different)) >= threshold
            drop_reason[row[near]] = HELD_OUT


def _bands_of(ids: Ragged, rows: NDArray[np.int64], width: int) -> Iterator[Keys]:
    """Return the keys of rows for each band; a row without a token is like no other."""
    first = int(rows[0])
    values, sizes = ids.span(first, int(rows[-1]) + 1)
    wanted = np.zeros(len(sizes), bool)
    wanted[rows - first] = True
    values, lengths = values[np.repeat(wanted, sizes)], sizes[wanted]
    full = np.flatnonzero(lengths)
    if not len(full):
        return iter([np.zeros(len(rows), np.uint64)] * (MINIMA // width))

    def keys() -> Iterator[Keys]:
        for band in band_keys(shingles(values, lengths[full]), lengths[full], width):
            keys = np.zeros(len(rows), np.uint64)
            keys[full] = band
            yield keys

    return keys()


def families(keys: Column, others: Column) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the connected components of rows that share a value in either column.

    Returns:
        The rows of components of more than one row, and for each of them the first row of its component.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ties = [np.stack(next(_alike(rows, values))) for rows, values in _partitions([keys, others])]
    tied, ends = np.unique(np.concatenate(ties, axis=1), return_inverse=True)
    earlier, later = ends.reshape(2, -1)
    graph = coo_array((np.ones(len(earlier), np.uint8), (earlier, later)), (len(tied), len(tied)))
    family = connected_components(graph, directed=False)[1]
    return tied, tied[np.unique(family, return_index=True)[1][family]]


def drop_exact(keys: Column, drop_reason: NDArray[np.uint8], others: Column | None = None) -> None:
    """Mark every copy of a text but the first.

    Args:
        others: keys of the other sides of pairs; a pair is a copy where both sides are.
    """
    for rows, values in _partitions([keys], drop_reason):
        if others is not None:
            values = mix(values) + _at(others, rows)
        order = np.argsort(values, kind="stable")  # stable: of equal texts the first row comes first
        drop_reason[rows[order[1:][values[order[1:]] == values[order[:-1]]]]] = EXACT


def drop_near(
    bands: list[Column],
    ids: Ragged,
    threshold: float,
    drop_reason: NDArray[np.uint8],
    folder: Path,
    progress: Progress = SILENT,
    others: Ragged | None = None,
) -> list[tuple[int, int]]:
    """Mark near-duplicates of an earlier text that is kept; return the first such pairs (kept, dropped).

    Args:
        others: the other sides of pairs; a pair is a near-duplicate where both sides are.
        folder: for temporary columns of candidate pairs.
        progress: the stage ``deduplicate`` counts bands, then blocks of candidates.
    """
    blocks = range(0, len(drop_reason), _BLOCK)
    candidates = [Column(folder / f"candidates_{block}.npy", np.int64) for block in blocks]
    steps = len(bands) + len(blocks)
    for done, band in enumerate(bands):
        progress.report("deduplicate", done, steps)
        for rows, values in _partitions([band], drop_reason):
            for earlier, later in _alike(rows, values):
                pairs = ((later % _BLOCK) << _BITS) | earlier
                for block in np.unique(later // _BLOCK):
                    candidates[block].append(pairs[later // _BLOCK == block])

    at_once = 1 + _COMPARED * len(drop_reason) // max(1, ids.values.rows)  # pairs, if their texts are of average length
    examples: list[tuple[int, int]] = []
    for block, column in enumerate(candidates):
        progress.report("deduplicate", len(bands) + block, steps)
        pairs = np.unique(column.read(0, column.rows))
        column.close()
        later, earlier = block * _BLOCK + (pairs >> _BITS), pairs & ((1 << _BITS) - 1)
        near = np.zeros(len(pairs), bool)
        for start in range(0, len(pairs), at_once):
            batch = slice(start, start + at_once)
            near[batch] = similarities(ids, earlier[batch], later[batch]) >= threshold
            if others is not None and near[batch].any():
                alike = np.flatnonzero(near[batch]) + start
                near[alike] = similarities(others, earlier[alike], later[alike]) >= threshold
        # In order of the later text, so that it is already decided whether the earlier one is kept.
        for earlier_row, later_row in zip(earlier[near].tolist(), later[near].tolist(), strict=True):
            if drop_reason[earlier_row] == drop_reason[later_row] == KEPT:
                drop_reason[later_row] = NEAR
                examples += [(earlier_row, later_row)] * (len(examples) < _EXAMPLES)
    progress.report("deduplicate", steps, steps)
    return examples


def _alike(rows: NDArray[np.int64], values: Keys) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Pair every row with the first and with the previous row of equal value.

    All pairs among ten thousand equal rows would be fifty million; these two, in many bands, find nearly all.
    """
    order = np.argsort(values, kind="stable")
    rows, values = rows[order], values[order]
    new = np.r_[True, values[1:] != values[:-1]]
    first = np.maximum.accumulate(np.where(new, np.arange(len(rows)), 0))
    later = np.flatnonzero(~new)
    yield rows[first[later]], rows[later]
    distant = later[first[later] != later - 1]
    yield rows[distant - 1], rows[distant]


def _at(column: Column, rows: NDArray[np.int64]) -> Keys:
    """Return the values of ascending rows."""
    if not len(rows):
        return np.empty(0, np.uint64)
    first, last = int(rows[0]), int(rows[-1]) + 1
    values = []
    for start in range(first, last, CHUNK):
        chunk = column.read(start, min(start + CHUNK, last))
        values.append(chunk[rows[(rows >= start) & (rows < start + len(chunk))] - start])
    return np.concatenate(values)


def _partitions(
    columns: Sequence[Column], drop_reason: NDArray[np.uint8] | None = None
) -> Iterator[tuple[NDArray[np.int64], Keys]]:
    """Yield (rows, values) of all columns, of rows still kept, such that equal values come together."""
    parts = -(-sum(column.rows for column in columns) // _PARTITION)
    for remainder in range(parts):
        rows, values = [], []
        for start, chunk in chain.from_iterable(column.chunks() for column in columns):
            here = chunk % np.uint64(parts) == remainder
            if drop_reason is not None:
                here &= drop_reason[start : start + len(chunk)] == KEPT
            rows.append(np.flatnonzero(here) + start)
            values.append(chunk[here])
        yield np.concatenate(rows), np.concatenate(values)
