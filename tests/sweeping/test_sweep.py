"""A sweep tries what it is told, ends the same whether it was killed or not, and chooses by dev scores alone."""

import csv
import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError
from small_runs import QUICK, Told, random_lines

import selfsent
from selfsent import config
from selfsent.errors import ConfigurationError, ResumeError, UserError
from selfsent.evaluation.score import Results, Score
from selfsent.progress import Progress
from selfsent.storage import checkpoint_store as running
from selfsent.storage import locks
from selfsent.sweeping import sweep as module
from selfsent.sweeping.outcome import describe_rivals
from selfsent.sweeping.trials import TrialJournal
from selfsent.training import train
from selfsent.training.run import Trained
from selfsent.training.train import judge_seeds
from selfsent.training.trainer import TrainingOutcome

LIST, THREE = "objective.temperature=0.05,0.2", "objective.temperature=0.05,0.2,1.0"
RATES = ["train.learning_rate=1e-4,1e-3"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return random_lines(tmp_path_factory.mktemp("text") / "text.txt", 300)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SELFSENT_CACHE", str(tmp_path_factory.mktemp("sweep-cache")))
        yield


@pytest.fixture(scope="module")
def sweep(bert, text):
    """Sweep with short trainings of a tiny encoder."""
    quick = [setting for setting in QUICK if "temperature" not in setting]

    def sweep(out, *settings, method="simcse", **options):
        settings = [*quick, *settings]
        return selfsent.sweep(method, base=str(bert), corpus=[str(text)], out=out, settings=settings, **options)

    return sweep


@pytest.fixture(scope="module")
def whole(sweep, tmp_path_factory):
    """A sweep that was never stopped: three settings, one of them the recipe as it is, two seeds."""
    return sweep(tmp_path_factory.mktemp("whole") / "sweep", THREE, seeds=2)


@pytest.fixture
def copied(whole, tmp_path):
    """A copy of its folder."""
    return shutil.copytree(whole.folder, tmp_path / "sweep")


def weights(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("model/**/*.safetensors")}


class Killed(BaseException):
    """Ends the process here."""


class KillAt(Progress):
    """Raises at the n-th evaluation."""

    def __init__(self, count):
        self.left = count

    def evaluated(self, step, scores, best):
        self.left -= 1
        if self.left == 0:
            raise Killed


def test_every_setting_is_an_ordinary_run_with_every_seed_but_the_one_that_equals_the_recipe(whole):
    runs = {str(path.parent.relative_to(whole.folder)) for path in whole.folder.rglob("scores.json")}
    assert runs == {f"{name}/seed-{seed}" for name in ("recipe", "trial-001", "trial-002") for seed in (42, 43)}
    configs = (whole.folder / name / "seed-43" / "config.json" for name in ("trial-001", "trial-002"))
    assert {json.loads(path.read_text())["objective"]["temperature"] for path in configs} == {0.2, 1.0}
    repeated = whole.trials[1]
    assert (repeated.state, repeated.same_as) == ("repeated", None)
    assert repeated.settings == {"objective.temperature": "0.05"}


def test_the_files_hold_the_scores_of_the_runs(whole):
    content = json.loads((whole.folder / "sweep.json").read_text())
    assert content["finished"]
    for trial, name in ((content["trials"][0], "recipe"), (content["trials"][2], "trial-001")):
        for run in trial["runs"]:
            scores = json.loads((whole.folder / name / f"seed-{run['seed']}" / "scores.json").read_text())
            mrr = [score["value"] for score in scores["trained"]["scores"] if score["metric"] == "mrr@10"]
            assert run["dev"] == scores["outcome"]["best_score"]
            assert [run["test"]] == mrr
    rows = list(csv.DictReader((whole.folder / "sweep.csv").read_text().splitlines()))
    assert [row["trial"] for row in rows] == ["recipe", "recipe", "0", "1", "1", "2", "2"]
    assert whole.decision in (whole.folder / "sweep.md").read_text()
    assert (whole.folder / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_the_best_has_the_highest_dev_score_and_two_seeds_conclude_nothing(whole):
    done = [trial for trial in whole.trials if trial.state == "complete"]
    assert whole.best.dev == max(trial.dev for trial in done)
    assert whole.finding in ("cannot tell", "reference")
    assert all(trial.p_reference is None for trial in done)


def test_a_sweep_that_was_killed_ends_with_the_same_bytes(sweep, tmp_path, whole):
    for evaluations in (1, 5, 4):
        with pytest.raises(Killed):
            sweep(tmp_path / "sweep", THREE, seeds=2, resume=True, progress=KillAt(evaluations))
    again = sweep(tmp_path / "sweep", THREE, seeds=2, resume=True)
    assert weights(again.folder) == weights(whole.folder)
    for name in ("sweep.json", "sweep.csv", "sweep.md", "sweep.png"):
        assert (again.folder / name).read_bytes() == (whole.folder / name).read_bytes()


def test_a_journal_that_was_cut_off_while_written_is_read_up_to_its_last_line(sweep, copied, whole):
    lines = (copied / "sweep.journal").read_bytes()
    (copied / "sweep.journal").write_bytes(lines + b'{"op_code": 4, "wor')
    (copied / "sweep.journal.lock").symlink_to(copied / "sweep.journal")
    assert sweep(copied, THREE, seeds=2, resume=True).decision == whole.decision
    after = (copied / "sweep.journal").read_bytes()
    assert after.startswith(lines)
    assert all(map(json.loads, after.splitlines()))  # the next ones begin on a line of their own
    assert (copied / "sweep.csv").read_bytes() == (whole.folder / "sweep.csv").read_bytes()


def change_digit(path):
    content = path.read_bytes()
    place = next(at for at in range(len(content) // 2, len(content)) if content[at : at + 1].isdigit())
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])


def cut(path):
    path.write_bytes(path.read_bytes()[:1000])


@pytest.mark.parametrize(
    ("name", "damage", "refused"),
    [
        ("sweep.journal", change_digit, r"sweep.journal is damaged .*: start a new sweep with another --out"),
        ("sweep.json", change_digit, r"sweep.json is damaged .*: start a new sweep with another --out"),
        (
            "trial-001/seed-42/model/model.safetensors",
            cut,
            r"trial-001/seed-42/model/model\.safetensors was cut off or changed",
        ),
    ],
)
def test_a_sweep_with_a_damaged_file_is_not_resumed(sweep, copied, name, damage, refused):
    damage(copied / name)
    with pytest.raises(ResumeError, match=refused):
        sweep(copied, THREE, seeds=2, resume=True)


def test_a_sweep_whose_base_or_text_has_changed_is_not_resumed(sweep, text, copied, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("selfsent.sweeping.sweep.encoder_digest", lambda encoder: "of another base")
        with pytest.raises(ResumeError, match="its base changed since it was started; put it back"):
            sweep(copied, THREE, seeds=2, resume=True)
    before = text.read_text(encoding="utf-8")
    text.write_text(before + "\nmore", encoding="utf-8")
    try:
        with pytest.raises(ResumeError, match=r"its texts changed since it was started; put it back"):
            sweep(copied, THREE, seeds=2, resume=True)
    finally:
        text.write_text(before, encoding="utf-8")


def test_a_run_that_a_kill_finished_before_its_scores_were_kept_is_scored_again(sweep, copied, whole):
    run = copied / "trial-001" / "seed-42"
    before = (run / "replicates.safetensors").read_bytes()
    (run / "replicates.safetensors").unlink()
    (run / "scores.json").unlink()
    assert sweep(copied, THREE, seeds=2, resume=True).decision == whole.decision
    assert (run / "replicates.safetensors").read_bytes() == before


def test_a_resumed_sweep_is_the_one_that_was_started_and_no_other_process_writes_it(sweep, whole):
    with pytest.raises(ResumeError, match=r"its seeds was 2 and is now 3"):
        sweep(whole.folder, THREE, seeds=3, resume=True)
    with pytest.raises(ConfigurationError, match="exists"):
        sweep(whole.folder, LIST)
    with locks.exclusive(whole.folder), pytest.raises(ConfigurationError, match=r"process \d+ on .* is writing"):
        sweep(whole.folder, THREE, seeds=2, resume=True)


def test_a_single_value_takes_its_key_out_of_what_a_recipe_sweeps(sweep, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(
        'method = "simcse"\n[sweep]\nobjective.temperature = [0.05, 0.2]\ntrain.learning_rate = [1e-5, 2e-5]\n'
    )
    outcome = sweep(tmp_path / "s", "objective.temperature=0.07", method=str(path))
    assert [trial.settings for trial in outcome.trials[1:]] == [
        {"train.learning_rate": rate} for rate in ("1e-05", "2e-05")
    ]


def test_a_disk_that_is_full_ends_the_sweep_and_is_no_failure_of_a_setting(sweep, tmp_path, monkeypatch):
    save, calls = running.save_file, []

    def full(*given, **named):
        calls.append(1)
        if len(calls) == 4:
            raise SafetensorError("I/O error: No space left on device (os error 28)")
        return save(*given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(running, "save_file", full)
        with pytest.raises(UserError, match=r"no space is left on the disk at .*: free some"):
            sweep(tmp_path / "s", LIST)
    outcome = sweep(tmp_path / "s", LIST, resume=True)
    assert {trial.state for trial in outcome.trials} <= {"complete", "repeated"}


def test_a_trial_that_fails_is_recorded_and_the_others_go_on(sweep, tmp_path):
    told = Told()
    outcome = sweep(tmp_path / "s", "train.batch_size=8,4000", LIST, trials=3, progress=told)
    assert [trial.state for trial in outcome.trials] == ["complete", "repeated", "complete", "failed"]
    assert "4000" in outcome.trials[3].reason.replace(",", "")
    assert any(line.startswith("warning: trial 2") for line in told.said)
    assert outcome.trials[3].reason in (tmp_path / "s" / "sweep.md").read_text()


def test_runs_with_other_held_out_queries_are_not_compared(sweep, tmp_path):
    outcome = sweep(tmp_path / "s", "corpus.held_out=4,6", LIST)
    failed = [trial for trial in outcome.trials if trial.state == "failed"]
    assert "6" in {trial.settings["corpus.held_out"] for trial in failed}
    assert "held-out queries differ" in failed[0].reason


def test_a_setting_below_the_median_is_given_up_with_its_run_left_to_resume(sweep, tmp_path, monkeypatch):
    report = TrialJournal.report
    # The tiny encoders score alike: here each trial is worse than the one before.
    worse = lambda journal, trial, step, score: report(journal, trial, step, -float(trial.number))  # noqa: E731
    monkeypatch.setattr(TrialJournal, "report", worse)
    rates = "train.learning_rate=1e-3,9e-4,8e-4,7e-4,6e-4,5e-4,4e-4"
    with pytest.raises(Killed):
        sweep(tmp_path / "s", rates, prune=True, progress=KillAt(3 * 6 + 2))  # in the trial that will be given up
    outcome = sweep(tmp_path / "s", rates, prune=True, resume=True)
    assert [trial.state for trial in outcome.trials[1:]] == ["complete"] * 5 + ["pruned"] * 2
    assert "below the median" in outcome.trials[6].reason
    folder = tmp_path / "s" / "trial-005" / "seed-42"
    assert (folder / "config.json").is_file()
    assert not (folder / "scores.json").exists()


def trained(seed, dev, before, test, *, noise, structured=True, queries=20):
    """A run of no training: its scores, and the resamples of them."""

    def results(value):
        drawn = value + noise * np.random.default_rng(0).normal(size=50)
        score = Score(task="retrieval", split="held-out", metric="mrr@10", value=value, n=queries, replicates=drawn)
        return Results(scores=[score])

    figures = {"steps": 1, "best_step": 1, "start": {}, "seconds": 1.0, "texts_per_second": 1.0}
    outcome = TrainingOutcome(best_score=dev, selected_by="retrieval", **figures)
    scores = {"before": results(before), "after": results(test), "verdict": "", "structured": structured}
    return Trained(folder=Path(), model=Path(), seed=seed, outcome=outcome, **scores)


def test_what_no_score_can_choose_between_is_refused_before_it_is_trained(sweep, tmp_path):
    with pytest.raises(ConfigurationError, match=r"no dev score chooses between settings: .*held_out_share=0.3"):
        sweep(tmp_path / "s", LIST, "train.select=last")
    assert not [*tmp_path.rglob("*.json*"), *tmp_path.rglob("*.journal")]  # so that the advice can be followed


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Sweep with a function of the recipe in place of training: trials, choice and files without the cost of runs."""

    def fake(score, *settings, method="simcse", out="s", of_runs=None, **options):
        def train_seed(recipe, folder, progress):
            dev, test = score(recipe)
            return trained(recipe.seed, dev, 1.0, test, noise=0.1, **(of_runs or {}))

        monkeypatch.setattr(module, "train_seed", train_seed)
        monkeypatch.setattr(module, "fingerprint_inputs", lambda recipe: {"base": "", "texts": []})
        return selfsent.sweep(method, settings=settings, out=tmp_path / out, **options)

    return fake


def rate(recipe) -> float:
    return recipe.train.learning_rate


def same(recipe):
    return 1.0, 1.0


def rising(recipe):
    value = 40 + 1e4 * rate(recipe) + 0.01 * np.random.default_rng(recipe.seed).normal()
    return value, value


def rises_on_dev_alone(recipe):
    return 1e4 * rate(recipe), -1e4 * rate(recipe)


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_what_is_drawn_depends_on_the_seed_and_not_on_kills(fake, sampler):
    ranges = ["train.learning_rate=1e-5..1e-3:log", "train.steps=100..400"]
    calls = 0

    def score(recipe):
        nonlocal calls
        calls += 1
        if calls in killed:
            raise Killed
        return -abs(np.log10(rate(recipe)) + 4), 0.0

    def run(name, seed):
        options = {"ranges": ranges, "sampler": sampler, "trials": 14, "seed": seed, "resume": True}
        return fake(score, "train.schedule=linear,cosine", out=name, **options)

    drawn = {}
    for name, seed, killed in (("whole", 1, ()), ("killed", 1, (1, 5, 6, 15)), ("other", 2, ())):
        calls = 0
        for _ in killed:
            with pytest.raises(Killed):
                run(name, seed)
        drawn[name] = [trial.settings for trial in run(name, seed).trials]
    assert drawn["whole"] == drawn["killed"]
    assert drawn["whole"] != drawn["other"]
    rates = [float(settings["train.learning_rate"]) for settings in drawn["whole"][1:]]
    assert 1e-5 <= min(rates) < 5e-5
    assert 2e-4 < max(rates) <= 1e-3
    assert all(100 <= int(settings["train.steps"]) <= 400 for settings in drawn["whole"][1:])


@pytest.mark.parametrize(
    ("score", "seeds", "of_runs", "finding", "said"),
    [
        (rising, 3, {}, "better", "train.learning_rate=1e-3 is better than the recipe as it is"),
        (rises_on_dev_alone, 3, {}, "worse", "train.learning_rate=1e-3 is worse than the recipe as it is"),
        (rising, 1, {}, "cannot tell", "3 seeds are needed, and there is one"),
        (rising, 3, {"queries": 19}, "cannot tell", "only 19 queries were held out"),
        (
            rising,
            3,
            {"structured": False},
            "cannot tell",
            "is better than the recipe as it is: single lines have no structure to judge by",
        ),
    ],
)
def test_the_choice_is_by_dev_and_the_test_score_judges_it_over_three_seeds(fake, score, seeds, of_runs, finding, said):
    outcome = fake(score, *RATES, seeds=seeds, of_runs=of_runs)
    assert outcome.best.settings == {"train.learning_rate": "1e-3"}
    assert outcome.finding == finding
    assert said in outcome.decision


def test_how_many_settings_cannot_be_told_from_the_best_is_said_of_three_seeds(fake):
    said = describe_rivals(fake(rising, *RATES, seeds=3))
    assert said.startswith(
        "Of the 2 other settings, the recipe among them, 0 cannot be told from train.learning_rate=1e-3"
    )
    assert describe_rivals(fake(rising, *RATES, out="once")) == ""


def test_a_folder_with_anything_but_a_sweep_is_not_resumed(fake, tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"it has no sweep\.json to resume by"):
        fake(same, *RATES, resume=True)


@pytest.mark.parametrize(("name", "trials"), [("scd-grid", 54), ("denosent-grid", 15)])
def test_the_grids_that_come_with_the_package_have_values_that_can_be(fake, name, trials):
    outcome = fake(same, method=name)
    assert len(outcome.trials) - 1 == trials
    assert [trial.state for trial in outcome.trials].count("repeated") == 1  # the published setting is in its grid
    assert not any(trial.state == "failed" for trial in outcome.trials)
    with pytest.raises(ConfigurationError, match=f"selfsent sweep TEXT --method {name}"):
        train.train(name)


def test_a_recipe_s_lists_are_swept_and_settings_take_their_place(fake, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('method = "simcse"\n[sweep]\ntrain.steps = [1, 2]\ntrain.adam_betas = [[0.9, 0.9], [0.8, 0.9]]\n')
    outcome = fake(same, "train.steps=5,6,7", method=path)
    tried = [(trial.settings["train.steps"], trial.settings["train.adam_betas"]) for trial in outcome.trials[1:]]
    assert tried == [(steps, betas) for steps in "567" for betas in ("[0.9, 0.9]", "[0.8, 0.9]")]
    assert config.sweep_lists("simcse") == {}


@pytest.mark.parametrize(("wanted", "whole"), [("train.weight_decay=0..1", False), ("train.steps=2e0..9e0", True)])
def test_a_range_is_of_the_numbers_that_its_key_takes_however_its_ends_are_written(fake, wanted, whole):
    outcome = fake(same, ranges=[wanted], sampler="random", trials=4)
    drawn = [float(trial.settings[wanted.partition("=")[0]]) for trial in outcome.trials[1:]]
    assert len(drawn) == 4
    assert all(number.is_integer() for number in drawn) == whole


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"settings": []}, "there is nothing to sweep"),
        ({"settings": ["train.adam_betas=[0.9,0.98]"]}, "there is nothing to sweep"),
        ({"settings": ["objective.temprature=1,2"]}, "did you mean 'objective.temperature'"),
        ({"settings": ["objective.temperature=0.1,-1"]}, "objective.temperature = -1"),
        ({"settings": ["objective.temperature=0.1,"]}, "one of its values is empty"),
        ({"settings": ["objective.temperature=0.1,0.1"]}, "one value twice"),
        ({"settings": ["seed=1,2"]}, "--seeds"),
        ({"settings": [LIST], "sampler": "gird"}, "did you mean 'grid'"),
        ({"settings": [LIST], "trials": 0}, "trials = 0"),
        ({"settings": [LIST], "seeds": 0}, "seeds = 0"),
        ({"settings": [LIST], "seeds": 2, "seed": 2**32 - 1}, "its 2 seeds would go beyond"),
        ({"ranges": ["train.steps=1..9"]}, "a grid needs a list"),
        ({"ranges": ["train.steps=1-9"]}, "does not fit: write"),
        ({"ranges": ["train.steps=9..1"], "sampler": "tpe"}, "rising"),
        ({"ranges": ["train.weight_decay=0..1:log"], "sampler": "tpe"}, "above 0"),
        ({"ranges": ["train.stepz=1..9"], "sampler": "tpe"}, "did you mean 'train.steps'"),
    ],
)
def test_what_cannot_be_swept_is_refused_before_anything_is_written(tmp_path, options, message):
    with pytest.raises(ConfigurationError, match=message.replace("[", r"\[")):
        selfsent.sweep("simcse", out=tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


def fails(recipe):
    if rate(recipe) > 1e-3:
        raise UserError("the loss is no longer finite")
    return 1.0, 1.0


@pytest.mark.parametrize("values", ["0.5,0.9", "0.5,0.50"])
def test_a_sweep_without_any_trial_that_ends_says_why(fake, values):
    with pytest.raises(UserError, match="the first: the loss is no longer finite"):
        fake(fails, f"train.learning_rate={values}")


def test_what_has_failed_fails_again_in_a_sweep_that_was_killed(fake):
    """Of equal settings the second is no repetition of a run that there is not."""
    calls = 0

    def score(recipe):
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Killed
        return fails(recipe)

    setting = "train.learning_rate=0.5,0.50,1e-4"
    with pytest.raises(Killed):
        fake(score, setting)
    for outcome in (fake(score, setting, resume=True), fake(fails, setting, out="whole")):
        assert [trial.state for trial in outcome.trials] == ["complete", "failed", "failed", "complete"]


def test_a_full_disk_ends_the_sweep_and_not_the_trial(fake):
    def score(recipe):
        if full and rate(recipe) == 0.9:
            raise UserError("cannot write") from OSError(errno.ENOSPC, "No space left on device")
        return 1.0, 1.0

    full = True
    with pytest.raises(UserError, match="cannot write"):
        fake(score, "train.learning_rate=0.5,0.9")
    full = False
    outcome = fake(score, "train.learning_rate=0.5,0.9", resume=True)
    assert [trial.state for trial in outcome.trials] == ["complete"] * 3


def test_settings_selected_by_another_score_are_not_compared(tmp_path, monkeypatch):
    def train_seed(recipe, folder, progress):
        run = trained(recipe.seed, 1.0, 1.0, 1.0, noise=0.1)
        selected_by = "stsb-dev" if recipe.method == "scd" else "retrieval"
        return replace(run, outcome=replace(run.outcome, selected_by=selected_by))

    monkeypatch.setattr(module, "fingerprint_inputs", lambda recipe: {"base": "", "texts": []})
    monkeypatch.setattr(module, "train_seed", train_seed)
    outcome = selfsent.sweep("simcse", settings=["method=simcse,scd,denosent"], out=tmp_path / "s")
    assert [trial.state for trial in outcome.trials] == ["complete", "repeated", "failed", "complete"]
    assert "selected by stsb-dev and the recipe's by retrieval" in outcome.trials[2].reason


def test_without_optuna_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("selfsent.sweeping.trials.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[sweep\]'"):
        selfsent.sweep("simcse", settings=[LIST], out=tmp_path / "s")


@pytest.mark.parametrize(
    ("structured", "change", "queries", "said"),
    [
        (True, 5, 20, "Better. "),
        (False, 5, 20, "Cannot tell: single lines"),
        (False, -5, 20, "Worse, do not use it. "),
        (True, 5, 19, "Cannot tell: only 19 queries were held out to test it on, and 20 are needed"),
        (True, -5, 19, "Cannot tell: only 19 queries"),
    ],
)
def test_halves_of_single_lines_show_damage_over_seeds_and_few_queries_nothing(structured, change, queries, said):
    given = {"noise": 0.1, "structured": structured, "queries": queries}
    runs = [trained(seed, 1.0, 50.0, 50.0 + change + 0.01 * seed, **given) for seed in range(3)]
    assert judge_seeds(runs)[1].startswith(said)


def test_several_seeds_give_runs_their_mean_and_a_verdict(bert, text, tmp_path, monkeypatch):
    words = {"base": str(bert), "corpus": [str(text)], "settings": QUICK, "out": tmp_path / "runs"}
    result = selfsent.train("simcse", seeds=3, seed=1, **words)
    assert [run.folder.name for run in result.runs] == ["seed-1", "seed-2", "seed-3"]
    alone = train.train("simcse", seed=2, **{**words, "out": tmp_path / "alone"})
    assert weights(alone.folder) == weights(result.runs[1].folder)
    assert result.runs[1].dev == alone.outcome.best_score
    assert result.comparison.value == pytest.approx(np.mean([run.test - run.base_test for run in result.runs]))
    with pytest.raises(ConfigurationError, match="exists"):
        selfsent.train("simcse", seeds=3, seed=1, **words)
    assert selfsent.train("simcse", seeds=3, seed=1, resume=True, **words) == result
    with pytest.raises(ResumeError, match=r"train.steps"):
        selfsent.train("simcse", seeds=3, seed=1, resume=True, **{**words, "settings": [*QUICK, "train.steps=5"]})
    before = text.read_text(encoding="utf-8")
    text.write_text(before + "\nOne more line.", encoding="utf-8")
    try:
        with pytest.raises(ResumeError, match=r"resume .*seed-1: its corpus fingerprint .*put its text back"):
            selfsent.train("simcse", seeds=3, seed=1, resume=True, **words)
    finally:
        text.write_text(before, encoding="utf-8")
    monkeypatch.setattr("selfsent.training.run.encoder_digest", lambda encoder: "of another base")
    with pytest.raises(ResumeError, match=r"resume .*seed-1: the base that it was started from has changed"):
        selfsent.train("simcse", seeds=3, seed=1, resume=True, **words)
