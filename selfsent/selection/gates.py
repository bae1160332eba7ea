"""What is done to a base, and how much of it, by signals that need no labels.

On five collections that people judged and from three bases, static vectors and words beside a base gained where words
find held-out sentences about as well as it does, and where it finds few of them without their rarer words.  Where it
finds them by meaning it is at home, and both cost (decision 0032).  By labels of seven sets of short texts the
neighbour map gains where neighbours by the base and by words agree (decision 0033).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from selfsent.encoder.quantize import unit
from selfsent.encoder.search_settings import WORDS, SearchSettings

FEEDBACK, AT_HOME_FEEDBACK = 5, 10  # documents found first
_AHEAD = 8.0  # points by which words may fall behind the base before nothing is done
_AT_HOME, _ABROAD = 0.4, 0.2  # of its MRR that a base keeps without the rarer words: from here nothing, to here all
_LEAST_DOSE = 0.2
_AGREE, _DISAGREE = 0.2, 0.05  # of the ten nearest neighbours that both have: from here all, to here nothing
_LINES, _FEW_LINES = 1000, 200  # lines: from here all, to here nothing
_NEIGHBOURS = 10
_SAMPLE, _SAMPLES = 400, 5  # texts among which neighbours are looked for: the more there are, the fewer agree


@dataclass(frozen=True)
class SearchGate:
    """How far a base is from a text that is searched.

    Attributes:
        words: MRR@10 of word matching, a sentence from inside a document as the query.
        base: the same of the base.
        meaning: MRR@10 of the base where the query has lost the rarer half of the words it shares with its document.
        weak: whether the base is not surely above the static vectors that ship, on general text.
    """

    words: float
    base: float
    meaning: float
    weak: bool

    @property
    def dose(self) -> float:
        """How much is put beside the base: 0 nothing, 1 all."""
        if self.weak:
            return 1.0
        kept = self.meaning / max(self.base, 1e-9)
        doses = 1 + (self.words - self.base) / _AHEAD, (_AT_HOME - kept) / (_AT_HOME - _ABROAD)
        dose = round(min(1.0, max(0.0, min(doses))), 2)
        return dose if dose >= _LEAST_DOSE else 0.0

    @property
    def pair(self) -> tuple[float, float]:
        """The weights of the base and of the static vectors in the cosine of their pair."""
        return (0.3, 0.7) if self.weak else (1 - 0.4 * self.dose, 0.4 * self.dose)

    @property
    def search(self) -> SearchSettings:
        """How the pair is searched with, or the base where the dose is 0."""
        base, static, words = (0.45, 0.3, 0.25) if self.weak else (1 - 0.4 * self.dose, *[0.2 * self.dose] * 2)
        if not self.dose:
            return SearchSettings(feedback=AT_HOME_FEEDBACK)
        vectors = base + static
        return SearchSettings(round(words, 4), FEEDBACK, (round(base / vectors, 4), round(static / vectors, 4)))


STATIC_SEARCH = SearchSettings(WORDS, FEEDBACK)  # of static vectors by themselves


def line_weights(weak: bool) -> tuple[float, float]:
    """Return the weights of a base and of latent axes of single lines in the cosine of their pair.

    Args:
        weak: whether the base is not surely above the static vectors that ship, on general text.
    """
    return (0.8, 0.2) if weak else (0.9, 0.1)


def map_dose(agreement: float, lines: int) -> float:
    """Return how much of the neighbour map is applied.

    Args:
        agreement: of the neighbours by the base and by words, 0 to 1 (``neighbour_agreement``).
        lines: that the map is fitted to.
    """
    doses = (agreement - _DISAGREE) / (_AGREE - _DISAGREE), (lines - _FEW_LINES) / (_LINES - _FEW_LINES)
    return round(min(1.0, max(0.0, min(doses))), 2)


def neighbour_agreement(vectors: Float[np.ndarray, "N D"], words: Float[np.ndarray, "N E"]) -> float:
    """Return which part of the ten nearest neighbours of a text, by some vectors, are so by others, too; 0 to 1.

    The mean of samples of 400 texts each, so that texts of any number can be compared.
    """
    sides = [unit(side).astype(np.float32) for side in (vectors, words)]
    samples = min(_SAMPLES, max(1, len(vectors) // _SAMPLE))
    order, shared = np.random.default_rng(0).permutation(len(vectors)), []
    for sample in np.array_split(order[: samples * _SAMPLE], samples):
        nearest = []
        for side in sides:
            cosines = side[sample] @ side[sample].T
            np.fill_diagonal(cosines, -np.inf)
            nearest.append(np.argpartition(-cosines, _NEIGHBOURS - 1, axis=1)[:, :_NEIGHBOURS])
        shared += [len({*one.tolist()} & {*other.tolist()}) for one, other in zip(*nearest, strict=True)]
    return float(np.mean(shared)) / _NEIGHBOURS
