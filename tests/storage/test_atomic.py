"""Files and folders are whole or absent wherever a process is killed, unchanged since, and written by one process."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from selfsent.errors import ResumeError
from selfsent.storage import atomic
from selfsent.storage.atomic import build_folder, cache_folder

BUILD_AND_WAIT = """
import sys
from pathlib import Path
from selfsent.storage.atomic import build_folder
with build_folder(Path(sys.argv[1])) as scratch:
    (scratch / "half").write_text("half")
    print("ready", flush=True)
    sys.stdin.read()  # until this test ends
"""


def content_of(place):
    """Return the bytes of a file, or of every file of a folder by its name."""
    return {path.name: path.read_bytes() for path in place.iterdir()} if place.is_dir() else place.read_bytes()


def names(path):
    return sorted(p.name for p in path.iterdir() if p.name != atomic.CHECKSUMS)


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


def test_what_a_kill_left_of_a_removal_goes_with_the_next(tmp_path):
    for stays in (True, False):
        half = tmp_path / ".checkpoints.removed.partial"
        (half / "step-1").mkdir(parents=True)
        if stays:
            (tmp_path / "checkpoints").mkdir()
        atomic.remove(tmp_path / "checkpoints")
        assert not [*tmp_path.iterdir()]


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


def cached_folder(target):
    with build_folder(target) as scratch:
        (scratch / "data").write_text("x")


def published_folder(target):
    with atomic.replacing(target) as partial:
        partial.mkdir()
        for name in ("config.json", "weights"):
            (partial / name).write_text(name)


def sealed_file(target):
    with atomic.sealed_file(target) as file:
        file.write(b"data")


def test_a_folder_that_a_killed_call_had_set_aside_comes_back(tmp_path):
    aside = atomic.unfinished(tmp_path / "out.before")
    aside.mkdir()
    (aside / "a.txt").write_text("old")
    with pytest.raises(RuntimeError), atomic.replacing(tmp_path / "out"):
        raise RuntimeError
    assert (tmp_path / "out" / "a.txt").read_text() == "old"


@pytest.mark.parametrize("write", [cached_folder, published_folder, sealed_file])
def test_what_is_written_once_is_whole_or_absent_wherever_the_process_is_killed(tmp_path, write):
    write(tmp_path / "whole")
    whole, target = content_of(tmp_path / "whole"), tmp_path / "cut"

    def check(ended):
        assert target.exists() or not ended
        if target.exists():
            atomic.verify(target, "delete it")
            assert content_of(target) == whole
            atomic.remove(target)

    assert killed_at_every_operation(lambda: write(target), check) > 4
    write(target)
    assert {path.name for path in tmp_path.iterdir()} <= {"whole", "cut", ".whole.checksum", ".cut.checksum"}


# --------------------------------------------------------------------------------------------------------- checksums


def every_damage(path):
    """Yield the name of a damage after it was done: each byte flipped, each truncation, the file gone; then mend it."""
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        yield f"byte {place} flipped"
        path.write_bytes(content[:place])
        yield f"{place} bytes left"
    path.unlink()
    yield "gone"
    path.write_bytes(content)


def nested_folder(target):
    with build_folder(target) as scratch:
        (scratch / "data").write_bytes(b"\0\1\2")
        (scratch / "inner").mkdir()
        (scratch / "inner" / "more").write_bytes(b"text")


@pytest.mark.parametrize("write", [nested_folder, sealed_file])
def test_every_flipped_byte_and_every_truncation_of_what_is_sealed_is_refused_by_name(tmp_path, write):
    target = tmp_path / "sealed"
    write(target)
    atomic.verify(target, "delete it")
    for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
        for damage in every_damage(path):
            with pytest.raises(ResumeError, match="delete it") as refused:
                atomic.verify(target, "delete it")
            assert str(target if target.is_dir() else tmp_path) in str(refused.value), damage
    atomic.verify(target, "delete it")


def test_a_damaged_table_is_refused_or_has_the_same_content(tmp_path):
    """Of two kinds of white space either will do, and a damaged name of the checksum leaves the content as it was."""
    path, content = tmp_path / "plan.json", {"steps": {"a": 50}, "rate": 1e-5, "name": "é\udce9", "list": [None, True]}
    atomic.write_sealed(path, content)
    assert atomic.read_sealed(path, "delete it") == content
    harmless = 0
    for damage in every_damage(path):
        try:
            found = atomic.read_sealed(path, "delete it")
        except ResumeError:
            continue
        harmless += 1
        assert {key: value for key, value in found.items() if key in content} == content, damage
    assert harmless < len(path.read_bytes()) / 4


@pytest.mark.parametrize(
    "garbage", [b"5", b"[]", b"null", b"NaN", b"{}", b"\xff\xfe", b"[" * 100_000, b'"' + b"1" * 9_000]
)
def test_garbage_in_the_place_of_a_table_or_of_checksums_is_refused_by_a_sentence(tmp_path, garbage):
    (tmp_path / "plan.json").write_bytes(garbage)
    with pytest.raises(ResumeError, match=r"plan\.json is damaged .*: delete it"):
        atomic.read_sealed(tmp_path / "plan.json", "delete it")
    (tmp_path / "abc").mkdir()
    (tmp_path / "abc" / atomic.CHECKSUMS).write_bytes(garbage)
    with pytest.raises(ResumeError, match=r"checksums is damaged .*: delete it"):
        atomic.verify(tmp_path / "abc", "delete it")


def test_a_table_without_a_checksum_is_refused(tmp_path):
    (tmp_path / "plan.json").write_text('{"steps": 3}')
    with pytest.raises(ResumeError, match="it was changed since it was written"):
        atomic.read_sealed(tmp_path / "plan.json", "")


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path, monkeypatch):
    with build_folder(tmp_path / "abc") as scratch:
        (scratch / "data").write_text("x")

    def broken(operation, path):
        if operation == "read" and path.name == "data":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(atomic, "fault", broken)
    with pytest.raises(ResumeError, match=r"data cannot be read \(Input/output error\): delete it"):
        atomic.verify(tmp_path / "abc", "delete it")


def test_a_file_never_takes_the_place_of_a_folder(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes").write_text("mine")
    with pytest.raises(IsADirectoryError):
        atomic.write_text(tmp_path / "folder", "new")
    assert (tmp_path / "folder" / "notes").read_text() == "mine"
