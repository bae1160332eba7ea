"""Every method trains every architecture, or refuses it in one sentence that names the methods that do."""

from pathlib import Path

import numpy as np
import pytest
from tiny import FAMILIES, OTHERS, TEXTS, make_base, make_examples, make_folder

import selfsent
from selfsent.encoder.checks import check_dropout
from selfsent.encoder.embed import collate
from selfsent.encoder.load import load_encoder
from selfsent.errors import EncoderError
from selfsent.objectives import registry
from selfsent.training.run import fitting_methods

WITHOUT_DROPOUT = ["declutr with objective.mlm_weight=0", "distil"]
REFUSING = ["t5", "qwen3"]  # one encoder with a decoder beside it, and one decoder
PAGE = Path(__file__).parents[2] / "docs" / "methods.md"


def small(method):
    usual = method.Config()
    sizes = {"projector_width": 32, "teacher": "builtin", "decoder_layers": 2, "decoder_width": 64}
    return {name: value for name, value in sizes.items() if hasattr(usual, name)}


def step(encoder, name, **changes):
    method = registry.load_method(name)
    objective = method(method.Config(**small(method), **changes), encoder)
    if objective.needs_dropout:
        check_dropout(encoder, objective.dropout_views())
    rows = encoder.tokenizer(TEXTS)["input_ids"]
    columns = {key: collate(encoder, view) for key, view in objective.views(make_examples(objective, rows)).items()}
    terms = objective(encoder.train(), columns)
    sum(terms.values()).backward()
    assert all(term.isfinite() for term in terms.values())
    layers = [p.grad for name, p in encoder.named_parameters() if "layer" in name.lower() and p.ndim == 2]
    assert layers
    assert any(grad is not None and grad.any() for grad in layers)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_method_trains_every_bidirectional_encoder(family, tmp_path):
    encoder = load_encoder(make_base(tmp_path, family), pooling="mean")
    for method in registry.method_names():
        step(encoder, method)
        encoder.zero_grad()


@pytest.mark.parametrize("family", OTHERS)
def test_what_needs_no_dropout_trains_t5_and_decoders(family, tmp_path):
    make_folder(tmp_path, family)
    assert family not in REFUSING or fitting_methods(load_encoder(tmp_path)) == WITHOUT_DROPOUT
    step(load_encoder(tmp_path), "declutr", mlm_weight=0.0)
    step(load_encoder(tmp_path), "distil")


@pytest.mark.filterwarnings("ignore:template")  # these tokenizers do not know DenoSent's words
@pytest.mark.parametrize(
    ("method", "family"), [("simcse", "t5"), ("scd", "qwen3"), ("whitenedcse", "t5"), ("denosent", "qwen3")]
)
def test_a_refusal_names_the_methods_that_work(method, family, tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    base = make_folder(tmp_path / "base", family)
    words = " ".join(TEXTS).split()
    documents = [" ".join(np.random.default_rng(i).choice(words, 9)) for i in range(40)]
    named = r"[^.]; methods that train it are (declutr with objective\.mlm_weight=0, )?distil"  # not behind a prompt
    with pytest.raises(EncoderError, match=named):
        selfsent.train(method, texts=documents, base=str(base), out=tmp_path / "run")


def test_the_page_lists_the_architectures_that_these_tests_train():
    rows = {"all": FAMILIES, "`distil`; `declutr` with `objective.mlm_weight=0`": OTHERS}
    table = ["| `model_type` | methods that train it |", "|---|---|"]
    table += [
        f"| {', '.join(f'`{family}`' for family in families)} | {methods} |" for methods, families in rows.items()
    ]
    assert "\n".join(["", *table, ""]) in PAGE.read_text(encoding="utf-8"), "\n".join(table)
