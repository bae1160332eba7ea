"""Every state of the disk in which a process can die, every moment at which a machine can fail or a signal can come,
and every damage to what was left: for tests of resumption.
"""

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import xxhash

from selfsent.errors import UserError, machine_failure
from selfsent.storage import atomic

Content = dict[str, bytes]
Moment = tuple[str, Path]  # an operation on a file, which is about to happen

_hear: Callable[[str, Path], None] | None = None


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
        return machine_failure(error) or None
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


def _opened(event: str, arguments: tuple) -> None:
    if _hear is not None and event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        _hear("open", Path(os.fsdecode(arguments[0])))


sys.addaudithook(_opened)  # which stays


@contextmanager
def each_moment(root: Path, act: Callable[[Moment], None]) -> Iterator[None]:
    """Call ``act`` in a block before every operation of ``atomic`` and every opening of a file below a folder."""
    global _hear
    acting = False

    def hear(operation: str, path: Path) -> None:
        nonlocal acting
        if not acting and root in path.absolute().parents:
            acting = True
            try:
                act((operation, path))
            finally:
                acting = False

    _hear = atomic.fault = hear
    try:
        yield
    finally:
        _hear = atomic.fault = None


@contextmanager
def trouble_at(number: int, trouble: int, root: Path) -> Iterator[list[Moment]]:
    """Let a signal come, or the machine fail with an error of the system, at a moment of a block; yield the moments.

    Args:
        number: of the moment; beyond the last nothing happens.
    """
    moments: list[Moment] = []

    def act(moment: Moment) -> None:
        moments.append(moment)
        if len(moments) != number + 1:
            return
        if isinstance(trouble, signal.Signals):
            signal.raise_signal(trouble)
        else:
            raise OSError(trouble, os.strerror(trouble), str(moment[1]))

    with each_moment(root, act):
        yield moments
