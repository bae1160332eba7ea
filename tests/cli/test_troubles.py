"""A signal, or a machine that fails, at any moment: one sentence, whole files, and afterwards the same bytes."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from crash import content_of, trouble_at
from small_runs import QUICK, WORDS

from selfsent.errors import StorageError, UserError, machine_failure

ERRORS = {
    errno.ENOSPC: "no space is left on the disk at .*: free some",
    errno.EDQUOT: "the quota of the disk is used up at .*: free some space",
    errno.EIO: "the disk fails at .*: look at the messages",
    errno.EROFS: "the disk can only be read at .*: make it writable",
    errno.EMFILE: "this process may open no more files at .*: raise the limit with ulimit -n",
    errno.ENOMEM: "memory is used up at .*: end other programs",
}
TROUBLES = (errno.ENOSPC, signal.SIGINT, errno.EIO, errno.EMFILE, signal.SIGTERM, errno.ENOMEM)
SMALL = [word for setting in (*QUICK, "train.baselines=false", "train.steps=2") for word in ("--set", setting)]
COMMANDS = (
    "encode TEXT --model BERT --out out/vectors.npy --precision fp32",
    "encode TEXT --model BERT --out out/shards --precision fp32",
    "index TEXT --model BERT --out out",
    "search TEXT cat --model BERT",
    "pairs structure DOCUMENTS --out out/pairs.jsonl",
    "pairs mine TEXT --model BERT --set margin=0.1 --out out/pairs.parquet",
    "pairs convert PAIRS --out out/pairs.parquet",
    "train TEXT --method simcse --base BERT --out out --resume",
)
TRIED = 9  # moments of each
TIMES = re.compile(rb'"(seconds|texts_per_second|checksum)": [^,\n}]*')


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A text of lines, documents and pairs."""
    draw, folder = np.random.default_rng(0), tmp_path_factory.mktemp("texts")
    lines = [" ".join(draw.choice(WORDS, 14)) for _ in range(240)]
    files = {"TEXT": folder / "text.txt", "DOCUMENTS": folder / "documents.jsonl", "PAIRS": folder / "pairs.csv"}
    files["TEXT"].write_text("\n".join(lines[:120]))
    texts = [". ".join(map(str.capitalize, lines[at : at + 4])) for at in range(0, 240, 4)]
    files["DOCUMENTS"].write_text("".join(f'{{"text": "{text}."}}\n' for text in texts))
    files["PAIRS"].write_text("text,positive\n" + "".join(f"{a},{b}\n" for a, b in pairwise(lines[:60])))
    return files


def left(folder):
    """Return what a command left there and in the cache, without times."""
    return {
        name: TIMES.sub(b"", content)
        for name, content in content_of(folder).items()
        if not name.endswith((".log", ".html")) and "/." not in f"/{name}"
    }


@pytest.mark.parametrize("words", COMMANDS)
def test_trouble_at_any_moment_is_one_sentence_and_afterwards_the_bytes_are_the_same(
    command, tmp_path, bert, texts, words
):
    given = {name: str(file) for name, file in texts.items()} | {"BERT": str(bert)}
    called = [given.get(word, word) for word in words.split()] + (SMALL if words.startswith("train") else [])

    def begin():
        for used in ("out", "cache"):
            shutil.rmtree(tmp_path / used, ignore_errors=True)
        (tmp_path / "out").mkdir()

    begin()
    status, _, said = command(*called)  # what is imported is imported now
    assert status == 0, said
    begin()
    with trouble_at(-1, 0, tmp_path) as moments:
        command(*called)
    expected = left(tmp_path)
    assert expected
    stopped = 0
    for turn, number in enumerate(dict.fromkeys(np.linspace(0, len(moments) - 1, TRIED, dtype=int).tolist())):
        begin()
        trouble, (operation, path) = TROUBLES[turn % len(TROUBLES)], moments[number]
        what = f"{trouble!r} at {number}, {operation} {path}"
        with trouble_at(number, trouble, tmp_path):
            status, out, err = command(*called)
        assert "Traceback" not in out + err, what
        last = err.rstrip().rpartition("\n")[2]
        if status:
            stopped += 1
            is_signal = isinstance(trouble, signal.Signals)
            assert status == (128 + trouble if is_signal else 1), (what, err)
            assert re.match("stopped" if is_signal else f"error: {ERRORS[trouble]}", last), (what, err)
        assert not [*(tmp_path / "out").rglob("*.partial")], what
        if left(tmp_path) != expected:  # else it came when all was written
            status, _, err = command(*called)
            assert status == 0, (what, err)
        assert left(tmp_path) == expected, what
    assert stopped >= turn / 2  # a search whose cache cannot be written goes on


IMPORTS = """
import os, signal, sys
from selfsent.__main__ import program
seen = 0
def at_each(event, arguments):
    global seen
    if event != "import":
        return
    seen += 1
    if seen < 0 or seen % 300:
        return
    number = (signal.SIGINT, signal.SIGTERM)[seen // 300 % 2]
    pid = os.fork()
    if not pid:
        seen = -(10**9)
        os.dup2(os.open(f"{sys.argv[-1]}.{128 + number}.{os.getpid()}", os.O_WRONLY | os.O_CREAT), 2)
        signal.raise_signal(number)
        return
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(128 + number, status, open(f"{sys.argv[-1]}.{128 + number}.{pid}").read().strip(), sep="|", flush=True)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.addaudithook(at_each)
program()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="signals of POSIX")
def test_a_signal_during_any_import_is_one_line(tmp_path, bert, texts):
    words = ["encode", str(texts["TEXT"]), "--model", str(bert), "--out", str(tmp_path / "said.npy")]
    done = subprocess.run([sys.executable, "-c", IMPORTS, *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    ends = [line.split("|") for line in done.stdout.splitlines() if line.count("|") == 2]
    assert len(ends) > 10
    assert [end for end in ends if end[0] != end[1] or not re.fullmatch("stopped.*", end[2])] == []


@pytest.mark.parametrize("number", ERRORS)
def test_the_sentence_names_the_place_whatever_library_wrote(number):
    """Rust and Arrow give the number in their text alone; what a UserError was raised from counts, too."""
    errors = [OSError(number, "it", "there"), OSError(number, "it"), RuntimeError(f"I/O error: it (os error {number})")]
    wrapped = StorageError("cannot write")
    wrapped.__cause__ = errors[0]
    for error in (*errors, wrapped):
        assert re.fullmatch(f"{ERRORS[number]}.*; what was saved before is whole", machine_failure(error, "there"))


def test_memory_and_threads_have_a_sentence_and_other_errors_none():
    assert machine_failure(MemoryError()).startswith("memory is used up: end other programs")
    assert "ulimit -u" in machine_failure(RuntimeError("can't start new thread"))
    torch_says = "[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried to allocate"
    assert machine_failure(RuntimeError(torch_says)).startswith("memory is used up")
    for other in (UserError("the disk of memory (os error 28)"), PermissionError(errno.EACCES, "no"), ValueError("5")):
        assert machine_failure(other) == ""
