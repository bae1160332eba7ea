"""Every state of the disk in which a process can die, and every damage to what it left: for tests of resumption."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import xxhash

from selfsent.errors import UserError
from selfsent.storage import atomic

Content = dict[str, bytes]


class Killed(BaseException):
    """What no handler expects: the process is gone."""


def content_of(folder: Path) -> Content:
    """Return the bytes of every file of a folder, but for locks, which hold the number of a process."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != atomic.LOCK_NAME and path.suffix != ".lock"
    }


def states(folder: Path, act: Callable[[], object], aside: Path) -> tuple[int, list[tuple[str, Path]]]:
    """Run ``act``, which writes in ``folder``; return the number of its file operations and each different state.

    A copy is made before each operation, as a process that is killed there leaves it; equal ones are kept once.
    """
    kept: dict[str, tuple[str, Path]] = {}
    operations = 0

    def fault(operation: atomic.Operation, path: Path) -> None:
        nonlocal operations
        operations += 1
        digest = xxhash.xxh3_128_hexdigest(repr(content_of(folder)).encode()) if folder.exists() else ""
        if digest not in kept:
            place = aside / f"state-{operations:04}"
            if folder.exists():
                shutil.copytree(folder, place)
            kept[digest] = f"{operation} {path.name}", place

    atomic.fault = fault
    try:
        act()
    finally:
        atomic.fault = None
    return operations, list(kept.values())


def put_back(state: Path, folder: Path) -> None:
    """Make a folder what it was in a state."""
    shutil.rmtree(folder, ignore_errors=True)
    if state.exists():
        shutil.copytree(state, folder)


def damages(folder: Path) -> Iterator[str]:
    """Damage every file of a folder, each in two ways, and say which; it is mended before the next."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != atomic.LOCK_NAME):
        content = path.read_bytes()
        flipped = bytearray(content)
        if content:
            flipped[len(content) // 2] ^= 1
        for what, damaged in (("a flipped bit in", bytes(flipped)), ("half of", content[: len(content) // 2])):
            if damaged != content:
                path.write_bytes(damaged)
                yield f"{what} {path.relative_to(folder).as_posix()}"


def full_disk_at(wanted: tuple[str, str], act: Callable[[], object]) -> str | None:
    """Run ``act`` on a disk that is full at one operation on one file; return its sentence, None if it ended well."""

    def fault(operation: atomic.Operation, path: Path) -> None:
        if (operation, path.name) == wanted:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    atomic.fault = fault
    try:
        act()
    except UserError as error:
        return str(error)
    except OSError as error:
        return str(error) if error.errno == errno.ENOSPC else None  # has its sentence on the command line
    finally:
        atomic.fault = None
    return None


def writes(act: Callable[[], object]) -> list[tuple[str, str]]:
    """Run ``act`` and return one operation on each file that takes room on the disk: its writing, or its opening."""
    seen: dict[str, tuple[str, str]] = {}

    def note(operation: atomic.Operation, path: Path) -> None:
        if operation in ("open", "write"):
            seen[path.name.lstrip(".").removesuffix(".partial")] = operation, path.name

    atomic.fault = note
    try:
        act()
    finally:
        atomic.fault = None
    return [*seen.values()]


def damage(place, how):
    """Remove a file, cut it in half, or flip one bit of it."""
    content = bytearray(place.read_bytes())
    content[len(content) // 2] ^= 1
    if how == "removed":
        place.unlink()
    else:
        place.write_bytes(content[: len(content) // 2] if how == "cut" else content)
