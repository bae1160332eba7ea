"""The files of an unfinished encoding: in a folder of this machine, or behind a URL that fsspec opens."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selfsent.corpus.remote import open_system, reported
from selfsent.storage import atomic


@dataclass(frozen=True)
class LocalFiles:
    """The files of a folder on this machine, each written whole or not at all, and flushed to the disk."""

    folder: Path
    shards, aside, suffix = "shards/", "", ".npy"

    def encode(self, first_row: int, vectors: NDArray[Any]) -> bytes:
        """Return the content of a shard."""
        return npy_bytes(vectors)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of every file by its name."""
        sizes = {}
        for path in self.folder.rglob("*"):
            if not atomic.is_unfinished(path) and path.is_file():
                sizes[path.relative_to(self.folder).as_posix()] = path.stat().st_size
        return sizes

    def has(self, name: str) -> bool:
        """Tell whether there is a file."""
        return (self.folder / name).is_file()

    def read(self, name: str) -> bytes:
        """Return what is in a file."""
        return (self.folder / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Write a file.

        For some moments a worker whose driver has died may still write the same one, with the same bytes: what it takes
        away from here is written again.
        """
        for tries_left in (2, 1, 0):
            try:
                atomic.write_bytes(self.folder / name, content)
            except FileNotFoundError:
                if not tries_left:
                    raise
            else:
                return

    def discard(self) -> None:
        """Remove the folder."""
        atomic.remove(self.folder)


@dataclass(frozen=True)
class RemoteFiles:
    """The files of a folder behind a URL, as Parquet with the columns ``row`` and ``vector``."""

    folder: str
    shards, aside, suffix = "", "_encoding/", ".parquet"

    def encode(self, first_row: int, vectors: NDArray[Any]) -> bytes:
        """Return the content of a shard."""
        import pyarrow as pa
        from pyarrow import parquet

        packed = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
        rows = pa.array(np.arange(first_row, first_row + len(vectors), dtype=np.int64))
        content = io.BytesIO()
        parquet.write_table(pa.table({"row": rows, "vector": packed}), content, write_page_checksum=True)
        return content.getvalue()

    def _at(self, name: str) -> tuple[Any, str]:
        system, path = open_system(self.folder)
        system.invalidate_cache()
        return system, f"{path.rstrip('/')}/{name}"

    def sizes(self) -> dict[str, int]:
        """Return the bytes of every file by its name."""
        with reported(self.folder):
            system, path = self._at("")
            files = system.find(path.rstrip("/"), detail=True)
        return {name.removeprefix(path): int(facts["size"] or 0) for name, facts in files.items()}

    def has(self, name: str) -> bool:
        """Tell whether there is a file."""
        with reported(self.folder):
            system, path = self._at(name)
            return bool(system.isfile(path))

    def read(self, name: str) -> bytes:
        """Return what is in a file."""
        with reported(self.folder):
            system, path = self._at(name)
            return bytes(system.cat_file(path))

    def write(self, name: str, content: bytes) -> None:
        """Write a file."""
        with reported(self.folder):
            system, path = self._at(name)
            system.makedirs(path.rpartition("/")[0], exist_ok=True)
            system.pipe_file(path, content)

    def discard(self) -> None:
        """Remove what stands aside."""
        with reported(self.folder):
            system, path = self._at("_encoding")
            if system.exists(path):
                system.rm(path, recursive=True)


def npy_bytes(array: NDArray[Any]) -> bytes:
    """Return an array as ``np.save`` writes it."""
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()
