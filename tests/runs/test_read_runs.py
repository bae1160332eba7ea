"""Folders of runs read back: torn logs, seeds, unfinished runs, and what is no run."""

import json

import pytest
from made_runs import log_lines, retrieval, score, write_run

from selfsent.errors import ResumeError, UserError
from selfsent.runs import read
from selfsent.storage import atomic


def test_a_line_torn_by_a_kill_is_left_out(tmp_path):
    folder = write_run(tmp_path / "run", scored=False)
    whole = (folder / "log.jsonl").read_text()
    (folder / "log.jsonl").write_text(whole + '{"step": 50, "terms": {"contra')
    run = read.read_run(folder)
    assert run.curves["terms"]["contrast"] == [(step, pytest.approx(1 / step)) for step in (10, 20, 30, 40)]
    assert run.curves["scores"]["retrieval"] == [(0, 30.0), (20, 32.0), (40, 34.0)]
    assert run.last_step == 40


@pytest.mark.parametrize("garbage", ["5", "[]", '{"step": "x"}', '{"step": 9, "terms": 3}', "[" * 100_000])
def test_lines_that_no_run_wrote_are_left_out(tmp_path, garbage):
    folder = write_run(tmp_path / "run")
    whole = read.read_log(folder / "log.jsonl")
    (folder / "log.jsonl").write_text((folder / "log.jsonl").read_text() + garbage + "\n")
    assert read.read_log(folder / "log.jsonl") == whole


def test_the_log_of_a_finished_run_that_was_changed_is_refused(tmp_path):
    folder = write_run(tmp_path / "run")
    read.read_run(folder)
    (folder / "log.jsonl").write_text((folder / "log.jsonl").read_text().replace("20", "21", 1))
    with pytest.raises(
        ResumeError, match=r"log\.jsonl was cut off or changed .*: delete it to write the report without"
    ):
        read.read_run(folder)
    (folder / "log.jsonl").unlink()
    read.read_run(folder)


def test_of_two_lines_for_one_step_the_later_holds_and_steps_rise(tmp_path):
    lines = [*log_lines(), {"step": 20, "terms": {"contrast": 7.0}}, {"step": 30, "alarm": "collapsing"}]
    run = read.read_run(write_run(tmp_path / "run", lines=lines))
    assert dict(run.curves["terms"]["contrast"])[20] == 7.0
    assert [step for step, _ in run.curves["terms"]["contrast"]] == [10, 20, 30, 40]
    assert run.alarms == [(30, "collapsing")]


def test_what_is_not_finite_is_no_point_of_a_curve(tmp_path):
    lines = [*log_lines(), {"step": 50, "terms": {"contrast": float("nan")}}]
    assert read.read_run(write_run(tmp_path / "run", lines=lines)).curves["terms"]["contrast"][-1][0] == 40


def test_seeds_of_one_recipe_are_one_group_and_another_recipe_is_another(tmp_path):
    runs = [write_run(tmp_path / f"warm-{seed}", seed=seed) for seed in (1, 2, 3)]
    runs += [
        write_run(tmp_path / "cold-1", objective={"temperature": 0.01}),
        write_run(tmp_path / "x" / "warm", data="d"),
    ]
    groups = read.group_runs([read.read_run(run) for run in runs])
    assert [(one.name, len(one.runs)) for one in groups] == [("warm", 3), ("cold-1", 1), ("x/warm", 1)]
    assert read.differences(groups) == {"data": [None, None, "d"], "objective.temperature": [None, 0.01, None]}


def test_runs_on_a_text_that_changed_are_no_seeds_of_one_recipe(tmp_path):
    runs = [write_run(tmp_path / f"week-{seed}", seed=seed) for seed in (1, 2)]
    path = runs[1] / "config.json"
    config = json.loads(path.read_text())
    config["corpus"]["fingerprint"] = "f" * 32
    del config["checksum"]
    atomic.write_sealed(path, config)
    groups = read.group_runs([read.read_run(run) for run in runs])
    assert [len(one.runs) for one in groups] == [1, 1]
    assert read.differences(groups) == {"fingerprint of the text": ["0" * 8, "f" * 8]}


def test_a_key_that_a_recipe_leaves_to_its_default_does_not_part_two_seeds(tmp_path):
    runs = [write_run(tmp_path / "a-1", seed=1), write_run(tmp_path / "a-2", seed=2, encoder={"pooling": None})]
    assert len(read.group_runs([read.read_run(run) for run in runs])) == 1


def test_verdict_json_outweighs_the_verdict_of_the_scores(tmp_path):
    folder = write_run(tmp_path / "run")
    run = read.read_run(folder)
    assert run.verdict == "better"
    assert run.reasons.startswith("In finding the right text: 35.6 after")
    scores = json.loads((folder / "scores.json").read_text())
    del scores["checksum"]
    atomic.write_sealed(folder / "scores.json", scores | {"verdict": "Worse, do not use it. In finding more."})
    assert read.read_run(folder).reasons == "Do not use it. In finding more."
    said = {
        "verdict": "worse",
        "sentences": ["Worse than its base.", "Word matching finds more."],
        "base": {"scores": [score("halves", 50.0, "mrr@10", "")]},
        "differences": [],
        "left_out": {"pairs": "none"},
    }
    (folder / "verdict.json").write_text(json.dumps(said))
    run = read.read_run(folder)
    assert (run.verdict, run.reasons) == ("worse", " ".join(said["sentences"]))
    assert [one.value for one in run.measured["verdict.json"]["base"]] == [50.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda place: None, "holds no run: expected a config.json"),
        (lambda place: place.mkdir(), "holds no run: expected a config.json"),
        (
            lambda place: [write_run(place / trial / "seed-0") for trial in ("trial-1", "trial-0")],
            "holds no run but several: give one of them, such as .*trial-0/seed-0",
        ),
        (
            lambda place: (place.mkdir(), (place / "fit.json").write_text("{}")),
            "holds a selection, whose page is fit.html: expected a config.json",
        ),
        (lambda place: (place.mkdir(), atomic.write_sealed(place / "config.json", {})), "has no recipe"),
        (
            lambda place: (place.mkdir(), (place / "config.json").write_text('{"vocab_size": 9}')),
            "is not one that train writes",
        ),
        (lambda place: (place.mkdir(), (place / "config.json").write_text("{")), "is damaged"),
        (lambda place: write_run(place, scored=False, lines=[]), "no line in its log yet: wait"),
        (lambda place: (write_run(place) / "scores.json").write_text("{"), r"scores.json is damaged"),
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


def test_scores_that_are_not_finite_are_left_out(tmp_path):
    run = read.read_run(write_run(tmp_path / "run", after=[retrieval(33.0), retrieval(float("nan"))]))
    assert [one.value for one in run.measured["scores.json"]["trained"]] == [33.0]
