"""Windows' rules, made to hold here: what is open is not removed or renamed, and flushed only if it can be written."""

import errno
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from small_runs import QUICK, WORDS

from selfsent.bulk.encode import encode_to
from selfsent.corpus.columns import Column, Table
from selfsent.corpus.sources import Document
from selfsent.encoder.load import load_encoder
from selfsent.searching.index import Index
from selfsent.searching.settings import IndexConfig
from selfsent.storage import atomic, locks
from selfsent.storage import windows as windows_module
from selfsent.training.train import train

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="/proc tells which files are open")


def open_files() -> set[str]:
    """The ordinary files that this process has open or mapped."""
    found = set()
    for handle in Path("/proc/self/fd").iterdir():
        try:
            if handle.is_file():
                found.add(str(handle.readlink()))
        except OSError:
            continue
    with Path("/proc/self/maps").open() as maps:
        return found | {line.split(maxsplit=5)[5].strip() for line in maps if len(line.split(maxsplit=5)) == 6}


@pytest.fixture
def windows(monkeypatch):
    """Windows' rules, in this process; returns what was done that they forbid."""
    real = {name: getattr(os, name) for name in ("unlink", "replace", "rename", "fsync")}
    refused = []

    def in_use(name, place, folder=None):
        where = Path(Path(f"/proc/self/fd/{folder}").readlink() if folder is not None else ".", place).absolute()
        held = [one for one in open_files() if Path(one) == where or where in Path(one).parents]
        if held:
            refused.append(f"{name} {where.name}: {held[0]} is open")
            raise PermissionError(errno.EACCES, "The process cannot access the file", str(where))

    def unlink(path, *, dir_fd=None):
        in_use("remove", path, dir_fd)
        real["unlink"](path, dir_fd=dir_fd)

    def moved(name):
        def move(source, target):
            in_use(name, source)
            in_use(name, target)
            real[name](source, target)

        return move

    def fsync(number):
        import fcntl

        if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            refused.append("fsync of a file that is only read")
            raise OSError(errno.EBADF, "Bad file descriptor")
        real["fsync"](number)

    monkeypatch.setattr(windows_module, "WINDOWS", True)
    monkeypatch.setattr(windows_module, "HAS_PREAD", False)
    monkeypatch.setattr(windows_module, "_PAUSE", 0.0)
    monkeypatch.setattr(atomic, "_sync_names", lambda folder: None)  # as os.name says there
    monkeypatch.delattr(os, "pread")
    for name, rule in (("unlink", unlink), ("remove", unlink), ("fsync", fsync)):
        monkeypatch.setattr(os, name, rule)
    for name in ("replace", "rename"):
        monkeypatch.setattr(os, name, moved(name))
    return refused


def test_the_rules_hold(windows, tmp_path):
    path = tmp_path / "a"
    with path.open("w"):
        for act in (path.unlink, lambda: path.replace(tmp_path / "b"), lambda: tmp_path.rename(tmp_path / "c")):
            with pytest.raises(PermissionError):
                act()
    np.save(tmp_path / "numbers.npy", np.arange(9))
    mapped = np.load(tmp_path / "numbers.npy", mmap_mode="r")
    with pytest.raises(PermissionError):
        (tmp_path / "numbers.npy").unlink()
    del mapped
    (tmp_path / "numbers.npy").unlink()
    with path.open("rb") as file, pytest.raises(OSError, match="Bad file"):
        os.fsync(file.fileno())
    assert len(windows) == 5


