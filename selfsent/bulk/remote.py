"""Embeddings as a folder of Parquet files on a file system that fsspec opens by a URL, such as an object store.

The folder holds ``vectors-000000.parquet``, ... (columns ``row`` and ``vector``), and ``_manifest.json`` once it is
whole.  Until then ``_encoding`` stands in it: the plan, the ranges of int8 and uint8, and for every shard that was
written whole an empty file whose name says its rows, bytes and checksum, so that one listing tells what is there.
"""

import io
import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from selfsent.corpus.remote import open_system, reported
from selfsent.encoder.quantize import needs_ranges, quantize, ranges_of
from selfsent.errors import ConfigurationError, ResumeError
from selfsent.storage import atomic

_MARK = re.compile(r"vectors-(\d+)\.(\d+)-rows\.(\d+)-(\w+)")
_PLAN, _RANGES, _MANIFEST = "_encoding/plan.json", "_encoding/ranges.npy", "_manifest.json"


class _Shard(NamedTuple):
    rows: int
    checksum: str  # size and xxh3, as ``atomic.file_digest`` writes them


@dataclass(frozen=True)
class RemoteFolder:
    """The output of one job, which every machine finds at the same URL."""

    url: str

    def begin(self, plan: dict[str, Any]) -> None:
        """Start, or resume where the plan is the same.

        Raises:
            UserError: the folder cannot be reached, is finished, holds something else, or was begun otherwise.
        """
        with reported(self.url):
            if self._has(_MANIFEST):
                raise ConfigurationError(f"output {self.url} exists: remove it, or choose another name")
            before = json.loads(self._read(_PLAN)) if self._has(_PLAN) else {}
            if before == plan:
                return
            if self.shards():
                changed = ", ".join(key for key in {**plan, **before} if before.get(key) != plan.get(key))
                raise ResumeError(
                    f"{self.url} was begun with another {changed}: repeat that command to finish it, remove the folder "
                    "to start again, or name another output"
                )
            self.discard()
            if self._list():
                raise ConfigurationError(f"output {self.url} holds something else: choose another name")
            self._write(_PLAN, json.dumps(plan).encode())

    def shards(self) -> dict[int, _Shard]:
        """Return what is whole, by the number of its block."""
        with reported(self.url):
            sizes = self._list()
        found = {}
        for name in sizes:
            mark = _MARK.fullmatch(name.removeprefix("_encoding/"))
            if mark and sizes.get(_shard_name(int(mark[1]))) == int(mark[3]):
                found[int(mark[1])] = _Shard(int(mark[2]), f"{mark[3]}:{mark[4]}")
        return found

    def has_ranges(self) -> bool:
        """Tell whether the ranges of int8 and uint8 are there."""
        with reported(self.url):
            return self._has(_RANGES)

    def pack(self, vectors: NDArray[np.float32], dtype: str) -> NDArray[Any]:
        """Return vectors as they are written; the ranges of the first block serve all others."""
        if not needs_ranges(dtype):
            return quantize(vectors, dtype) if dtype.endswith("binary") else vectors.astype(dtype)
        with reported(self.url):
            if not self._has(_RANGES):
                content = io.BytesIO()
                np.save(content, ranges_of(vectors))
                self._write(_RANGES, content.getvalue())
            return quantize(vectors, dtype, np.load(io.BytesIO(self._read(_RANGES))))

    def write(self, number: int, first_row: int, vectors: NDArray[Any]) -> None:
        """Write a shard, and then its mark; one without a mark is written again."""
        import pyarrow as pa
        from pyarrow import parquet

        width = vectors.shape[1]
        packed = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), width)
        rows = pa.array(np.arange(first_row, first_row + len(vectors), dtype=np.int64))
        content = io.BytesIO()
        parquet.write_table(pa.table({"row": rows, "vector": packed}), content, write_page_checksum=True)
        size, checksum = atomic.bytes_digest(content.getvalue()).split(":")
        with reported(self.url):
            self._write(_shard_name(number), content.getvalue())
            self._write(f"_encoding/vectors-{number:06}.{len(vectors)}-rows.{size}-{checksum}", b"")

    def publish(self, dtype: str, block: int) -> tuple[int, int]:
        """Write the manifest, which says that the output is whole, and return the shape of the vectors."""
        from pyarrow import parquet

        shards = self.shards()
        numbers = sorted(shards)
        with reported(self.url):
            if self._has(_MANIFEST):  # another job of the same command was faster, and took the marks away
                done = json.loads(self._read(_MANIFEST))
                self.discard()
                return int(done["rows"]), int(done["width"])
            if not numbers or numbers != [*range(len(numbers))]:
                raise ResumeError(f"{self.url} lacks shards that were there before: run the same command again")
            first = parquet.read_schema(io.BytesIO(self._read(_shard_name(0))))
            width, rows = int(first.field("vector").type.list_size), sum(shard.rows for shard in shards.values())
            names = {_shard_name(number): shards[number].checksum for number in numbers}
            facts = {"rows": rows, "width": width, "dtype": dtype, "rows_a_shard": block}
            if self._has(_RANGES):
                self._write("_ranges.npy", self._read(_RANGES))
            self._write(_MANIFEST, json.dumps({**facts, "shards": [*names], "checksums": names}, indent=1).encode())
        self.discard()
        return rows, width

    def discard(self) -> None:
        """Remove what is only needed until the output is whole."""
        with reported(self.url):
            system, path = self._at("_encoding")
            if system.exists(path):
                system.rm(path, recursive=True)

    def _at(self, name: str) -> tuple[Any, str]:
        system, path = open_system(self.url)
        return system, f"{path.rstrip('/')}/{name}"

    def _has(self, name: str) -> bool:
        system, path = self._at(name)
        system.invalidate_cache()
        return bool(system.isfile(path))

    def _read(self, name: str) -> bytes:
        system, path = self._at(name)
        return bytes(system.cat_file(path))

    def _write(self, name: str, content: bytes) -> None:
        system, path = self._at(name)
        system.makedirs(path.rpartition("/")[0], exist_ok=True)
        system.pipe_file(path, content)

    def _list(self) -> dict[str, int]:
        """Return the bytes of every file by its name below the folder."""
        system, path = self._at("")
        system.invalidate_cache()
        found = system.find(path.rstrip("/"), detail=True)
        return {name.removeprefix(path): int(facts["size"] or 0) for name, facts in found.items()}


def _shard_name(number: int) -> str:
    return f"vectors-{number:06}.parquet"
