"""What a training costs: steps, texts, and estimated hours on one H100 and on this machine.

    training     3 x forward of every token that the objective reads, and of projector, decoder and word predictions
    forward      2 x 12 L D^2 operations a token, for L layers of width D; attention itself is left out

Texts count as 30 word pieces, or as many as the row allows; spans of DeCLUTR have their expected lengths, 352 and 192
of 512.  Evaluations while training read the 4,000 texts of two development sets each.
"""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from selfsent import methods
from selfsent.config import Recipe
from selfsent.encoder.inspect import transformer_of
from selfsent.encoder.load import load_encoder
from selfsent.encoder.model_folder import CLOSED, SHIPPED
from selfsent.errors import UserError
from selfsent.hardware import choose_hardware
from selfsent.reproduction.plan import ArtifactPlan

H100 = 1.5e14  # operations a second that short texts reach in bf16: an assumption, 15 % of the peak
PUBLISHED_TEXTS = {
    "wiki1m_for_simcse.txt": 1_000_000,
    "Singhoo/denosent_data": 1_000_000,
    "Skylion007/openwebtext": 495_243,  # documents of 2,048 word pieces or more
}
_SIZES = {  # layers, width, words of the vocabulary
    "bert-base-uncased": (12, 768, 30_522),
    "bert-large-uncased": (24, 1024, 30_522),
    "roberta-base": (12, 768, 50_265),
    "roberta-large": (24, 1024, 50_265),
    "distilroberta-base": (6, 768, 50_265),
    "albert-base-v2": (12, 768, 30_000),
}
_TOKENS = 30  # of a sentence
_DEV_TEXTS = 4_000


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of trainings, all seeds together."""

    trainings: int
    steps: int
    texts: int
    operations: float

    def hours(self, rate: float) -> float:
        """Return the hours at so many operations a second."""
        return self.operations / rate / 3600


def plan_cost(plans: Iterable[ArtifactPlan], seeds: int) -> Cost:
    """Return what the trainings of tables and figures cost together; one that several need counts once."""
    runs = {row.run: row.recipe for plan in plans for row in plan.rows if row.recipe is not None}
    each = [_training(recipe) for recipe in runs.values()]
    return Cost(
        trainings=seeds * len(each),
        steps=seeds * sum(steps for steps, _, _ in each),
        texts=seeds * sum(texts for _, texts, _ in each),
        operations=seeds * sum((operations for _, _, operations in each), 0.0),
    )


def _training(recipe: Recipe) -> tuple[int, int, float]:
    """Return steps, texts and operations of one training."""
    given = recipe.train
    size = given.batch_size * given.accumulation
    known = sum(PUBLISHED_TEXTS.get(text, 0) for text in recipe.texts)
    steps = given.steps or max(1, math.ceil(given.epochs * known / size))
    layers, width, words = _shape(recipe.base)
    plan = methods.plan_objective(recipe.method, recipe.objective)
    method = next(iter(plan.kinds.values())).__name__
    config = next(iter(plan.configs.values()))
    length = min(_TOKENS, int(recipe.corpus.get("max_length", 32)))
    step = 3 * size * _ROW[method](vars(config), length, layers, width, words)
    evaluations = steps // given.evaluate_every + 1 if recipe.data and given.evaluate_every else 0
    scored = evaluations * _DEV_TEXTS * length * _forward(layers, width)
    return steps, steps * size, steps * step + scored


def _forward(layers: int, width: int) -> float:
    """Return the operations of one token."""
    return 2.0 * 12 * layers * width**2


def _simcse(config: Mapping[str, Any], length: int, layers: int, width: int, words: int) -> float:
    return 2 * length * _forward(layers, width)


def _whitenedcse(config: Mapping[str, Any], length: int, layers: int, width: int, words: int) -> float:
    return int(config["num_views"]) * length * _forward(layers, width)


def _scd(config: Mapping[str, Any], length: int, layers: int, width: int, words: int) -> float:
    inner = int(config["projector_width"])
    return 2 * length * _forward(layers, width) + 2 * 2 * (width * inner + 2 * inner**2) + 2 * inner**2


def _denosent(config: Mapping[str, Any], length: int, layers: int, width: int, words: int) -> float:
    length += 8  # the prompt
    views = 2 * length * _forward(layers, width)
    if not config["denoise_weight"]:
        return views
    layer = 6 * width**2 + 2 * width * int(config["decoder_width"])  # the memory is one vector
    return views + 2 * length * (int(config["decoder_layers"]) * layer + width * words)


def _declutr(config: Mapping[str, Any], length: int, layers: int, width: int, words: int) -> float:
    part = (config["max_length"] or 512) / 512
    anchors = int(config["num_anchors"]) * 352 * part
    positives = anchors * int(config["num_positives"]) * 192 / 352 if config["contrast_weight"] else 0.0
    masked = anchors * config["mlm_probability"] * 2 * width * words if config["mlm_weight"] else 0.0
    return (anchors + positives) * _forward(layers, width) + masked


_ROW = {"SimCSE": _simcse, "WhitenedCSE": _whitenedcse, "SCD": _scd, "DenoSent": _denosent, "DeCLUTR": _declutr}


def _shape(base: str) -> tuple[int, int, int]:
    """Return layers, width and vocabulary of a base; those of BERT-base where it is unknown."""
    if Path(base).is_dir():  # by its whole path: of one name there may be another in another folder
        return _read_shape(str(Path(base).resolve()))
    return _SIZES[base] if base in _SIZES else _read_shape(str(SHIPPED.get(base, base)))


@cache
def _read_shape(place: str) -> tuple[int, int, int]:
    try:
        config = AutoConfig.from_pretrained(place, **CLOSED)
        return config.num_hidden_layers, config.hidden_size, config.vocab_size
    except (OSError, ValueError, AttributeError):  # not here, or of another kind
        return _SIZES["bert-base-uncased"]


def time_machine(base: str = "builtin") -> float:
    """Return the operations a second that this machine trains with, from a few steps of a base.

    Raises:
        UserError: it cannot be opened.
    """
    machine = choose_hardware()
    encoder = load_encoder(base).to(machine.device)
    model = transformer_of(encoder)
    if model is None:
        raise UserError(f"{base} has no layers to time: give another base")
    rows = torch.randint(5, 1000, (32, _TOKENS), device=machine.device)
    tokens = {"input_ids": rows, "attention_mask": torch.ones_like(rows)}
    model.train()
    taken = math.inf
    for _ in range(4):  # the fastest: the first one is slow, and others may use the machine
        started = time.perf_counter()
        with torch.autocast(machine.device, dtype=torch.bfloat16, enabled=machine.precision == "bf16"):
            model(**tokens).last_hidden_state.square().mean().backward()
        if machine.device == "cuda":
            torch.cuda.synchronize()
        taken = min(taken, time.perf_counter() - started)
    return 3 * rows.numel() * _forward(*_shape(base)[:2]) / taken


def word_hours(hours: float) -> str:
    """Write hours as a reader would."""
    if hours <= 0:
        return "-"
    if hours < 1 / 60:
        return "1 min"
    return f"{60 * hours:.0f} min" if hours < 1 else f"{hours:,.1f} h" if hours < 48 else f"{hours / 24:,.0f} days"
