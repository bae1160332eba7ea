"""From texts to a matrix of embeddings, without gradients, as fast as the machine allows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from torch import Tensor, nn

from selfsent.corpus.word_lookup import WordLookup
from selfsent.encoder.batches import Tokens, encode_rows
from selfsent.encoder.embed import collate
from selfsent.encoder.fused import ready_layers, ready_weights
from selfsent.encoder.inspect import embedding_width, max_length_of, prompt_weights, transformer_of
from selfsent.encoder.pair import SideBySide
from selfsent.encoder.pooling import POOLINGS, pooling_modules
from selfsent.encoder.static import TEXTS_A_BLOCK
from selfsent.encoder.task_prompts import resolve_prompt
from selfsent.errors import EncoderError, unknown
from selfsent.progress import SILENT, Progress
from selfsent.runtime import hardware
from selfsent.runtime.precision import require_dimensions, require_precision
from selfsent.text import clean

_LOOKUPS: WeakKeyDictionary[nn.Module, WordLookup | None] = WeakKeyDictionary()


def encode(
    encoder: SentenceTransformer,
    texts: Iterable[str],
    *,
    prompt_name: str | None = None,
    prompt: str | None = None,
    truncate_dim: int | None = None,
    precision: str = "auto",
    progress: Progress = SILENT,
) -> NDArray[np.float32]:
    """Encode texts into an (N, D) array, in their order, without dropout.

    Args:
        texts: a list, or a column of pandas, polars or datasets.
        prompt_name: a prompt of the encoder's folder that is put before every text.  Default: the folder's default one.
        prompt: what is put before every text, in place of a prompt of the folder; "" for none.
        truncate_dim: keep this many leading dimensions.  Default: as many as the folder says, or all.
        precision: "fp32", "bf16", or "auto" for bf16 where this machine is faster at it.

    Raises:
        UserError: an unknown prompt name or precision, or more dimensions than there are.
    """
    if isinstance(encoder, str | Path):
        raise ValueError(f"encode takes an encoder and not its name: encode(selfsent.load({str(encoder)!r}), texts)")
    if isinstance(texts, str):
        raise ValueError("encode takes several texts, not one string: give a list")
    if isinstance(texts, Mapping) or hasattr(texts, "columns"):
        raise ValueError(f"encode takes texts, not a {type(texts).__name__}: give a list, or one column of strings")
    require_precision(precision)
    if truncate_dim is not None:  # more than the folder's own truncate_dim may be asked for
        require_dimensions(truncate_dim, embedding_width(encoder) if encoder.truncate_dim is None else None)
    texts = list(texts)
    if not all(isinstance(text, str) for text in texts):
        place = next(place for place, text in enumerate(texts) if not isinstance(text, str))
        raise ValueError(f"text {place} is {texts[place]!r:.40}, a {type(texts[place]).__name__}: give strings alone")
    texts = [clean.encodable(text) for text in texts]
    prompt = resolve_prompt(encoder, prompt_name, prompt)
    width = truncate_dim if truncate_dim is not None else encoder.truncate_dim
    if isinstance(encoder[0], SideBySide):  # each by its own fastest way
        parts = encoder[0].parts
        sides = [encode(one, texts, prompt=prompt, precision=precision, progress=progress) for one in parts]
        return encoder[0].join(sides)[:, :width]
    if transformer_of(encoder) is None:
        words = _word_lookup(encoder)
        if words is not None:
            return _encode_static(encoder, [prompt + text for text in texts], words, progress)[:, :width]
        vectors = encoder.encode(texts, prompt=prompt, truncate_dim=width, show_progress_bar=False)
        return np.asarray(vectors, dtype=np.float32)
    features, pooling = prompt_features(encoder, prompt), list(encoder)[1:]

    def states(tokens: Tokens) -> dict[str, Any]:
        return encoder[0](dict(tokens) | features)

    (embeddings,) = _encode(encoder, [prompt + text for text in texts], states, [pooling], precision, progress)
    return embeddings[:, :width]


def _word_lookup(encoder: SentenceTransformer) -> WordLookup | None:
    """Return the fast tokenizer of static vectors, kept with the words that it met; None where there is none."""
    vectors = encoder[0]
    if not isinstance(vectors, StaticEmbedding) or getattr(vectors.embedding, "mode", "") != "mean":
        return None
    if vectors not in _LOOKUPS:
        _LOOKUPS[vectors] = WordLookup.of(vectors.tokenizer)
    return _LOOKUPS[vectors]


def _encode_static(
    encoder: SentenceTransformer, texts: Sequence[str], words: WordLookup, progress: Progress
) -> NDArray[np.float32]:
    """Average word vectors, without a Python object for a word."""
    embedding, modules = encoder[0].embedding, list(encoder)[1:]
    assert isinstance(embedding, nn.EmbeddingBag)
    blocks = []
    with torch.inference_mode():
        for start in range(0, len(texts), TEXTS_A_BLOCK):
            ids, offsets = map(torch.from_numpy, words(texts[start : start + TEXTS_A_BLOCK]))
            mean = embedding(ids.to(encoder.device), offsets.to(encoder.device))
            blocks.append(pool_states({"sentence_embedding": mean}, modules).cpu().numpy())
            progress.report("encode", min(start + TEXTS_A_BLOCK, len(texts)), len(texts))
    return np.concatenate(blocks) if blocks else np.empty((0, embedding_width(encoder)), np.float32)


def prompt_features(encoder: SentenceTransformer, prompt: str) -> dict[str, Any]:
    """Return the number of prompt tokens, where a pooling leaves the prompt out."""
    if not prompt or all(module.include_prompt for module in encoder if isinstance(module, Pooling)):
        return {}
    ids = encoder.tokenizer(prompt, truncation=True, max_length=max_length_of(encoder))["input_ids"]
    return {"prompt_length": len(ids) - (ids[-1] in encoder.tokenizer.all_special_ids)}


def pool_states(features: dict[str, Any], modules: Iterable[nn.Module]) -> Tensor:
    """Apply the modules behind the layers, in fp32: they are cheap."""
    features = {name: _widened(value) for name, value in features.items()}
    for module in modules:
        features = module(features)
    return features["sentence_embedding"].float()


def _widened(value: Any) -> Any:  # noqa: ANN401 - a tensor, several of them, or what is none
    if isinstance(value, tuple | list):
        return type(value)(map(_widened, value))
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value


def computes_in_bf16(encoder: SentenceTransformer, precision: str) -> bool:
    """Tell whether a precision means bf16 on the encoder's device."""
    require_precision(precision)
    return precision == "bf16" or (precision == "auto" and hardware.has_fast_bf16(encoder.device.type))


