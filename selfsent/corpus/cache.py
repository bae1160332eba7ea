"""Folders that are whole or not there, whoever is killed and however many build the same one at once."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


def cache_folder(kind: str, fingerprint: str, root: Path | None = None) -> Path:
    """Return the place of a cached thing, whether it exists or not."""
    default = os.environ.get("SELFSENT_CACHE") or "~/.cache/selfsent"
    return (root or Path(default)).expanduser() / kind / fingerprint


@contextmanager
def build_folder(target: Path) -> Iterator[Path]:
    """Give a scratch folder that becomes ``target`` when the block ends well, and vanishes when it does not.

    A builder holds a lock for as long as it lives, so what a killed one left behind is known by its free lock
    and is removed by the next.  Of two builders of one target the second to finish discards its own work.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target.parent)
    scratch = target.parent / f".{target.name}.{secrets.token_hex(4)}"
    lock = _lock(scratch)
    with lock:
        try:
            scratch.mkdir()
            yield scratch
            try:
                scratch.rename(target)
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
