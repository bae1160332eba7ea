"""One process writes an output; another is refused, or noticed where a file system lost the lock."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from selfsent.errors import ConfigurationError
from selfsent.storage import atomic, locks

HOLD = """
import sys
from pathlib import Path
from selfsent.storage import locks
with locks.exclusive(Path(sys.argv[1]), folder=sys.argv[2] == "folder"):
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_an_output_has_one_process_which_is_named_and_lets_go_when_it_is_killed(tmp_path, kind):
    target = tmp_path / "runs" / "out"
    target.parent.mkdir()
    command = [sys.executable, "-c", HOLD, str(target), kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "ready\n"
        whose = rf"process {holder.pid} on {socket.gethostname()} is writing .*out: wait for its end"
        with pytest.raises(ConfigurationError, match=whose), locks.exclusive(target, folder=kind == "folder"):
            pass
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    with locks.exclusive(target, folder=kind == "folder"):
        (target if kind == "file" else target / "data").write_text("x")
    assert [path.name for path in target.parent.iterdir()] == ["out"]
    assert kind == "file" or sorted(path.name for path in target.iterdir()) == [locks.LOCK_NAME, "data"]


def test_a_folder_in_which_nothing_was_written_is_as_it_was(tmp_path):
    with pytest.raises(KeyError), locks.exclusive(tmp_path / "runs" / "out"):
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_somebody_else_that_is_refused_gets_no_mark(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(KeyError), locks.exclusive(tmp_path):
        raise KeyError
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_lock_that_was_lost_to_another_process_ends_the_first_at_its_next_write(tmp_path, kind):
    target = tmp_path / "out"
    file = target / "data" if kind == "folder" else target
    command = [sys.executable, "-c", HOLD, str(target), kind]
    with locks.exclusive(target, folder=kind == "folder"):
        atomic.write_text(file, "first")
        (
            target / locks.LOCK_NAME if kind == "folder" else tmp_path / ".out.lock"
        ).unlink()  # as a server that starts anew
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout.readline() == "ready\n"
            with pytest.raises(ConfigurationError, match=f"^process {other.pid} on .* has taken .* over"):
                atomic.write_text(file, "second")
            with (
                pytest.raises(ConfigurationError, match="is writing"),
                locks.exclusive(target, folder=kind == "folder"),
            ):
                pass
            other.stdin.close()
    assert file.read_text() == "first"
    atomic.write_text(file, "third")  # nothing is held any more
