"""Cells are the means that they say, and a sentence follows from the differences alone."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from selfsent.evaluation.score import Results, Score
from selfsent.reproduction.findings import Cell, find_cell, judge_claims
from selfsent.reproduction.plan import ArtifactPlan, plan_row
from selfsent.reproduction.scale import ReproduceOptions
from selfsent.reproduction.spec import Artifact, ArtifactRow, PaperClaim, Training, Untrained, parse_columns
from selfsent.reproduction.write import format_cell

COLUMNS = """
[x]
one = "stsb"
two = "mrpc | accuracy |"
both = ["mrpc | accuracy |", "mrpc | f1 |"]
one-both = {mean = ["x.one", "x.both"]}
one-two = {mean = ["x.one", "x.two"]}
"""
ONE, TWO, _, ONE_AND_BOTH, ONE_AND_TWO = parse_columns(COLUMNS, "x.toml")["x"]
SMALL = ReproduceOptions(scale="small")


def score(task, value, metric="spearman", aggregation="all", replicates=None, split="test"):
    return Score(
        task=task, split=split, metric=metric, aggregation=aggregation, value=value, n=9, replicates=replicates
    )


def test_a_measure_is_the_mean_over_groups_of_the_mean_of_each_group():
    result = Results(scores=[score("stsb", 60.0), score("mrpc", 70.0, "accuracy", ""), score("mrpc", 80.0, "f1", "")])
    cell = find_cell(ONE_AND_BOTH, [result])
    assert (cell.value, cell.parts, cell.of) == ((60 + 75) / 2, 3, 3)


def test_what_is_missing_is_left_out_and_counted():
    result = Results(scores=[score("stsb", 60.0), score("mrpc", 70.0, "accuracy", "", split="dev")])
    cell = find_cell(ONE_AND_TWO, [result])
    assert (cell.value, cell.parts, cell.of) == (60.0, 1, 2)
    assert find_cell(TWO, [result]) is None


def test_a_score_of_sub_sampled_data_is_marked_in_its_own_cell_and_in_every_mean_over_it():
    part = replace(score("mrpc", 70.0, "accuracy", ""), protocol={"rows": "12,000 of 120,000"})
    result = Results(scores=[score("stsb", 60.0), part])
    marked = [find_cell(measure, [result]) for measure in (TWO, ONE_AND_TWO)]
    assert [cell.sub_sampled for cell in marked] == [("mrpc",), ("mrpc",)]
    assert format_cell(marked[1]) == "65.00†"
    assert format_cell(find_cell(ONE, [result])) == "60.00"


def test_replicates_are_averaged_as_the_values_are():
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=(2, 50)), draw.normal(size=(2, 50))
    results = [
        Results(scores=[score("stsb", 1.0, replicates=a[seed]), score("mrpc", 3.0, "accuracy", "", replicates=b[seed])])
        for seed in (0, 1)
    ]
    cell = find_cell(ONE_AND_TWO, results)
    np.testing.assert_allclose(cell.replicates, (a + b) / 2)
    assert (cell.low, cell.high) == pytest.approx(tuple(np.quantile((a + b).mean(axis=0) / 2, (0.025, 0.975))))


def plan(first, second, *, trained=True, margin=None, published=True):
    def row(name, value, settings=()):
        source = (
            Training(recipe="simcse-bert-base", settings=settings)
            if trained
            else Untrained(base="builtin", pooling=name)
        )
        return ArtifactRow(name=name, source=source, published={"one": value} if published else {})

    rows = (row("cls", first), row("mean", second, ("objective.temperature=0.1",)))
    claims = (PaperClaim(first="cls", second="mean", measure="one", margin=margin),)
    artifact = Artifact(id="x", title="x", measures=(ONE,), rows=rows, claims=claims)
    return ArtifactPlan(artifact=artifact, rows=tuple(plan_row(one, SMALL) for one in rows), tasks=("stsb",))


def cell(*values, noise=0.01, seed=0):
    drawn = np.random.default_rng(seed).normal(0, noise, (len(values), 400)) + np.array(values)[:, None]
    return Cell(values=values, low=None, high=None, parts=1, of=1, replicates=drawn)


def judged(first, second, **options):
    return judge_claims(plan(70.0, 60.0, **options), {"cls": {"one": first}, "mean": {"one": second}})[0]


def test_a_clear_lead_over_three_seeds_has_the_direction_of_the_paper_and_the_reverse_is_opposite():
    high, low = cell(70.0, 70.2, 69.9), cell(60.0, 60.1, 60.3)
    found = judged(high, low)
    gaps = np.array([10.0, 10.1, 9.6])
    of_rows = (high.replicates - low.replicates).mean(axis=0).std(ddof=1)
    half = np.hypot(stats.t.isf(0.025, 2) * gaps.std(ddof=1) / np.sqrt(3), stats.norm.isf(0.025) * of_rows)
    assert found.direction == "same"
    assert (found.lead.low, found.lead.high) == pytest.approx((gaps.mean() - half, gaps.mean() + half))
    assert found.paper == 10.0
    assert "cls above mean in one (paper +10.00): same direction as the paper" in found.sentence
    assert judged(low, high).direction == "opposite"


def bare(*values):
    return Cell(values=values, low=None, high=None, parts=1, of=1)


NEAR = cell(60.0, 60.1, 60.05)


@pytest.mark.parametrize(
    ("first", "second", "options", "direction"),
    [
        # Within the noise of the seeds, and of the test rows.
        (cell(61.0, 58.0, 66.0), cell(60.0, 61.0, 59.0), {}, "cannot tell"),
        (cell(61.0, 61.1, 61.2, noise=50.0), cell(60.0, 60.1, 60.2, noise=50.0, seed=1), {}, "cannot tell"),
        # Without training, over the test rows; without resamples, by the seeds alone.
        (cell(70.0), cell(60.0, seed=1), {"trained": False}, "same"),
        (bare(70.0, 70.1, 70.2), bare(60.0, 60.2, 60.1), {}, "same"),
        (bare(70.0), bare(60.0), {}, "cannot tell"),
        # Equality within a margin needs the whole interval inside.
        (NEAR, cell(60.02, 60.08, 60.06), {"margin": 0.5}, "same"),
        (NEAR, cell(63.0, 63.1, 63.2), {"margin": 0.5}, "opposite"),
        (NEAR, cell(60.5, 60.6, 60.6), {"margin": 0.5}, "cannot tell"),
    ],
)
def test_a_direction_needs_the_whole_interval_on_one_side_or_within_the_margin(first, second, options, direction):
    assert judged(first, second, **options).direction == direction


def test_below_three_seeds_nothing_is_concluded_of_a_training():
    found = judged(cell(70.0), cell(60.0, seed=1))
    assert found.direction == "cannot tell"
    assert "3 seeds of each training are needed" in found.sentence
    assert found.lead.low == pytest.approx(10, abs=0.1)


def test_a_checkpoint_in_place_of_a_training_counts_as_one_seed():
    many, checkpoint = cell(70.0, 70.2, 69.9), cell(60.0)
    for first, second in ((many, checkpoint), (checkpoint, many)):
        found = judged(first, second)
        assert found.direction == "cannot tell"
        assert found.sentence.endswith("; 3 seeds of each training are needed.")


def test_two_claims_about_the_same_runs_are_judged_once():
    first, second = plan(70.0, 60.0), plan(70.0, 60.0)
    artifact = replace(first.artifact, rows=(*first.artifact.rows, replace(first.artifact.rows[0], name="large")))
    artifact = replace(artifact, claims=(*artifact.claims, PaperClaim(first="large", second="mean", measure="one")))
    rows = (*second.rows, replace(second.rows[0], row=artifact.rows[2]))
    many, few = cell(70.0, 70.2, 69.9), cell(60.0, 60.1, 60.3)
    cells = {"cls": {"one": many}, "mean": {"one": few}, "large": {"one": many}}
    found = judge_claims(replace(first, artifact=artifact, rows=rows), cells)
    assert [one.direction for one in found] == ["same", "not measured"]
    assert found[1].sentence.endswith("not measured; the same two runs as cls and mean at this scale.")


def test_a_sentence_says_what_its_measure_lacks():
    whole, part = cell(70.0, 70.2, 69.9), cell(60.0, 60.1, 60.3)
    assert judged(whole, part).sentence.endswith("].")
    short = [replace(one, parts=2, of=10, sub_sampled=("mrpc",)) for one in (whole, part)]
    assert judged(*short).sentence.endswith("]; over 2 of 10 scores; with sub-sampled data of mrpc.")
    without = [replace(one, replicates=None) for one in (whole, part)]
    assert judged(*without).sentence.endswith("]; the interval is over the seeds alone.")
    assert judged(*without).direction == "same"


def test_untrained_rows_without_an_interval_are_not_asked_for_seeds():
    found = judged(*(replace(one, replicates=None) for one in (cell(70.0), cell(60.0))), trained=False)
    assert found.sentence.endswith("cannot tell, +10.00; these scores have no interval.")


def test_a_row_without_training_counts_with_every_seed_of_the_other():
    rows = plan(70.0, 60.0)
    mixed = ArtifactPlan(
        artifact=rows.artifact, rows=(rows.rows[0], plan(70.0, 60.0, trained=False).rows[1]), tasks=("stsb",)
    )
    found = judge_claims(mixed, {"cls": {"one": cell(70.0, 70.2, 69.9)}, "mean": {"one": cell(60.0)}})[0]
    assert (found.direction, round(found.lead.value, 6)) == ("same", round((10 + 10.2 + 9.9) / 3, 6))


def test_rows_that_are_one_run_are_not_compared():
    both = plan(70.0, 60.0)
    twice = ArtifactPlan(
        artifact=both.artifact,
        rows=(both.rows[0], plan_row(ArtifactRow(name="mean", source=both.rows[0].row.source), SMALL)),
        tasks=("stsb",),
    )
    found = judge_claims(twice, {"cls": {"one": cell(70.0)}, "mean": {"one": cell(70.0)}})[0]
    assert found.direction == "not measured"
    assert "one run" in found.sentence
