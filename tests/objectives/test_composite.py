"""Joined objectives: the same terms as alone, from fewer forward passes."""

from itertools import combinations

import numpy as np
import pytest
import torch
from tiny import make_examples

from selfsent.encoder.dropout import dropout_rate
from selfsent.encoder.embed import collate
from selfsent.encoder.load import load_encoder
from selfsent.errors import UserError
from selfsent.objectives import registry
from selfsent.objectives.composite import Composition

SENTENCES = sorted(name for name in registry.method_names() if registry.load_method(name).unit == "sentences")
KEPT = {"eval_head": True}
SMALL = {"scd": {"projector_width": 32}, "denosent": {"decoder_layers": 2}, "distil": {"teacher": "builtin"}}


def table(names):
    return {name: SMALL[name] for name in names if name in SMALL}


def build(names, encoder, **weights):
    plan = registry.plan_objective("+".join(names), {**table(names), **({"weights": weights} if weights else {})})
    return plan.build(encoder)


def batch_of(objective, encoder, rows, positives=None):
    views = objective.views(make_examples(objective, rows, positives))
    return {name: collate(encoder, view) for name, view in views.items()}


@pytest.mark.parametrize("names", list(combinations(SENTENCES, 2)))
def test_pairs_give_named_finite_terms_that_train_every_parameter(names, bert, rows):
    encoder = load_encoder(bert, pooling="cls").train()
    objective = build(names, encoder)
    terms = objective(encoder, batch_of(objective, encoder, rows))
    assert {term.split(".")[0] for term in terms} == set(names)
    assert all(term.ndim == 0 and term.isfinite() for term in terms.values())
    sum(terms.values()).backward()
    assert all(p.grad is not None and p.grad.any() for p in objective.parameters())
    mine = {id(p) for p in objective.parameters()}
    assert mine.isdisjoint(id(p) for p in encoder.parameters())


def test_without_dropout_each_part_has_the_terms_it_has_alone(encoder, rows):
    objective = build(("simcse", "whitenedcse"), encoder, simcse=0.5, whitenedcse=2.0)
    batch = batch_of(objective, encoder, rows)
    with dropout_rate(encoder, 0.0):
        torch.manual_seed(0)
        joined = objective(encoder, batch)
        for name, weight in (("simcse", 0.5), ("whitenedcse", 2.0)):
            torch.manual_seed(0)
            alone = objective.parts[name](encoder, batch)["contrast"]
            torch.testing.assert_close(joined[f"{name}.contrast"], weight * alone)


def test_parts_that_want_the_same_columns_share_one_forward_pass(encoder, rows):
    passes = []
    encoder[0].register_forward_pre_hook(lambda module, inputs: passes.append(len(inputs[0]["input_ids"])))
    objective = build(("simcse", "whitenedcse"), encoder)
    batch = batch_of(objective, encoder, rows)
    objective(encoder, batch)
    assert passes == [3 * len(rows)]  # two views and three: three
    passes.clear()
    objective = build(("scd", "simcse"), encoder)  # SCD reads at rates of its own
    objective(encoder, batch)
    assert sorted(passes) == [len(rows), len(rows), 2 * len(rows)]


def test_given_positives_are_second_views_of_every_part(encoder, rows):
    objective = build(("simcse", "whitenedcse"), encoder)
    positives = [rows[i - 1] for i in range(len(rows))]
    seen = []
    encoder[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]["input_ids"]))
    objective(encoder, batch_of(objective, encoder, rows, positives))
    (ids,) = seen
    texts, others, again = ids.split([len(rows)] * 3)
    padded = {name: collate(encoder, column)["input_ids"] for name, column in (("t", rows), ("p", positives))}
    together = {tuple(map(tuple, block.tolist())) for block in (texts, others, again)}
    assert together == {tuple(map(tuple, padded["t"].tolist())), tuple(map(tuple, padded["p"].tolist()))}


@pytest.mark.parametrize(
    ("name", "table", "message"),
    [
        ("declutr+simcse", {}, "declutr from documents, simcse from sentences"),
        ("simcse+whitenedcse", {"temperature": 0.1}, r"\.temperature.*objective\.(simcse|whitenedcse)\.temperature"),
        ("simcse+whitenedcse", {"simcse": {"temperatur": 0.1}}, r"objective\.simcse\.temperatur"),
        ("simcse+whitenedcse", {"weights": {"simce": 1.0}}, r"objective\.weights\.simce"),
        ("simcse+whitenedcse", {"weights": {"simcse": -1.0}}, "a number of 0 or more"),
        ("simcse+simcse", {}, "joins a method with itself"),
        ("simsce+scd", {}, "unknown method 'simsce'"),
    ],
)
def test_what_cannot_be_joined_is_refused_by_name(name, table, message):
    with pytest.raises(UserError, match=message):
        registry.plan_objective(name, table)


def test_presets_can_be_joined_and_set_apart():
    plan = registry.plan_objective(
        "scd_paper_literal+simcse", {"simcse": {"temperature": 0.1}, "weights": {"simcse": 2}}
    )
    assert plan.configs["scd_paper_literal"].temperature == 1.0
    assert plan.configs["simcse"].temperature == 0.1
    assert plan.weights == {"scd_paper_literal": 1.0, "simcse": 2.0}
    assert plan.table()["weights"] == plan.weights


def test_the_smallest_batch_is_that_of_the_most_demanding_part(encoder):
    plan = registry.plan_objective("simcse+whitenedcse", {"whitenedcse": {"group_width": 8}})
    assert plan.build(encoder).least_rows == 9


def parts(name, encoder, **configs):
    """Objectives of one method under names of their own."""
    kind = registry.load_method(name)
    return {part: kind(kind.Config(**config), encoder) for part, config in configs.items()}


def test_two_exported_heads_are_one_too_many(encoder):
    with pytest.raises(UserError, match="would each export a head"):
        Composition(parts("simcse", encoder, one=KEPT, two=KEPT), {"one": 1.0, "two": 1.0}, encoder)


def test_documents_a_part_cannot_use_are_left_out_for_all(encoder):
    spans = ({"max_length": longest, "min_length": 4} for longest in (10, 20))
    both = parts("declutr", encoder, **dict(zip(("short", "long"), spans, strict=True)))
    chosen = Composition(both, {"short": 1.0, "long": 1.0}, encoder).choose(np.array([50, 90, 300], np.int32))
    assert chosen.tolist() == [False, True, True]
