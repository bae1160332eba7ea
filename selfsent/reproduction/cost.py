"""What a training costs, estimated: steps, texts, memory, and hours on one H100 and on this machine.

    hours     6 N D operations: N weights that D tokens meet, in the encoder, and in decoder or word predictions.
              Kaplan et al. 2020, https://arxiv.org/abs/2001.08361, section 2.1; scoring is left out
    memory    18 bytes a weight: fp32 copy, bf16 copy, two means of Adam, and at one time its gradient or, while the
              encoder is written, the file's bytes;
              44 D + 8 H T bytes a token and layer that are kept for the backward pass, for width D, H heads and a row
              of T tokens, times 1.6: what the heap of a CPU holds beyond what is in use, because blocks of all sizes
              come and go (decision 0029).  A GPU, whose attention is fused, needs neither second term nor factor

Texts count as 30 tokens, or as many as the row allows; spans of DeCLUTR as their expected lengths, 352 and 192 of 512.
The kept bytes are those of the tensors that autograd saves of a layer as it is trained here, counted; in the manner of
Korthikanti et al. 2022, https://arxiv.org/abs/2205.05198, equation 1.
"""

import math
import time
import tomllib
from collections import Counter
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
from selfsent.reproduction.spec import ARTIFACTS
from selfsent.runtime.hardware import choose_hardware
from selfsent.training.optimizer import MasterWeights

H100 = 1.5e14  # operations a second that short texts reach in bf16: an assumption, 15 % of the peak
_SIZES: dict[str, Any] = tomllib.loads((ARTIFACTS / "sizes.toml").read_text("utf-8"))
_TOKENS = 30  # of a sentence
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
    operations: Mapping[int, float] = field(default_factory=dict)  # by the width of the encoder

    def hours(self, rate: float | Mapping[int, float]) -> float:
        """Return the hours at so many operations a second, the same for all or by width."""
        rates = rate if isinstance(rate, Mapping) else dict.fromkeys(self.operations, rate)
        return sum(operations / rates[width] for width, operations in self.operations.items()) / 3600


def plan_cost(plans: Iterable[ArtifactPlan], seeds: int) -> Cost:
    """Return what the trainings of tables and figures cost together; one that several need counts once."""
    runs = {row.run: row.recipe for plan in plans for row in plan.rows if row.recipe is not None}
    costs = [training_cost(recipe) for recipe in runs.values()]
    operations: Counter[int] = Counter()
    for cost in costs:
        operations.update({width: seeds * count for width, count in cost.operations.items()})
    return Cost(
        trainings=seeds * len(costs),
        steps=seeds * sum(cost.steps for cost in costs),
        texts=seeds * sum(cost.texts for cost in costs),
        memory=max((cost.memory for cost in costs), default=0.0),
        operations=operations,
    )


def training_cost(recipe: Recipe) -> Cost:
    """Return what one training costs."""
    size = recipe.train.batch_size * recipe.train.accumulation
    texts = sum(_SIZES["texts"].get(text, 0) for text in recipe.texts)
    whole = math.floor if recipe.train.drop_last else math.ceil
    steps = recipe.train.steps or max(1, whole(recipe.train.epochs * texts / size))
    layers, width, words = _shape(recipe.base)
    encoder = 12 * layers * width**2  # weights beside the word embeddings
    plan = registry.plan_objective(recipe.method, recipe.objective)
    method, config = next(iter(plan.kinds.values())).__name__, vars(next(iter(plan.configs.values())))
    length = min(_TOKENS, int(recipe.corpus.get("max_length", 32)))
    load = _load(method, config, length, width, words)
    kept = load.tokens * layers * (44 * width + 8 * width / _HEAD * load.row) + load.kept
    return Cost(
        trainings=1,
        steps=steps,
        texts=steps * size,
        memory=_WEIGHT_BYTES * (words * width + encoder + load.weights) + _HEAP * recipe.train.batch_size * kept,
        operations={width: 6.0 * steps * size * (load.tokens * encoder + load.met)},
    )


