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
    from selfsent.bulk.encode import encode_to
    from selfsent.encoder.encode import encode
    from selfsent.encoder.load import load_encoder as load
    from selfsent.evaluation.evaluate import compare, evaluate
    from selfsent.evaluation.label_free.verdict import verdict
    from selfsent.export.export import export_model
    from selfsent.export.hub import push_model
    from selfsent.objectives.base import Objective
    from selfsent.objectives.declutr import DeCLUTR
    from selfsent.objectives.denosent import DenoSent
    from selfsent.objectives.scd import SCD
    from selfsent.objectives.sentence_transformers_loss import ObjectiveLoss
    from selfsent.objectives.simcse import SimCSE
    from selfsent.objectives.whitenedcse import WhitenedCSE
    from selfsent.pairs.mine import mine_pairs
    from selfsent.pairs.structure import structure_pairs
    from selfsent.pretraining.pretrain import pretrain
    from selfsent.report.report import write_report
    from selfsent.searching.index import Index
    from selfsent.searching.search import search
    from selfsent.selection.fit import fit
    from selfsent.sweeping.sweep import sweep
    from selfsent.training.train import train

# Where the other public names are defined; imported on first use, because torch takes seconds to import.
_HOMES = {
    "DeCLUTR": "objectives.declutr:DeCLUTR",
    "DenoSent": "objectives.denosent:DenoSent",
    "Index": "searching.index:Index",
    "Objective": "objectives.base:Objective",
    "ObjectiveLoss": "objectives.sentence_transformers_loss:ObjectiveLoss",
    "SCD": "objectives.scd:SCD",
    "SimCSE": "objectives.simcse:SimCSE",
    "WhitenedCSE": "objectives.whitenedcse:WhitenedCSE",
    "compare": "evaluation.evaluate:compare",
    "encode": "encoder.encode:encode",
    "encode_to": "bulk.encode:encode_to",
    "evaluate": "evaluation.evaluate:evaluate",
    "export_model": "export.export:export_model",
    "fit": "selection.fit:fit",
    "load": "encoder.load:load_encoder",
    "mine_pairs": "pairs.mine:mine_pairs",
    "pretrain": "pretraining.pretrain:pretrain",
    "push_model": "export.hub:push_model",
    "search": "searching.search:search",
    "structure_pairs": "pairs.structure:structure_pairs",
    "sweep": "sweeping.sweep:sweep",
    "train": "training.train:train",
    "verdict": "evaluation.label_free.verdict:verdict",
    "write_report": "report.report:write_report",
}
__all__ = [
    "SCD",
    "ConfigurationError",
    "CorpusError",
    "DataError",
    "DeCLUTR",
    "DenoSent",
    "EncoderError",
    "Index",
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