def test_files_and_folders_are_written_and_locks_removed(windows, tmp_path):
    atomic.write_json(tmp_path / "a.json", {"a": 1})
    atomic.write_json(tmp_path / "a.json", {"a": 2})
    with atomic.sealed_file(tmp_path / "b") as file:
        file.write(b"b")
    atomic.verify(tmp_path / "b", "delete it")
    for _ in range(2):
        with atomic.replacing(tmp_path / "folder") as partial:
            partial.mkdir()
            (partial / "read-only").write_text("r")
            (partial / "read-only").chmod(0o444)
        with atomic.build_folder(tmp_path / "built") as scratch:
            (scratch / "x").write_text("x")
    with locks.exclusive(tmp_path / "out.npy", folder=False):
        atomic.write_bytes(tmp_path / "out.npy", b"0")
    with pytest.raises(KeyError), locks.exclusive(tmp_path / "runs" / "empty"):
        raise KeyError
    atomic.verify(tmp_path / "folder", "delete it")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".b.checksum",
        "a.json",
        "b",
        "built",
        "folder",
        "out.npy",
    ]
    assert windows == []


def test_from_raw_text_to_an_index_nothing_is_renamed_or_removed_while_it_is_open(windows, tmp_path, bert, monkeypatch):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    draw = np.random.default_rng(0)
    text = "".join(" ".join(draw.choice(WORDS, 9)) + ".\n" for _ in range(60))
    (tmp_path / "texts.txt").write_text(text)
    texts = str(tmp_path / "texts.txt")
    train("simcse", base=str(bert), corpus=[texts], out=tmp_path / "run", settings=[*QUICK, "train.select=auto"])
    model = tmp_path / "run" / "model"
    for _ in range(2):
        encode_to(tmp_path / "vectors.npy", load_encoder(model), [texts], overwrite=True)
    assert len(np.load(tmp_path / "vectors.npy")) == 60
    Index.make([texts], tmp_path / "index", model=model, config=IndexConfig())
    Index.open(tmp_path / "index").add([Document("the moon is late tonight, said the cat.")])
    assert {line.partition(":")[0] for line in windows} == {"replace words-1"}  # it is left where it is still searched
    assert (tmp_path / "index" / "words-1").exists()
    windows.clear()
    Index.open(tmp_path / "index").update()
    assert not (tmp_path / "index" / "words-1").exists()
    assert {line.partition(":")[0] for line in windows} == {"replace words-2"}


@pytest.mark.parametrize("pread", [True, False])
def test_a_column_is_read_in_threads_and_while_it_is_written(tmp_path, monkeypatch, pread):
    monkeypatch.setattr(windows_module, "HAS_PREAD", pread)
    with Table(tmp_path) as table:
        column = table.column("numbers", np.int64)
        column.append(np.arange(1000))
        assert column.read(10, 13).tolist() == [10, 11, 12]
        column.append(np.arange(1000, 20_000))
    shared, wrong = Column(tmp_path / "numbers.npy"), []

    def read(seed):
        for start in np.random.default_rng(seed).integers(0, 19_000, 300).tolist():
            if shared.read(start, start + 999).tolist() != list(range(start, start + 999)):
                wrong.append(start)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_action_is_tried_again_where_another_program_has_the_file_for_a_moment(monkeypatch):
    pauses, left = [], iter([True, True, False, True])

    def action():
        if next(left):
            raise PermissionError
        return "done"

    monkeypatch.setattr(windows_module.time, "sleep", pauses.append)
    monkeypatch.setattr(windows_module, "WINDOWS", True)
    assert windows_module.retry(action) == "done"
    assert len(pauses) == 2
    monkeypatch.setattr(windows_module, "WINDOWS", False)
    with pytest.raises(PermissionError):
        windows_module.retry(action)
    assert len(pauses) == 2


@pytest.mark.parametrize("windows", [False, True])
def test_the_file_of_a_lock_goes_with_it_or_stays(tmp_path, monkeypatch, windows):
    monkeypatch.setattr(windows_module, "WINDOWS", windows)
    for remove in (False, True):
        lock = FileLock(tmp_path / "lock")
        lock.acquire()
        windows_module.release(lock, remove=remove)
        assert not lock.is_locked
        assert (tmp_path / "lock").exists() != remove
