"""A contract for every setting: a test that changes it, and computes outside the package what has to change.

Settings are given as users give them: in a recipe file, and again as ``key=value``, which has to mean the same.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from tiny import TEXTS

import selfsent
from selfsent.config import Recipe
from selfsent.objectives import registry
from selfsent.training import run as running
from selfsent.training import trainer
from selfsent.training.train import resolve


class Contracts:
    """The settings that the tests of a module hold to their descriptions."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}  # setting -> its test

    def __call__(self, prefix: str, keys: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Mark a test as the contract of some settings of one class."""

        def mark(test: Callable[..., None]) -> Callable[..., None]:
            self.names |= {f"{prefix}.{key}": test.__name__ for key in keys.split()}
            return test

        return mark

    def missing(self, classes: Mapping[str, type]) -> list[str]:
        """Walk over the fields of some classes; name those without a contract, and contracts without a field."""
        walked = {f"{prefix}.{field.name}" for prefix, kind in classes.items() for field in fields(kind)}
        return [f"no contract for {key}" for key in sorted(walked - set(self.names))] + [
            f"no setting {key}" for key in sorted(set(self.names) - walked)
        ]


def recipe(folder: Path, method: str, **tables: Any) -> Recipe:
    """Resolve settings from a recipe file; given by ``--set`` they are the same."""
    lines, words = [f'method = "{method}"'], []
    plain = {key: value for key, value in tables.items() if not isinstance(value, dict)}
    for table, keys in {"": plain, **{key: value for key, value in tables.items() if isinstance(value, dict)}}.items():
        lines += [f"[{table}]"] * bool(table)
        for key, value in keys.items():
            written = "none" if value is None else json.dumps(list(value) if isinstance(value, tuple) else value)
            words.append(f"{table}{'.' * bool(table)}{key}={written}")
            lines += [f"{key} = {written}"] * (value is not None)
    path = folder / "recipe.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    given = resolve(method, settings=words)
    if "none" not in "".join(words):  # TOML has no word for it
        assert resolve(path) == given
    return given


def objective(folder: Path, method: str, encoder: Any, **settings: Any) -> Any:
    """Build the objective of a recipe with these settings."""
    resolved = recipe(folder, method, objective=settings)
    return registry.plan_objective(resolved.method, resolved.objective).build(encoder)


def defaults(kind: type) -> dict[str, Any]:
    """Return what a configuration class holds where nothing is given."""
    return {field.name: getattr(kind(), field.name) for field in fields(kind)}


def distance(sample: Any, cdf: Callable[[Any], Any]) -> float:
    """Return Kolmogorov's distance of whole numbers from a distribution, times the root of their count."""
    values, counts = np.unique(np.asarray(sample), return_counts=True)
    return float(np.abs(counts.cumsum() / counts.sum() - cdf(values)).max() * np.sqrt(counts.sum()))


class Built(Exception):
    """Raised where training would begin."""


def build(
    patched: pytest.MonkeyPatch, folder: Path, base: Path, text: Path, /, method: str = "simcse", **tables: Any
) -> Any:
    """Return the trainer that a recipe makes of a base and a text, before its first step."""
    kept = []

    class Kept(trainer.Trainer):
        def train(self) -> Any:
            kept.append(self)
            raise Built

    patched.setattr(running, "Trainer", Kept)
    tables["hardware"] = {"threads": 1, "precision": "fp32", "device": "cpu"} | tables.get("hardware", {})
    tables["corpus"] = {"deduplicate": "none", "held_out": 0} | tables.get("corpus", {})
    given = recipe(folder, method, **({"base": str(base), "texts": [str(text)]} | tables))
    with pytest.raises(Built):
        selfsent.train(given, out=Path(mkdtemp(dir=folder)) / "run")
    return kept[0]


def write_lines(path: Path, count: int = 50, words: int = 4) -> Path:
    """Write lines that all differ, of ``words`` to ``words`` + 9 words."""
    draw = np.random.default_rng(0)
    known = sorted({word for text in TEXTS for word in text.split()})
    path.write_text("\n".join(" ".join(draw.choice(known, words + i % 10)) for i in range(count)), encoding="utf-8")
    return path
