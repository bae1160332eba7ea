"""Atomic files and folders: what stands under its name is whole, whenever the process was killed.

The only module that writes what is trusted later (checkpoints, caches, models, reports, scores).  A file or folder is
written under a temporary name beside its target, flushed to the disk, and renamed.  Each operation is announced to
``fault`` before it happens, so that a test can stop the process at any of them.
"""

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

import xxhash
from filelock import FileLock, Timeout

Operation = Literal["open", "write", "fsync", "rename", "unlink"]

fault: Callable[[Operation, Path], None] | None = None  # called before each operation; a test raises from it


def _announce(operation: Operation, path: Path) -> None:
    if fault is not None:
        fault(operation, path)


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary path to write a file or a folder to; it replaces ``target`` when the block ends well.

    Nothing is left of it when the block raises; what a kill leaves is replaced by the next call.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = unfinished(target)
    remove(partial)
    try:
        _announce("open", partial)
        yield partial
        flush(partial)
        if target.is_dir() and not target.is_symlink():  # no rename replaces a folder that holds something
            remove(target)
        rename(partial, target)
    except BaseException:
        remove(partial)
        raise


@contextmanager
def replacing_file(target: Path) -> Iterator[BinaryIO]:
    """Open a binary file that replaces ``target`` when the block ends well."""
    with replacing(target) as partial, partial.open("wb") as file:
        yield file
        sync(file, partial)


def write_bytes(target: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    with replacing_file(target) as file:
        _announce("write", target)
        file.write(content)


def write_text(target: Path, content: str) -> None:
    """Write a UTF-8 file, whole or not at all."""
    write_bytes(target, content.encode())


def write_json(target: Path, content: object) -> None:
    """Write a JSON file, whole or not at all."""
    write_text(target, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def unfinished(target: Path) -> Path:
    """Return the temporary name beside ``target``."""
    return target.parent / f".{target.name}.partial"


def is_unfinished(path: Path) -> bool:
    """Tell whether a path is what a killed process left half written."""
    return path.name.startswith(".") and path.name.endswith(".partial")


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if not path.exists() and not path.is_symlink():
        return
    _announce("unlink", path)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def rename(source: Path, target: Path) -> None:
    """Rename, and flush the folder that holds the name."""
    _announce("rename", target)
    source.replace(target)
    if os.name == "posix":
        handle = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync(file: BinaryIO, path: Path) -> None:
    """Flush an open file to the disk."""
    _announce("fsync", path)
    file.flush()
    os.fsync(file.fileno())


def flush(path: Path) -> None:
    """Flush a closed file, or every file of a folder, to the disk."""
    for place in [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file()):
        with place.open("rb") as file:
            sync(file, place)


def file_digest(path: Path) -> str:
    """Return size and xxh3 checksum of a file."""
    hasher = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            hasher.update(block)
    return f"{path.stat().st_size}:{hasher.hexdigest()}"


def cache_folder(kind: str, fingerprint: str, root: Path | None = None) -> Path:
    """Return the place of a cached folder, whether it exists or not."""
    default = os.environ.get("SELFSENT_CACHE") or "~/.cache/selfsent"
    return (root or Path(default)).expanduser() / kind / fingerprint


@contextmanager
def build_folder(target: Path) -> Iterator[Path]:
    """Yield a scratch folder that becomes ``target`` when the block ends well, and vanishes when it does not.

    A builder holds a lock for as long as it lives, so what a killed one left behind is known by its free lock
    and is removed by the next.  Of two builders of one target the second to finish discards its own work.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target.parent)
    scratch = target.parent / f".{target.name}.{secrets.token_hex(4)}"
    lock = _lock(scratch)
    with lock:
        try:
            _announce("open", scratch)
            scratch.mkdir()
            yield scratch
            flush(scratch)
            try:
                rename(scratch, target)
            except OSError:
                if not target.is_dir():
                    raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            Path(lock.lock_file).unlink(missing_ok=True)


def _lock(scratch: Path) -> FileLock:
    return FileLock(scratch.with_name(f"{scratch.name}.lock"))


def _sweep(parent: Path) -> None:
    for scratch in {path.with_suffix("") for path in parent.glob(".*.lock")}:
        try:
            with _lock(scratch).acquire(blocking=False) as lock:
                shutil.rmtree(scratch, ignore_errors=True)
                Path(lock.lock_file).unlink(missing_ok=True)
        except Timeout:
            continue  # its builder is alive
