"""Configuration: TOML and ``key=value`` changes in, one frozen Recipe out; every unknown key is refused by name."""

import dataclasses
import json
import tomllib
import types
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from selfsent.errors import ConfigurationError, unknown

T = TypeVar("T")
Table = dict[str, Any]

FINITE = ConfigDict(allow_inf_nan=False)  # of every configuration class: no number is infinite or nan
MANY = 1_000_000_000  # the highest number of steps and texts
SEEDS = 2**32 - 1  # the highest seed
RECIPES = Path(__file__).parent / "recipes"  # those that ship with the package


def setting(default: Any, description: str, **bounds: int | float) -> Any:  # noqa: ANN401
    """Declare a key of a configuration class: its default, its unit and meaning, and bounds (gt, ge, lt, le)."""
    return Field(default=default, description=description, **bounds)  # type: ignore[call-overload]


Beta = Annotated[float, Field(ge=0, lt=1)]


def warn_of_idle(config: object, because: str, *names: str) -> None:
    """Warn of each of these keys that differs from its default, although another one leaves it without effect."""
    fields = type(config).__pydantic_fields__  # type: ignore[attr-defined]
    for name in names:
        value = getattr(config, name)
        if value != fields[name].default:
            warnings.warn(f"{name} {value!r} has no effect, because {because}", stacklevel=4)


@dataclass(frozen=True, kw_only=True, config=FINITE)
class EncoderConfig:
    """How the base is opened."""

    pooling: str | None = setting(None, "None: the base's own, or mean where it has none")
    template: str | None = setting(None, "text around a text under pooling prompt; None: DenoSent's")
    dropout: float | None = setting(None, "rate of every dropout while training; None: the base's own", ge=0, lt=1)
    max_length: int | None = setting(
        None,
        "tokens read of a text, with special tokens and without a prompt's, by evaluations and the saved model; "
        "None: the base's own",
        ge=4,
        le=1_000_000,
    )


@dataclass(frozen=True, kw_only=True, config=FINITE)
class TrainConfig:
    """How the training loop runs."""

    epochs: float = setting(1.0, "passes over the corpus; ignored where steps is given", gt=0, le=1_000_000)
    steps: int | None = setting(None, "optimizer steps", ge=1, le=MANY)
    batch_size: int = setting(64, "texts", ge=2, le=1_000_000)
    learning_rate: float = setting(3e-5, "peak", gt=0, le=10)
    schedule: Literal["linear", "constant", "cosine", "slanted"] = setting(
        "linear",
        "of the learning rate: linear (to zero), constant, cosine, slanted (triangular, DeCLUTR's)",
    )
    warmup_steps: int = setting(0, "steps in which the learning rate rises linearly from zero", ge=0, le=MANY)
    weight_decay: float = setting(0.0, "on matrices, not on biases and LayerNorms", ge=0, le=10)
    max_grad_norm: float = setting(1.0, "clips encoder and objective together; 0: no clipping", ge=0, le=1_000_000)
    adam_betas: tuple[Beta, Beta] = setting((0.9, 0.999), "AdamW's beta1 and beta2")
    adam_epsilon: float = setting(1e-8, "AdamW's epsilon", gt=0, le=1)
    adam_bias_correction: bool = setting(True, "False: BERT's AdamW, whose first update is 3 times larger")
    bucketed: bool = setting(True, "batches of texts of similar length; False: plain shuffling")
    drop_last: bool = setting(False, "leave out the last batch of an epoch where it is smaller")
    accumulation: int = setting(1, "batches a step; in-batch losses need allow_accumulation", ge=1, le=1_000_000)
    cached: bool = setting(
        False, "embed a batch in chunks, each twice, so that it may be larger than memory (GradCache); the same loss"
    )
    chunk_size: int = setting(32, "texts embedded at a time, where cached", ge=1, le=1_000_000)
    allow_accumulation: bool = setting(False, "accumulate although negatives stay within one batch")
    evaluate_every: int = setting(125, "steps; 0: only at the end", ge=0, le=MANY)
    checkpoint_every: int | None = setting(None, "steps; None: at every evaluation", ge=1, le=MANY)
    select: str = setting("auto", "score that picks the best weights; last: the final weights are kept")
    patience: int | None = setting(
        None,
        "stop after so many evaluations without a better score; ignored where select is last",
        ge=1,
        le=MANY,
    )
    log_every: int = setting(10, "steps", ge=1, le=MANY)
    baselines: bool = setting(
        True, "also score BM25, and word vectors counted in the training text, on the held-out pairs"
    )

    def __post_init__(self) -> None:
        if self.schedule == "slanted" and self.warmup_steps:
            raise ValueError("warmup_steps does not fit the schedule 'slanted', which has its own warm-up: leave it 0")


