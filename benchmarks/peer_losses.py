"""TSDAE and GPL with the losses of sentence-transformers, for ``strong_bases.py``: what a user would try instead.

tsdae  a text without 60 % of its words is encoded, and decoded back (Wang et al. 2021,
       https://arxiv.org/abs/2104.06979)
gpl    pseudo labels (Wang et al. 2022, https://arxiv.org/abs/2112.07577) without a generator and a cross-encoder: a
       query is a sentence of a document, the negative is one of the ten that base and BM25 together find best, and its
       margin is that of the same teacher, 0.7 cosine + 0.3 BM25
-lora  the same, where low-rank matrices beside queries and values are trained alone (Hu et al. 2021,
       https://arxiv.org/abs/2106.09685), at ten times the rate; needs peft
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer, losses

from selfsent.encoder.quantize import unit
from selfsent.encoder.search_settings import WORDS
from selfsent.text import clean
from selfsent.text.bm25 import bm25_scores

Batch = tuple[list[list[str]], torch.Tensor]
LORA = "-lora"
PEERS = ("tsdae", "gpl", "gpl" + LORA)
_BATCH, _LONGEST, _QUERIES = 16, 128, 400
_SPANS = range(5, 60)  # words of a sentence that asks


def train_peer(method: str, texts: Sequence[str], base: str, steps: int, rate: float, seed: int, out: Path) -> Path:
    """Train a base with a loss of sentence-transformers; return the folder."""
    torch.manual_seed(seed)
    model, rng = SentenceTransformer(base, device="cpu"), np.random.default_rng(seed)
    model.max_seq_length = min(model.max_seq_length or _LONGEST, _LONGEST)
    draw = _damaged(texts, rng) if method == "tsdae" else _margins(texts, model, rng)
    make = losses.DenoisingAutoEncoderLoss if method == "tsdae" else losses.MarginMSELoss
    adapted = _with_lora(model) if method.endswith(LORA) else None
    loss = make(model)
    trained = [weights for weights in loss.parameters() if weights.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=10 * rate if adapted else rate)
    model.train()
    for _ in range(steps):
        columns, labels = draw()
        with torch.autocast("cpu", torch.bfloat16):
            value = loss([model.preprocess(column) for column in columns], labels)
        value.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
    if adapted:
        adapted.merge_and_unload()
    model.save(str(out))
    return out


def _with_lora(model: SentenceTransformer) -> Any:
    """Put low-rank matrices into the transformer, which alone are trained."""
    import peft

    sides = [name for name, _ in model.named_modules() if name.endswith((".query", ".value", ".q", ".v"))]
    names = sorted({name.rpartition(".")[2] for name in sides})
    return peft.get_peft_model(model[0].auto_model, peft.LoraConfig(r=16, lora_alpha=32, target_modules=names))


def _damaged(texts: Sequence[str], rng: np.random.Generator) -> Callable[[], Batch]:
    def draw() -> Batch:
        whole = [texts[row] for row in rng.integers(len(texts), size=_BATCH)]
        words = [text.split()[:_LONGEST] for text in whole]
        kept = [" ".join(np.array(row)[rng.random(len(row)) > 0.6]) or row[0] for row in words]
        return [kept, [" ".join(row) for row in words]], torch.zeros(_BATCH)

    return draw


def _margins(texts: Sequence[str], model: SentenceTransformer, rng: np.random.Generator) -> Callable[[], Batch]:
    """Ask for a document by one of its sentences; the document is without it."""
    asked: list[tuple[int, str]] = []
    answers = list(texts)
    for row in rng.permutation(len(texts)):
        sentences = clean.sentences(texts[row], "en")
        fitting = [each for each in sentences if len(each.split()) in _SPANS]
        if len(sentences) > 2 and fitting and len(asked) < _QUERIES:
            query = fitting[rng.integers(len(fitting))]
            asked.append((row, query))
            answers[row] = " ".join(each for each in sentences if each != query)
    queries, own = [query for _, query in asked], np.array([row for row, _ in asked])
    vectors = [unit(model.encode(side, normalize_embeddings=True)) for side in (queries, answers)]
    matched = bm25_scores(queries, answers, "en")
    teacher = (1 - WORDS) * vectors[0] @ vectors[1].T + WORDS * matched / np.maximum(
        matched.max(1, keepdims=True), 1e-9
    )
    best = np.argsort(-teacher, axis=1)[:, :10]

    def draw() -> Batch:
        rows = rng.integers(len(queries), size=_BATCH)
        others = [rng.choice(best[row][best[row] != own[row]]) for row in rows]
        margins = teacher[rows, own[rows]] - teacher[rows, others]
        columns = [
            [queries[row] for row in rows],
            [answers[own[row]] for row in rows],
            [answers[row] for row in others],
        ]
        return columns, torch.tensor(margins, dtype=torch.float32)

    return draw
