"""Pictures show the values that they are given."""

import numpy as np
import pytest

from selfsent.reproduction.artifact_figure import draw_artifact
from selfsent.reproduction.catalog import CATALOG
from selfsent.reproduction.findings import Cell
from selfsent.reproduction.plan import plan_artifacts
from selfsent.reproduction.scale import ReproduceOptions


def test_differences_are_those_of_each_seed_and_of_the_published_values():
    (plan,) = plan_artifacts([CATALOG["denosent-figure-3"]], ReproduceOptions())
    names = [measure.name for measure in plan.artifact.measures]
    shown = "Quora MAP@1"
    cells = {
        row: {shown: Cell(values=values, low=None, high=None, parts=1, of=1)}
        for row, values in (("SimCSE BERT-base", (50.0, 51.0, 52.0)), ("DenoSent", (53.0, 53.5, 51.0)))
    }
    (axes,) = draw_artifact(plan, cells, {}).axes
    lines = {(line.get_label(), round(float(line.get_ydata()[0]))): line.get_xdata() for line in axes.get_lines()[1:]}
    place = names.index(shown)
    np.testing.assert_allclose(lines["here, each seed", place], (3.0, 2.5, -1.0))
    assert lines["paper", place] == pytest.approx(64.36 - 60.99)
    assert sorted(row for label, row in lines if label == "paper") == list(range(10))  # there is no published nDCG
    assert [text.get_text() for text in axes.get_yticklabels()] == names


def test_a_checkpoint_stands_for_every_seed_and_a_further_one_changes_nothing():
    (plan,) = plan_artifacts(
        [CATALOG["denosent-figure-3"]], ReproduceOptions(checkpoints={"SimCSE BERT-base": "one", "mine": "another"})
    )
    shown = plan.artifact.measures[0].name
    cells = {
        row: {shown: Cell(values=values, low=None, high=None, parts=1, of=1)}
        for row, values in (("SimCSE BERT-base", (50.0,)), ("DenoSent", (53.0, 53.5, 51.0)), ("mine", (10.0,)))
    }
    (axes,) = draw_artifact(plan, cells, {}).axes
    (ours,) = [line for line in axes.get_lines() if line.get_label() == "here, each seed"]
    np.testing.assert_allclose(ours.get_xdata(), (3.0, 3.5, 1.0))
    assert "paper" in {line.get_label() for line in axes.get_lines()}


def test_an_encoder_that_is_not_measured_leaves_the_published_values():
    (plan,) = plan_artifacts([CATALOG["denosent-figure-3"]], ReproduceOptions())
    (axes,) = draw_artifact(plan, {}, {}).axes
    assert {line.get_label() for line in axes.get_lines()[1:]} == {"paper"}