@dataclass(frozen=True, kw_only=True, config=FINITE)
class HardwareConfig:
    """What is otherwise chosen for the machine."""

    precision: str = setting("auto", "auto, bf16 or fp32")
    threads: int | None = setting(None, "None: one for each usable core", ge=1, le=4096)
    device: str | None = setting(None, "cpu, cuda or mps; None: the fastest available")
    keep_heap: bool = setting(True, "keep freed memory in the process (glibc)")


@dataclass(frozen=True, kw_only=True, config=FINITE)
class Recipe:
    """Everything that decides a run, as given; the corpus and objective tables are read where they are used."""

    method: str  # a method, a preset, several joined by +, or a module path
    base: str = setting("builtin", "builtin, a folder, or a name on the hub")
    texts: tuple[str, ...] = setting(("pydocs",), "files, folders, names on the hub, or pydocs")
    data: str | None = setting(None, "evaluation data in SentEval's layout, or hub, for labelled scores")
    seed: int = setting(42, "of every random draw", ge=0, le=SEEDS)
    encoder: EncoderConfig = Field(default_factory=EncoderConfig)
    corpus: Mapping[str, Any] = Field(default_factory=dict)
    objective: Mapping[str, Any] = Field(default_factory=dict)
    train: TrainConfig = Field(default_factory=TrainConfig)
    hardware: HardwareConfig = Field(default_factory=HardwareConfig)
    paper: Mapping[str, Any] = Field(default_factory=dict)  # the published row: its source and figures


_SECTIONS = ("encoder", "train", "hardware", "corpus", "objective", "paper")  # of a recipe
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


# -------------------------------------------------------------------------------------------------------- validation


def build_config(kind: type[T], table: Mapping[str, Any], where: str) -> T:
    """Make a configuration class from a table, refusing unknown keys and values that do not fit by name.

    Raises:
        ConfigurationError: the message names the key as a user would write it.
    """
    known = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    prefix = f"{where}." if where else ""
    for key in table:
        if key not in known:
            raise unknown("key", f"{prefix}{key}", [prefix + name for name in known], _place_of(kind, key, prefix))
    table = dict(table)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if dataclasses.is_dataclass(field.type) and isinstance(table.get(field.name), dict):
            table[field.name] = build_config(field.type, table[field.name], prefix + field.name)  # type: ignore[arg-type]
        elif "none" in get_args(field.type) and field.name in table and table[field.name] is None:
            table[field.name] = "none"  # here it is a word, and not the absence of a value
    try:
        return TypeAdapter(kind).validate_python(table)
    except ValidationError as error:
        raise _sentence(error, known, prefix, where) from error


def _place_of(kind: type[Any], key: str, prefix: str) -> str:
    """Return the whole name of a key that stands in a table of a configuration class; empty where none has it."""
    tables = [field for field in dataclasses.fields(kind) if dataclasses.is_dataclass(field.type)]
    within = (field.name for field in tables if key in {one.name for one in dataclasses.fields(field.type)})  # type: ignore[arg-type]
    table = next(within, "")
    return f"{prefix}{table}.{key}" if table else ""


def _sentence(error: ValidationError, known: list[str], prefix: str, where: str) -> ConfigurationError:
    """Say in one sentence what pydantic found first."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if isinstance(part, str) and part in known)
    context = first.get("ctx", {})
    if first["type"] == "literal_error":
        choices = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        return unknown(f"{prefix}{place}", str(first["input"]), choices)
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "finite_number":
        message = "it must be a finite number"
    for bound, words in _BOUNDS.items():
        if bound in context:
            message = f"it must be {words} {_number(context[bound])}"
    if not place:
        return ConfigurationError(f"{prefix}{message}" if message.partition(" ")[0] in known else f"{where}: {message}")
    return ConfigurationError(f"{prefix}{place} = {first['input']!r} does not fit: {message}")


def _number(bound: int | float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


def resolve_recipe(table: Table) -> Recipe:
    """Check a recipe's table and freeze it.

    Raises:
        ConfigurationError: an unknown key, a wrong type, or a value that cannot be.
    """
    for key, value in table.items():
        if key in _SECTIONS and not isinstance(value, dict):
            raise ConfigurationError(
                f"{key} = {value!r} does not fit: it is a table of keys, such as {key}.something=1"
            )
    if "method" not in table:
        raise ConfigurationError('the recipe names no method: write method = "simcse", for one, at its top')
    texts = {"texts": [table["texts"]]} if isinstance(table.get("texts"), str) else {}
    return build_config(Recipe, {**table, **texts}, "")


def recipe_table(recipe: Recipe) -> Table:
    """Return the recipe as plain values, for a run's config.json."""
    plain: Table = json.loads(json.dumps(dataclasses.asdict(recipe), default=dict))
    return plain


# --------------------------------------------------------------------------------------------- recipes and settings


