"""Open an encoder for encoding: by our own code where that knows the folder, else as a SentenceTransformer.

torch, and transformers above it, are imported when an encoder needs them, which takes some seconds each.
"""

from pathlib import Path
from typing import TYPE_CHECKING, cast

from selfsent.encoder.base import Encoder, TextEncoder, read_settings
from selfsent.encoder.folder import PAIR, one_sentence, read_modules
from selfsent.encoder.pair import EncoderPair, read_axes, read_weights
from selfsent.encoder.released import find_encoder
from selfsent.encoder.static import StaticEncoder, open_static
from selfsent.progress import SILENT, Progress
from selfsent.runtime.imports import loading

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def open_encoder(
    name: str | Path, *, fastest: bool = False, threads: int | None = None, progress: Progress = SILENT
) -> Encoder:
    """Open an encoder for encoding, as fast as its kind allows.

    Args:
        name: "builtin", "builtin-static", "builtin-mlm", a folder, or a name on the Hugging Face hub.
        fastest: move it to the fastest device of the machine, and let torch use ``threads``.  Default: all cores.

    Raises:
        UserError: as ``load_encoder``.
    """
    with one_sentence(str(name)):
        folder = find_encoder(name)
        encoder = _open_directly(folder, str(name), progress)
    if isinstance(encoder, StaticEncoder):
        return encoder
    from selfsent.runtime import hardware

    device = hardware.choose_hardware(threads=threads).device if fastest else "cpu"
    if encoder is not None:
        return encoder.to(device)
    with loading("torch and transformers", progress):
        from selfsent.encoder.load import load_encoder

    return as_encoder(load_encoder(name)).to(device)


def _open_directly(folder: Path, name: str, progress: Progress) -> Encoder | None:
    """Open a folder without transformers; None where only that can."""
    entries = read_modules(folder)
    if entries[0].kind == PAIR:
        weights = read_weights(folder)
        encoders = [_open_directly(folder / str(i), f"{name}/{i}", progress) for i in range(len(weights))]
        if None in encoders:
            return None
        pair = EncoderPair([encoder for encoder in encoders if encoder], weights, axes=read_axes(folder))
        return pair if pair.take_settings(read_settings(folder)) else None
    if entries[0].kind == "StaticEmbedding":
        return open_static(folder, entries, name)
    with loading("torch", progress):
        from selfsent.encoder.bert import open_bert

    return open_bert(folder, entries, name)


def as_encoder(encoder: TextEncoder) -> Encoder:
    """Return an encoder as it is, and a SentenceTransformer, as ``load_encoder`` opens it, as an encoder."""
    if isinstance(encoder, Encoder):
        return encoder
    from torch import from_numpy

    from selfsent.encoder.pair_module import PairModule, scaled
    from selfsent.encoder.transformers_encoder import TransformersEncoder

    whole = cast("SentenceTransformer", encoder)
    module = whole[0]
    if not isinstance(module, PairModule):
        return TransformersEncoder(whole)
    encoders = [as_encoder(part) for part in module.parts]
    axes = None if module.axes is None else module.axes.numpy(force=True)
    scale = lambda vectors, weight: scaled(from_numpy(vectors), weight).numpy()  # noqa: E731
    pair = EncoderPair(encoders, module.weights, scale, axes)
    pair.prompts, pair.default_prompt_name = dict(whole.prompts), whole.default_prompt_name
    pair.truncate_dim = whole.truncate_dim
    return pair


def encoder_digest(encoder: "SentenceTransformer") -> str:
    """Digest all that an embedding depends on: modules, weights, tokenizer, maximum length, prompts and settings."""
    return as_encoder(encoder).digest