def encode_poolings(
    encoder: SentenceTransformer,
    texts: Sequence[str],
    poolings: Sequence[str],
    *,
    precision: str = "auto",
    progress: Progress = SILENT,
) -> dict[str, NDArray[np.float32]]:
    """Encode texts once, without a prompt, and pool them in several ways, for training-free baselines."""
    for name in poolings:
        if name not in POOLINGS:
            raise unknown("pooling", name, POOLINGS)
    model = transformer_of(encoder)
    if model is None:
        raise EncoderError("poolings are for encoders with layers: these are static vectors")
    modules = [pooling_modules(name, model, prompt_weights(encoder)) for name in poolings]

    def states(tokens: Tokens) -> dict[str, Any]:
        output = model(**tokens, output_hidden_states=True)
        return {**tokens, "token_embeddings": output.last_hidden_state, "all_layer_embeddings": output.hidden_states}

    return dict(zip(poolings, _encode(encoder, texts, states, modules, precision, progress), strict=True))


def _encode(
    encoder: SentenceTransformer,
    texts: Sequence[str],
    states: Callable[[Tokens], dict[str, Any]],
    poolings: Sequence[Sequence[nn.Module]],
    precision: str,
    progress: Progress,
) -> list[NDArray[np.float32]]:
    """Compute the states of all texts, in batches of similar length, and one array of embeddings for each pooling."""
    rows: list[list[int]] = []
    for start in range(0, len(texts), 10_000):
        chunk = list(texts[start : start + 10_000])
        rows += encoder.tokenizer(chunk, truncation=True, max_length=max_length_of(encoder))["input_ids"]

    def embed(batch: list[Sequence[int]]) -> list[Tensor]:
        features = states(collate(encoder, batch))
        return [pool_states(features, modules) for modules in poolings]

    training = encoder.training
    encoder.eval()
    try:
        with inference_layers(encoder, computes_in_bf16(encoder, precision)):
            arrays = encode_rows(rows, embed, encoder.device.type, progress)
    finally:
        encoder.train(training)
    return arrays or [np.empty((0, embedding_width(encoder)), dtype=np.float32) for _ in poolings]


def inference_layers(encoder: SentenceTransformer, low: bool) -> AbstractContextManager[None]:
    """Prepare the layers for many passes without gradients; the rest of an encoder without such is left alone."""
    device, model = encoder.device.type, transformer_of(encoder)
    return ready_layers(model or encoder[0], device, low=low, around=encoder[0])


def inference_weights(
    encoder: SentenceTransformer, low: bool
) -> AbstractContextManager[Callable[[], AbstractContextManager[None]]]:
    """Likewise, for passes in other blocks and threads, each of which is made under what this yields."""
    device, model = encoder.device.type, transformer_of(encoder)
    return ready_weights(model or encoder[0], device, low=low, around=encoder[0])
