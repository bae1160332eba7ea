"""Whitening, a baseline without training: x -> (x - mu) W, with W = U diag(1/sqrt(l + eps)).

The covariance of the texts is U diag(l) U^T; all in float64.

Source: BERT-whitening, Su et al. 2021, https://arxiv.org/abs/2103.15316.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from selfsent.errors import ConfigurationError, unknown

KINDS = ("pca", "zca", "group")


@dataclass(kw_only=True)
class Whitening:
    """A linear map after which the texts that it was fitted to have identity covariance."""

    kind: str = "pca"  # or "zca": rotated back to the input's axes; or "group": zca within groups of dimensions
    columns: int | None = None  # keep the k directions of largest variance; None keeps all
    group_width: int = 2  # dimensions whitened together by "group"
    eps: float = 1e-9  # added to every variance
    mean: Float[np.ndarray, " D"] = field(init=False, repr=False)
    maps: list[Float[np.ndarray, "M K"]] = field(init=False, repr=False)  # one for each group

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("whitening", self.kind, KINDS)
        if self.columns is not None and (self.kind == "group" or self.columns < 1):
            raise ValueError(f"columns={self.columns} must be at least 1, and is for pca and zca alone")

    def fit(self, x: Float[np.ndarray, "N D"]) -> "Whitening":
        """Fit mean and maps to rows and return self; the covariance is divided by N.

        Raises:
            ConfigurationError: no more rows than directions: the surplus directions would be amplified noise; or the
                groups do not divide the dimensions evenly.
        """
        rows, width = x.shape
        member_width = self.group_width if self.kind == "group" else width
        if width % member_width:
            raise ConfigurationError(f"groups of {member_width} do not divide {width} dimensions: whiten another way")
        kept = min(self.columns or member_width, member_width)
        if rows <= kept:
            raise ConfigurationError(
                f"whitening to {kept} directions needs more than {kept} texts to fit on, got {rows}: "
                "fit on more texts or keep fewer columns"
            )
        self.mean = x.mean(axis=0, dtype=np.float64)
        self.maps = [self._map(group) for group in self._centred(x, width // member_width)]
        return self

    def transform(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N K"]:
        """Whiten rows; the output has D dimensions, or ``columns`` of them with ``pca``."""
        groups = self._centred(x, len(self.maps))
        return np.hstack([group @ matrix for group, matrix in zip(groups, self.maps, strict=True)])

    def _centred(self, x: Float[np.ndarray, "N D"], groups: int) -> list[Float[np.ndarray, "N M"]]:
        return np.split(np.asfortranarray(x - self.mean), groups, axis=1)

    def _map(self, centred: Float[np.ndarray, "N M"]) -> Float[np.ndarray, "M K"]:
        variances, directions = np.linalg.eigh(centred.T @ centred / len(centred))
        variances = np.maximum(variances[::-1], 0)[: self.columns]
        directions = directions[:, ::-1][:, : self.columns]
        scaled = directions / np.sqrt(variances + self.eps)
        return scaled if self.kind == "pca" else scaled @ directions.T


def whiten_target(kind: str, vectors: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
    """Whiten the vectors of one task with its own texts (``target``), never with its scores."""
    return Whitening(kind=kind).fit(vectors).transform(vectors)
