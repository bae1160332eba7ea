"""What an encoder is worth before any training: its poolings, plain and whitened.

    cls  mean  first_last  first_last_paper  top2      the encoder's hidden states, no head
    first_last+whitening                               BERT-whitening, Su et al. 2021

``first_last`` starts at the output of block 1, ``first_last_paper`` at the embedding layer, as the
tables in the literature do.  Whitening: x -> (x - mu) W with W = U diag(1/sqrt(l + eps)) of the covariance
U diag(l) U^T, float64, https://arxiv.org/abs/2103.15316.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from selfsent.errors import UserError, unknown
from selfsent.evaluation import suite
from selfsent.evaluation.score import Results

KINDS = ("pca", "zca", "group")
POOLINGS = ("cls", "mean", "first_last", "first_last_paper", "top2")

EncodePoolings = Callable[[list[str], Sequence[str]], Mapping[str, suite.Vectors]]


@dataclass(kw_only=True)
class Whitening:
    """A linear map after which the texts it was fit on have identity covariance."""

    kind: str = "pca"  # or "zca": turned back towards the input's axes; or "group": zca of each few dimensions
    columns: int | None = None  # keep the k directions of largest variance; None keeps all
    group_width: int = 2  # dimensions whitened together by "group"
    eps: float = 1e-9  # added to every variance
    mean: Float[np.ndarray, " D"] = field(init=False, repr=False)
    maps: list[Float[np.ndarray, "M K"]] = field(init=False, repr=False)  # one for each group
    members: list[Int[np.ndarray, " M"]] = field(init=False, repr=False)  # the dimensions of each group

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("whitening", self.kind, KINDS)
        if self.columns is not None and (self.kind == "group" or self.columns < 1):
            raise ValueError(f"columns={self.columns} must be at least 1, and is for pca and zca alone")

    def fit(self, x: Float[np.ndarray, "N D"], permutation: Int[np.ndarray, " D"] | None = None) -> "Whitening":
        """Learn mean and maps from rows and return self; the covariance is divided by N.

        Args:
            permutation: order of the dimensions before they are cut into groups; None leaves it.

        Raises:
            UserError: fewer rows than directions: the surplus directions would be amplified noise.
            ValueError: the groups do not come out even.
        """
        rows, width = x.shape
        member_width = self.group_width if self.kind == "group" else width
        if width % member_width:
            raise ValueError(f"groups of {member_width} do not divide {width} dimensions")
        kept = min(self.columns or member_width, member_width)
        if rows <= kept:
            raise UserError(
                f"whitening to {kept} directions needs more than {kept} texts to fit on, got {rows}: "
                "fit on more texts or keep fewer columns"
            )
        order = np.arange(width) if permutation is None else permutation
        self.members = np.split(order, width // member_width)
        self.mean = x.mean(axis=0, dtype=np.float64)
        centred = x - self.mean
        self.maps = [self._map(centred[:, members]) for members in self.members]
        return self

    def transform(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N K"]:
        """Whiten rows; the output has D dimensions, or ``columns`` of them with ``pca``."""
        centred = x - self.mean
        if self.kind == "pca":
            return centred[:, self.members[0]] @ self.maps[0]
        result = np.empty_like(centred)
        for members, matrix in zip(self.members, self.maps, strict=True):
            result[:, members] = centred[:, members] @ matrix
        return result

    def _map(self, centred: Float[np.ndarray, "N M"]) -> Float[np.ndarray, "M K"]:
        variances, directions = np.linalg.eigh(centred.T @ centred / len(centred))
        variances = np.maximum(variances[::-1], 0)[: self.columns]
        directions = directions[:, ::-1][:, : self.columns]
        scaled = directions / np.sqrt(variances + self.eps)
        return scaled if self.kind == "pca" else scaled @ directions.T


def whiten_target(whitening: Whitening) -> Callable[[suite.Vectors], suite.Vectors]:
    """Return the map that whitens each task with its own texts (``target``), never with its scores."""
    return lambda vectors: replace(whitening).fit(vectors).transform(vectors)


def run_baselines(
    encode_poolings: EncodePoolings,
    tasks: Sequence[str],
    data: Path | None,
    *,
    poolings: Sequence[str] = POOLINGS,
    whiten: Sequence[str] = ("first_last",),
    whitening: Whitening | None = None,
    fit_texts: Sequence[str] | None = None,
    held_out: suite.HeldOut | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
    protocol: Mapping[str, object] | None = None,
) -> dict[str, Results]:
    """Score every pooling, and the whitened ones, from one pass of the encoder.

    Args:
        encode_poolings: texts and names to one array of vectors for each name; names beyond
            ``POOLINGS`` are whatever it makes of them.
        whiten: poolings to be whitened as well; each must be in ``poolings``.
        whitening: how; None is PCA on all directions.
        fit_texts: texts to fit the whitening on; None fits on each task's own texts.
    """
    for name in whiten:
        if name not in poolings:
            raise UserError(f"cannot whiten {name!r}: it is not among the poolings {', '.join(poolings)}")
    whitening = whitening or Whitening()
    prepared = suite.read_suite(tasks, data, held_out=held_out)
    texts = list(dict.fromkeys([*prepared.sentences, *(fit_texts or ())]))
    vectors = encode_poolings(texts, poolings)
    row = {text: index for index, text in enumerate(texts)}
    fit_rows = [row[text] for text in fit_texts or ()]

    results = {}
    for name in poolings:
        known = {**(protocol or {}), "pooling": name}
        needed = vectors[name][: len(prepared.sentences)]
        results[name] = prepared.score(needed, bootstrap=bootstrap, seed=seed, protocol=known)
        if name not in whiten:
            continue
        if fit_texts is None:
            transform, fit_on = whiten_target(whitening), "target"
        else:
            transform = replace(whitening).fit(vectors[name][fit_rows]).transform
            fit_on = f"{len(fit_rows)} given texts"
        results[f"{name}+whitening"] = prepared.score(
            needed,
            bootstrap=bootstrap,
            seed=seed,
            protocol={
                **known,
                "whitening": whitening.kind,
                "whitening_columns": whitening.columns,
                "whitening_group_width": whitening.group_width if whitening.kind == "group" else None,
                "whitening_eps": whitening.eps,
                "whitening_fit": fit_on,
            },
            transform=transform,
        )
    return results
