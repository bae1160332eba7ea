"""A cached folder is whole or not there, and nobody's rubbish stays for long."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from selfsent.atomic import build_folder, cache_folder

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
