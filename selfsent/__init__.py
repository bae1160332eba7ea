"""Turn raw, unlabelled text into a sentence encoder that you can trust."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selfsent.api import train
    from selfsent.bulk_encode import encode_to
    from selfsent.encoder.encode import encode
    from selfsent.encoder.load import load_encoder as load
    from selfsent.errors import Interrupted, SelfsentError, UserError
    from selfsent.label_free_verdict import verdict
    from selfsent.methods.scd import SCD
    from selfsent.methods.simcse import SimCSE
    from selfsent.methods.whitenedcse import WhitenedCSE
    from selfsent.objective import Objective
    from selfsent.pretraining.train import pretrain
    from selfsent.scoring import compare, evaluate
    from selfsent.semantic_search import search

# Where each public name lives; opened when first asked for, because torch takes seconds to import.
_HOMES = {
    "Interrupted": "errors:Interrupted",
    "Objective": "objective:Objective",
    "SCD": "methods.scd:SCD",
    "SelfsentError": "errors:SelfsentError",
    "SimCSE": "methods.simcse:SimCSE",
    "UserError": "errors:UserError",
    "WhitenedCSE": "methods.whitenedcse:WhitenedCSE",
    "encode": "encoder.encode:encode",
    "encode_to": "bulk_encode:encode_to",
    "compare": "scoring:compare",
    "evaluate": "scoring:evaluate",
    "load": "encoder.load:load_encoder",
    "pretrain": "pretraining.train:pretrain",
    "search": "semantic_search:search",
    "train": "api:train",
    "verdict": "label_free_verdict:verdict",
}
__all__ = [
    "SCD",
    "Interrupted",
    "Objective",
    "SelfsentError",
    "SimCSE",
    "UserError",
    "WhitenedCSE",
    "compare",
    "encode",
    "encode_to",
    "evaluate",
    "load",
    "pretrain",
    "search",
    "train",
    "verdict",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(f"{__name__}.{module}"), attribute)


def __dir__() -> list[str]:
    return __all__
