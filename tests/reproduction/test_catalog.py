"""The published values agree with each other, and every row can be trained at both scales."""

from statistics import fmean

import pytest

from selfsent.config import build_config
from selfsent.corpus.settings import CorpusConfig
from selfsent.errors import ConfigurationError
from selfsent.evaluation.mteb import _ranking
from selfsent.objectives import registry
from selfsent.reproduction.artifact import (
    STS,
    STS_AVERAGE,
    STS_TABLE,
    TRANSFER,
    TRANSFER_TABLE,
    Artifact,
    ArtifactRow,
    PaperClaim,
    Training,
    mean_measure,
    named_values,
    recipe_values,
)
from selfsent.reproduction.catalog import CATALOG, find_artifact
from selfsent.reproduction.scale import ReproduceOptions, training_recipe

ROWS = [(artifact, row) for artifact in CATALOG.values() for row in artifact.rows]


@pytest.mark.parametrize(("artifact", "row"), ROWS, ids=[f"{artifact.id}: {row.name}" for artifact, row in ROWS])
def test_a_published_average_is_the_mean_of_its_row(artifact, row):
    for parts in (STS, TRANSFER):
        names = [measure.name for measure in parts]
        if all(name in row.published for name in [*names, "average"]):
            assert row.published["average"] == pytest.approx(fmean(row.published[name] for name in names), abs=0.006)


def test_declutrs_averages_are_the_means_of_its_own_tables():
    means = CATALOG["declutr-table-1"]
    for table, measure in (("declutr-table-s3", "downstream"), ("declutr-table-s4", "probing")):
        for row in CATALOG[table].rows:
            assert means.row(row.name).published[measure] == pytest.approx(fmean(row.published.values()), abs=0.02), row


@pytest.mark.parametrize("scale", ["small", "full"])
def test_every_row_resolves_to_a_recipe(scale):
    options = ReproduceOptions(scale=scale, texts={"pairs": ("pairs.tsv",)})
    for artifact, row in ROWS:
        if isinstance(row.source, Training):
            recipe = training_recipe(row.source, 7, options)
            registry.plan_objective(recipe.method, recipe.objective)
            build_config(CorpusConfig, recipe.corpus, "corpus")
            assert recipe.seed == 7, artifact.id


def test_the_rows_own_settings_hold_at_small_scale():
    options = ReproduceOptions(scale="small")
    rows = {row.name: row for row in CATALOG["scd-batch-size"].rows}
    assert training_recipe(rows["batches of 256"].source, 1, options).train.batch_size == 256
    grid = {row.name: row for row in CATALOG["scd-grid"].rows}
    assert training_recipe(grid["dropout_high 0.24"].source, 1, options).objective["dropout_high"] == 0.24


def test_the_recipe_alone_is_what_full_scale_trains():
    recipe = training_recipe(Training(recipe="scd-bert-base"), 42, ReproduceOptions(data="evaluation-data"))
    assert (recipe.base, recipe.texts) == ("bert-base-uncased", ("wiki1m_for_simcse.txt",))
    assert (recipe.train.batch_size, recipe.train.evaluate_every, recipe.train.select) == (192, 250, "sickr-dev")


def test_an_unknown_table_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigurationError, match="did you mean 'scd-table-1'"):
        find_artifact("scd-tabel-1")


def test_claims_and_values_have_to_name_rows_and_measures_that_exist():
    row = ArtifactRow(name="a")
    with pytest.raises(ValueError, match="nobody"):
        Artifact(
            id="x",
            title="x",
            measures=STS,
            rows=(row,),
            claims=(PaperClaim(first="a", second="nobody", measure="STS-B"),),
        )
    with pytest.raises(ValueError, match="two rows"):
        Artifact(id="x", title="x", measures=STS, rows=(row, row))


def test_values_are_named_in_the_order_of_the_measures():
    assert named_values(STS[:3], "1 - 3") == {"STS12": 1.0, "STS14": 3.0}
    assert recipe_values("whitenedcse-roberta-base", STS_TABLE) == {"average": 78.22}
    assert recipe_values("scd-bert-base", TRANSFER_TABLE)["average"] == 84.35  # of the authors' README
    assert mean_measure("average", STS) == STS_AVERAGE


def test_columns_of_mteb_name_scores_and_splits_that_its_tasks_have():
    package = pytest.importorskip("mteb", reason="the package mteb is not installed")
    parts = {
        part
        for artifact in CATALOG.values()
        for measure in artifact.measures
        for group in measure.groups
        for part in group
        if part.task.startswith("mteb:")
    }
    assert len(parts) > 20
    for part in parts:
        facts = package.get_task(part.task.removeprefix("mteb:")).metadata
        split, _, subset = part.split.partition(" ")
        assert split in facts.eval_splits
        several = isinstance(facts.eval_langs, dict)
        assert (subset in facts.eval_langs) if several else not subset
        ranks = "map" in facts.main_score or "ndcg" in facts.main_score
        assert part.metric in (_ranking(facts.main_score) if ranks else [facts.main_score])
