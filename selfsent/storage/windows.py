"""What Windows does otherwise with open files: reading at a position, flushing, removing and renaming."""

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO, TypeVar

from filelock import BaseFileLock

WINDOWS = os.name == "nt"
HAS_PREAD = hasattr(os, "pread")

_TRIES, _PAUSE = 10, 0.1  # seconds; a virus scanner or an indexer has a new file open for a moment
_seeking = threading.Lock()
_Result = TypeVar("_Result")


def read_at(file: IO[bytes], size: int, start: int) -> bytes:
    """Return ``size`` bytes from byte ``start`` on, in any thread; the position of the file stays where it is."""
    if HAS_PREAD:
        return os.pread(file.fileno(), size, start)
    with _seeking:
        before = file.tell()
        try:
            file.seek(start)
            return file.read(size)
        finally:
            file.seek(before)


def open_to_flush(path: Path) -> BinaryIO:
    """Open a closed file so that ``os.fsync`` takes it: Windows flushes only what is open for writing."""
    if not WINDOWS:
        return path.open("rb")
    mode = path.stat().st_mode
    if not mode & stat.S_IWRITE:  # copied from a file that is only read; no folder of it could be removed
        path.chmod(mode | stat.S_IWRITE)
    return path.open("r+b")


def retry(action: Callable[[], _Result]) -> _Result:
    """Rename or remove; on Windows again, up to a second, while another program has the file open.

    Raises:
        PermissionError: it still is, or the action is not allowed.
    """
    for _ in range(_TRIES if WINDOWS else 0):
        with suppress(PermissionError):
            return action()
        time.sleep(_PAUSE)
    return action()


@contextmanager
def left_if_open() -> Iterator[None]:
    """Leave what Windows does not remove because it is open, here or in another process; it goes another time."""
    try:
        yield
    except PermissionError:
        if not WINDOWS:
            raise


def release(lock: BaseFileLock, *, remove: bool) -> None:
    """Release a lock, and remove its file: before that, so that no other process holds it, but on Windows after."""
    file = Path(lock.lock_file)
    if remove and not WINDOWS:
        file.unlink(missing_ok=True)
    lock.release()
    if remove and WINDOWS:
        with suppress(OSError):  # another process has it now
            file.unlink(missing_ok=True)
