"""Turn raw, unlabelled text into a sentence encoder that you can trust."""

from importlib import import_module
from typing import TYPE_CHECKING

from selfsent.errors import (
    ConfigurationError,
    CorpusError,
    DataError,
    EncoderError,
    Interrupted,
    ResumeError,
    SelfsentError,
    UserError,
)
from selfsent.progress import Progress

if TYPE_CHECKING:
    from selfsent.api import train
    from selfsent.augment.mine import mine_pairs
    from selfsent.augment.structure import structure_pairs
    from selfsent.bulk_encode import encode_to
    from selfsent.encoder.encode import encode
    from selfsent.encoder.load import load_encoder as load
    from selfsent.export import export_model
    from selfsent.label_free_verdict import verdict
    from selfsent.methods.declutr import DeCLUTR
    from selfsent.methods.denosent import DenoSent
    from selfsent.methods.scd import SCD
    from selfsent.methods.simcse import SimCSE
    from selfsent.methods.whitenedcse import WhitenedCSE
    from selfsent.objective import Objective
    from selfsent.objective_loss import ObjectiveLoss
    from selfsent.pretraining.train import pretrain
    from selfsent.publishing import push_model
    from selfsent.report import write_report
    from selfsent.scoring import compare, evaluate
    from selfsent.selection.fit import fit
    from selfsent.selection.seeds import train_seeds
    from selfsent.selection.sweep import sweep
    from selfsent.semantic_search import search

# Where the other public names are defined; imported on first use, because torch takes seconds to import.
_HOMES = {
    "DeCLUTR": "methods.declutr:DeCLUTR",
    "DenoSent": "methods.denosent:DenoSent",
    "Objective": "objective:Objective",
    "ObjectiveLoss": "objective_loss:ObjectiveLoss",
    "SCD": "methods.scd:SCD",
    "SimCSE": "methods.simcse:SimCSE",
    "WhitenedCSE": "methods.whitenedcse:WhitenedCSE",
    "compare": "scoring:compare",
    "encode": "encoder.encode:encode",
    "encode_to": "bulk_encode:encode_to",
    "evaluate": "scoring:evaluate",
    "export_model": "export:export_model",
    "fit": "selection.fit:fit",
    "load": "encoder.load:load_encoder",
    "mine_pairs": "augment.mine:mine_pairs",
    "pretrain": "pretraining.train:pretrain",
    "push_model": "publishing:push_model",
    "search": "semantic_search:search",
    "structure_pairs": "augment.structure:structure_pairs",
    "sweep": "selection.sweep:sweep",
    "train": "api:train",
    "train_seeds": "selection.seeds:train_seeds",
    "verdict": "label_free_verdict:verdict",
    "write_report": "report:write_report",
}
__all__ = [
    "SCD",
    "ConfigurationError",
    "CorpusError",
    "DataError",
    "DeCLUTR",
    "DenoSent",
    "EncoderError",
    "Interrupted",
    "Objective",
    "ObjectiveLoss",
    "Progress",
    "ResumeError",
    "SelfsentError",
    "SimCSE",
    "UserError",
    "WhitenedCSE",
    "compare",
    "encode",
    "encode_to",
    "evaluate",
    "export_model",
    "fit",
    "load",
    "mine_pairs",
    "pretrain",
    "push_model",
    "search",
    "structure_pairs",
    "sweep",
    "train",
    "train_seeds",
    "verdict",
    "write_report",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(f"{__name__}.{module}"), attribute)


def __dir__() -> list[str]:
    return __all__
