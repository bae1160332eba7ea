"""Files and folders are whole or absent, wherever a process is killed."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from selfsent import atomic
from selfsent.atomic import build_folder, cache_folder
from selfsent.run import Run

BUILD_AND_WAIT = """
import sys
from pathlib import Path
from selfsent.atomic import build_folder
with build_folder(Path(sys.argv[1])) as scratch:
    (scratch / "half").write_text("half")
    print("ready", flush=True)
    sys.stdin.read()  # until this test ends
"""


def names(path):
    return sorted(p.name for p in path.iterdir())


def test_the_root_is_that_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path))
    assert cache_folder("corpora", "abc") == tmp_path / "corpora" / "abc"
    monkeypatch.delenv("SELFSENT_CACHE")
    assert cache_folder("corpora", "abc") == Path.home() / ".cache" / "selfsent" / "corpora" / "abc"


def test_a_folder_appears_only_when_it_is_whole(tmp_path):
    target = tmp_path / "corpora" / "abc"
    with build_folder(target) as scratch:
        (scratch / "data").write_text("x")
        assert not target.exists()
    assert names(target) == ["data"]
    assert names(target.parent) == ["abc"]


def test_an_error_leaves_nothing_behind(tmp_path):
    def interrupted():
        with build_folder(tmp_path / "abc") as scratch:
            (scratch / "half").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert names(tmp_path) == []


def test_of_two_builders_the_first_to_finish_wins_and_both_succeed(tmp_path):
    target = tmp_path / "abc"
    with build_folder(target) as slow:
        (slow / "data").write_text("slow")
        with build_folder(target) as quick:
            (quick / "data").write_text("quick")
    assert (target / "data").read_text() == "quick"
    assert names(tmp_path) == ["abc"]


def test_the_rubbish_of_a_killed_builder_is_removed_and_that_of_a_living_one_is_not(tmp_path):
    target = tmp_path / "abc"
    command = [sys.executable, "-c", BUILD_AND_WAIT, str(target)]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as living,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as killed,
    ):
        assert living.stdout.readline() == killed.stdout.readline() == "ready\n"
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        assert len(list(tmp_path.glob(".abc.*/half"))) == 2
        assert not target.exists()
        with build_folder(tmp_path / "other"):
            assert len(list(tmp_path.glob(".abc.*/half"))) == 1
        os.kill(living.pid, signal.SIGKILL)
        living.wait()
    with build_folder(tmp_path / "third"):
        pass
    assert names(tmp_path) == ["other", "third"]


def exits_at(operation):
    left = iter(range(operation, -1, -1))
    return lambda kind, path: os._exit(9) if next(left) == 0 else None


def killed_at_every_operation(act, check):
    """Fork, run ``act`` and exit without clean-up at its first operation, its second ...; ``check`` what is left."""
    for survived in range(100):
        child = os.fork()
        if not child:
            atomic.fault = exits_at(survived)
            act()
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        check(status == 0)
        if status == 0:
            return survived
    raise AssertionError("100 operations were not enough")


def test_a_file_is_the_old_or_the_new_one_wherever_the_process_is_killed(tmp_path):
    target = tmp_path / "scores.json"
    atomic.write_text(target, "old")

    def check(ended):
        assert target.read_text() in (("new",) if ended else ("old", "new"))
        atomic.write_text(target, "old")

    assert (
        killed_at_every_operation(lambda: atomic.write_text(target, "new"), check) == 5
    )  # open write fsync x 2 rename
    assert names(tmp_path) == ["scores.json"]


def test_a_checkpoint_can_be_resumed_wherever_the_process_is_killed(tmp_path):
    run = Run.create(tmp_path / "run", {})

    def save(step):
        run.checkpoints.save(step, {"w": torch.full((3,), float(step))}, {"step": step})

    def restart():
        shutil.rmtree(run.checkpoints.folder, ignore_errors=True)
        for step in (1, 2):
            save(step)

    def check(ended):
        step, weights, state = Run.reopen(run.folder, {}).checkpoints.load()
        assert step in ((3,) if ended else (2, 3))
        assert weights["w"].tolist() == [float(step)] * 3
        assert state == {"step": step}
        assert not list(run.checkpoints.folder.glob(".*.partial"))
        restart()

    restart()
    assert killed_at_every_operation(lambda: save(3), check) > 4


def test_a_published_folder_is_whole_or_absent_wherever_the_process_is_killed(tmp_path):
    run = Run.create(tmp_path / "run", {})

    def publish():
        run.publish(lambda place: [(place / name).write_text(name) for name in ("config.json", "weights")])

    def check(ended):
        assert run.model.is_dir() or not ended
        if run.model.is_dir():
            assert names(run.model) == ["config.json", "weights"]
            shutil.rmtree(run.model)

    killed_at_every_operation(publish, check)


def test_a_cached_folder_is_whole_or_absent_wherever_the_process_is_killed(tmp_path):
    target = tmp_path / "corpora" / "abc"

    def build():
        with build_folder(target) as scratch:
            (scratch / "data").write_text("x")

    def check(ended):
        assert target.is_dir() or not ended
        if target.is_dir():
            assert names(target) == ["data"]
            shutil.rmtree(target)

    killed_at_every_operation(build, check)
    build()
    assert names(target.parent) == ["abc"]
