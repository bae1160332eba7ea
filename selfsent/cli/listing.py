"""The methods and every key that --set takes, as settings.json lists them: importing torch takes seconds.

``make settings`` writes that file anew from the configuration classes; a test holds the two together.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from selfsent.errors import unknown
from selfsent.objectives.listing import method_files

if TYPE_CHECKING:  # its classes take tens of milliseconds to build, which every command would pay for
    from selfsent.config import Setting

LISTING = Path(__file__).with_name("settings.json")


class Method(NamedTuple):
    """A method that comes with the package."""

    about: str  # the paper, the formulas and the departures from them
    presets: dict[str, dict[str, Any]]  # name -> the settings that it changes

    @property
    def title(self) -> str:
        """Say in a line what it is."""
        return self.about.partition("\n")[0]


@cache
def _listing() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(LISTING.read_text(encoding="utf-8"))
    return content


def listed_methods() -> dict[str, Method]:
    """Return the methods by name."""
    return {name: Method(*entry) for name, entry in _listing()["methods"].items()}


def listed_keys(*groups: str) -> "Iterator[Setting]":
    """Yield the keys of groups: "recipe", a method, or a command such as "fit"."""
    from selfsent.config import Setting

    return (Setting(*entry) for group in groups for entry in _listing()["keys"].get(group, ()))


def require_methods(names: str) -> None:
    """Refuse what is no method, preset or recipe, nor looks like a module, before torch is loaded."""
    from selfsent.config import RECIPES, is_recipe

    if is_recipe(names):
        return
    presets = [preset for method in listed_methods().values() for preset in method.presets]
    names_of_methods = [*method_files(), *presets]
    for name in (part.strip() for part in names.split("+")):
        if "." not in name and name not in names_of_methods:
            raise unknown("method", name, [*names_of_methods, *(path.stem for path in RECIPES.glob("*.toml"))])


def method_listing(name: str) -> "tuple[Method, list[Setting]]":
    """Return a method and its keys from its module, which imports torch."""
    from selfsent.config import describe
    from selfsent.objectives.registry import load_method, preset_settings

    kind = load_method(name)
    presets = {preset: preset_settings(changes) for preset, changes in kind.presets.items()}
    about = (sys.modules[kind.__module__].__doc__ or "").strip()
    return Method(about, json.loads(json.dumps(presets))), [_plain(setting) for setting in describe(kind.Config)]


def collect_listing() -> dict[str, Any]:
    """Read methods and keys from the modules that define them."""
    from selfsent.config import Recipe, describe
    from selfsent.corpus.settings import CorpusConfig
    from selfsent.pairs.near_pairs import MineConfig
    from selfsent.pretraining.pretrain import PretrainConfig
    from selfsent.reproduction.scale import SmallScale
    from selfsent.searching.settings import IndexConfig
    from selfsent.selection.settings import FitConfig
    from selfsent.serving.settings import ServeConfig
    from selfsent.word_vectors.static_vectors import StaticConfig

    kinds = {"fit": FitConfig, "pretrain": PretrainConfig, "static": StaticConfig, "mine": MineConfig}
    kinds |= {"index": IndexConfig, "serve": ServeConfig, "reproduce": SmallScale}
    keys = {"recipe": [*describe(Recipe), *describe(CorpusConfig, "corpus.")]}
    keys |= {name: describe(kind) for name, kind in kinds.items()}
    methods = {}
    for name in method_files():
        methods[name], keys[name] = method_listing(name)
    return {"methods": methods, "keys": {name: [_plain(setting) for setting in keys[name]] for name in keys}}


def _plain(setting: "Setting") -> "Setting":
    return setting._replace(default="none" if setting.default is None else str(setting.default))


def listing_text() -> str:
    """Return the content of settings.json, a key a line."""
    lines = []
    for part, entries in collect_listing().items():
        groups = [f"{json.dumps(name)}: {_lines(entry)}" for name, entry in entries.items()]
        lines.append(f"{json.dumps(part)}: {{\n" + ",\n".join(groups) + "\n}")
    return "{" + ",\n".join(lines) + "}\n"


def _lines(entries: Iterable[object]) -> str:
    return "[\n" + ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries) + "]"


def write() -> None:
    """Write settings.json anew: what ``make settings`` runs."""
    LISTING.write_text(listing_text(), encoding="utf-8")
