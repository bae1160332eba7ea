"""An encoder that is open for encoding: by our own code where that knows the folder, else as a SentenceTransformer.

torch, and transformers above it, are imported when an encoder needs them, which takes some seconds each.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from jaxtyping import Float

from selfsent.encoder.direct import DirectEncoder, JoinedEncoders, Vocabulary, read_settings, read_shares
from selfsent.encoder.folder import SIDE_BY_SIDE, find_model, one_sentence, read_modules
from selfsent.encoder.static import WordVectors, open_word_vectors
from selfsent.encoder.task_prompts import TextEncoder
from selfsent.errors import EncoderError
from selfsent.progress import SILENT, Progress
from selfsent.runtime.imports import loading
from selfsent.runtime.precision import require_dimensions, require_precision

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def open_encoder(
    name: str | Path, *, fastest: bool = False, threads: int | None = None, progress: Progress = SILENT
) -> TextEncoder:
    """Open an encoder for encoding, as fast as its kind allows.

    Args:
        name: "builtin", "builtin-static", "builtin-mlm", a folder, or a name on the Hugging Face hub.
        fastest: move it to the fastest device of the machine, and let torch use ``threads``.  Default: all cores.

    Raises:
        UserError: as ``load_encoder``.
    """
    with one_sentence(str(name)):
        folder = find_model(name)
        direct = _open_directly(folder, str(name), progress)
    if isinstance(direct, WordVectors):
        return direct
    from selfsent.runtime import hardware

    device = hardware.choose_hardware(threads=threads).device if fastest else "cpu"
    if direct is not None:
        return direct.to(device)
    with loading("torch and transformers", progress):
        from selfsent.encoder.load import load_encoder

    return load_encoder(name).to(device)


def _open_directly(folder: Path, name: str, progress: Progress) -> DirectEncoder | None:
    """Open a folder without transformers; None where only that can."""
    entries = read_modules(folder)
    if entries[0].kind == SIDE_BY_SIDE:
        shares = read_shares(folder)
        parts = [_open_directly(folder / str(number), f"{name}/{number}", progress) for number in range(len(shares))]
        if None in parts:
            return None
        joined = JoinedEncoders([part for part in parts if part], shares)
        return joined if joined.take_settings(read_settings(folder)) else None
    if entries[0].kind == "StaticEmbedding":
        return open_word_vectors(folder, entries, name)
    with loading("torch", progress):
        from selfsent.encoder.bert import open_bert

    return open_bert(folder, entries, name)


def embed_texts(
    encoder: TextEncoder,
    texts: Iterable[str],
    *,
    prompt: str = "",
    truncate_dim: int | None = None,
    precision: str = "auto",
    progress: Progress = SILENT,
) -> Float[np.ndarray, "N D"]:
    """Encode texts, as ``encoder.encode`` does, by what the encoder is."""
    if isinstance(encoder, DirectEncoder):
        width = truncate_dim if truncate_dim is not None else encoder.truncate_dim
        return encoder.encode_texts(texts, prompt, precision=precision, progress=progress)[:, :width]
    from selfsent.encoder.encode import encode

    return encode(
        with_torch(encoder), texts, prompt=prompt, truncate_dim=truncate_dim, precision=precision, progress=progress
    )


def require_finite(vectors: Float[np.ndarray, "N D"], texts: Sequence[str]) -> None:
    """Refuse vectors that hold NaN or infinity.

    Raises:
        EncoderError: it names the first of their texts.
    """
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise EncoderError(
            f"the encoder gives NaN or infinity for {int((~finite).sum())} texts, first for "
            f"{texts[int(finite.argmin())][:60]!r}: its weights are broken or its precision is too low"
        )


def digest_of(encoder: TextEncoder) -> str:
    """Digest all that an embedding depends on."""
    if isinstance(encoder, DirectEncoder):
        return encoder.digest
    from selfsent.encoder.inspect import encoder_digest

    return encoder_digest(with_torch(encoder))


def width_of(encoder: TextEncoder) -> int:
    """Return how wide embeddings are, at the width that the folder says."""
    if isinstance(encoder, DirectEncoder):
        return min(encoder.truncate_dim or encoder.width, encoder.width)
    from selfsent.encoder.inspect import embedding_width

    return encoder.truncate_dim or embedding_width(with_torch(encoder))


def require_width(truncate_dim: int | None, encoder: TextEncoder) -> None:
    """Refuse to keep no dimension, or more than there are.

    Raises:
        ConfigurationError: the message says how many there are.
    """
    if truncate_dim is not None:
        require_dimensions(truncate_dim, width_of(encoder))


def pooling_kind(encoder: TextEncoder) -> str:
    """Name the pooling."""
    if isinstance(encoder, DirectEncoder):
        return encoder.pooling
    from selfsent.encoder.pooling import pooling_name

    return pooling_name(with_torch(encoder))


def length_of(encoder: TextEncoder) -> int:
    """Return how many word pieces, special tokens included, are read of a text."""
    if isinstance(encoder, DirectEncoder):
        return encoder.max_length
    from selfsent.encoder.inspect import max_length_of

    return max_length_of(with_torch(encoder))


def in_bf16(encoder: TextEncoder, precision: str) -> bool:
    """Tell whether a precision means bf16 for an encoder here; word vectors are never computed in it.

    Raises:
        ConfigurationError: an unknown precision.
    """
    require_precision(precision)
    if isinstance(encoder, DirectEncoder):
        return encoder.in_bf16(precision)
    from selfsent.encoder.encode import computes_in_bf16

    return computes_in_bf16(with_torch(encoder), precision)


def vocabularies_of(encoder: TextEncoder) -> Sequence[Vocabulary]:
    """Return the vocabulary of an encoder, or of each of those that stand side by side in it."""
    if isinstance(encoder, DirectEncoder):
        return encoder.vocabularies
    from selfsent.encoder.inspect import vocabulary_of
    from selfsent.encoder.pair import parts_of

    whole = with_torch(encoder)
    return [vocabulary_of(part) for part in parts_of(whole) or [whole]]


def with_torch(encoder: TextEncoder) -> "SentenceTransformer":
    """Return an encoder that is not opened directly as what it is."""
    return cast("SentenceTransformer", encoder)
