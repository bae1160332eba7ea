"""One small local cluster for all tests of this folder; starting it takes seconds."""

import os
import signal
from pathlib import Path

import pytest

from selfsent.bulk.ray import open_cluster, require_ray
from selfsent.errors import ConfigurationError


@pytest.fixture(scope="package")
def cluster():
    """Two workers at most."""
    try:
        require_ray()
    except ConfigurationError as error:
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("RAY_ADDRESS", raising=False)
        with open_cluster(2) as workers:
            yield workers


def processes_of_ray():
    """The processes below this one, by number, with their command lines."""
    found, below = {}, {os.getpid()}
    numbers = sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())
    for _ in range(3):  # children of children; numbers may start again from below
        for number in numbers:
            try:
                status = Path(f"/proc/{number}/stat").read_text()
                words = Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if int(status.rpartition(")")[2].split()[1]) in below:
                below.add(number)
                found[number] = words
    return found


@pytest.fixture
def processes():
    """A function that finds them."""
    return processes_of_ray


@pytest.fixture
def kill_a_worker():
    """Kill one worker as the kernel would, the first time it is called; what was killed is in ``killed``."""

    def kill():
        if not kill.killed:
            workers = [number for number, words in processes_of_ray().items() if words.startswith("ray::_Worker")]
            assert workers
            os.kill(workers[0], signal.SIGKILL)
            kill.killed.append(workers[0])

    kill.killed = []
    return kill
