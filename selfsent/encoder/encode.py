"""From texts to a matrix of embeddings, without gradients, as fast as the machine allows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor

from selfsent import hardware
from selfsent.encoder import fused
from selfsent.encoder.embed import Tokens, collate
from selfsent.encoder.inspect import embedding_width, mask_id, max_length_of, prompt_weights, transformer_of
from selfsent.encoder.pooling import POOLINGS, pool
from selfsent.errors import UserError, unknown
from selfsent.progress import SILENT, Progress

_TOKENS_A_BATCH = 4096  # encode() on a CPU: enough rows for full-speed products, few enough to stay in the cache
_TOKENS_ELSEWHERE = 16 * _TOKENS_A_BATCH  # on a GPU, which is waited for after each batch; not measured on one


def encode(
    encoder: SentenceTransformer, texts: Sequence[str], *, precision: str = "auto", progress: Progress = SILENT
) -> NDArray[np.float32]:
    """Encode texts into an (N, D) array, in their order, without gradients and without dropout.

    Sorted by length and cut into batches of equal numbers of tokens, so that hardly anything is computed on padding.

    Args:
        precision: "fp32", "bf16", or "auto" for bf16 where this machine is faster at it.
    """
    if transformer_of(encoder) is None:
        return np.asarray(encoder.encode(list(texts), show_progress_bar=False), dtype=np.float32)

    def pooled(tokens: Tokens) -> list[Tensor]:
        # What follows the layers is cheap: in fp32, whatever the layers computed in.
        features = {name: _widened(value) for name, value in encoder[0](dict(tokens)).items()}
        for module in list(encoder)[1:]:
            features = module(features)
        return [features["sentence_embedding"].float()]

    (embeddings,) = _encode(encoder, texts, pooled, 1, precision, progress)
    return embeddings


def _widened(value: Any) -> Any:  # noqa: ANN401 - a tensor, several of them, or what is none
    if isinstance(value, tuple | list):
        return type(value)(map(_widened, value))
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value


def encode_poolings(
    encoder: SentenceTransformer,
    texts: Sequence[str],
    poolings: Sequence[str],
    *,
    precision: str = "auto",
    progress: Progress = SILENT,
) -> dict[str, NDArray[np.float32]]:
    """Encode texts once and pool them in several ways, for training-free baselines.

    Raises:
        UserError: an unknown pooling, ``cls_pooler`` without a pooler in the base, or ``prompt`` without a prompt.
    """
    for name in poolings:
        if name not in POOLINGS:
            raise unknown("pooling", name, POOLINGS)
    model = transformer_of(encoder)
    if model is None:
        raise UserError("poolings are for encoders with layers: these are static vectors")
    mask_token = None if prompt_weights(encoder) is None else mask_id(encoder)
    if "prompt" in poolings and mask_token is None:
        raise UserError("this encoder was opened without a prompt: open it with pooling='prompt'")

    def pooled(tokens: Tokens) -> list[Tensor]:
        output = model(**tokens, output_hidden_states=True)
        hidden, last, mask = output.hidden_states, output.last_hidden_state, tokens["attention_mask"]
        hole = mask if mask_token is None else tokens["input_ids"].eq(mask_token)
        return [pool(name, hidden, last, hole if name == "prompt" else mask, model) for name in poolings]

    arrays = _encode(encoder, texts, pooled, len(poolings), precision, progress)
    return dict(zip(poolings, arrays, strict=True))


def _encode(
    encoder: SentenceTransformer,
    texts: Sequence[str],
    pooled: Callable[[Tokens], list[Tensor]],
    outputs: int,
    precision: str,
    progress: Progress,
) -> list[NDArray[np.float32]]:
    """Run ``pooled`` over all texts in batches of like length; return its outputs in the order of the texts."""
    if precision not in hardware.PRECISIONS:
        raise unknown("precision", precision, hardware.PRECISIONS)
    device = encoder.device.type
    low = precision == "bf16" or (precision == "auto" and hardware.has_fast_bf16(device))
    rows: list[list[int]] = []
    for start in range(0, len(texts), 10_000):
        chunk = list(texts[start : start + 10_000])
        rows += encoder.tokenizer(chunk, truncation=True, max_length=max_length_of(encoder))["input_ids"]
    budget = _TOKENS_A_BATCH if device == "cpu" else _TOKENS_ELSEWHERE
    arrays: list[NDArray[np.float32]] = []
    training = encoder.training
    encoder.eval()
    try:
        with torch.inference_mode(), _inference(encoder, low):
            done = 0
            for batch in _by_tokens(rows, budget):
                vectors = pooled(collate(encoder, [rows[i] for i in batch]))
                if not arrays:
                    arrays = [np.empty((len(rows), v.shape[1]), dtype=np.float32) for v in vectors]
                for array, vector in zip(arrays, vectors, strict=True):
                    array[batch] = vector.cpu().numpy()
                done += len(batch)
                progress.report("encode", done, len(rows))
    finally:
        encoder.train(training)
    return arrays or [np.empty((0, embedding_width(encoder)), dtype=np.float32)] * outputs


@contextmanager
def _inference(encoder: SentenceTransformer, low: bool) -> Iterator[None]:
    """Prepare the layers for many passes without gradients, in bf16 or fp32."""
    device, model = encoder.device.type, transformer_of(encoder)
    if model is not None and fused.fused_products_fit(model, device):
        with fused.fused_products(model, torch.bfloat16 if low else torch.float32):
            yield
        return
    weights = hardware.bf16_weights(encoder[0]) if low else nullcontext()
    with weights, torch.autocast(device, torch.bfloat16, enabled=low):
        yield


def _by_tokens(rows: Sequence[Sequence[int]], budget: int) -> Iterator[list[int]]:
    """Cut the rows, longest first, into batches of at most ``budget`` tokens, or of one row."""
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    start = 0
    while start < len(order):
        size = max(1, budget // len(rows[order[start]]))
        yield order[start : start + size]
        start += size
