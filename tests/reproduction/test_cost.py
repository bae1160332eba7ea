"""Costs agree with a count by hand, and a training that two tables share counts once."""

import pytest

from selfsent.reproduction.artifact import STSB, Artifact, ArtifactRow, Training
from selfsent.reproduction.catalog import CATALOG
from selfsent.reproduction.cost import plan_cost, word_hours
from selfsent.reproduction.plan import plan_artifacts
from selfsent.reproduction.scale import ReproduceOptions


def costs(*recipes, seeds=1, settings=()):
    rows = tuple(ArtifactRow(name=name, source=Training(recipe=name, settings=settings)) for name in recipes)
    artifact = Artifact(id="x", title="x", measures=(STSB,), rows=rows)
    return plan_cost(plan_artifacts([artifact], ReproduceOptions()), seeds)


def test_an_epoch_of_simcse_on_bert_base_counts_three_forward_passes_of_two_views():
    cost = costs("simcse-bert-base")
    assert (cost.trainings, cost.steps, cost.texts) == (1, 15_625, 1_000_000)
    matrices = 12 * (4 * 768**2 + 2 * 768 * 3072)  # weights of attention and feed-forward in 12 layers
    assert cost.operations == pytest.approx(1_000_000 * 2 * 30 * 3 * 2 * matrices)


def test_a_folder_of_a_known_name_counts_only_where_it_is(bert, tmp_path, monkeypatch):
    known = costs("simcse-bert-base").operations
    (tmp_path / "bert-base-uncased").symlink_to(bert)
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir(tmp_path)
        assert costs("simcse-bert-base").operations < known / 1000
    assert costs("simcse-bert-base").operations == known


def test_published_steps_are_those_of_the_papers():
    assert costs("scd-bert-base").steps == 5_209
    assert costs("denosent-bert-base").steps == 5_000
    assert costs("declutr-roberta-base").steps in (30_952, 30_953)  # the last, smaller batch is dropped there


def test_a_third_view_costs_half_more_than_two():
    three = costs("whitenedcse-bert-base").operations
    assert three == pytest.approx(1.5 * costs("simcse-bert-base").operations)


def test_shared_trainings_count_once_and_seeds_multiply():
    tables = [CATALOG[name] for name in ("whitenedcse-table-5", "whitenedcse-table-4")]
    plans = plan_artifacts(tables, ReproduceOptions())
    alone = [plan_cost([plan], 1).trainings for plan in plans]
    assert (alone, plan_cost(plans, 1).trainings, plan_cost(plans, 3).trainings) == ([4, 5], 8, 24)


def test_hours_are_written_as_a_reader_would():
    assert [word_hours(hours) for hours in (0.0, 0.001, 0.5, 3.04, 100.0)] == [
        "-",
        "1 min",
        "30 min",
        "3.0 h",
        "4 days",
    ]