def is_recipe(name: str | Path) -> bool:
    """Tell whether a name is that of a recipe: a .toml file, or one that ships with the package, with or without it."""
    return str(name).endswith(".toml") or (RECIPES / f"{name}.toml").is_file()


def read_recipe(name: str | Path) -> Table:
    """Read a recipe: a .toml file, or the name of one that ships with the package.

    Raises:
        ConfigurationError: it does not exist or is not TOML.
    """
    path = Path(name)
    if not path.exists():
        path = RECIPES / f"{path.name.removesuffix('.toml')}.toml"
    try:
        return _parse_toml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        shipped = ", ".join(sorted(recipe.stem for recipe in RECIPES.glob("*.toml")))
        raise ConfigurationError(
            f"there is no recipe {name}: give a .toml file, the name of a method, or one of {shipped}"
        ) from None
    except (ValueError, RecursionError, OSError) as error:
        raise ConfigurationError(f"{path} is not a recipe in TOML: {error}") from error


def _parse_toml(text: str) -> Table:
    """Parse TOML into the values of JSON, which a run's config.json can hold: dates become strings."""
    table: Table = json.loads(json.dumps(tomllib.loads(text), default=str))
    return table


def sweep_lists(name: str | Path) -> Table:
    """Return the table ``[sweep]`` of a recipe: keys with the values that ``selfsent sweep`` tries; else nothing.

    Raises:
        ConfigurationError: the recipe cannot be read, or its ``sweep`` is no table.
    """
    table = read_recipe(name).get("sweep", {}) if is_recipe(name) else {}
    if not isinstance(table, dict):
        raise ConfigurationError(f"sweep = {table!r} does not fit: it is a table of keys, each with a list of values")
    return table


def apply_settings(table: Table, settings: Iterable[str] | Mapping[str, object]) -> Table:
    """Apply ``key=value`` settings, such as ``train.steps=100``, or a table of them, to a copy of a recipe's table.

    Raises:
        ConfigurationError: a setting without ``=``.
    """
    changed: Table = json.loads(json.dumps(table))
    for setting in list_settings(settings):
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(f"--set {setting!r} does not fit: write key=value, such as train.steps=100")
        *path, last = key.strip().split(".")
        inner = changed
        for part in path:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise ConfigurationError(f"--set {setting!r} does not fit: {part} is a value, not a table")
        inner[last] = _value(value.strip())
    return changed


def list_settings(settings: Iterable[str] | Mapping[str, object]) -> list[str]:
    """Return ``key=value`` settings as a list: of a table of values or tables, of one setting, or of several."""
    if isinstance(settings, Mapping):
        found = []
        for key, value in settings.items():
            if isinstance(value, Mapping):
                found += [f"{key}.{one}" for one in list_settings(value)]
            else:
                found.append(f"{key}={'none' if value is None else list(value) if isinstance(value, tuple) else value}")
        return found
    return [settings] if isinstance(settings, str) else list(settings)


def _value(text: str) -> object:
    """Parse a TOML value; values that are not TOML are strings; ``none`` is None."""
    if text.lower() in ("none", "null"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        parsed = _parse_toml(f"value = {text}")
    except (ValueError, RecursionError):  # no TOML, too many digits, nested too deeply
        return text
    return parsed["value"] if len(parsed) == 1 else text


# ------------------------------------------------------------------------------------------------------ description


class Setting(NamedTuple):
    """One key of a configuration class, for listings."""

    key: str
    default: object
    kind: str  # type, or the choices
    description: str  # unit and meaning


def describe(kind: type[Any], prefix: str = "") -> list[Setting]:
    """List the keys of a configuration class, with those of classes inside it."""
    found = []
    for field in dataclasses.fields(kind):
        info = kind.__pydantic_fields__[field.name]
        key, inner = f"{prefix}{field.name}", info.annotation
        if dataclasses.is_dataclass(inner):
            found += describe(inner, f"{key}.")  # type: ignore[arg-type]
        elif info.description:
            found.append(Setting(key, info.default, _kind(inner, info), info.description or ""))
    return found


def _kind(annotation: Any, info: FieldInfo) -> str:  # noqa: ANN401
    """Write a type as a reader of TOML would, with its bounds."""
    if get_origin(annotation) is Literal:
        return ", ".join(map(str, get_args(annotation)))
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(_kind(part, info) if part is not type(None) else "none" for part in get_args(annotation))
    if get_origin(annotation) is tuple and all(get_origin(part) is Annotated for part in get_args(annotation)):
        return ", ".join(_kind(*get_args(part)) for part in get_args(annotation))
    bounds = [
        f"{words} {_number(getattr(rule, bound))}"
        for rule in info.metadata
        for bound, words in _BOUNDS.items()
        if annotation in (int, float) and hasattr(rule, bound)
    ]
    name = getattr(annotation, "__name__", str(annotation)) if get_origin(annotation) is None else str(annotation)
    return " ".join([name, *bounds])
