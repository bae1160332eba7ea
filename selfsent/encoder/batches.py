"""Rows of token ids in batches of similar length: padding, and the loop of every encoder that has layers."""

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from selfsent.progress import SILENT, Progress

Tokens = dict[str, Tensor]  # what a tokenizer returns: input_ids (B, T), attention_mask (B, T)

_TOKENS_A_BATCH = 4096  # encode() on a CPU: enough rows for full-speed products, few enough to stay in the cache
_TOKENS_ELSEWHERE = 16 * _TOKENS_A_BATCH  # on a GPU, which is waited for after each batch; other sizes were not tried


def pad_rows(rows: Sequence[Sequence[int]], padding: int, device: torch.device | str, width: int | None) -> Tokens:
    """Pad rows of token ids to the longest of them, or to ``width``."""
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(width or int(lengths.max())) < lengths[:, None]
    ids = torch.full(mask.shape, padding, dtype=torch.long)
    flat = np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum()))  # torch reads lists more slowly
    ids[mask] = torch.from_numpy(flat)
    return {"input_ids": ids.to(device), "attention_mask": mask.long().to(device)}


def encode_rows(
    rows: Sequence[Sequence[int]],
    embed: Callable[[list[Sequence[int]]], list[Tensor]],
    device: str,
    progress: Progress = SILENT,
) -> list[Float[np.ndarray, "N _"]]:
    """Embed rows, longest first, in batches of so many tokens as ``device`` computes well, or of one row.

    Args:
        embed: returns one (B, D) tensor or several of a batch of rows.

    Returns:
        As many (N, D) arrays in the order of the rows; none if there is no row.
    """
    budget = _TOKENS_A_BATCH if device == "cpu" else _TOKENS_ELSEWHERE
    arrays: list[Float[np.ndarray, "N _"]] = []
    done, order = 0, sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    with torch.inference_mode():
        while done < len(order):
            batch = order[done : done + max(1, budget // len(rows[order[done]]))]
            vectors = [one.cpu().numpy() for one in embed([rows[i] for i in batch])]
            arrays = arrays or [np.empty((len(rows), one.shape[1]), np.float32) for one in vectors]
            for array, vector in zip(arrays, vectors, strict=True):
                array[batch] = vector
            done += len(batch)
            progress.report("encode", done, len(rows))
    return arrays
