"""Several objectives at once: their terms are added; columns that they share are embedded once."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import nn

from selfsent.encoder.embed import embed_columns
from selfsent.errors import ConfigurationError
from selfsent.objectives.base import Batch, Examples, Objective, Rows, Terms


class Composition(Objective):
    """The weighted sum of its parts; a term is named after its part, as in ``simcse.contrast``.

    Parts that embed the same columns under the encoder's own dropout share one forward pass: of two views and three,
    three are made, and the first two are given to both.  Parts that embed by themselves do so beside it.
    """

    def __init__(
        self, parts: Mapping[str, Objective], weights: Mapping[str, float], encoder: SentenceTransformer
    ) -> None:
        """Join objectives that were built for ``encoder``.

        Raises:
            ConfigurationError: the parts learn from different kinds of corpora, or more than one keeps its head.
        """
        super().__init__({name: member.config for name, member in parts.items()}, encoder)
        require_one_unit({name: type(member) for name, member in parts.items()})
        heads = [name for name, member in parts.items() if member.exported_head() is not None]
        if len(heads) > 1:
            raise ConfigurationError(f"{' and '.join(heads)} would each export a head: keep one of them")
        self.parts = nn.ModuleDict(parts)
        self.weights = dict(weights)
        for name in ("in_batch", "needs_dropout"):
            setattr(self, name, any(getattr(member, name) for member in parts.values()))
        for name in ("selection", "unit"):
            setattr(self, name, getattr(next(iter(parts.values())), name))

    def _members(self) -> list[tuple[str, Objective]]:
        members = []
        for name, member in self.parts.items():
            assert isinstance(member, Objective)
            members.append((name, member))
        return members

    def choose(self, lengths: NDArray[np.int32]) -> NDArray[np.bool_] | None:
        """Mark the rows that every part can learn from."""
        masks = [mask for _, member in self._members() if (mask := member.choose(lengths)) is not None]
        return np.logical_and.reduce(masks) if masks else None

    def notes(self, lengths: NDArray[np.int32]) -> list[str]:
        """Say what every part makes of the corpus."""
        return [line for _, member in self._members() for line in member.notes(lengths)]

    def views(self, examples: Examples) -> dict[str, Rows]:
        """Name the columns of all parts; what two of them name alike is the same."""
        named: dict[str, Rows] = {}
        for _, member in self._members():
            for column, rows in member.views(examples).items():
                assert named.get(column, rows) == rows, f"two parts make different columns {column!r}"
                named[column] = rows
        return named

    def forward(self, encoder: SentenceTransformer, batch: Batch) -> Terms:
        """Return the terms of all parts, each times its part's weight."""
        wanted = {name: member.columns(batch) for name, member in self._members()}
        every: Counter[str] = Counter()
        for columns in wanted.values():
            every |= Counter(columns or ())
        order = list(every.elements())
        embedded = dict(zip(_numbered(order), embed_columns(encoder, batch, order), strict=True)) if order else {}
        terms: Terms = {}
        for name, member in self._members():
            columns = wanted[name]
            if columns is None:
                own = member(encoder, batch)
            else:
                own = member.combine(tuple(embedded[key] for key in _numbered(columns)), encoder, batch)
            terms |= {f"{name}.{term}": self.weights[name] * value for term, value in own.items()}
        return terms

    @property
    def least_rows(self) -> int:
        """The smallest batch that every part can learn from."""
        return max(member.least_rows for _, member in self._members())

    def dropout_views(self) -> list[tuple[float | None, float | None]]:
        """List the views of all parts that need dropout, each once."""
        views = [view for _, member in self._members() if member.needs_dropout for view in member.dropout_views()]
        return list(dict.fromkeys(views))

    def figures(self) -> dict[str, float]:
        """Return the figures of all parts, named like their terms."""
        return {f"{name}.{key}": value for name, member in self._members() for key, value in member.figures().items()}

    def exported_head(self) -> nn.Linear | None:
        """Return the one head that a part keeps, if any does."""
        return next((head for _, member in self._members() if (head := member.exported_head()) is not None), None)


def require_one_unit(kinds: Mapping[str, type[Objective]]) -> None:
    """Refuse to join methods that learn from sentences with methods that learn from documents.

    Raises:
        ConfigurationError: they need different corpora.
    """
    units = {name: kind.unit for name, kind in kinds.items()}
    if len(set(units.values())) > 1:
        said = ", ".join(f"{name} from {unit}" for name, unit in units.items())
        raise ConfigurationError(
            f"these methods cannot be joined, because they learn from different corpora ({said}): choose one"
        )


def _numbered(columns: list[str] | tuple[str, ...]) -> list[tuple[str, int]]:
    """Tell the first ``text`` from the second: text, text -> (text, 0), (text, 1)."""
    seen: Counter[str] = Counter()
    keys = []
    for column in columns:
        keys.append((column, seen[column]))
        seen[column] += 1
    return keys
