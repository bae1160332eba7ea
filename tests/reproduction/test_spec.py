"""The published values agree with each other, and every row can be trained at both scales."""

from statistics import fmean

import pytest

from selfsent.config import build_config
from selfsent.corpus.settings import CorpusConfig
from selfsent.errors import ConfigurationError
from selfsent.evaluation.data_sets import YEARS
from selfsent.evaluation.mteb import _ranking
from selfsent.evaluation.senteval.declutr_averages import DOWNSTREAM, PROBING
from selfsent.objectives import registry
from selfsent.reproduction.scale import ReproduceOptions, training_recipe
from selfsent.reproduction.spec import (
    Artifact,
    ArtifactRow,
    PaperClaim,
    ScorePart,
    Training,
    Untrained,
    find_artifact,
    named_values,
    parse_artifacts,
    parse_columns,
    read_catalog,
    read_columns,
    recipe_values,
)

CATALOG = read_catalog()
STS, TRANSFER = read_columns()["sts"], read_columns()["transfer"]
ROWS = [(artifact, row) for artifact in CATALOG.values() for row in artifact.rows]


@pytest.mark.parametrize(("artifact", "row"), ROWS, ids=[f"{artifact.id}: {row.name}" for artifact, row in ROWS])
def test_a_published_average_is_the_mean_of_its_row(artifact, row):
    for columns in (STS, TRANSFER):
        names = [measure.name for measure in columns[:-1]]
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
    assert training_recipe(grid["BERT-base, as printed"].source, 1, options).objective["dropout_high"] == 0.15


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
    assert recipe_values("whitenedcse-roberta-base", STS) == {"average": 78.22}
    assert recipe_values("scd-bert-base", TRANSFER)["average"] == 84.35  # of the authors' README
    assert STS[-1].groups == tuple(group for column in STS[:-1] for group in column.groups)


def test_declutrs_columns_are_the_scores_that_its_averages_count():
    for name, tasks in (("downstream", DOWNSTREAM), ("probing", PROBING)):
        test, dev = (read_columns()[columns] for columns in (name, f"{name} dev"))
        expected = {
            task: ((*(ScorePart(task, metric, aggregation) for metric, aggregation in parts),),)
            for task, parts in tasks.items()
        }
        assert {column.name: column.groups for column in test} == expected
        assert [column.name for column in dev] == list(tasks)
        for column in dev:  # STS12-16 have no development scores, regressions give Pearson's, MRPC no F1
            ((part,),) = column.groups
            assert part.task == column.name
            assert part.split == ("test" if part.task in YEARS else "dev")
            regression = part.task.endswith("regression")
            assert (part.metric, part.aggregation) == (("pearson", "") if regression else tasks[part.task][0])


def test_a_row_of_toml_is_a_training_a_base_or_a_model_of_others():
    (artifact,) = parse_artifacts(
        """
        [x-table-1]
        title = "X"
        measures = ["sts.STS12", "sts.STS-B"]
        claims = [{first = "trained", second = "base", measure = "STS-B", margin = 0.5}]
        [x-table-1.rows]
        trained = {recipe = "denosent-bert-base", settings = ["encoder.pooling=cls"], published = "recipe STS-B", x = 3}
        base = {base = "roberta-base", pooling = "mean", published = "1 -"}
        others = {published = {STS-B = 2}}
        """,
        "x.toml",
    )
    trained, base, others = artifact.rows
    assert trained.source == Training(recipe="denosent-bert-base", settings=("encoder.pooling=cls",), text="pairs")
    assert (trained.published, trained.x) == ({"STS-B": 81.20}, 3.0)  # of the released checkpoint
    assert base.source == Untrained(base="roberta-base", pooling="mean")
    assert (base.published, others.published, others.source) == ({"STS12": 1.0}, {"STS-B": 2.0}, None)
    assert artifact.claims == (PaperClaim(first="trained", second="base", measure="STS-B", margin=0.5),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[x", "x.toml is not TOML: "),
        ("x = 1", "x.toml does not fit in [x]: "),
        ("[x]", "x.toml does not fit in [x]: title"),
        ('[x]\ntitle = "X"\ncolour = 1', "unknown key 'colour'"),
        ('[x]\ntitle = "X"\ndrawing = "dot"', "did you mean 'dots'"),
        ('[x]\ntitle = "X"\nmeasures = ["stss"]', "unknown columns 'stss': did you mean 'sts'"),
        ('[x]\ntitle = "X"\nmeasures = ["sts"]\nrows.a = {published = "1 2"}', "2 published values are given for 8"),
        ('[x]\ntitle = "X"\nmeasures = ["sts.STS12"]\nrows.a = {published = "one"}', "could not convert"),
        ('[x]\ntitle = "X"\nrows.a = {recipe = "scd", setings = []}', "there is no recipe scd"),
        ('[x]\ntitle = "X"\nrows.a = {base = "b", pooling = "cls", poling = "cls"}', "unknown key 'a.poling'"),
        ('[x]\ntitle = "X"\nrows.a = {base = "b"}', "a.pooling"),
        (
            '[x]\ntitle = "X"\nclaims = [{first = "a", second = "b", measure = "c"}]',
            "names a, b, c, which it does not have",
        ),
    ],
)
def test_a_malformed_file_is_refused_in_one_sentence(text, message):
    with pytest.raises(ConfigurationError) as refusal:
        parse_artifacts(text, "x.toml")
    assert message in str(refusal.value)
    assert str(refusal.value).startswith("x.toml ")
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize(
    "text", ["[x", "x = 1", "[x]\na = 1", '[x]\na = {mean = ["y"]}', '[x]\na = "1|2|3|4|5"', "[x]\na = {}"]
)
def test_malformed_columns_are_refused_in_one_sentence(text):
    with pytest.raises(ConfigurationError, match=r"^x\.toml (is not TOML|does not fit in \[x\]): .") as refusal:
        parse_columns(text, "x.toml")
    assert len(str(refusal.value).splitlines()) == 1


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
