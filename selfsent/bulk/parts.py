"""One encoding by several processes that do not know each other, such as the tasks of a Slurm array.

Part i of n encodes the blocks i - 1, i - 1 + n, ... and writes their shards into the folder that all parts share.  Each
part leaves its plan there when it begins and a mark when it is done; whoever finds the marks of all parts makes the
output.  Locks only save work twice: no part writes a file of another.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selfsent.bulk import store
from selfsent.errors import ConfigurationError, ResumeError
from selfsent.progress import Progress
from selfsent.storage import atomic, locks


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

    def file(self, output: Path, what: str) -> Path:
        """Return where the plan or the mark of this part is."""
        return store.unfinished_of(output) / f"{what}-{self.number:05}-of-{self.of:05}.json"


WHOLE = EncodePart(1, 1)


def parse_part(text: str) -> EncodePart:
    """Read "2/8".

    Raises:
        ConfigurationError: it is of another form, or out of range.
    """
    found = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text.strip())
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise ConfigurationError(f"part {text!r} does not fit: give i/n with 1 <= i <= n, such as 2/8")
    return EncodePart(int(found[1]), int(found[2]))


def open_part(output: Path, part: EncodePart, plan: dict[str, Any], *, overwrite: bool, progress: Progress) -> int:
    """Start or resume one part; return how many of its rows are on disk.

    Raises:
        UserError: another run was begun at this output, or the output exists.
    """
    folder = store.unfinished_of(output)
    own = part.file(output, "plan")
    require_same_plan(output, plan)
    if output.exists() and not overwrite and not store.shape_when_complete(output):
        raise ConfigurationError(f"output {output} exists: remove it, choose another name, or add --overwrite")
    if output.exists():
        store.require_ours(output)
    if store.shape_when_complete(output):
        return store.rows_in(_shards_of(output, part))
    if not any(folder.glob("plan-*.json")):
        store.require_no_ranges(output, plan["dtype"], overwrite=overwrite)
    (folder / "shards").mkdir(parents=True, exist_ok=True)
    if not own.is_file():
        atomic.write_sealed(own, plan)
        try:
            require_same_plan(output, plan)  # another run may have begun since
        except ResumeError:
            atomic.remove(own)
            raise
    _remove_damaged(output, part, progress)
    return store.rows_in(_shards_of(output, part))


def require_same_plan(output: Path, plan: dict[str, Any]) -> None:
    """Refuse to go on with what another run began.

    Raises:
        ResumeError: a process began this output with another model, source or setting; the message names it.
    """
    folder = store.unfinished_of(output)
    for place in sorted(folder.glob("plan*.json")):
        before = atomic.read_sealed(place, store.afresh(output))
        changed = [key for key in {**plan, **before} if before.get(key) != plan.get(key)]
        if changed:
            raise ResumeError(
                f"{output} was begun with another {', '.join(changed)} ({place.name}): repeat that command to finish "
                f"it, remove {folder} to start again, or name another output"
            )


def finish_part(
    output: Path, part: EncodePart, rows: int, dtype: str, block: int
) -> tuple[tuple[int, int] | None, tuple[int, ...]]:
    """Mark a part as done, and make the output if it was the last.

    Args:
        rows: of all parts.
        block: rows of a shard.

    Returns:
        The shape of the output, or None; and the numbers of the parts that are not done.

    Raises:
        ResumeError: a shard of another part is missing or was changed; the message names the part to run again.
    """
    folder = store.unfinished_of(output)
    if folder.is_dir():
        atomic.write_sealed(part.file(output, "done"), {"rows": rows})
    with locks.exclusive(output, folder=False, wait=True):
        if not folder.is_dir():  # another part has made the output meanwhile
            return (rows, store.shards_width(output)), ()
        parts = [EncodePart(number, part.of) for number in range(1, part.of + 1)]
        missing = tuple(one.number for one in parts if not one.file(output, "done").is_file())
        if missing:
            return None, missing
        if store.shape_when_complete(output) and not store.is_intact(output):
            atomic.remove(folder / "complete.json")
        if not store.shape_when_complete(output):
            _require_shards(output, parts, rows, block)
        return store.publish(output, dtype, block), ()


def _require_shards(output: Path, parts: list[EncodePart], rows: int, block: int) -> None:
    """Compare every shard with its checksum, and the ranges of int8 and uint8 of all parts with each other."""
    for number in range(-(-rows // block)):
        shard, part = store.shard_file(output, number), parts[number % len(parts)]
        try:
            atomic.verify(shard, f"run part {part} again")
        except ResumeError:
            atomic.remove(part.file(output, "done"))
            raise
    ranges = [store.ranges_file(output, part.number) for part in parts]
    found = {place.name: place.read_bytes() for place in ranges if place.is_file()}
    first = found.get(ranges[0].name)
    for name, content in found.items():
        if content != first:
            raise ResumeError(
                f"{name} differs from {ranges[0].name}: the machines compute other vectors for the same texts, so that "
                f"int8 and uint8 would not fit together; {store.afresh(output)} with dtype float16"
            )


def _shards_of(output: Path, part: EncodePart) -> list[Path]:
    return [shard for shard in store.shards_of(output) if part.has(store.number_of(shard))]


def _remove_damaged(output: Path, part: EncodePart, progress: Progress) -> None:
    """Remove the shards of a part that are not what was written: they are made again."""
    for shard in _shards_of(output, part):
        try:
            atomic.verify(shard, "")
        except ResumeError:
            atomic.remove(shard)
            progress.say(f"warning: {shard} was changed: its texts are encoded again")