class _Load(NamedTuple):
    """What one text of a batch asks of a step."""

    tokens: float  # that the encoder reads
    row: float  # tokens of one row
    met: float = 0.0  # weights beside the encoder that they meet, all tokens together
    weights: float = 0.0  # beside the encoder, once for the whole batch
    kept: float = 0.0  # bytes for the backward pass beyond the encoder's


def _load(method: str, config: Mapping[str, Any], length: int, width: int, words: int) -> _Load:
    if method == "DeCLUTR":
        scale = (config["max_length"] or 512) / 512
        anchors = int(config["num_anchors"]) * 352 * scale
        positives = anchors * int(config["num_positives"]) * 192 / 352 if config["contrast_weight"] else 0.0
        masked = anchors * config["mlm_probability"] if config["mlm_weight"] else 0.0
        row = (anchors * 352 + positives * 192) / (anchors + positives) * scale
        return _Load(tokens=anchors + positives, row=row, met=masked * width * words)
    if method == "DenoSent":
        length += 8  # the prompt
        if not config["denoise_weight"]:
            return _Load(tokens=2 * length, row=length)
        layers, inner, heads = (int(config[f"decoder_{key}"]) for key in ("layers", "width", "heads"))
        layer = 4 * width**2 + 2 * width * inner  # weights that a token meets; the memory is one vector
        return _Load(
            tokens=2 * length,
            row=length,
            met=length * (layers * layer + width * words),
            weights=layers * (8 * width**2 + 2 * width * inner),
            # A layer keeps 44 D bytes a token if its inner part is 4 D wide, of which 16 D are that part's.
            kept=length * layers * (28 * width + 4 * inner + 8 * heads * length),
        )
    if method == "SCD":
        inner = int(config["projector_width"])
        projector = width * inner + 2 * inner**2
        return _Load(tokens=2 * length, row=length, met=2 * projector, weights=projector)
    return _Load(tokens=int(config.get("num_views", 2)) * length, row=length)


def _shape(base: str) -> tuple[int, int, int]:
    """Return layers, width and vocabulary of a base; those of BERT-base where it is unknown."""
    if base in _SIZES["bases"] and not Path(base).is_dir():
        return tuple(_SIZES["bases"][base])
    # A folder by its whole path: of one name there may be another in another folder.
    return _read_shape(str(Path(base).resolve() if Path(base).is_dir() else SHIPPED.get(base, base)))


@cache
def _read_shape(base: str) -> tuple[int, int, int]:
    try:
        config = AutoConfig.from_pretrained(base, **CLOSED)
        return config.num_hidden_layers, config.hidden_size, config.vocab_size
    except (OSError, ValueError, AttributeError):  # not here, or of another kind
        return _shape("bert-base-uncased")


def time_machine(width: int) -> float:
    """Return the operations a second that this machine trains encoders of a width with, by a step of two layers."""
    machine = choose_hardware()
    heads = math.gcd(width, max(1, width // _HEAD))
    shape = BertConfig(
        num_hidden_layers=2,
        hidden_size=width,
        num_attention_heads=heads,
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
    seconds = math.inf
    for _ in range(3):  # the fastest: the first one is slow, and others may use the machine
        started = time.perf_counter()
        with torch.autocast(machine.device, dtype=torch.bfloat16, enabled=machine.precision == "bf16"):
            model(**tokens).last_hidden_state.square().mean().backward()
        if machine.device == "cuda":
            torch.cuda.synchronize()
        seconds = min(seconds, time.perf_counter() - started)
    return 6 * 12 * 2 * width**2 * rows.numel() / seconds


def format_bytes(count: float) -> str:
    """Write bytes as a reader would."""
    return "-" if count <= 0 else f"{count / 2**30:,.1f} GiB"


def format_hours(hours: float) -> str:
    """Write hours as a reader would."""
    if hours < 1:
        return f"{max(1.0, 60 * hours):.0f} min" if hours > 0 else "-"
    return f"{hours:,.1f} h" if hours < 48 else f"{hours / 24:,.0f} days"
