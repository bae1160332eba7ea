"""Turn raw, unlabelled text into a sentence encoder that you can trust."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selfsent.api import evaluate, train, verdict
    from selfsent.encoder import load
    from selfsent.encoding import encode_to
    from selfsent.errors import Interrupted, SelfsentError, UserError
    from selfsent.methods.scd import SCD
    from selfsent.methods.simcse import SimCSE
    from selfsent.methods.whitenedcse import WhitenedCSE
    from selfsent.objective import Objective

# Where each public name lives; opened when first asked for, because torch takes seconds to import.
_HOMES = {
    "Interrupted": "errors",
    "Objective": "objective",
    "SCD": "methods.scd",
    "SelfsentError": "errors",
    "SimCSE": "methods.simcse",
    "UserError": "errors",
    "WhitenedCSE": "methods.whitenedcse",
    "encode_to": "encoding",
    "evaluate": "api",
    "load": "encoder",
    "train": "api",
    "verdict": "api",
}
__all__ = [
    "SCD",
    "Interrupted",
    "Objective",
    "SelfsentError",
    "SimCSE",
    "UserError",
    "WhitenedCSE",
    "encode_to",
    "evaluate",
    "load",
    "train",
    "verdict",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
