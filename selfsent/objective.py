"""What a training method is: views of a batch, and named loss terms computed from an encoder and those views."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from selfsent.encoder import Tokens

Rows = Sequence[Sequence[int]]  # token ids of the texts of a batch, special tokens included
Batch = dict[str, Tokens]  # the columns that views() named, padded


class Objective(nn.Module):
    """Turn texts into a loss; own the heads, projectors and decoders that training needs, never the encoder.

    The trainer joins encoder and objective in one module, so that clipping, checkpoints, resume and several processes
    treat the weights of both alike.  Everything random must come from torch's global generator or from the ``rng``
    given to ``views``: the trainer seeds both from (seed, step), which is what makes a resumed run exact.
    """

    Config: ClassVar[type[Any]]  # nested, frozen, keyword-only; a method's defaults are written there, once
    presets: ClassVar[dict[str, dict[str, object]]] = {}  # name -> what it changes in Config
    in_batch: ClassVar[bool] = True  # the loss couples the texts of a batch: accumulation would change it
    needs_dropout: ClassVar[bool] = True  # the views of a text differ by dropout alone
    selection: ClassVar[str] = "stsb-dev"  # the score that picks the best weights where there is labelled data

    def __init__(self, config: Any, encoder: SentenceTransformer) -> None:  # noqa: ANN401
        super().__init__()
        self.config = config

    def views(self, rows: Rows, rng: np.random.Generator) -> dict[str, Rows]:
        """Name the columns of token rows that ``forward`` wants; a method that only varies dropout wants the texts."""
        return {"text": rows}

    def forward(self, encoder: SentenceTransformer, batch: Batch) -> dict[str, Float[Tensor, ""]]:
        """Return the weighted terms by name; their sum is the loss."""
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
        """Return a Linear to be exported behind the pooling, with a tanh; None drops every head (the default)."""
        return None
