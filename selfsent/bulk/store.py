"""The shards of one output until it is whole: on this machine, or in a folder that fsspec opens by a URL.

    output NAME    .NAME.encoding/   plan.json, ranges.npy, marks;  shards/vectors-000000.npy, ...
    output URL     URL/_encoding/    plan.json, ranges.npy, marks;  URL/vectors-000000.parquet, ...

A mark is an empty file behind a shard, whose name says rows, bytes and checksum of it: one listing tells what is whole,
and what has no mark is made again.  A local output is put in its place by one rename; a remote one is whole when its
``_manifest.json`` is there.

Several processes that do not know each other, such as the tasks of a Slurm array, may each encode a part: part i of n
encodes the blocks i - 1, i - 1 + n, ... into the folder that all share.  Each leaves its plan there when it begins and
a mark when it is done; whoever finds the marks of all parts makes the output.  Locks only save work twice: no part
writes a file of another.
"""

import io
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from selfsent.bulk.outputs import LocalFiles, RemoteFiles, npy_bytes, ranges_beside, require_ours, write_shards
from selfsent.corpus.remote import is_url
from selfsent.encoder.quantize import QUANTIZED, needs_ranges, quantize, ranges_of
from selfsent.errors import ConfigurationError, ResumeError, first_line
from selfsent.progress import Progress
from selfsent.storage import atomic, locks

_MARK = re.compile(r"(vectors-\d+|ranges[-\d]*)\.(\d+)-rows\.(\d+)-(\w+)")
_MANIFEST = "_manifest.json"  # of a remote output


