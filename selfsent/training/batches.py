"""The rows of each batch: a pure function of (seed, epoch, step).

Batches of similar length need little padding.  Equal texts never share a batch, because each would be the other's
false negative.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from selfsent.errors import CorpusError

_POOL = 100  # batches sorted by length together, so that every batch stays a random sample of its lengths
_NEAR = 8  # batches to either side in which a copy is first exchanged with another text,
_TRIES = 25  # at so many places, and then at as many anywhere
_CHUNK = 1 << 18  # rows that are searched at a time, to save memory


class Batches:
    """The order of all epochs; ``batches(step)`` returns the row indices of one batch.

    Attributes:
        steps_per_epoch: batches of an epoch.
        left_out: copies that fit into no batch of the current epoch.
    """

    def __init__(
        self,
        lengths: NDArray[np.integer] | Sequence[int],
        keys: NDArray[np.unsignedinteger] | Sequence[int],
        batch_size: int,
        *,
        seed: int,
        bucketed: bool = True,
        least: int = 2,
        fewest: int = 2,
    ) -> None:
        """Take what every epoch is planned from.

        Args:
            lengths: tokens of every row.
            keys: rows with equal keys are copies of each other.
            bucketed: make batches of texts of similar length; otherwise shuffle plainly.
            least: rows that the last batch of an epoch must have to be kept; a single text has no negatives.
                ``batch_size`` leaves out every smaller batch.
            fewest: rows that a batch must have of which copies were taken out.

        Raises:
            CorpusError: there are fewer rows than one batch takes, or hardly any that are not copies.
        """
        if batch_size < 2:
            raise ValueError(f"batch_size must be at least 2, got {batch_size}")
        if len(lengths) < batch_size:
            raise CorpusError(
                f"the corpus has {len(lengths):,} texts, fewer than one batch of {batch_size:,}: "
                f"give more text, or set train.batch_size={max(2, len(lengths))} or less"
            )
        self._lengths, self._keys = np.asarray(lengths, dtype=np.int32), np.asarray(keys, dtype=np.uint64)
        self._copied = _copied(self._keys)
        self._size, self._seed, self._bucketed, self._least = batch_size, seed, bucketed, max(2, least)
        self._fewest = max(2, fewest)
        self.steps_per_epoch = len(lengths) // batch_size + (len(lengths) % batch_size >= self._least)
        self.left_out = 0
        self._epoch = -1
        self._order: NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._batch_order: NDArray[np.int32] = np.empty(0, dtype=np.int32)

    def __call__(self, step: int) -> Int[np.ndarray, " B"]:
        """Return the rows of a step, counted from 0 over all epochs."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._plan(epoch)
        rows = self._batch(int(self._batch_order[position]))
        return rows[rows >= 0].astype(np.int64)

    def _batch(self, number: int) -> NDArray[np.int32]:
        return self._order[number * self._size : (number + 1) * self._size]

    def _plan(self, epoch: int) -> None:
        draw = np.random.default_rng([self._seed, epoch])
        order = np.arange(len(self._lengths), dtype=np.int32)  # 4 bytes each: this is as long as the corpus
        draw.shuffle(order)
        order = order[: self.steps_per_epoch * self._size]  # before it is sorted: the longest would always be left out
        if self._bucketed:
            for start in range(0, len(order), _POOL * self._size):
                pool = order[start : start + _POOL * self._size]
                pool[:] = pool[np.argsort(self._lengths[pool], kind="stable")]
        self._order = order
        self._batch_order = draw.permutation(self.steps_per_epoch).astype(np.int32)
        self.left_out = self._separate_copies(draw)
        if self.left_out:
            self._refill(draw)
            starts = np.arange(0, len(self._order), self._size)
            smallest = int(np.add.reduceat(self._order >= 0, starts).min())
            if smallest < self._fewest:
                raise CorpusError(
                    f"{self.left_out:,} of {len(self._lengths):,} texts equal others, or share a side of their pairs "
                    f"with them, and no batch is free of those, which leaves a batch of {smallest}: remove copies with "
                    "corpus.deduplicate, give fewer pairs of one text, or a smaller train.batch_size"
                )
        self._epoch = epoch

    def _separate_copies(self, draw: np.random.Generator) -> int:
        """Move later copies of a text into other batches; return how many fit nowhere and are left out."""
        left_out = 0
        for position in self._second_copies():
            # Nearby first: there texts are of similar length, and the exchange adds no padding.
            near = position + draw.integers(-_NEAR * self._size, _NEAR * self._size + 1, _TRIES)
            far = draw.integers(len(self._order), size=_TRIES)
            offered = np.concatenate([near[(near >= 0) & (near < len(self._order))], far])
            other = next((int(other) for other in offered if self._exchangeable(position, int(other))), None)
            if other is None:
                self._order[position] = -1
                left_out += 1
            else:
                self._order[[position, other]] = self._order[[other, position]]
        return left_out

    def _refill(self, draw: np.random.Generator) -> None:
        """Give batches that copies left too small texts of larger ones."""
        filled = np.add.reduceat(self._order >= 0, np.arange(0, len(self._order), self._size))
        for small in np.flatnonzero(filled < self._fewest).tolist():
            for position in draw.permutation(len(self._order)).tolist():
                donor = position // self._size
                if filled[small] >= self._fewest:
                    break
                if donor == small or self._order[position] < 0 or filled[donor] <= self._fewest:
                    continue
                own = self._batch(small)
                if (self._keys[own[own >= 0]] == self._keys[self._order[position]]).any():
                    continue
                hole = small * self._size + int(np.flatnonzero(own < 0)[0])
                self._order[hole], self._order[position] = self._order[position], -1
                filled[small], filled[donor] = filled[small] + 1, filled[donor] - 1

    def _exchangeable(self, position: int, other: int) -> bool:
        """Tell whether the texts at two places can be exchanged so that no batch holds copies."""
        if self._order[other] < 0 or position // self._size == other // self._size:
            return False
        ours, theirs = self._batch(position // self._size), self._batch(other // self._size)
        rest, theirs = ours[(ours >= 0) & (ours != self._order[position])], theirs[theirs >= 0]
        own, new = self._keys[self._order[[position, other]]]
        return not ((self._keys[theirs] == own).any() or (self._keys[rest] == new).any())

    def _second_copies(self) -> list[int]:
        """Find the places whose text occurs earlier in the same batch."""
        second: list[int] = []
        step = max(1, _CHUNK // self._size) * self._size  # whole batches
        for start in range(0, len(self._order), step):
            rows = self._order[start : start + step]
            places = np.flatnonzero(self._copied[rows])
            keys, batch = self._keys[rows[places]], places // self._size
            by_key = np.lexsort((places, keys, batch))
            same = (np.diff(keys[by_key]) == 0) & (np.diff(batch[by_key]) == 0)
            second += (np.sort(places[by_key[1:][same]]) + start).tolist()
        return second


def _copied(keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Mark the rows that have a copy, sorting one partition of the keys at a time."""
    copied = np.zeros(len(keys), dtype=np.bool_)
    parts = np.uint64(-(-len(keys) // (4 * _CHUNK)))
    for portion in range(int(parts)):
        chunks = [keys[start : start + _CHUNK] % parts == portion for start in range(0, len(keys), _CHUNK)]
        rows = np.flatnonzero(np.concatenate(chunks))
        rows = rows[np.argsort(keys[rows])]
        same = np.flatnonzero(np.diff(keys[rows]) == 0)
        copied[rows[same]] = copied[rows[same + 1]] = True
    return copied
