"""A plan names what is lacking, and equal trainings once."""

import pytest

from selfsent.reproduction.plan import has_weights, plan_artifacts, plan_row
from selfsent.reproduction.scale import ReproduceOptions, SmallScale
from selfsent.reproduction.spec import find_artifact


@pytest.fixture(autouse=True)
def no_hub(monkeypatch):
    monkeypatch.setattr("selfsent.reproduction.plan.try_to_load_from_cache", lambda *_: None)


def planned(name, **options):
    return plan_artifacts([find_artifact(name)], ReproduceOptions(**options))[0]


def test_without_anything_a_table_needs_weights_text_and_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = planned("scd-table-1")
    assert not plan.ready
    assert plan.state.startswith("needs weights bert-base-uncased, weights roberta-base")
    for need in ("data wiki1m_for_simcse.txt", "data of the tasks (--data)", "NLI sentences (--nli)"):
        assert need in plan.state


def test_a_base_that_is_given_takes_the_place_of_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wiki1m_for_simcse.txt").write_text("a line\n")
    plan = planned("scd-table-3", base="builtin")
    assert [row.needs for row in plan.rows] == [()] * 4


def test_small_scale_needs_nothing_but_data_and_pairs():
    plan = planned("denosent-table-3", scale="small")
    assert "data pairs (--pairs)" in plan.needs
    assert all(row.needs == () for row in planned("scd-table-3", scale="small").rows)


def test_a_training_has_one_name_in_every_table_and_spelled_out_defaults_do_not_matter():
    plans = [planned(f"whitenedcse-table-{number}", scale="small") for number in (1, 3, 5)]
    same = [
        next(row for row in plan.rows if row.row.name == name)
        for plan, name in zip(plans, ("WhitenedCSE BERT-base", "WhitenedCSE", "m = 3"), strict=True)
    ]
    assert len({row.run for row in same}) == 1
    assert same[0].recipe == same[1].recipe == same[2].recipe  # or the run of one could not be resumed by another
    assert len({row.run for row in plans[2].rows}) == 4


def test_a_row_whitened_after_training_shares_the_training_and_not_the_scores():
    rows = {row.row.name: row for row in planned("whitenedcse-table-3", scale="small").rows}
    plain, whitened = rows["SimCSE"], rows["SimCSE, whitened after training"]
    assert plain.run == whitened.run
    assert plain.key != whitened.key


def test_the_start_of_the_trainings_is_pooled_as_they_are():
    assert planned("scd-table-3").rows[0].pooling == "cls"
    small = planned("scd-table-3", scale="small")
    assert small.rows[0].pooling == small.rows[1].recipe.encoder.pooling == "mean"
    assert planned("scd-table-1", scale="small").rows[0].pooling == "cls"  # poolings are what its rows compare


def test_without_a_pooling_of_small_scale_every_row_has_the_published_one():
    rows = planned("scd-table-3", scale="small", small=SmallScale(pooling="none")).rows
    assert rows[0].pooling == rows[1].recipe.encoder.pooling == "cls"
    simcse = planned("whitenedcse-table-1", scale="small", small=SmallScale(pooling="none")).rows
    assert {row.recipe.encoder.pooling for row in simcse if row.recipe} == {"cls"}


@pytest.mark.parametrize("name", ["scd-table-1", "whitenedcse-table-6", "whitenedcse-figure-3", "denosent-table-1"])
def test_at_small_scale_all_methods_of_a_table_read_their_texts_alike(name, data):
    options = {"scale": "small", "texts": {"pairs": ["builtin"], "sentences": ["pydocs"]}, "data": str(data)}
    recipes = [row.recipe for row in planned(name, **options).rows if row.recipe]
    assert len({recipe.method for recipe in recipes}) > 1
    for key in ("bucketed", "batch_size", "learning_rate", "schedule", "select"):
        assert len({getattr(recipe.train, key) for recipe in recipes}) == 1, key
    assert len({tuple(recipe.texts) for recipe in recipes}) == 1
    assert {recipe.train.bucketed for recipe in recipes} == {False}


def test_cls_pooling_is_compared_with_the_prompt_at_small_scale_too():
    rows = {row.row.name: row for row in planned("denosent-table-3", scale="small", texts={"pairs": ["pydocs"]}).rows}
    pooled = {name: row.recipe.encoder.pooling for name, row in rows.items() if row.recipe}
    assert pooled.pop("CLS pooling") == "cls"
    assert {*pooled.values()} == {"prompt"}


def test_rows_of_one_table_are_different_trainings_at_small_scale():
    for name in ("denosent-figure-4a", "denosent-figure-4b", "denosent-table-3", "scd-grid", "whitenedcse-table-4"):
        rows = [row for row in planned(name, scale="small", texts={"pairs": ["pydocs"]}).rows if row.recipe]
        assert len({row.key for row in rows}) == len(rows), name


def test_other_steps_are_another_training():
    one, other = (planned("scd-table-3", scale="small", small=SmallScale(steps=steps)) for steps in (5, 6))
    assert one.rows[-1].run != other.rows[-1].run


def test_a_checkpoint_measures_a_row_of_others_or_makes_a_new_one(bert):
    rows = {
        row.row.name: row
        for row in planned("scd-figure-2", checkpoints={"BERT-flow": str(bert), "mine": str(bert)}).rows
    }
    assert rows["BERT-flow"].measured
    assert rows["mine"].measured
    assert not rows["SimCSE, supervised"].key


def test_tasks_without_data_are_named(data):
    plan = planned("scd-table-1", scale="small", data=str(data), left_out=("sts12",))
    assert "sts12" in plan.missing
    assert "stsb" in plan.tasks
    assert not planned("denosent-figure-3", scale="small", data=str(data)).tasks  # mteb loads from the hub


def test_weights_are_here_or_not(bert):
    assert has_weights("builtin")
    assert has_weights(str(bert))
    assert not has_weights("bert-base-uncased")
    assert not has_weights("no/such/place/at/all")
    assert plan_row(find_artifact("scd-table-1").rows[0], ReproduceOptions()).needs == ("weights bert-base-uncased",)
