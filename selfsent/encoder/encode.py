"""From texts to a matrix of embeddings, without gradients, as fast as the machine allows."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float
from sentence_transformers import SentenceTransformer

from selfsent.encoder.base import Encoder
from selfsent.encoder.open import as_encoder
from selfsent.errors import CorpusError
from selfsent.progress import SILENT, Progress


def encode(
    encoder: SentenceTransformer | Encoder,
    texts: Iterable[str],
    *,
    prompt_name: str | None = None,
    prompt: str | None = None,
    truncate_dim: int | None = None,
    precision: str = "auto",
    progress: Progress = SILENT,
) -> Float[np.ndarray, "N D"]:
    """Encode texts into an (N, D) float32 array, in their order, without dropout.

    Args:
        texts: a list, or a column of pandas, polars or datasets.
        prompt_name: a prompt of the encoder's folder that is put before every text.  Default: the folder's default one.
        prompt: what is put before every text, in place of a prompt of the folder; "" for none.
        truncate_dim: keep this many leading dimensions.  Default: as many as the folder says, or all.
        precision: "fp32", "bf16", or "auto" for bf16 where this machine is faster at it.

    Raises:
        UserError: a text that is no string, an unknown prompt name or precision, or more dimensions than there are.

    Examples:
        >>> encoder = selfsent.load("builtin")
        >>> first, second = selfsent.encode(encoder, ["cannot log in", "the password is refused"])
        >>> print(first @ second)
    """
    if isinstance(encoder, str | Path):
        raise ValueError(f"encode takes an encoder and not its name: encode(selfsent.load({str(encoder)!r}), texts)")
    if isinstance(texts, str):
        raise ValueError("encode takes several texts, not one string: give a list")
    if isinstance(texts, Mapping) or hasattr(texts, "columns"):
        raise ValueError(f"encode takes texts, not a {type(texts).__name__}: give a list, or one column of strings")
    texts = list(texts)
    if not all(isinstance(text, str) for text in texts):
        row = next(row for row, text in enumerate(texts) if not isinstance(text, str))
        raise CorpusError(f"text {row} is {texts[row]!r:.40}: give strings alone")
    reads = as_encoder(encoder)
    return reads.embed(
        texts,
        prompt=reads.resolve_prompt(prompt_name, prompt),
        truncate_dim=truncate_dim,
        precision=precision,
        progress=progress,
    )
