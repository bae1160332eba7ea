"""Folders of runs read back: torn logs, seeds, unfinished runs, and what is no run."""

import json

import pytest
from made_runs import log_lines, retrieval, score, write_run

from selfsent.errors import ResumeError, UserError
from selfsent.report import read


def test_a_line_torn_by_a_kill_is_left_out_and_counted(tmp_path):
    folder = write_run(tmp_path / "run")
    whole = (folder / "log.jsonl").read_text()
    (folder / "log.jsonl").write_text(whole + '{"step": 50, "terms": {"contra')
    log = read.read_run(folder).log
    assert log.unread == 1
    assert log == read.Log(**{**vars(read.read_log(folder / "log.jsonl")), "unread": 1})
    assert log.terms["contrast"] == [(step, pytest.approx(1 / step)) for step in (10, 20, 30, 40)]
    assert log.scores["retrieval"] == [(0, 30.0), (20, 32.0), (40, 34.0)]
    assert log.last_step == 40


def test_of_two_lines_for_one_step_the_later_holds_and_steps_rise(tmp_path):
    lines = [*log_lines(), {"step": 20, "terms": {"contrast": 7.0}}, {"step": 30, "alarm": "collapsing"}]
    log = read.read_run(write_run(tmp_path / "run", lines=lines)).log
    assert dict(log.terms["contrast"])[20] == 7.0
    assert [step for step, _ in log.terms["contrast"]] == [10, 20, 30, 40]
    assert log.alarms == [(30, "collapsing")]


def test_what_is_not_finite_is_no_point_of_a_curve(tmp_path):
    lines = [*log_lines(), {"step": 50, "terms": {"contrast": float("nan")}}]
    assert read.read_run(write_run(tmp_path / "run", lines=lines)).log.terms["contrast"][-1][0] == 40


def test_seeds_of_one_recipe_are_one_group_and_another_recipe_is_another(tmp_path):
    runs = [write_run(tmp_path / f"warm-{seed}", seed=seed) for seed in (1, 2, 3)]
    runs += [
        write_run(tmp_path / "cold-1", objective={"temperature": 0.01}),
        write_run(tmp_path / "x" / "warm", data="d"),
    ]
    groups = read.group_runs([read.read_run(run) for run in runs])
    assert [(one.name, len(one.runs)) for one in groups] == [("warm", 3), ("cold-1", 1), ("x/warm", 1)]
    assert read.differences(groups) == {"data": [None, None, "d"], "objective.temperature": [None, 0.01, None]}


def test_a_key_that_a_recipe_leaves_to_its_default_does_not_part_two_seeds(tmp_path):
    runs = [write_run(tmp_path / "a-1", seed=1), write_run(tmp_path / "a-2", seed=2, encoder={"pooling": None})]
    assert len(read.group_runs([read.read_run(run) for run in runs])) == 1


def test_a_run_that_is_not_finished_says_how_far_it_is(tmp_path):
    run = read.read_run(write_run(tmp_path / "run", scored=False, lines=log_lines(20)))
    assert run.verdict is None
    assert "step 20 of 40" in run.status
    assert "Wait" in run.status


def test_a_model_without_scores_says_what_measures_it(tmp_path):
    folder = write_run(tmp_path / "run", scored=False)
    (folder / "model").mkdir()
    (folder / "model" / "modules.json").write_text("[]")
    assert "no scores" in read.read_run(folder).status


def test_verdict_json_outweighs_the_verdict_of_the_scores(tmp_path):
    folder = write_run(tmp_path / "run")
    assert read.read_run(folder).verdict.word == "better"
    said = {
        "verdict": "worse",
        "sentences": ["Worse than its base.", "Word matching finds more."],
        "base": {"scores": [score("halves", 50.0, "mrr@10", "")]},
        "differences": [],
        "left_out": {"pairs": "none"},
    }
    (folder / "verdict.json").write_text(json.dumps(said))
    verdict = read.read_run(folder).verdict
    assert (verdict.word, verdict.sentences) == ("worse", said["sentences"])
    assert [one.value for one in verdict.systems["base"]] == [50.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda place: None, "there is no folder"),
        (lambda place: place.mkdir(), "holds no run: expected a config.json"),
        (lambda place: (place.mkdir(), (place / "config.json").write_text("{}")), "has no recipe"),
        (lambda place: (place.mkdir(), (place / "config.json").write_text("{")), "is damaged"),
        (lambda place: write_run(place, scored=False, lines=[]), "no line in its log yet: wait"),
        (lambda place: (write_run(place) / "scores.json").write_text("{"), r"scores.json is damaged"),
        (lambda place: (write_run(place) / "scores.json").write_text("[]"), "expected a JSON object"),
    ],
)
def test_what_is_no_run_is_refused_with_what_would_be_right(tmp_path, make, message):
    make(tmp_path / "run")
    with pytest.raises(UserError, match=message):
        read.read_run(tmp_path / "run")


def test_scores_of_another_version_are_refused(tmp_path):
    folder = write_run(tmp_path / "run", after=[{**retrieval(33.0), "something_new": 1}])
    with pytest.raises(ResumeError, match="another version"):
        read.read_run(folder)


def test_the_model_of_a_run_given_for_the_run_is_told_apart(tmp_path):
    model = write_run(tmp_path / "run") / "model"
    model.mkdir()
    (model / "modules.json").write_text("[]")
    with pytest.raises(UserError, match="is the model of a run: give the folder of the run"):
        read.read_run(model)


def test_scores_that_are_not_finite_are_left_out(tmp_path):
    odd = {**retrieval(33.0), "low": float("nan")}
    (run,) = [read.read_run(write_run(tmp_path / "run", after=[odd, retrieval(float("nan"))]))]
    assert [(one.value, one.low) for one in run.trained] == [(33.0, None)]
