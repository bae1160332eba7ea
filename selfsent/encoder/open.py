"""Open an encoder for encoding: by our own code where that knows the folder, else as a SentenceTransformer.

torch, and transformers above it, are imported when an encoder needs them, which takes some seconds each.
"""

from pathlib import Path
from typing import TYPE_CHECKING, cast

from selfsent.encoder.base import Encoder, TextEncoder, require_finite_weights
from selfsent.encoder.folder import ModelFolder, one_sentence
from selfsent.encoder.pair import EncoderPair
from selfsent.encoder.released import read_encoder
from selfsent.encoder.static import StaticEncoder, open_static
from selfsent.progress import SILENT, Progress
from selfsent.runtime.imports import loading

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def open_encoder(
    name: str | Path | ModelFolder, *, fastest: bool = False, threads: int | None = None, progress: Progress = SILENT
) -> Encoder:
    """Open an encoder for encoding, as fast as its kind allows.

    Args:
        name: "builtin", "builtin-static", "builtin-mlm", a folder, a name on the Hugging Face hub, or what
            ``read_encoder`` read of one.
        fastest: move it to the fastest device of the machine, and let torch use ``threads``.  Default: all cores.

    Raises:
        UserError: as ``load_encoder``.
    """
    folder = read_encoder(name)
    with one_sentence(folder.name):
        encoder = _open_directly(folder, progress)
    if isinstance(encoder, StaticEncoder):
        return encoder
    from selfsent.runtime import hardware

    device = hardware.choose_hardware(threads=threads).device if fastest else "cpu"
    if encoder is not None:
        return encoder.to(device)
    with loading("torch and transformers", progress):
        from selfsent.encoder.load import load_encoder

    return as_encoder(load_encoder(folder)).to(device)


def _open_directly(folder: ModelFolder, progress: Progress) -> Encoder | None:
    """Open a folder without transformers; None where only that can."""
    if folder.encoders:
        encoders = [_open_directly(part, progress) for part in folder.encoders]
        if None in encoders:
            return None
        pair = EncoderPair([encoder for encoder in encoders if encoder], folder.fractions, behind=folder.behind)
        return pair if pair.take_settings(folder.settings) else None
    if folder.kinds[0] == "StaticEmbedding":
        encoder: Encoder | None = open_static(folder)
    else:
        with loading("torch", progress):
            from selfsent.encoder.bert import open_bert

        encoder = open_bert(folder)
    if encoder is not None:
        require_finite_weights(encoder.embed(["a"], precision="fp32"), folder.name)
    return encoder


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
    scale = lambda vectors, weight: scaled(from_numpy(vectors), weight).numpy()  # noqa: E731
    behind = None if module.behind is None else module.behind.as_arrays()
    pair = EncoderPair(encoders, module.weights, scale, behind)
    pair.prompts, pair.default_prompt_name = dict(whole.prompts), whole.default_prompt_name
    pair.truncate_dim = whole.truncate_dim
    return pair


def encoder_digest(encoder: "SentenceTransformer") -> str:
    """Digest all that an embedding depends on: modules, weights, tokenizer, maximum length, prompts and settings."""
    return as_encoder(encoder).digest
