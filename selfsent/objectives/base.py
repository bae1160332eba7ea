"""Objective: from a batch of token rows to named, weighted loss terms."""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from selfsent.encoder.batches import Tokens
from selfsent.encoder.embed import embed_columns
from selfsent.runtime import distributed

Rows = Sequence[Sequence[int]]  # token ids of the texts of a batch, special tokens included
Batch = dict[str, Tokens]  # the columns that views() named, padded
Views = tuple[Float[Tensor, "B D"], ...]  # embeddings, a tensor for each column that columns() named
Terms = dict[str, Float[Tensor, ""]]  # weighted; their sum is the loss
PRESETS = Path(__file__).with_name("presets.toml")  # of the methods of the package
RecipeTable = dict[str, dict[str, object]]  # section of a recipe -> keys and values


@dataclass(frozen=True)
class Examples:
    """The texts of one batch, and the random generator of each.

    Attributes:
        texts: a row for every sentence, or for every document where the objective learns from documents.
        positives: for each text its positive, where the corpus holds pairs.
        draw: ``draw(i)`` starts the generator of text i in this epoch: a function of (seed, epoch, text) alone.
    """

    texts: Rows
    positives: Rows | None
    draw: Callable[[int], np.random.Generator]


class Objective(nn.Module):
    """Turns texts into a loss; owns the heads, projectors and decoders that training needs, never the encoder.

    The trainer joins encoder and objective in one module, so that clipping, checkpoints, resume and several processes
    treat the weights of both alike.  Everything random must come from torch's global generator, which the trainer
    seeds from (seed, step), or from ``Examples.draw``: that is what makes a resumed run exact.

    Of several processes each gets consecutive rows of every column, and its loss is averaged over them with those of
    the others: what compares texts takes all embeddings from ``gather``, a mean over words divides by ``mean_count``,
    and draws by row come from ``ranks.draw_rows``.

    A method writes ``columns`` and ``combine`` if it needs plain embeddings of its columns, one dropout view each;
    composed with others it then shares their forward pass.  Otherwise it overrides ``forward``.

    Examples:
        >>> class Pull(selfsent.Objective):
        ...     Config = SimCSE.Config
        ...
        ...     def columns(self, batch):
        ...         return ("text", "text")
        ...
        ...     def combine(self, views, encoder, batch):
        ...         return {"pull": 1 - torch.cosine_similarity(*views).mean()}
    """

    Config: ClassVar[type[Any]]  # nested, frozen, keyword-only; a method's defaults are written there, once
    recipe: ClassVar[RecipeTable] = {}  # what the method sets, objective apart, unless the user's recipe does
    presets: ClassVar[dict[str, RecipeTable]] = {}  # name -> a published recipe: what it changes in Config and recipe
    unit: ClassVar[Literal["sentences", "documents"]] = "sentences"  # what a row of its corpus is
    in_batch: ClassVar[bool] = True  # the loss couples the texts of a batch: accumulation would change it
    needs_dropout: ClassVar[bool] = True  # the views of a text differ by dropout alone
    selection: ClassVar[str] = "stsb-dev"  # the score that picks the best weights where there is labelled data

    def __init__(self, config: Any, encoder: SentenceTransformer) -> None:  # noqa: ANN401
        super().__init__()
        self.config = config

    def choose(self, lengths: NDArray[np.int32]) -> NDArray[np.bool_] | None:
        """Return a mask of the documents it can learn from, given their lengths in tokens; None: all."""
        return None

    def notes(self, lengths: NDArray[np.int32]) -> list[str]:
        """Return log lines that describe the usable rows, given their lengths; printed before training."""
        return []

    def views(self, examples: Examples) -> dict[str, Rows]:
        """Return the columns of token rows that ``forward`` reads: the texts, and their positives if there are any."""
        named = {"text": examples.texts}
        return named if examples.positives is None else {**named, "positive": examples.positives}

    def columns(self, batch: Batch) -> tuple[str, ...] | None:
        """Name the columns to embed for ``combine``, in order and as often as wanted; None: it embeds by itself."""
        return None

    def forward(self, encoder: SentenceTransformer, batch: Batch) -> Terms:
        """Return the weighted terms by name; their sum is the loss."""
        columns = self.columns(batch)
        assert columns is not None, "a method that names no columns overrides forward"
        return self.combine(embed_columns(encoder, batch, columns), encoder, batch)

    def combine(self, views: Views, encoder: SentenceTransformer, batch: Batch) -> Terms:
        """Return the terms for the embeddings of the columns that ``columns`` named."""
        raise NotImplementedError

    @property
    def least_rows(self) -> int:
        """The smallest batch it can learn from; a last, smaller one of an epoch is left out."""
        return 2

    def dropout_views(self) -> list[tuple[float | None, float | None]]:
        """List the (hidden, attention) dropout rates of the views it makes; None stands for the encoder's own."""
        return [(None, None)]

    def figures(self) -> dict[str, float]:
        """Return unweighted figures of the last forward pass that are worth logging."""
        return {}

    def exported_head(self) -> nn.Linear | None:
        """Return a Linear to be exported behind the pooling, with a tanh; None drops every head.

        Here that of ``head`` where the Config has ``eval_head`` on.
        """
        linear = self.get_submodule("head.0") if getattr(self.config, "eval_head", False) else None
        assert linear is None or isinstance(linear, nn.Linear)
        return linear


class EmbeddingQueue(nn.Module):
    """The last ``size`` rows that were added; saved in checkpoints, never trained.

    Args:
        size: how many rows are kept; 0 keeps none.
        width: length of a row, D.

    Source: He et al. 2020, https://arxiv.org/abs/1911.05722 (MoCo); without its momentum encoder, so that a row is as
    old as its batch.
    """

    ring: Tensor
    added: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.register_buffer("ring", torch.zeros(size, width), persistent=size > 0)
        self.register_buffer("added", torch.zeros((), dtype=torch.long), persistent=size > 0)

    def rows(self) -> Float[Tensor, "M D"]:
        """Return what is held, in no order that matters; queues that were added to alike hold alike rows."""
        return self.ring[: min(int(self.added), len(self.ring))]

    def add(self, rows: Float[Tensor, "N D"]) -> None:
        """Overwrite the oldest rows by these, without their gradient."""
        size = len(self.ring)
        if not size:
            return
        newest = rows.detach()[-size:].to(self.ring.dtype)
        slots = (self.added + torch.arange(len(newest), device=newest.device)) % size
        self.ring[slots] = newest
        self.added += len(newest)


def published_presets(method: str) -> dict[str, RecipeTable]:
    """Return the published recipes of a method of the package, by name."""
    presets: dict[str, RecipeTable] = tomllib.loads(PRESETS.read_text(encoding="utf-8"))[method]
    return presets


def gather(embeddings: Float[Tensor, "..."], dim: int = 0) -> Float[Tensor, "..."]:
    """Return the embeddings of the whole batch, with gradients: every loss that compares texts takes them from here.

    The identity in one process; of several, each has the embeddings of its own rows, dimension ``dim``.
    """
    several = distributed.here()
    return embeddings if several.count == 1 else several.gather(embeddings.movedim(dim, 0)).movedim(0, dim)


def mean_count(count: int) -> int | float:
    """Return what a sum over ``count`` words or texts is divided by, so that the loss is the mean over the whole batch.

    In one process the count itself, and 1 for none; of several, the mean of their counts.
    """
    return distributed.here().mean_count(count)


def second(batch: Batch) -> str:
    """Name the column that a second view is made of: the given positive, or else the text once more."""
    return "positive" if "positive" in batch else "text"
