"""No key of any configuration takes a number that means nothing: every one has its range."""

import dataclasses
import math
import types
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal, Union, get_args, get_origin

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import is_pydantic_dataclass

import selfsent
from selfsent.config import build_config
from selfsent.corpus.settings import CorpusConfig
from selfsent.errors import ConfigurationError
from selfsent.pretraining.pretrain import PretrainConfig
from selfsent.searching.settings import IndexConfig
from selfsent.selection.settings import FitConfig
from selfsent.training.train import resolve

PACKAGE = Path(selfsent.__file__).parent
NEEDED = {"Recipe": {"method": "simcse"}}  # keys without a default


def configurations():
    """Return every configuration class of the package, those inside other classes too."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        if path.name != "__main__.py":
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            module = import_module(".".join(parts).removesuffix(".__init__"))
            for one in list(vars(module).values()):
                for kind in (one, getattr(one, "Config", None)):
                    if isinstance(kind, type) and is_pydantic_dataclass(kind):
                        found[f"{kind.__module__}.{kind.__qualname__}"] = kind
    return found


def shapes(annotation):
    """Yield how a number is put into a value of this type: itself, or one place of a tuple."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation in (int, float):
        yield lambda number: number
    elif origin is Annotated:
        yield from shapes(inner[0])
    elif origin in (Union, types.UnionType):
        for part in inner:
            yield from shapes(part)
    elif origin is tuple:
        for place, part in enumerate(inner):
            for put in shapes(part):
                yield lambda number, place=place, put=put: tuple(
                    put(number) if place == other else 0.5 for other in range(len(inner))
                )


NUMBERS = [
    (name, field.name, put)
    for name, kind in sorted(configurations().items())
    for field in dataclasses.fields(kind)
    if get_origin(field.type) is not Literal
    for put in shapes(field.type)
]


def test_the_walk_finds_the_numbers_of_all_rooms():
    rooms = {name.split(".")[1] for name, _, _ in NUMBERS}
    assert {"config", "corpus", "objectives", "pretraining", "selection"} <= rooms
    assert len(NUMBERS) > 60
    assert sum(key == "adam_betas" for _, key, _ in NUMBERS) == 2


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, -1, -0.5, 10**30, 1e30])
def test_no_setting_takes_a_number_that_means_nothing(number):
    taken = []
    for name, key, put in NUMBERS:
        kind = configurations_by_name[name]
        try:
            TypeAdapter(kind).validate_python(NEEDED.get(kind.__name__, {}) | {key: put(number)})
        except (ValidationError, ConfigurationError):
            continue
        taken.append(f"{name}.{key}")
    if -1 <= number < 0:  # which is a cosine
        taken.remove("selfsent.pairs.near_pairs.MineConfig.min_cosine")
    assert taken == []


configurations_by_name = configurations()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("train.max_grad_norm=-1", r"train\.max_grad_norm = -1 does not fit: it must be at least 0"),
        ("train.warmup_steps=-5", r"train\.warmup_steps = -5 does not fit: it must be at least 0"),
        ("train.epochs=inf", r"train\.epochs = inf does not fit: it must be a finite number"),
        ("train.learning_rate=nan", r"train\.learning_rate = nan does not fit: it must be a finite number"),
        ("train.adam_betas=[0.9, 1.5]", r"train\.adam_betas = 1\.5 does not fit: it must be below 1"),
        ("hardware.threads=0", r"hardware\.threads = 0 does not fit: it must be at least 1"),
        ("seed=-1", r"seed = -1 does not fit: it must be at least 0"),
        ("seed=4294967296", r"seed = 4294967296 does not fit: it must be at most 4,294,967,295"),
    ],
)
def test_a_number_out_of_its_range_is_refused_with_the_range(setting, said):
    with pytest.raises(ConfigurationError, match=said):
        resolve("simcse", settings=[setting])


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("max_length", 999_999_999, r"corpus\.max_length = 999999999 does not fit: it must be at most 1,000,000"),
        ("language", "xx", r"corpus\.language must be a two-letter code of ISO 639-1, such as en or de, got 'xx'"),
        ("language", "EN", r"corpus\.language must be a two-letter code"),
    ],
)
def test_a_corpus_that_cannot_be_is_refused(key, value, said):
    with pytest.raises(ConfigurationError, match=said):
        build_config(CorpusConfig, {key: value}, "corpus")


def test_an_index_of_no_language_is_refused():
    assert build_config(IndexConfig, {"language": "de"}, "").language == "de"
    with pytest.raises(ConfigurationError, match="language must be a two-letter code of ISO 639-1"):
        build_config(IndexConfig, {"language": "german"}, "")  # otherwise its words would silently have no stems


@pytest.mark.parametrize("kind", [PretrainConfig, FitConfig])
def test_the_ranges_hold_in_the_corpus_of_a_pretraining_and_of_a_selection(kind):
    with pytest.raises(ConfigurationError, match=r"corpus\.near_threshold = nan does not fit"):
        build_config(kind, {"corpus": {"near_threshold": math.nan}}, "")


@pytest.mark.parametrize("key", ["deduplicate", "order"])
@pytest.mark.parametrize("written", ["none", "NONE", "null", '"none"'])
def test_none_is_a_word_where_it_is_one_of_the_choices(key, written):
    if written == "null":
        written = "none"
    table = dict(resolve("simcse", settings=[f"corpus.{key}={written}"]).corpus)
    assert getattr(build_config(CorpusConfig, table, "corpus"), key) == "none"


def test_none_is_still_no_number_where_a_number_may_be_absent():
    table = dict(resolve("simcse", settings=["corpus.max_words=none"]).corpus)
    assert build_config(CorpusConfig, table, "corpus").max_words is None
