"""The command that repeats a pretraining: every setting of its recipe that differs from the defaults."""

import dataclasses
import json

from selfsent.pretraining.pretrain import PretrainConfig
from selfsent.runs.read import Record
from selfsent.runs.repeat_command import command_line
from selfsent.word_vectors.static_vectors import StaticConfig

_OPTIONS = ("size", "base", "vectors", "vocabulary", "tokens", "hours", "seed")


def command_of_pretraining(run: Record) -> str:
    """Return the command line of a pretraining run, from its config.json, without ``--out``."""
    config = StaticConfig() if run.recipe.get("size") == "static" else PretrainConfig()
    words = ["selfsent", "pretrain", *(str(text) for text in run.recipe.get("texts", ()))]
    return command_line(words, run.recipe, _OPTIONS, json.loads(json.dumps(dataclasses.asdict(config))))
