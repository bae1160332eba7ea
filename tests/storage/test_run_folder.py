"""A run's folder: whole or not there, and nothing lost."""

import resource
import signal

import numpy as np
import pytest
import torch
from crash import damage
from small_runs import Told

from selfsent.errors import ResumeError, UserError
from selfsent.progress import SILENT
from selfsent.storage import atomic
from selfsent.storage.run_folder import Run

AGAIN = "delete .*model and .*scores.json and add --resume to train it again"
CONFIG = {"recipe": {"method": "simcse", "train": {"steps": 5}}, "corpus": {"fingerprint": "abc"}}


def weights(value: float) -> dict[str, torch.Tensor]:
    return {"a": torch.full((100, 100), value), "b": torch.tensor([value])}


def test_a_folder_that_holds_something_is_not_overwritten(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="exists: choose another --out"):
        Run.create(tmp_path, CONFIG)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_the_newest_checkpoint_comes_back_as_it_was_saved(tmp_path):
    run = Run.create(tmp_path / "run", CONFIG)
    run.checkpoints.save(5, weights(1.0), {"progress": {"step": 5}})
    run.checkpoints.save(10, weights(2.0), {"progress": {"step": 10}})
    step, loaded, state = run.checkpoints.load()
    assert (step, state) == (10, {"progress": {"step": 10}})
    assert torch.equal(loaded["a"], weights(2.0)["a"])
    run.checkpoints.save(15, weights(3.0), {})
    assert sorted(path.name for path in run.checkpoints.folder.iterdir()) == ["step-00000010", "step-00000015"]


@pytest.mark.parametrize(
    ("steps", "damaged", "advice"),
    [
        ((1, 2), "step-00000002/weights.safetensors", "delete .* to resume from step-00000001"),
        ((1, 2), "step-00000002/state.pt", "delete .* to resume from step-00000001"),
        ((1,), "step-00000001/weights.safetensors", "delete .* to resume from the beginning"),
        ((), "best-00000002/weights.safetensors", "delete .* to train it again"),
    ],
)
@pytest.mark.parametrize("how", ["cut", "flipped"])
def test_a_damaged_checkpoint_is_refused_by_the_name_of_its_file(tmp_path, steps, damaged, advice, how):
    run = Run.create(tmp_path / "run", CONFIG)
    for step in steps:
        run.checkpoints.save(step, weights(step), {})
    run.checkpoints.save_best(2, weights(2.0))
    damage(run.checkpoints.folder / damaged, how)
    with pytest.raises(ResumeError, match=rf"{damaged} was cut off or changed .*: {advice}"):
        run.checkpoints.load() if steps else run.checkpoints.load_best(2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recipe": {"method": "simcse", "train": {"steps": 6}}}, r"its train\.steps was 5 and is now 6"),
        ({"corpus": {"fingerprint": "xyz"}}, "its corpus fingerprint was 'abc' and is now 'xyz'"),
        ({"base": "xyz"}, "the base that it was started from has changed since"),
    ],
)
def test_resuming_with_something_else_names_it(tmp_path, changes, message):
    Run.create(tmp_path / "run", CONFIG | {"base": "abc"})
    with pytest.raises(ResumeError, match=message):
        Run.reopen(tmp_path / "run", CONFIG | {"base": "abc"} | changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"versions": {"torch": "2.13.0"}}, ["warning: torch changed since"]),
        ({"hardware": {"device": "cuda", "precision": "bf16"}}, ["warning: device, precision changed since"]),
        ({"processes": 2}, ["the run was started with 1 and is resumed with 2 processes"]),
    ],
)
def test_what_may_change_the_last_bits_of_a_resumed_run_is_said(tmp_path, changes, said):
    told, begun = Told(), CONFIG | {"hardware": {"device": "cpu", "precision": "fp32"}, "versions": {"torch": "2.12.0"}}
    Run.create(tmp_path / "run", begun)
    Run.open(tmp_path / "run", begun | changes, resume=True, progress=told)
    assert len(told.said) == len(said)
    assert all(line.startswith(start) for line, start in zip(told.said, said, strict=True))


