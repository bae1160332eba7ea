"""One module per method.  The folder is the registry: ``load_method("scd")`` reads ``objectives/scd.py``."""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from sentence_transformers import SentenceTransformer

from selfsent.config import build_config
from selfsent.errors import ConfigurationError, unknown
from selfsent.objectives.base import Objective, RecipeTable
from selfsent.objectives.composite import Composition, require_one_unit
from selfsent.objectives.listing import method_files


def method_names() -> list[str]:
    """List the methods that come with the package."""
    return list(method_files())


def load_method(name: str) -> type[Objective]:
    """Return the objective of a method of ours (``"scd"``) or of an importable module (``"mypackage.mine"``).

    Raises:
        ConfigurationError: no such method or module, or the module names no METHOD.
    """
    if "." not in name and name not in method_names():
        raise unknown("method", name, method_names())
    path = name if "." in name else f"{__package__}.{name}"
    try:
        if "." in name and str(Path.cwd()) not in sys.path:
            # As `python -m` has it; last, so that what is installed comes first.
            sys.path.append(str(Path.cwd()))
        if not path.replace(".", "_").isidentifier() or path.startswith("."):
            raise ModuleNotFoundError(path, name=path)
        method = import_module(path).METHOD
    except ModuleNotFoundError as error:
        if error.name is None or not f"{path}.".startswith(f"{error.name}."):
            raise  # the module exists; something that it needs does not
        raise ConfigurationError(
            f"no module {name!r} is installed or in this folder: give one that can be imported and names its METHOD"
        ) from error
    except AttributeError as error:
        raise ConfigurationError(f"module {name!r} is no method: its last line should be METHOD = ...") from error
    if not (isinstance(method, type) and issubclass(method, Objective)):
        raise ConfigurationError(f"METHOD of module {name!r} is {method!r}: it should be a subclass of Objective")
    return method


@dataclass(frozen=True)
class ObjectivePlan:
    """A method, or several joined by ``+``, with every setting resolved; ``build`` makes the objective."""

    kinds: dict[str, type[Objective]]
    configs: dict[str, Any]
    weights: dict[str, float]

    @property
    def unit(self) -> Literal["sentences", "documents"]:
        """What a row of the corpus has to be."""
        return next(iter(self.kinds.values())).unit

    def build(self, encoder: SentenceTransformer) -> Objective:
        """Make the objective, with fresh weights from torch's generator."""
        parts = {name: kind(self.configs[name], encoder) for name, kind in self.kinds.items()}
        if len(parts) == 1:
            return next(iter(parts.values()))
        weights = {name.replace(".", "-"): weight for name, weight in self.weights.items()}
        return Composition({name.replace(".", "-"): member for name, member in parts.items()}, weights, encoder)

    def table(self) -> dict[str, Any]:
        """Return the settings as plain values, for a run's config.json."""
        tables = {name: asdict(config) for name, config in self.configs.items()}
        return next(iter(tables.values())) if len(tables) == 1 else {**tables, "weights": self.weights}


def plan_objective(name: str, table: Mapping[str, Any]) -> ObjectivePlan:
    """Resolve a method, preset, module path, or several joined by ``+``, and its ``objective`` table.

    Joined methods have a table each, ``objective.scd.temperature``, and weights, ``objective.weights.scd``, of which
    each is 1 unless given.

    Raises:
        ConfigurationError: an unknown method or key, a value that does not fit, or methods that cannot be joined.
    """
    methods = {member.strip(): find_method(member.strip()) for member in name.split("+")}
    if len(methods) < name.count("+") + 1:
        raise ConfigurationError(
            f"{name!r} joins a method with itself: name each once, and weigh it with objective.weights"
        )
    kinds = {method: kind for method, (kind, _) in methods.items()}
    if len(methods) == 1:
        ((method, (kind, changes)),) = methods.items()
        return ObjectivePlan(
            kinds, {method: build_config(kind.Config, {**changes, **table}, "objective")}, {method: 1.0}
        )
    require_one_unit(kinds)
    weight_keys = [f"objective.weights.{method}" for method in methods]
    for key, value in table.items():
        if key not in (*methods, "weights") or not isinstance(value, Mapping):
            keys = [f"objective.{method}.{key.name}" for method, kind in kinds.items() for key in fields(kind.Config)]
            raise unknown("key", f"objective.{key}", [*keys, *weight_keys])
    weights = dict(table.get("weights", {}))
    for method, weight in weights.items():
        key = f"objective.weights.{method}"
        if method not in methods:
            raise unknown("key", key, weight_keys)
        if not isinstance(weight, int | float) or weight < 0:
            raise ConfigurationError(f"{key} = {weight!r} does not fit: it is a number of 0 or more")
    configs = {
        method: build_config(kind.Config, {**changes, **table.get(method, {})}, f"objective.{method}")
        for method, (kind, changes) in methods.items()
    }
    return ObjectivePlan(kinds, configs, {method: float(weights.get(method, 1.0)) for method in methods})


def method_recipe(name: str) -> RecipeTable:
    """Return the training and encoder settings that methods or presets bring; the first of joined ones wins."""
    wanted: RecipeTable = {}
    for member in name.split("+"):
        kind, preset = _find(member.strip())
        for table in (preset, kind.recipe):
            for section, keys in table.items():
                if section != "objective":
                    wanted[section] = {**keys, **wanted.get(section, {})}
    return wanted


def find_method(name: str) -> tuple[type[Objective], dict[str, object]]:
    """Return the objective that a method or preset name means, and what it changes in the Config.

    ``find_method("scd")`` changes nothing; ``find_method("scd_paper_literal")`` is SCD with the changes of that preset.

    Raises:
        ConfigurationError: neither a method, nor a preset, nor an importable module.
    """
    kind, preset = _find(name)
    return kind, dict(preset.get("objective", {}))


def preset_settings(preset: RecipeTable) -> dict[str, object]:
    """Return the keys of a preset as ``--set`` takes them, with their values."""
    return {f"{section}.{key}": value for section, keys in preset.items() for key, value in keys.items()}


def _find(name: str) -> tuple[type[Objective], RecipeTable]:
    if "." in name or name in method_names():
        return load_method(name), {}
    presets = {preset: method for method in map(load_method, method_names()) for preset in method.presets}
    if name not in presets:
        raise unknown("method", name, [*method_names(), *presets])
    return presets[name], presets[name].presets[name]
