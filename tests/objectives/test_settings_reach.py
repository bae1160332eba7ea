"""Every default is the published or recommended one, and every setting changes what its method computes."""

import warnings
from dataclasses import fields

import numpy as np
import pytest
import torch
from tiny import make_examples

from selfsent.encoder.embed import collate
from selfsent.objectives import registry
from selfsent.objectives.base import Examples

# The values that the papers and the authors' commands use, or that the specification of the methods recommends where
# they disagree; what is absent is off or unset.
DEFAULTS = {
    "simcse": {"temperature": 0.05, "head": True, "mlm_probability": 0.15},
    "scd": {
        **{"dropout_low": 0.05, "dropout_high": 0.155, "dropout_sites": "all", "passes": "two", "temperature": 0.05},
        **{"self_contrast_weight": 1, "self_contrast_reduction": "mean", "decorrelation_weight": 0.005225},
        **{"off_diagonal_weight": 0.012, "projector_width": 4096, "correlation_norm": "batchnorm", "diag_sign": 1},
    },
    "denosent": {
        **{"temperature": 0.05, "contrast_weight": 5, "denoise_weight": 7, "noise": 0.825, "decoder_layers": 16},
        **{"decoder_heads": 1, "decoder_width": 2048, "decoder_dropout": 0.1, "denoise_target": "positive"},
        **{"memory_from": "anchor", "train_projector": True, "mlm_head": "pretrained", "detach_decoder_input": True},
        "loss_on_template": True,
    },
    "declutr": {
        **{"num_anchors": 2, "num_positives": 2, "min_length": 32, "sampling": "any", "anchor_start": "block"},
        **{"span_unit": "wordpiece", "short_doc": "skip", "temperature": 0.05, "contrast_weight": 1},
        **{"loss_reduction": "mean", "contrast_on_masked_anchor": True, "mlm_weight": 1, "mlm_probability": 0.15},
        **{"projection": "none", "projection_layers": 2},
    },
    "whitenedcse": {
        **{"num_views": 3, "shuffle": True, "whitening": "group", "sgw_chunking": "by_view"},
        **{"backbone_passes": "per_view", "whitening_form": "zca", "whiten_grad": "detach", "eps": 1e-5},
        **{"momentum": 0.1, "anchor": "whitened", "temperature": 0.05, "weight": 1, "loss": "eq7"},
        **{"positive_reduction": "sum", "negatives": "same_view"},
    },
    "distil": {"temperature": 0.05, "teacher_temperature": 0.05},
}

SMALL = {
    "scd": {"projector_width": 32, "decorrelation_weight": 0.5},
    "denosent": {"decoder_layers": 1, "decoder_width": 64},
    "declutr": {"min_length": 8, "max_length": 24},
    "distil": {"teacher": "builtin"},
}

