"""Forward passes in chunks of rows, each computed again for its gradients: batches larger than memory.

The embeddings of a chunk are computed without a graph; when the gradients of the loss with respect to them are known,
the chunk is embedded again, with the same dropout, and its gradients are added.  So a step holds the graph of one chunk
at a time, and its gradients are those of the whole batch.  Source: Gao et al. 2021, https://arxiv.org/abs/2101.06983.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from selfsent.encoder.dropout import Dropout

_chunk: ContextVar[int | None] = ContextVar("_chunk", default=None)
Rates = list[tuple[nn.Dropout, float, tuple[float, ...] | None]]  # of each site: its rate, and its rates by row


@contextmanager
def chunked(size: int | None) -> Iterator[None]:
    """Embed ``size`` rows of each column at a time in the block; None: all of them, and nothing twice.

    Gradients come from ``backward()``; ``torch.autograd.grad`` cannot be used.
    """
    token = _chunk.set(size)
    try:
        yield
    finally:
        _chunk.reset(token)


def in_chunks(module: nn.Module, run: Callable[..., tuple[Tensor, ...]], *columns: Tensor) -> tuple[Tensor, ...]:
    """Return ``run(*columns)``, computed for some rows of all columns at a time where ``chunked`` says so.

    Args:
        module: whose dropout rates hold now, and must hold again when a chunk is computed for its gradients.
        run: row by row, apart from dropout: what it returns for some rows does not depend on others.  Its results are
            joined along their first dimension.
    """
    size, rows = _chunk.get(), len(columns[0])
    if size is None:
        return run(*columns)
    if rows <= size or not torch.is_grad_enabled():
        with chunked(None):
            return run(*columns)
    rates: Rates = [
        (site, site.p, getattr(site, "rows", None)) for site in module.modules() if isinstance(site, nn.Dropout)
    ]

    def replay(_: Tensor, *part: Tensor) -> tuple[Tensor, ...]:
        with chunked(None), _dropping(rates):
            return run(*part)

    graph = torch.zeros((), requires_grad=True, device=columns[0].device)  # without it no chunk would get gradients
    parts: list[Sequence[Tensor]] = [
        checkpoint(replay, graph, *(column[start : start + size] for column in columns), use_reentrant=True)
        for start in range(0, rows, size)
    ]
    return tuple(torch.cat(results) for results in zip(*parts, strict=True))


@contextmanager
def _dropping(rates: Rates) -> Iterator[None]:
    """Give the sites these rates for the block."""
    own = [(site, site.p, getattr(site, "rows", None)) for site, _, _ in rates]
    try:
        _set(rates)
        yield
    finally:
        _set(own)


def _set(rates: Rates) -> None:
    for site, rate, by_row in rates:
        site.p = rate
        if isinstance(site, Dropout):
            site.rows = by_row
