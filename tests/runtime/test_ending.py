"""A command that does not heed signals is ended by the second; one alone, and those of its children, end nothing."""

import os
import signal
import subprocess
import sys

import pytest

STUCK = """
import os, signal, sys, threading
from selfsent.runtime import ending
ending._SECONDS = 0.2
def stuck(*_):
    print("again", flush=True)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, stuck)
with ending.ending_at_second_signal():
    if "child" in sys.argv:
        child = os.fork()
        if not child:
            for _ in range(3):
                signal.raise_signal(signal.SIGINT)
            os._exit(0)
        os.waitpid(child, 0)
    print("ready", flush=True)
    never = threading.Lock()
    never.acquire()
    while True:  # a finally block that waits for what never comes
        if sys.stdin.read(1) == "q":
            break
print("ended by itself", flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(("first", "second"), [("SIGTERM", "SIGTERM"), ("SIGINT", "SIGTERM"), ("SIGINT", "SIGINT")])
def test_a_process_that_heeds_no_signal_is_ended_by_the_second(first, second):
    with subprocess.Popen(
        [sys.executable, "-c", STUCK], stdin=-1, stdout=-1, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        for name in (first, second):
            process.send_signal(getattr(signal, name))
            assert process.stdout.readline() == "again\n"
        assert process.wait(20) == 130
        assert process.stderr.read() == "stopped: it did not end by itself after a second signal\n"


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_one_signal_and_those_of_a_child_end_nothing():
    done = subprocess.run([sys.executable, "-c", STUCK, "child"], input="q", capture_output=True, text=True)
    assert done.stdout.splitlines() == ["again", "again", "again", "ready", "ended by itself"]
    assert (done.returncode, done.stderr) == (0, "")
    with subprocess.Popen([sys.executable, "-c", STUCK], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.stdout.readline() == "again\n"
        assert process.communicate("q", timeout=60)[0] == "ended by itself\n"
        assert process.returncode == 0