def test_a_full_disk_leaves_the_old_checkpoint_intact_and_nothing_half_written(tmp_path):
    run = Run.create(tmp_path / "run", CONFIG)
    run.checkpoints.save(1, weights(1.0), {})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))  # weights need 40,000 bytes
    try:
        with pytest.raises(UserError, match=r"cannot write .*step-00000002.*what was saved before is whole"):
            run.checkpoints.save(2, weights(2.0), {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [path.name for path in run.checkpoints.folder.iterdir()] == ["step-00000001"]
    assert torch.equal(run.checkpoints.load()[1]["a"], weights(1.0)["a"])


def test_resuming_clears_what_a_kill_left_half_written(tmp_path):
    run = Run.create(tmp_path / "run", CONFIG)
    (run.checkpoints.folder / ".step-00000007.partial").mkdir(parents=True)
    (run.folder / ".model.partial").mkdir()
    Run.reopen(run.folder, CONFIG)
    assert sorted(path.name for path in run.folder.iterdir()) == ["checkpoints", "config.json"]
    assert list(run.checkpoints.folder.iterdir()) == []


def test_the_log_forgets_the_steps_that_will_be_run_again_and_lines_cut_off(tmp_path):
    run = Run.create(tmp_path / "run", CONFIG)
    for step in (0, 10, 20):
        run.log(step=step, loss=1.0 / (step + 1))
    logged, before = run.logged(), (run.folder / "log.jsonl").read_bytes()
    run.log(step=30, loss=0.1)
    with (run.folder / "log.jsonl").open("a") as file:
        file.write('{"step": 35, "lo')
    run.rewind(logged)
    assert (run.folder / "log.jsonl").read_bytes() == before
    run.rewind("")
    assert (run.folder / "log.jsonl").read_bytes() == b""


@pytest.mark.parametrize(
    "changed", [lambda text: text[:-1], lambda text: text.replace(b"0.5", b"0.7"), lambda text: b""]
)
def test_a_log_that_was_changed_is_refused_and_one_that_was_deleted_is_not(tmp_path, changed):
    run = Run.create(tmp_path / "run", CONFIG)
    run.log(step=1, loss=0.5)
    logged, path = run.logged(), run.folder / "log.jsonl"
    path.write_bytes(changed(path.read_bytes()))
    with pytest.raises(
        ResumeError, match=r"log\.jsonl was cut off or changed .*: delete it to resume without its lines"
    ):
        run.rewind(logged)
    path.unlink()
    run.rewind(logged)


def test_best_weights_that_nothing_refers_to_are_removed(tmp_path):
    run = Run.create(tmp_path / "run", CONFIG)
    run.checkpoints.save_best(1, weights(1.0))
    run.checkpoints.save_best(2, weights(2.0))
    run.checkpoints.forget_best({2})
    assert [path.name for path in run.checkpoints.folder.iterdir()] == ["best-00000002"]
    assert run.checkpoints.load_best(2)["b"].item() == 2.0


def a_finished_run(folder):
    run = Run.create(folder, CONFIG)
    run.checkpoints.save(5, weights(1.0), {})
    run.checkpoints.save_best(5, weights(1.0))
    run.log(step=5, loss=0.5)
    run.publish(lambda place: (place / "modules.json").write_text("[]"))
    return run


def test_checkpoints_go_when_the_scores_are_there_and_not_before(tmp_path, monkeypatch):
    run = a_finished_run(tmp_path / "run")
    assert run.finished() is None
    seen = []
    removed = Run.release
    monkeypatch.setattr(Run, "release", lambda self: (seen.append(self.finished()), removed(self)))
    run.finish({"value": 1.5})
    assert seen == [{"value": 1.5}]
    shown = sorted(path.name for path in run.folder.iterdir() if not path.name.startswith("."))
    assert shown == ["config.json", "log.jsonl", "model", "scores.json"]


@pytest.mark.parametrize("lost", ["model", "scores.json"])
def test_a_run_without_model_or_scores_is_not_finished(tmp_path, lost):
    run = a_finished_run(tmp_path / "run")
    run.finish({"value": 1.5})
    assert run.finished() == {"value": 1.5}
    atomic.remove(run.folder / lost)
    assert run.finished() is None


@pytest.mark.parametrize(
    ("name", "changed", "advice"),
    [
        ("model/modules.json", lambda text: None, AGAIN),
        ("model/modules.json", lambda text: text[:1], AGAIN),
        ("model/.checksums", lambda text: text[:9], AGAIN),
        ("scores.json", lambda text: text[:11], AGAIN),
        ("scores.json", lambda text: text.replace(b"1.5", b"3.5"), AGAIN),
        ("log.jsonl", lambda text: text.replace(b"0.5", b"0.7"), "delete it, only the curves of the report need it"),
        ("config.json", lambda text: text.replace(b"simcse", b"simcsf"), "start a new run with another --out"),
        ("config.json", lambda text: b"\xff\xfe{}", "start a new run with another --out"),
        ("config.json", lambda text: b"[1]", "start a new run with another --out"),
    ],
)
def test_a_finished_run_that_was_damaged_is_refused_by_the_name_of_the_file(tmp_path, name, changed, advice):
    run = a_finished_run(tmp_path / "run")
    run.finish({"value": 1.5})
    content = changed((run.folder / name).read_bytes())
    if content is None:
        (run.folder / name).unlink()
    else:
        (run.folder / name).write_bytes(content)
    with pytest.raises(ResumeError, match=rf"{name} .*: {advice}"):
        Run.reopen(run.folder, CONFIG).finished()


def test_the_replicates_of_a_finished_run_come_back_and_damaged_ones_are_refused(tmp_path):
    run = Run.create(tmp_path / "run", CONFIG)
    run.publish(lambda place: (place / "modules.json").write_text("[]"))
    drawn = {"base 0": np.arange(5.0), "trained 0": np.arange(5.0) + 1e-300}
    run.finish({"value": 1.5}, drawn)
    assert run.finished() == {"value": 1.5}
    np.testing.assert_equal(run.replicates(), drawn)
    path = run.folder / "replicates.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ResumeError, match=r"replicates\.safetensors was cut off or changed .* to train it again"):
        run.replicates()


def test_a_base_and_texts_that_were_moved_are_known_by_their_content(tmp_path):
    def config(name, **content):
        return {"base": "abc", "corpus": {"fingerprint": "f"}, "recipe": {"base": name, "texts": [name]}} | content

    Run.create(tmp_path / "run", config("here"))
    Run.reopen(tmp_path / "run", config("there"))
    with pytest.raises(ResumeError, match="its base was 'here' and is now 'there'"):
        Run.reopen(tmp_path / "run", config("there", corpus={"fingerprint": "g"}))
    (tmp_path / "old").mkdir()
    Run.create(tmp_path / "old" / "run", {**config("here"), "base": None} | {"recipe": {"base": "here"}})
    with pytest.raises(ResumeError):
        Run.reopen(tmp_path / "old" / "run", config("there"))


def test_resuming_a_folder_without_config_says_what_is_missing(tmp_path):
    (tmp_path / "log.jsonl").write_text("{}")
    with pytest.raises(UserError, match=r"exists: it has no config\.json to resume by; choose another --out"):
        Run.open(tmp_path, CONFIG, resume=True, progress=SILENT)
