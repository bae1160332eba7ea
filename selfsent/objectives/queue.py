"""EmbeddingQueue: the newest embeddings of earlier batches, to compare those of a batch with (He et al. 2020, MoCo)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class EmbeddingQueue(nn.Module):
    """The last ``size`` rows that were added; saved in checkpoints, never trained.

    Args:
        size: how many rows are kept; 0 keeps none.
        width: length of a row, D.

    Source: https://arxiv.org/abs/1911.05722; without its momentum encoder, so that a row is as old as its batch.
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
