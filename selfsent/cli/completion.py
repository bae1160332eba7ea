"""What the shell completes: methods, recipes and the keys of --set, without importing torch."""

from collections.abc import Callable, Iterable

import typer

from selfsent.cli.listing import listed_keys, listed_methods

# The groups of keys that a command takes, where there are not those of its own name.
_GROUPS = {"pretrain": ("pretrain", "static"), "train": ("recipe",), "sweep": ("recipe",)}
Candidates = list[tuple[str, str]]  # what may be written, and what it is


def complete_method(incomplete: str) -> Candidates:
    """Return the methods and presets that fit, also the next of several joined by +."""
    joined, plus, _ = incomplete.rpartition("+")
    names: Candidates = []
    for name, method in listed_methods().items():
        names += [(name, method.title), *((preset, f"preset of {name}") for preset in method.presets)]
    return _fitting(incomplete, ((f"{joined}{plus}{name}", title) for name, title in names))


def complete_recipe(incomplete: str) -> Candidates:
    """Return the methods, presets and recipes that fit."""
    from selfsent.config import RECIPES

    recipes = sorted(path.stem for path in RECIPES.glob("*.toml"))
    return complete_method(incomplete) + _fitting(incomplete, ((name, "recipe") for name in recipes))


def complete_setting(context: typer.Context, incomplete: str) -> Candidates:
    """Return the keys that the command's --set takes, with their meaning; of the method that was named, or of all."""
    command = str(context.info_name)
    keys = [(setting.key, setting.description) for setting in listed_keys(*_GROUPS.get(command, (command,)))]
    if command in ("train", "sweep"):
        methods, parts = listed_methods(), str(context.params.get("method") or "").split("+")
        named = [name for name, method in methods.items() if {name, *method.presets} & {*parts}]
        keys += [(f"objective.{own.key}", own.description) for own in listed_keys(*(named or methods))]
    return _fitting(incomplete, ((f"{key}=", meaning) for key, meaning in dict(keys).items()))


def complete_words(*words: str) -> Callable[[str], Candidates]:
    """Return what completes an option that takes one of a few words."""

    def complete(incomplete: str) -> Candidates:
        return _fitting(incomplete, ((word, "") for word in words))

    return complete


def _fitting(incomplete: str, candidates: Iterable[tuple[str, str]]) -> Candidates:
    return [candidate for candidate in candidates if candidate[0].startswith(incomplete)]
