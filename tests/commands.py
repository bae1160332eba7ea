"""Run commands of the command line in a test."""

import os
import subprocess
import sys

from selfsent.__main__ import main


def run(monkeypatch, capsys, *words):
    """Run a command in this process; return its exit status, standard output and standard error."""
    monkeypatch.setattr(sys, "argv", ["selfsent", *map(str, words)])
    try:
        main()
        status = 0
    except SystemExit as ended:
        status = int(ended.code or 0)
    out, err = capsys.readouterr()
    return status, out, err


def run_silently(words, surroundings):
    """Run a command in a process that was forked for it."""
    os.environ |= surroundings
    for descriptor in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    sys.argv = ["selfsent", *words]
    main()


def refused(command, message, *words):
    status, out, err = command(*words)
    last = err.strip().splitlines()[-1]
    assert status != 0
    assert message in last, err
    assert "Traceback" not in out + err


def imported(*words, none_of):
    """Run a command in a process of its own; return its output, and fail if it imported any of these modules."""
    program = (
        f"import sys; sys.argv = ['selfsent', *{words}]\n"
        "from selfsent.__main__ import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"assert not {{*{none_of}}} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