# (method, the setting's other value, what must be set for it to matter)
CHANGES = [
    ("simcse", {"temperature": 0.1}, {}),
    ("simcse", {"head": False}, {}),
    ("simcse", {"symmetric": True}, {}),
    ("simcse", {"eval_head": True}, {}),
    ("simcse", {"mlm_weight": 0.1}, {}),
    ("simcse", {"mlm_probability": 0.5}, {"mlm_weight": 0.1}),
    ("scd", {"dropout_low": 0.01}, {}),
    ("scd", {"dropout_high": 0.4}, {}),
    ("scd", {"attention_low": 0.4}, {}),
    ("scd", {"attention_high": 0.4}, {}),
    ("scd", {"dropout_sites": "hidden_only"}, {}),
    ("scd", {"passes": "one"}, {}),
    ("scd", {"temperature": 1.0}, {}),
    ("scd", {"self_contrast_weight": 2.0}, {}),
    ("scd", {"self_contrast_reduction": "sum"}, {}),
    ("scd", {"decorrelation_weight": 1.0}, {}),
    ("scd", {"off_diagonal_weight": 0.1}, {}),
    ("scd", {"projector_width": 16}, {}),
    ("scd", {"correlation_norm": "eq3"}, {}),
    ("scd", {"diag_sign": -1}, {"unsafe": True}),
    ("denosent", {"temperature": 0.1}, {}),
    ("denosent", {"contrast_weight": 1.0}, {}),
    ("denosent", {"denoise_weight": 1.0}, {}),
    ("denosent", {"noise": 0.1}, {}),
    ("denosent", {"decoder_layers": 2}, {}),
    ("denosent", {"decoder_heads": 2}, {}),
    ("denosent", {"decoder_width": 32}, {}),
    ("denosent", {"decoder_dropout": 0.5}, {}),
    ("denosent", {"denoise_target": "self"}, {}),
    ("denosent", {"memory_from": "positive"}, {}),
    ("denosent", {"train_projector": False}, {}),
    ("denosent", {"mlm_head": "random"}, {}),
    ("denosent", {"detach_decoder_input": False}, {}),
    ("denosent", {"loss_on_template": False}, {}),
    ("declutr", {"num_anchors": 1}, {"num_positives": 3}),
    ("declutr", {"num_positives": 3}, {}),
    ("declutr", {"min_length": 20}, {}),
    ("declutr", {"max_length": 40}, {}),
    ("declutr", {"sampling": "subsuming"}, {}),
    ("declutr", {"sampling": "adjacent"}, {}),
    ("declutr", {"anchor_start": "grid"}, {}),
    ("declutr", {"short_doc": "shrink"}, {"num_anchors": 4}),
    ("declutr", {"temperature": 0.1}, {}),
    ("declutr", {"contrast_weight": 2.0}, {}),
    ("declutr", {"loss_reduction": "sum"}, {}),
    ("declutr", {"contrast_on_masked_anchor": False}, {}),
    ("declutr", {"mlm_weight": 2.0}, {}),
    ("declutr", {"mlm_probability": 0.5}, {}),
    ("declutr", {"projection": "linear"}, {}),
    ("declutr", {"projection_layers": 1}, {"projection": "linear"}),
    ("declutr", {"projection_width": 8}, {"projection": "linear"}),
    ("declutr", {"memory_size": 8}, {}),
    ("whitenedcse", {"num_views": 2}, {}),
    ("whitenedcse", {"group_width": 4}, {}),
    ("whitenedcse", {"num_groups": 8}, {}),
    ("whitenedcse", {"shuffle": False}, {}),
    ("whitenedcse", {"whitening": "batch_norm"}, {}),
    ("whitenedcse", {"whitening": "none"}, {}),
    ("whitenedcse", {"sgw_chunking": "released"}, {}),
    ("whitenedcse", {"backbone_passes": "shared"}, {}),
    ("whitenedcse", {"whitening_form": "pca"}, {}),
    ("whitenedcse", {"whiten_grad": "full"}, {}),
    ("whitenedcse", {"eps": 0.1}, {}),
    ("whitenedcse", {"momentum": 0.5}, {"whitening": "batch"}),
    ("whitenedcse", {"anchor": "raw"}, {}),
    ("whitenedcse", {"temperature": 0.1}, {}),
    ("whitenedcse", {"weight": 2.0}, {}),
    ("whitenedcse", {"loss": "softmin"}, {}),
    ("whitenedcse", {"positive_reduction": "mean"}, {}),
    ("whitenedcse", {"negatives": "all_views"}, {}),
    ("whitenedcse", {"eval_head": True}, {}),
    ("distil", {"temperature": 0.1}, {}),
    ("distil", {"teacher_temperature": 0.1}, {}),
    ("distil", {"queue": 8}, {}),
]
# A switch that lets another through; words are the tokens of the tiny encoder; a teacher is a folder.
ELSEWHERE = {"scd": {"unsafe"}, "declutr": {"span_unit"}, "distil": {"teacher"}}


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_every_default_is_the_recommended_one(name):
    config = registry.load_method(name).Config()
    off = {field.name for field in fields(config)} - set(DEFAULTS[name])
    assert {key: getattr(config, key) for key in DEFAULTS[name]} == DEFAULTS[name]
    assert not any(getattr(config, key) for key in off)


def test_every_setting_of_every_method_is_in_the_table():
    assert set(DEFAULTS) == set(registry.method_names())
    for name in DEFAULTS:
        changed = {key for method, change, _ in CHANGES if method == name for key in change}
        assert changed | ELSEWHERE.get(name, set()) == {
            field.name for field in fields(registry.load_method(name).Config)
        }


def observe(name, settings, encoder, rows):
    """Two training steps of a method: what is read, what its terms and gradients are, what it exports."""
    method = registry.load_method(name)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of settings without an effect: those that others switch on
        objective = method(method.Config(**{**SMALL.get(name, {}), **settings}), encoder.train())
    examples = make_examples(objective, rows, rows[::-1] if name == "denosent" else None)
    if name == "declutr":
        words = [[*row[1:-1]] for row in examples.texts]
        examples = Examples([*examples.texts, [2, *words[0][:160], 3]], None, examples.draw)
        kept = objective.choose(np.array([len(row) for row in examples.texts], dtype=np.int32))
        examples = Examples([row for row, keep in zip(examples.texts, kept, strict=True) if keep], None, examples.draw)
    views = objective.views(examples)
    columns = {view: collate(encoder, tokens) for view, tokens in views.items()}
    steps = []
    for step in range(2):  # queues and running statistics matter from the second on
        torch.manual_seed(step)
        encoder.zero_grad()
        terms = objective(encoder, columns)
        sum(terms.values()).backward()
        grads = [float(p.grad.norm()) for p in encoder.parameters() if p.grad is not None]
        steps.append({term: value.item() for term, value in terms.items()} | {"gradients": grads})
    state = {key: float(value.double().sum()) for key, value in objective.state_dict().items()}
    return views, steps, state, objective.exported_head() is None


@pytest.mark.parametrize(("name", "change", "base"), CHANGES, ids=lambda value: str(value).strip("{}").replace("'", ""))
def test_a_setting_changes_what_the_method_computes(name, change, base, bert, encoder, rows):
    with torch.no_grad():  # at its usual scale a random encoder gives every text the same vector
        for parameter in encoder.parameters():
            parameter.mul_(4 if parameter.ndim > 1 else 1)
    assert observe(name, base, encoder, rows) == observe(name, base, encoder, rows)
    assert observe(name, {**base, **change}, encoder, rows) != observe(name, base, encoder, rows)