@dataclass(frozen=True)
class EncodePart:
    """Part ``number`` of ``of``, counted from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def has(self, block: int) -> bool:
        """Tell whether a block, counted from 0, is of this part."""
        return block % self.of == self.number - 1

    def name(self, kind: str) -> str:
        """Return the name of a file of this part: its "plan", or the mark that it is "done"."""
        return f"{kind}-{self.number:05}-of-{self.of:05}"

    @property
    def ranges(self) -> str:
        """The name of the ranges of int8 and uint8 that this part uses; those of the first are published."""
        return f"ranges-{self.number:05}" if self.number > 1 else "ranges"


def parse_part(text: str) -> EncodePart:
    """Read "2/8".

    Raises:
        ConfigurationError: it is of another form, or out of range.
    """
    match = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text.strip())
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise ConfigurationError(f"part {text!r} does not fit: give i/n with 1 <= i <= n, such as 2/8")
    return EncodePart(int(match[1]), int(match[2]))


class Shard(NamedTuple):
    """What the mark of a shard says."""

    rows: int
    checksum: str  # size and xxh3, as ``atomic.file_digest`` writes them
    mark: str  # its name


@dataclass(frozen=True)
class Store:
    """The shards of one output, a path or a URL, or of a part of it; it can be sent to other processes."""

    output: Path | str
    part: EncodePart = EncodePart(1, 1)
    is_split: bool = False  # whether other parts may be encoded at this moment

    @classmethod
    def of(cls, output: str | Path, part: EncodePart | None = None) -> "Store":
        """Return the store of an output by its name."""
        output = str(output) if is_url(output) else Path(output).absolute()
        return cls(output, part, is_split=True) if part else cls(output)

    @cached_property
    def files(self) -> LocalFiles | RemoteFiles:
        """Where it keeps what it needs until the output is whole."""
        if isinstance(self.output, Path):
            return LocalFiles(self.output.parent / f".{self.output.name}.encoding")
        return RemoteFiles(self.output)

    @property
    def advice(self) -> str:
        """What gives up an output that was begun."""
        return f"remove {self.files.folder} to start again"

    def claim(self) -> AbstractContextManager[None]:
        """Keep other processes from an output, or from the same part of it; at a URL all write the same bytes."""
        if isinstance(self.output, str):
            return nullcontext()
        suffix = f".part-{self.part.number}" if self.is_split else ""
        return locks.exclusive(self.output.with_name(f"{self.output.name}{suffix}"), folder=False)

    def begin(self, plan: Mapping[str, Any], *, overwrite: bool, progress: Progress) -> None:
        """Start, or resume where the plan is the same; what was damaged meanwhile is made again.

        Raises:
            UserError: the output exists, holds something else or cannot be reached, or was begun with another plan.
        """
        own, plans = f"{self.part.name('plan') if self.is_split else 'plan'}.json", self._plans(plan)
        if self.finished() and (plans or self.is_split):  # not what a killed job made of another stream
            return
        if not plans and not self.is_split:  # another part may begin at this moment
            self.files.discard()
        self._require_free(plan["dtype"], is_begun=bool(plans), overwrite=overwrite)
        if own not in plans:
            self.files.write(self.files.aside + own, json.dumps(atomic.with_checksum(plan)).encode())
        if self.is_split:
            try:
                self._plans(plan)  # another run may have begun since
            except ResumeError:
                atomic.remove(self._path(own))
                raise
        for number, shard in self.shards().items() if isinstance(self.output, Path) else ():
            if not self._is_intact(number, shard):  # a remote shard is not read again
                atomic.remove(self._path(shard.mark))
                progress.say(f"warning: {self._shard_path(number)} was changed: its texts are encoded again")

    def _plans(self, plan: Mapping[str, Any]) -> list[str]:
        """Return the names of the plans that are there, all of which are this one; none where it starts anew.

        Raises:
            ResumeError: a process began this output with another model, source or setting; the message names it.
        """
        names = [name.removeprefix(self.files.aside) for name in self.files.sizes()]
        names = sorted(name for name in names if re.fullmatch(r"plan(-\d+-of-\d+)?\.json", name))
        for name in names:
            try:
                before = atomic.open_sealed(self.files.read(self.files.aside + name))
            except (ValueError, AttributeError, TypeError, RecursionError) as error:
                raise ResumeError(f"{name} of {self.output} is damaged ({first_line(error)}): {self.advice}") from error
            if before == plan and plan["source"] is not None:
                continue
            unsplit = "parts" not in before and "parts" not in plan
            if unsplit and (before["source"] is None or not self.shards()):
                return []  # that of a stream, which always starts again, or of a job that has kept nothing
            differ = [key for key in {**plan, **before} if before.get(key) != plan.get(key)]
            changed = ", ".join({"parts": "number of parts"}.get(key, key) for key in differ)
            finish = " if its text is as it was" * ("source" in differ)
            raise ResumeError(
                f"{self.output} was begun with another {changed}: repeat that command to finish it{finish}, "
                f"{self.advice}, or name another output"
            )
        return names

    def _require_free(self, dtype: str, *, is_begun: bool, overwrite: bool) -> None:
        """Refuse an output that exists, but for one of ours here that is to be replaced, and what is in its way."""
        if isinstance(self.output, str):
            if self.files.has(_MANIFEST):
                raise ConfigurationError(f"output {self.output} exists: remove it, or choose another name")
            if not is_begun and self.files.sizes():
                raise ConfigurationError(f"output {self.output} holds something else: choose another name")
            return
        if self.output.exists():
            if not overwrite:
                raise ConfigurationError(
                    f"output {self.output} exists: remove it, choose another name, or add --overwrite"
                )
            require_ours(self.output)
        ranges = ranges_beside(self.output)
        if not is_begun and needs_ranges(dtype) and ranges.exists() and not (overwrite and self.output.exists()):
            rest = "" if overwrite else ", or add --overwrite"
            raise ConfigurationError(f"{ranges} exists, where the ranges belong: choose another name{rest}")

    def shards(self) -> dict[int, Shard]:
        """Return the shards of this part that are whole, by the number of their block, from 0."""
        numbered = {int(name[8:]): mark for name, mark in self._marked().items() if name.startswith("vectors-")}
        return {number: numbered[number] for number in sorted(numbered) if self.part.has(number)}

    def rows(self) -> int:
        """Count the rows that will not be encoded again."""
        return self.finished() or sum(shard.rows for shard in self.shards().values())

    def write(self, number: int, first_row: int, vectors: NDArray[Any]) -> None:
        """Write the shard of a block, and then its mark."""
        self._write_marked(f"vectors-{number:06}", len(vectors), self.files.encode(first_row, vectors))

    def has_ranges(self) -> bool:
        """Tell whether the ranges of int8 and uint8 are there."""
        return self.part.ranges in self._marked()

    def take_ranges(self, content: bytes) -> None:
        """Use these ranges, of a file, and not those of block 0."""
        self._write_marked(self.part.ranges, 2, content)

    def pack(self, vectors: NDArray[np.float32], dtype: str, number: int) -> NDArray[Any]:
        """Return vectors as they are written; the ranges of block 0 serve all others, after a kill, too.

        Raises:
            ResumeError: the ranges were changed since they were written.
        """
        if dtype not in QUANTIZED:
            return vectors.astype(dtype, order="C")
        if not needs_ranges(dtype):
            return quantize(vectors, dtype)
        file = self._file(self.part.ranges)
        content = self.files.read(file) if self.files.has(file) else b""
        if not self.files.has(self._mark(self.part.ranges, 2, content)):
            if number:
                raise ResumeError(f"{file} of {self.output} is missing or was changed: {self.advice}")
            content = npy_bytes(ranges_of(vectors))
            self._write_marked(self.part.ranges, 2, content)
        return quantize(vectors, dtype, np.load(io.BytesIO(content)))

    def _marked(self) -> dict[str, Shard]:
        """Return what has a mark and as many bytes as it says, by name."""
        sizes, marked = self.files.sizes(), {}
        for name in sizes:
            mark = _MARK.fullmatch(name.removeprefix(self.files.aside))
            if mark and sizes.get(self._file(mark[1])) == int(mark[3]):
                marked[mark[1]] = Shard(int(mark[2]), f"{mark[3]}:{mark[4]}", name)
        return marked

    def _write_marked(self, name: str, rows: int, content: bytes) -> None:
        self.files.write(self._file(name), content)
        self.files.write(self._mark(name, rows, content), b"")

    def _mark(self, name: str, rows: int, content: bytes) -> str:
        return f"{self.files.aside}{name}.{rows}-rows.{atomic.bytes_digest(content).replace(':', '-')}"

    def _file(self, name: str) -> str:
        files = self.files
        return f"{files.shards}{name}{files.suffix}" if name.startswith("vectors-") else f"{files.aside}{name}.npy"

    def _path(self, name: str) -> Path:
        return Path(self.files.folder, name)

    def _shard_path(self, number: int) -> Path:
        return self._path(self._file(f"vectors-{number:06}"))

    def _is_intact(self, number: int, shard: Shard | None) -> bool:
        return shard is not None and atomic.file_digest(self._shard_path(number)) == shard.checksum

    def _finished_path(self, output: Path) -> Path:
        return self._path("whole" if output.suffix else "shards")

    def finished(self) -> int | None:
        """Return the rows of a local output that is in its place, where a kill came before the rest was removed."""
        if isinstance(self.output, str) or not self.files.has("complete.json"):
            return None
        if self._finished_path(self.output).exists() or not self.output.exists():
            return None
        return int(atomic.read_sealed(self._path("complete.json"), self.advice)["rows"])

    def finish(self, facts: Mapping[str, Any]) -> tuple[int, ...]:
        """Make the output of the shards; of parts, if this was the last, and return the numbers of those to do.

        Args:
            facts: of the output: its rows, width, dtype, and rows_a_shard.

        Raises:
            ResumeError: a shard of another part is missing or was changed; the message names the part to run again.
        """
        if not self.is_split:
            self._publish(facts)
            return ()
        folder = self._path("")
        if folder.is_dir():
            self.files.write(self.part.name("done"), b"")
        with locks.exclusive(Path(self.output), folder=False, wait=True):
            if not folder.is_dir():  # another part has made the output meanwhile
                return ()
            parts = [EncodePart(number, self.part.of) for number in range(1, self.part.of + 1)]
            missing = tuple(other.number for other in parts if not self.files.has(other.name("done")))
            if not missing:
                all_parts = Store(self.output)
                if not self.finished():
                    all_parts._require_shards(parts, -(-facts["rows"] // facts["rows_a_shard"]))
                all_parts._publish(facts)
            return missing

    def _require_shards(self, parts: Sequence[EncodePart], blocks: int) -> None:
        """Compare every shard with its checksum, and the ranges of int8 and uint8 of all parts with each other."""
        shards = self.shards()
        for number in range(blocks):
            if not self._is_intact(number, shards.get(number)):
                part = parts[number % len(parts)]
                atomic.remove(self._path(part.name("done")))
                raise ResumeError(f"{self._shard_path(number)} is missing or was changed: run part {part} again")
        files = [file for part in parts if self.files.has(file := self._file(part.ranges))]
        for file in files:
            if self.files.read(file) != self.files.read(files[0]):
                raise ResumeError(
                    f"{file} differs from {files[0]}: the machines compute other vectors for the same texts, so that "
                    f"int8 and uint8 would not fit together; {self.advice} with dtype float16"
                )

    def _publish(self, facts: Mapping[str, Any]) -> None:
        checksums = {
            f"vectors-{number:06}{self.files.suffix}": shard.checksum for number, shard in self.shards().items()
        }
        manifest = {**facts, "shards": [*checksums], "checksums": checksums}
        if isinstance(self.output, str):
            if not self.files.has(_MANIFEST):  # another job of the same command may be faster, and take the marks away
                if len(checksums) != -(-facts["rows"] // facts["rows_a_shard"]):
                    raise ResumeError(f"{self.output} lacks shards that were there before: run the same command again")
                if self.files.has(ranges := self._file(self.part.ranges)):
                    self.files.write("_ranges.npy", self.files.read(ranges))
                self.files.write(_MANIFEST, json.dumps(manifest, indent=1).encode())
        elif not self.finished():
            self._put_in_place(self.output, manifest)
        self.files.discard()

    def _put_in_place(self, output: Path, manifest: Mapping[str, Any]) -> None:
        finished, ranges = self._finished_path(output), self._path(self._file(self.part.ranges))
        if output.suffix:
            with atomic.replacing_file(finished) as file:
                write_shards(
                    file, output.suffix, [self._path(f"shards/{name}") for name in manifest["shards"]], manifest
                )
        else:
            atomic.write_sealed(finished / "manifest.json", manifest)
        atomic.write_sealed(self._path("complete.json"), {"rows": manifest["rows"]})
        if ranges.is_file():
            if output.is_file():  # never old vectors beside new ranges
                atomic.remove(output)
            atomic.write_bytes(ranges_beside(output), ranges.read_bytes())
        if output.is_dir():  # no rename replaces a folder that holds something
            atomic.rename(output, self._path("replaced"))
        atomic.rename(finished, output)
