"""What a sweep tries: lists of values and ranges of numbers for keys of a recipe."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from selfsent.errors import ConfigurationError
from selfsent.runs.repeat_command import setting_value

_RANGE = re.compile(r"(?P<low>[^:]+?)\.\.(?P<high>[^:]+?)(?P<log>:log)?")
_OPENING, _CLOSING = "[{", "]}"


@dataclass(frozen=True, kw_only=True)
class SweptKey:
    """One key with the values that it takes: those of a list, or any between two numbers."""

    key: str
    values: tuple[str, ...] = ()  # as --set takes them; empty: a range
    low: float = 0.0
    high: float = 0.0
    log: bool = False  # drawn uniformly in the logarithm
    whole: bool = False  # integers


def split_settings(settings: Iterable[str]) -> tuple[list[str], list[SweptKey]]:
    """Split ``key=value`` settings into those of one value, and those with a list of values to try.

    Commas in brackets or quotes separate nothing: ``train.adam_betas=[0.9,0.98]`` is one value.

    Raises:
        ConfigurationError: a list with an empty value, or with one value twice.
    """
    single, swept = [], []
    for setting in settings:
        key, _, text = setting.partition("=")
        values = _split_list(text)
        if len(values) < 2:
            single.append(setting)
        else:
            swept.append(_listed(key.strip(), values))
    return single, swept


def _split_list(text: str) -> list[str]:
    """Split at the commas that stand outside brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in _OPENING or letter in _CLOSING:
            depth += 1 if letter in _OPENING else -1
        if letter == "," and not quote and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _listed(key: str, values: Sequence[str]) -> SweptKey:
    if not all(values):
        raise ConfigurationError(f"{key} = {','.join(values)!r} does not fit: one of its values is empty")
    if len(set(values)) < len(values):
        raise ConfigurationError(f"{key} = {','.join(values)!r} does not fit: it has one value twice")
    return SweptKey(key=key, values=tuple(values))


def parse_range(text: str) -> SweptKey:
    """Parse ``key=low..high``, with ``:log`` at its end where it is to be drawn uniformly in the logarithm.

    Raises:
        ConfigurationError: it is none, its ends are no numbers in rising order, or are not above 0 with ``:log``.
    """
    key, _, value = text.partition("=")
    match = _RANGE.fullmatch(value.strip())
    example = "write train.learning_rate=1e-5..1e-3:log, or train.steps=100..400"
    if not key.strip() or match is None:
        raise ConfigurationError(f"the range {text!r} does not fit: {example}")
    try:
        low, high = float(match["low"]), float(match["high"])
    except ValueError:
        raise ConfigurationError(f"the range {text!r} does not fit, its ends are no numbers: {example}") from None
    log = match["log"] is not None
    if not (math.isfinite(low) and math.isfinite(high) and low < high) or (log and low <= 0):
        bound = "above 0 and rising" if log else "rising"
        raise ConfigurationError(f"the range {text!r} does not fit: its ends are to be {bound}")
    whole = all(re.fullmatch(r"[+-]?\d+", match[end].strip()) for end in ("low", "high"))
    return SweptKey(key=key.strip(), low=low, high=high, log=log, whole=whole)


def read_lists(table: Mapping[str, Any], prefix: str = "") -> list[SweptKey]:
    """Return what a recipe's table ``[sweep]`` holds: a list for each key, or a range as a string.

    Raises:
        ConfigurationError: something else than a list or a range, or a list of fewer than two values.
    """
    swept: list[SweptKey] = []
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            swept += read_lists(value, f"{key}.")
        elif isinstance(value, str):
            swept.append(parse_range(f"{key}={value}"))
        elif isinstance(value, list) and len(value) > 1:
            swept.append(_listed(key, [setting_value(each) for each in value]))
        else:
            raise ConfigurationError(f"sweep.{key} = {value!r} does not fit: write a list of two values or more")
    return swept


def join_keys(*parts: Iterable[SweptKey]) -> list[SweptKey]:
    """Join what recipe, lists and ranges sweep; the last one of a key counts.

    Raises:
        ConfigurationError: there is nothing to sweep, or the seed is swept.
    """
    joined = [*{swept.key: swept for part in parts for swept in part}.values()]
    if not joined:
        raise ConfigurationError(
            "there is nothing to sweep: give a key several values, such as --set objective.temperature=0.05,0.1, "
            "or a range, such as --range train.learning_rate=1e-5..1e-3:log"
        )
    if any(swept.key == "seed" for swept in joined):
        raise ConfigurationError("the seed is no setting to choose: give --seeds 3 to train every setting three times")
    return joined


def grid_points(space: Sequence[SweptKey]) -> Iterator[dict[str, str]]:
    """Yield every combination of the values, the last key varying fastest."""
    keys = [swept.key for swept in space]
    return (dict(zip(keys, values, strict=True)) for values in product(*(swept.values for swept in space)))


def random_points(space: Sequence[SweptKey], number: int, seed: int) -> list[dict[str, str]]:
    """Draw so many of the combinations uniformly, none of them twice; all of them where there are no more."""
    draws = np.random.default_rng(seed)
    number = min(number, math.prod(len(swept.values) for swept in space))
    drawn: dict[tuple[str, ...], None] = {}  # no list of the combinations: eight keys of ten values have 100 million
    while len(drawn) < number:
        drawn[tuple(swept.values[draws.integers(len(swept.values))] for swept in space)] = None
    return [dict(zip((swept.key for swept in space), values, strict=True)) for values in drawn]


def as_settings(chosen: Mapping[str, str]) -> list[str]:
    """Return chosen values as ``key=value`` settings."""
    return [f"{key}={value}" for key, value in chosen.items()]


def each_value(space: Sequence[SweptKey]) -> Iterator[str]:
    """Yield every value alone as a setting, of ranges their ends."""
    for swept in space:
        ends = (int(swept.low), int(swept.high)) if swept.whole else (swept.low, swept.high)
        for value in swept.values or map(repr, ends):
            yield f"{swept.key}={value}"
