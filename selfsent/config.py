"""Recipe: TOML and ``key=value`` changes in, one frozen object out; every unknown key is refused by name."""

import dataclasses
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from selfsent.errors import UserError, unknown

T = TypeVar("T")
Table = dict[str, Any]

SCHEDULES = ("linear", "constant", "cosine", "slanted")


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """How the base is opened."""

    pooling: str | None = None  # None: the base's own, or cls where it has none
    template: str | None = None  # what pooling prompt puts around a text; None: DenoSent's
    dropout: float | None = None  # rate at every site while training; None: the base's own


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How the loop runs."""

    epochs: float = 1.0  # ignored where steps is given
    steps: int | None = None  # optimizer steps
    batch_size: int = 64  # texts
    learning_rate: float = 3e-5  # peak
    schedule: str = "linear"  # linear (to zero), constant, cosine or slanted (triangular, in DeCLUTR's shape)
    warmup_steps: int = 0
    weight_decay: float = 0.0  # on matrices, not on biases and LayerNorms
    max_grad_norm: float = 1.0  # over encoder and objective together; 0 turns it off
    adam_betas: tuple[float, float] = (0.9, 0.999)
    adam_epsilon: float = 1e-8
    adam_bias_correction: bool = True  # False: BERT's first AdamW, whose first update is 3 times larger
    bucketed: bool = True  # batches of texts of like length; False: plainly shuffled
    accumulation: int = 1  # batches a step; changes what an in-batch loss learns, so it must be allowed:
    allow_accumulation: bool = False
    evaluate_every: int = 125  # steps; 0: only at the end
    checkpoint_every: int | None = None  # steps; None: whenever it evaluates
    select: str = "auto"  # which score picks the best weights; last: none, the final weights are kept
    patience: int | None = None  # stop after so many evaluations without a better score
    log_every: int = 10  # steps


@dataclass(frozen=True, kw_only=True)
class HardwareConfig:
    """What is otherwise chosen for the machine."""

    precision: str = "auto"  # auto, bf16 or fp32
    threads: int | None = None  # None: one for each usable core
    device: str | None = None  # cpu, cuda or mps; None: the fastest there is
    keep_heap: bool = True  # keep freed memory in the process


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides a run, as it was asked for; the corpus and objective tables are read by those rooms."""

    method: str  # a method, a preset of one, or a module path
    base: str = "builtin"
    texts: tuple[str, ...] = ("pydocs",)  # files, folders, names on the hub, or pydocs
    data: str | None = None  # evaluation data in SentEval's layout, or "hub", for scores with labels
    seed: int = 42
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    corpus: Mapping[str, Any] = field(default_factory=dict)
    objective: Mapping[str, Any] = field(default_factory=dict)
    train: TrainConfig = field(default_factory=TrainConfig)
    hardware: HardwareConfig = field(default_factory=HardwareConfig)
    paper: Mapping[str, Any] = field(default_factory=dict)  # the published row: its source and figures


_SECTIONS = {"encoder": EncoderConfig, "train": TrainConfig, "hardware": HardwareConfig}


def build_config(kind: type[T], table: Mapping[str, Any], where: str) -> T:
    """Make a dataclass from a table, refusing unknown keys and wrong types by name.

    Raises:
        UserError: the table does not fit; the message names the key as a user would write it.
    """
    known = [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]
    prefix = f"{where}." if where else ""
    for key in table:
        if key not in known:
            raise unknown("key", f"{prefix}{key}", [prefix + name for name in known])
    try:
        return TypeAdapter(kind).validate_python(dict(table))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if isinstance(part, str) and part in known)
        said = first["msg"].removeprefix("Value error, ")
        name = f"{prefix}{place}" if place else where
        raise UserError(f"{name} = {first['input']!r} does not fit: {said}" if place else f"{name}: {said}") from error
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error


def read_recipe(path: Path) -> Table:
    """Read a recipe file.

    Raises:
        UserError: it is not there or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"there is no recipe {path}: give a .toml file or the name of a method") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UserError(f"{path} is not a recipe in TOML: {error}") from error


def apply_settings(table: Table, settings: Iterable[str]) -> Table:
    """Apply ``key=value`` settings, such as ``train.steps=100``, to a copy of a recipe's table.

    Raises:
        UserError: a setting without ``=``.
    """
    changed: Table = json.loads(json.dumps(table))
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise UserError(f"--set {setting!r} does not fit: write key=value, such as train.steps=100")
        *path, last = key.strip().split(".")
        inner = changed
        for part in path:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise UserError(f"--set {setting!r} does not fit: {part} is a value, not a table")
        inner[last] = _value(value.strip())
    return changed


def _value(text: str) -> object:
    """Read a value as TOML would; what is no TOML value is a string, and ``none`` is nothing."""
    if text.lower() in ("none", "null"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def resolve_recipe(table: Table) -> Recipe:
    """Check a recipe's table and freeze it.

    Raises:
        UserError: an unknown key, a wrong type, or a value that cannot be.
    """
    flat = {key: value for key, value in table.items() if key not in _SECTIONS}
    for key, value in table.items():
        if key in (*_SECTIONS, "corpus", "objective", "paper") and not isinstance(value, dict):
            raise UserError(f"{key} = {value!r} does not fit: it is a table of keys, such as {key}.something=1")
    if isinstance(flat.get("texts"), str):
        flat["texts"] = [flat["texts"]]
    sections: dict[str, Any] = {name: build_config(kind, table.get(name, {}), name) for name, kind in _SECTIONS.items()}
    if "method" not in flat:
        raise UserError('the recipe names no method: write method = "simcse", for one, at its top')
    recipe = build_config(Recipe, {**flat, **sections}, "")
    _check(recipe.train)
    return recipe


def _check(train: TrainConfig) -> None:
    for name, least in (("batch_size", 2), ("accumulation", 1), ("log_every", 1), ("evaluate_every", 0)):
        if getattr(train, name) < least:
            raise UserError(f"train.{name} = {getattr(train, name)} does not fit: it must be at least {least}")
    for name in ("steps", "patience", "checkpoint_every"):
        if getattr(train, name) is not None and getattr(train, name) < 1:
            raise UserError(f"train.{name} = {getattr(train, name)} does not fit: it must be at least 1")
    if train.epochs <= 0 or train.learning_rate <= 0:
        raise UserError("train.epochs and train.learning_rate must be above 0")
    if train.schedule not in SCHEDULES:
        raise unknown("train.schedule", train.schedule, SCHEDULES)
    if train.schedule == "slanted" and train.warmup_steps:
        raise UserError("train.warmup_steps does not fit the schedule 'slanted', which warms up by itself: leave it 0")


def recipe_table(recipe: Recipe) -> Table:
    """Return the recipe as plain values, for a run's config.json."""
    plain: Table = json.loads(json.dumps(dataclasses.asdict(recipe), default=dict))
    return plain
