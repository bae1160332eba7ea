"""Locks on outputs, which keep two processes from writing one of them; a process that dies lets go of its own.

A file system of a network may lose a lock, and give it to a second process while the first still writes.  The holder's
name stands in the lock file, and the first looks there before every rename.
"""

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from selfsent.errors import ConfigurationError
from selfsent.storage.windows import release

LOCK_NAME = ".selfsent"  # the lock in an output folder; it stays there, and tells that the folder was written by us

_HEAD = 1 << 12  # bytes in which a file that we write says so
_UNKNOWN = "another process"
_held: dict[Path, str] = {}  # lock files of this process, and what it wrote into them


@contextmanager
def exclusive(target: Path, *, folder: bool = True, wait: bool = False) -> Iterator[None]:
    """Keep other processes away from an output until the block ends; a process that dies lets go of it.

    The lock of a folder is a file in it, which stays; the lock of a file is beside it and is removed.

    Raises:
        ConfigurationError: another process has the output, or nothing can be written there.
    """
    lock_file = target / LOCK_NAME if folder else target.with_name(f".{target.name}.lock")
    lock, claim = FileLock(lock_file), f"process {os.getpid()} on {socket.gethostname()}"
    try:
        made = [above for above in (lock_file.parent, *lock_file.parent.parents) if not above.exists()]
        foreign = folder and target.is_dir() and not lock_file.exists() and any(target.iterdir())
        lock_file.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=wait)
    except Timeout:
        raise ConfigurationError(
            f"{_holder(lock_file)} is writing {target}: wait for its end, or name another output"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"cannot write {target}: {error.strerror}; name another output") from error
    try:
        with suppress(OSError):  # a full disk is met by the work itself
            lock_file.write_text(claim, encoding="utf-8")
            _held[lock_file] = claim
        yield
        foreign = False
    finally:
        _held.pop(lock_file, None)
        lost = _holder(lock_file) not in (claim, _UNKNOWN)
        unused = foreign or not folder or (target.is_dir() and all(path == lock_file for path in target.iterdir()))
        release(lock, remove=unused and not lost)
        for above in made if unused and not lost else ():  # nothing came of it
            with suppress(OSError):
                above.rmdir()


@contextmanager
def reserved(
    target: Path | None, marker: str = "", *, otherwise: str = "name another file", reads: Iterable[object] = ()
) -> Iterator[None]:
    """Refuse a file that cannot be written before any work is done for it, and keep other processes away from it.

    Args:
        marker: what a file that may be replaced has in its first ``_HEAD`` bytes; "": any file may be.
        otherwise: what to do where it does not have that.
        reads: files that are read, by their names, perhaps with ``::`` and a part, among what is none.

    Raises:
        ConfigurationError: it is a folder, a device or somebody else's file, or read; nothing can be written there, or
            another process is writing it.
    """
    for name in reads:
        with suppress(OSError, ValueError):  # one is not there
            if target and isinstance(name, str | Path) and target.samefile(str(name).partition("::")[0]):
                raise ConfigurationError(f"output {target} is read, too, and would be lost: choose another --out")
    if target is not None and (target.is_dir() or not target.parent.is_dir()):
        wrong = "it is a folder" if target.is_dir() else f"there is no folder {target.parent}"
        raise ConfigurationError(f"cannot write {target}: {wrong}; name a file in a folder that you can write to")
    if target is not None and os.path.lexists(target) and not _replaceable(target, marker.encode()):
        raise ConfigurationError(f"{target} exists, and this command did not write it: {otherwise}")
    with nullcontext() if target is None else exclusive(target, folder=False):
        yield


def _replaceable(target: Path, marker: bytes) -> bool:
    try:
        if not target.is_file():  # a device, a pipe, or a link to nothing
            return False
        with target.open("rb") as file:
            return marker in file.read(_HEAD)
    except OSError:
        return False


def require_held() -> None:
    """Make sure that no other process has taken an output of this one over.

    Raises:
        ConfigurationError: its lock file names another process.
    """
    for lock_file, claim in [*_held.items()]:
        if (holder := _holder(lock_file)) not in (claim, _UNKNOWN):
            raise ConfigurationError(
                f"{holder} has taken {lock_file} over while this process was writing there (a file system of a network "
                "may lose a lock): this process ends, and leaves the output to that one"
            )


def _holder(lock_file: Path) -> str:
    """Say who holds a lock, as far as it is known."""
    with suppress(OSError, ValueError):
        return lock_file.read_text(encoding="utf-8") or _UNKNOWN
    return _UNKNOWN
