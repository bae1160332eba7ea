"""Atomic files and folders: what stands under its name is whole, whenever the process was killed, and unchanged since.

The only module that writes what is trusted later (checkpoints, caches, models, reports, scores).  A file or folder is
written under a temporary name beside its target, flushed to the disk, and renamed.  What is read back carries size and
checksum of its files, which ``verify`` and ``read_sealed`` compare first.  Each operation is announced to ``fault``
before it happens, so that a test can stop the process at any of them.
"""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal

import xxhash
from filelock import FileLock, Timeout

from selfsent.errors import ConfigurationError, ResumeError, first_line
from selfsent.storage import locks
from selfsent.storage.windows import open_to_flush, release, retry

CHECKSUMS = ".checksums"  # of a folder: size and checksum of every other file in it
LOCK_NAME = locks.LOCK_NAME

_UNREADABLE = (OSError, ValueError, AttributeError, TypeError, RecursionError)  # what damaged JSON raises, and disks
Operation = Literal["open", "read", "write", "fsync", "rename", "unlink"]

fault: Callable[[Operation, Path], None] | None = None  # called before each operation; a test raises from it


def _announce(operation: Operation, path: Path) -> None:
    if fault is not None:
        fault(operation, path)


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary path to write a file or a folder to; it replaces ``target`` when the block ends well.

    A folder is sealed: ``verify`` can tell later whether it is unchanged.  Nothing is left of it when the block raises;
    what a kill leaves is replaced by the next call.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial, before = unfinished(target), unfinished(target.with_name(f"{target.name}.before"))
    remove(partial)
    if before.exists() and not target.exists():  # of a call that was killed between the two renames
        rename(before, target)
    remove(before)
    try:
        _announce("open", partial)
        yield partial
        if partial.is_dir():
            seal(partial)
        flush(partial)
        if target.is_dir() and not target.is_symlink():  # no rename replaces a folder that holds something
            rename(target, before)
        rename(partial, target)
    except BaseException as error:
        _name(error, target)
        remove(partial)
        if before.exists() and not target.exists():
            rename(before, target)
        raise
    remove(before)


def _name(error: BaseException, target: Path) -> None:
    """Name what was written in an error of the system that names nothing: a disk is full while a file is open."""
    if isinstance(error, OSError) and error.filename is None and error.errno:
        error.filename = str(target)


@contextmanager
def replacing_file(target: Path) -> Iterator[BinaryIO]:
    """Open a binary file that replaces ``target`` when the block ends well."""
    if target.is_dir():
        target.open("wb")  # which raises that it is one
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
    write_bytes(target, content.encode(errors="replace"))  # the name of a file may be no Unicode


def write_json(target: Path, content: object) -> None:
    """Write a JSON file, whole or not at all."""
    text = json.dumps(content, indent=2, ensure_ascii=False)
    if text.encode(errors="replace").decode() != text:  # it has the name of a file that is no Unicode
        text = json.dumps(content, indent=2)
    write_text(target, text + "\n")


def unfinished(target: Path) -> Path:
    """Return the temporary name beside ``target``."""
    return target.parent / f".{target.name}.partial"


def is_unfinished(path: Path) -> bool:
    """Tell whether a path is what a killed process left half written, or its lock."""
    return path.name == LOCK_NAME or (path.name.startswith(".") and path.name.endswith(".partial"))


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there; no part of a folder is left under its name."""
    doomed = path.with_name(f".{path.name}.removed.partial")
    if not path.exists() and not path.is_symlink():
        shutil.rmtree(doomed, ignore_errors=True)  # of a removal that was killed
        return
    _announce("unlink", path)
    if path.is_dir() and not path.is_symlink():
        if is_unfinished(path):
            doomed = path
        else:
            shutil.rmtree(doomed, ignore_errors=True)
            retry(lambda: path.replace(doomed))
        try:
            shutil.rmtree(doomed)
        except BaseException:  # a signal, say: what is begun is ended
            shutil.rmtree(doomed, ignore_errors=True)
            raise
    else:
        path.unlink(missing_ok=True)


def rename(source: Path, target: Path) -> None:
    """Rename, and flush the folder that holds the name."""
    locks.require_held()
    _announce("rename", target)
    retry(lambda: source.replace(target))
    _sync_names(target.parent)


def _sync_names(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
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
    """Flush a closed file, or a folder with everything in it, to the disk."""
    for target in [path] if path.is_file() else sorted([path, *path.rglob("*")]):
        if target.is_dir():
            _sync_names(target)
        else:
            with open_to_flush(target) as file:
                sync(file, target)


# --------------------------------------------------------------------------------------------------------- checksums


def seal(folder: Path) -> None:
    """Write size and checksum of every file of a folder into it; ``replacing`` and ``build_folder`` do."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / CHECKSUMS)
    digests = {path.relative_to(folder).as_posix(): file_digest(path) for path in files}
    _announce("write", folder / CHECKSUMS)
    (folder / CHECKSUMS).write_text(json.dumps(digests, indent=1), encoding="utf-8")
    mode = (folder / CHECKSUMS).stat().st_mode  # what the umask allows; safetensors writes for the owner alone
    for path in files:
        path.chmod(mode)


@contextmanager
def sealed_file(target: Path) -> Iterator[BinaryIO]:
    """Open a binary file that appears when the block ends well, after its checksum, ``.NAME.checksum``, has.

    For a file that is written once, or always with the same bytes: were others to replace it, a kill between the two
    would leave the old file beside the checksum of the new one.
    """
    with replacing(target) as partial:
        with partial.open("wb") as file:
            yield file
        write_text(checksum_of(target), file_digest(partial))


