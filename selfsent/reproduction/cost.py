"""What a training costs: steps, texts, memory, and estimated hours on one H100 and on this machine.

    training     3 x forward of every token that the objective reads, and of projector, decoder and word predictions
    forward      2 x 12 L D^2 + 4 L D T operations a token, for L layers of width D, in a row of T places
    memory       18 bytes a weight: fp32 copy, bf16 copy, two means of Adam, and at one time its gradient or, while the
                 encoder is written, the file's bytes;
                 44 D + 8 H T bytes a token and layer that are kept for the backward pass, for H heads, times 1.6:
                 what the heap of a CPU holds beyond what is in use, because blocks of all sizes come and go
                 (decision 0029).  A GPU, whose attention is fused, needs neither the second term nor the factor

Texts count as 30 word pieces, or as many as the row allows; spans of DeCLUTR have their expected lengths, 352 and 192
of 512.  Evaluations while training read the 4,000 texts of two development sets each.  The kept bytes are those of the
tensors that autograd saves of a layer as it is trained here, counted; in the manner of Korthikanti et al. 2022,
https://arxiv.org/abs/2205.05198, equation 1.
"""

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoConfig, BertConfig, BertModel, PreTrainedModel

from selfsent.config import Recipe
from selfsent.encoder.dropout import install_dropout
from selfsent.encoder.folder import CLOSED, SHIPPED
from selfsent.objectives import registry
from selfsent.reproduction.plan import ArtifactPlan
from selfsent.runtime.hardware import choose_hardware
from selfsent.training.optimizer import MasterWeights

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
_HEAD = 64  # features of one head of the attention
_WEIGHT_BYTES = 18
_HEAP = 1.6  # times what is kept for the backward pass


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of trainings, all seeds together."""

    trainings: int
    steps: int
    texts: int
    memory: float  # bytes at the peak of the largest, beside the program itself
    widths: Mapping[int, float] = field(default_factory=dict)  # operations, by the width of the encoder

    @property
    def operations(self) -> float:
        """All operations."""
        return sum(self.widths.values())

    def hours(self, rate: float | Mapping[int, float]) -> float:
        """Return the hours at so many operations a second, the same for all or by width."""
        rates = rate if isinstance(rate, Mapping) else dict.fromkeys(self.widths, rate)
        return sum(operations / rates[width] for width, operations in self.widths.items()) / 3600


class _Text(NamedTuple):
    """What one text of a batch asks of a step."""

    tokens: float  # that the encoder reads
    places: float  # of a row that it stands in
    operations: float = 0.0  # of a forward pass beyond the encoder
    kept: float = 0.0  # bytes for the backward pass beyond the encoder's
    weights: float = 0.0  # of what is beside the encoder, once for the whole batch


def plan_cost(plans: Iterable[ArtifactPlan], seeds: int) -> Cost:
    """Return what the trainings of tables and figures cost together; one that several need counts once."""
    runs = {row.run: row.recipe for plan in plans for row in plan.rows if row.recipe is not None}
    each = [training_cost(recipe) for recipe in runs.values()]
    widths: defaultdict[int, float] = defaultdict(float)
    for one in each:
        for width, operations in one.widths.items():
            widths[width] += seeds * operations
    return Cost(
        trainings=seeds * len(each),
        steps=seeds * sum(one.steps for one in each),
        texts=seeds * sum(one.texts for one in each),
        memory=max((one.memory for one in each), default=0.0),
        widths=widths,
    )


def training_cost(recipe: Recipe) -> Cost:
    """Return what one training costs."""
    given = recipe.train
    size = given.batch_size * given.accumulation
    known = sum(PUBLISHED_TEXTS.get(text, 0) for text in recipe.texts)
    steps = given.steps or max(1, math.ceil(given.epochs * known / size))
    layers, width, words = _shape(recipe.base)
    plan = registry.plan_objective(recipe.method, recipe.objective)
    method = next(iter(plan.kinds.values())).__name__
    config = next(iter(plan.configs.values()))
    length = min(_TOKENS, int(recipe.corpus.get("max_length", 32)))
    text = _ROW[method](vars(config), length, width, words)
    forward = _forward(layers, width, text.places)
    evaluations = steps // given.evaluate_every + 1 if recipe.data and given.evaluate_every else 0
    operations = steps * 3 * size * (text.tokens * forward + text.operations) + (
        evaluations * _DEV_TEXTS * length * _forward(layers, width, length)
    )
    weights = words * width + 12 * layers * width**2 + text.weights
    kept = text.tokens * layers * (44 * width + 8 * width / _HEAD * text.places) + text.kept
    return Cost(
        trainings=1,
        steps=steps,
        texts=steps * size,
        memory=_WEIGHT_BYTES * weights + _HEAP * given.batch_size * kept,
        widths={width: operations},
    )


def _forward(layers: int, width: int, places: int | float) -> float:
    """Return the operations of one token."""
    return 2.0 * 12 * layers * width**2 + 4 * layers * width * places


def _simcse(config: Mapping[str, Any], length: int, width: int, words: int) -> _Text:
    return _Text(tokens=2 * length, places=length)


def _whitenedcse(config: Mapping[str, Any], length: int, width: int, words: int) -> _Text:
    return _Text(tokens=int(config["num_views"]) * length, places=length)


def _scd(config: Mapping[str, Any], length: int, width: int, words: int) -> _Text:
    inner = int(config["projector_width"])
    weights = width * inner + 2 * inner**2
    return _Text(tokens=2 * length, places=length, operations=2 * 2 * weights + 2 * inner**2, weights=weights)


def _denosent(config: Mapping[str, Any], length: int, width: int, words: int) -> _Text:
    length += 8  # the prompt
    if not config["denoise_weight"]:
        return _Text(tokens=2 * length, places=length)
    layers, inner = int(config["decoder_layers"]), int(config["decoder_width"])
    layer = 4 * width**2 + 2 * width * inner  # weights that a token meets; the memory is one vector
    return _Text(
        tokens=2 * length,
        places=length,
        operations=2 * length * (layers * layer + width * words),
        # A layer keeps 44 D bytes a token if its inner part is 4 D wide, of which 16 D are that part's.
        kept=length * layers * (28 * width + 4 * inner + 8 * int(config["decoder_heads"]) * length),
        weights=layers * (8 * width**2 + 2 * width * inner),
    )


def _declutr(config: Mapping[str, Any], length: int, width: int, words: int) -> _Text:
    part = (config["max_length"] or 512) / 512
    anchors = int(config["num_anchors"]) * 352 * part
    positives = anchors * int(config["num_positives"]) * 192 / 352 if config["contrast_weight"] else 0.0
    masked = anchors * config["mlm_probability"] * 2 * width * words if config["mlm_weight"] else 0.0
    places = (anchors * 352 + positives * 192) / (anchors + positives) * part
    return _Text(tokens=anchors + positives, places=places, operations=masked)


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


def time_machine(width: int) -> float:
    """Return the operations a second that this machine trains encoders of a width with, by a few steps of 2 layers."""
    machine = choose_hardware()
    heads = max(1, width // _HEAD)
    shape = BertConfig(
        num_hidden_layers=2,
        hidden_size=width,
        num_attention_heads=heads if width % heads == 0 else 1,
        intermediate_size=4 * width,
        vocab_size=1000,
    )
    model: PreTrainedModel = BertModel(shape, add_pooling_layer=False)
    model.to(machine.device).train()  # type: ignore[arg-type]
    install_dropout(model)
    if machine.precision == "bf16":
        MasterWeights(model)
    rows = torch.randint(5, 1000, (128, _TOKENS), device=machine.device)
    tokens = {"input_ids": rows, "attention_mask": torch.ones_like(rows)}
    taken = math.inf
    for _ in range(5):  # the fastest: the first one is slow, and others may use the machine
        started = time.perf_counter()
        with torch.autocast(machine.device, dtype=torch.bfloat16, enabled=machine.precision == "bf16"):
            model(**tokens).last_hidden_state.square().mean().backward()
        if machine.device == "cuda":
            torch.cuda.synchronize()
        taken = min(taken, time.perf_counter() - started)
    return 3 * rows.numel() * _forward(2, width, _TOKENS) / taken


def word_bytes(count: float) -> str:
    """Write bytes as a reader would."""
    return "-" if count <= 0 else f"{count / 2**30:,.1f} GiB"


def word_hours(hours: float) -> str:
    """Write hours as a reader would."""
    if hours <= 0:
        return "-"
    if hours < 1 / 60:
        return "1 min"
    return f"{60 * hours:.0f} min" if hours < 1 else f"{hours:,.1f} h" if hours < 48 else f"{hours / 24:,.0f} days"
