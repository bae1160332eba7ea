"""One encoding by several processes that do not know each other, such as the tasks of a Slurm array.

Part i of n encodes the blocks i - 1, i - 1 + n, ... and writes their shards into the folder that all parts share.  Each
part leaves its plan there when it begins and a mark when it is done; whoever finds the marks of all parts makes the
output.  Locks only save work twice: no part writes a file of another.
"""

import re
from dataclasses import dataclass

from selfsent.errors import ConfigurationError


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

    def name(self, what: str) -> str:
        """Return the name of a file of this part: its plan, or its mark."""
        return f"{what}-{self.number:05}-of-{self.of:05}"

    @property
    def ranges(self) -> str:
        """The name of the ranges of int8 and uint8 that this part uses; those of the first are published."""
        return f"ranges-{self.number:05}" if self.number > 1 else "ranges"


WHOLE = EncodePart(1, 1)


def parse_part(text: str) -> EncodePart:
    """Read "2/8".

    Raises:
        ConfigurationError: it is of another form, or out of range.
    """
    match = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text.strip())
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise ConfigurationError(f"part {text!r} does not fit: give i/n with 1 <= i <= n, such as 2/8")
    return EncodePart(int(match[1]), int(match[2]))