def seal_file(file: Path) -> None:
    """Write the checksum of a file that stands in its place beside it."""
    write_text(checksum_of(file), file_digest(file))


def checksum_of(file: Path) -> Path:
    """Return where ``sealed_file`` keeps the checksum of a file."""
    return file.with_name(f".{file.name}.checksum")


def verify(target: Path, advice: str) -> None:
    """Make sure that a sealed folder, or a file of ``sealed_file``, holds the bytes that were written.

    Raises:
        ResumeError: a file is missing, cannot be read, or was changed; the message names it and ends in ``advice``.
    """
    folder, seal_file = (target, target / CHECKSUMS) if target.is_dir() else (target.parent, checksum_of(target))
    try:
        _announce("read", seal_file)
        content = seal_file.read_text(encoding="utf-8")
        digests: dict[str, str] = json.loads(content) if target.is_dir() else {target.name: content}
        if not digests:
            raise ValueError("it names no file")
        for name, digest in digests.items():
            _announce("read", folder / name)
            if file_digest(folder / name) != digest:
                raise ResumeError(f"{folder / name} was cut off or changed since it was written: {advice}")
    except _UNREADABLE as error:
        raise _damaged(seal_file, error, advice) from error


def write_sealed(target: Path, content: Mapping[str, object]) -> None:
    """Write a JSON table with a checksum of its own as its last key, whole or not at all."""
    write_json(target, with_checksum(content))


def with_checksum(content: Mapping[str, object]) -> dict[str, object]:
    """Return a JSON table with its own checksum as last key."""
    return {**content, "checksum": _table_digest(content)}


def read_sealed(path: Path, advice: str) -> dict[str, Any]:
    """Read a table that ``write_sealed`` wrote.

    Raises:
        ResumeError: it is missing, cannot be read, or was changed; the message names it and ends in ``advice``.
    """
    try:
        _announce("read", path)
        return open_sealed(path.read_bytes())
    except _UNREADABLE as error:
        raise _damaged(path, error, advice) from error


def open_sealed(line: bytes) -> dict[str, Any]:
    """Return the table in the JSON that ``with_checksum`` sealed.

    Raises:
        ValueError: it was changed since; other errors where it is no table.
    """
    content: dict[str, Any] = json.loads(line.decode())
    checksum = content.pop("checksum", None)
    if checksum != _table_digest(content):
        raise ValueError("it was changed since it was written")
    return content


def _table_digest(content: Mapping[str, object]) -> str:
    plain = json.dumps(json.loads(json.dumps(content)), sort_keys=True)  # as it will be read back
    return xxhash.xxh3_128_hexdigest(plain.encode())


def _damaged(path: Path, error: Exception, advice: str) -> ResumeError:
    if isinstance(error, OSError):
        return ResumeError(f"{error.filename or path} cannot be read ({error.strerror or error}): {advice}")
    reason = first_line(error) if isinstance(error, ValueError) else "its JSON is of another form"
    return ResumeError(f"{path} is damaged ({reason}): {advice}")


def file_digest(path: Path) -> str:
    """Return size and xxh3 checksum of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()
        return f"{file.tell()}:{digest}"


def bytes_digest(content: bytes) -> str:
    """Return what ``file_digest`` returns of a file with this content."""
    return f"{len(content)}:{xxhash.xxh3_128_hexdigest(content)}"


# --------------------------------------------------------------------------------------------------------------- caches


def cache_folder(kind: str, fingerprint: str, root: Path | None = None) -> Path:
    """Return the place of a cached folder, whether it exists or not."""
    root = root or Path(os.environ.get("SELFSENT_CACHE") or "~/.cache/selfsent")
    try:
        return root.expanduser() / kind / fingerprint
    except RuntimeError as error:  # a container, say, that runs as a number without a name
        raise ConfigurationError(f"{root} has no place, this user has no home: set SELFSENT_CACHE or HOME") from error


def cached(folder: Path) -> bool:
    """Tell whether a folder of ``build_folder`` is there and unchanged.

    Raises:
        ResumeError: it is damaged; the message says what to delete.
    """
    if not folder.is_dir():
        return False
    verify(folder, f"delete {folder} and repeat the command, which makes it again")
    return True


@contextmanager
def build_folder(target: Path) -> Iterator[Path]:
    """Yield a scratch folder that becomes ``target``, sealed, when the block ends well, and vanishes when it does not.

    A builder holds a lock for as long as it lives, so what a killed one left behind is known by its free lock
    and is removed by the next.  Of two builders of one target the second to finish discards its own work.
    """
    scratch = target.parent / f".{target.name}.{secrets.token_hex(4)}"
    lock = _lock(scratch)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target.parent)
        lock.acquire()
    except OSError as error:
        raise ConfigurationError(
            f"cannot write to {target.parent}: {error.strerror}; make room for it and make it writable, or move the "
            "cache with SELFSENT_CACHE"
        ) from error
    try:
        _announce("open", scratch)
        scratch.mkdir()
        yield scratch
        seal(scratch)
        flush(scratch)
        try:
            rename(scratch, target)
        except OSError:
            if not target.is_dir():
                raise
    except BaseException as error:
        _name(error, target)
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        release(lock, remove=True)


def _lock(scratch: Path) -> FileLock:
    return FileLock(scratch.with_name(f"{scratch.name}.lock"))


def _sweep(parent: Path) -> None:
    for scratch in {path.with_suffix("") for path in parent.glob(".*.lock")}:
        lock = _lock(scratch)
        with suppress(Timeout):  # its builder is alive
            lock.acquire(blocking=False)
            shutil.rmtree(scratch, ignore_errors=True)
            release(lock, remove=True)
