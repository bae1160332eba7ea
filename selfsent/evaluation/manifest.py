"""The files of evaluation data as they are known, and whether those that were read are the same.

``manifest.toml`` holds rows and checksum of every file that is around in one standard form.  A file with the right rows
and another content is read all the same, and its scores say so: a re-tokenised or mended copy gives other numbers.
"""

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from selfsent.errors import UserError

# The known files that a task reads: those whose paths begin so.
_STSB = "STS/STSBenchmark/sts-"
FILES: dict[str, str] = {
    **{f"sts{year}": f"STS/STS{year}-en-test/" for year in range(12, 17)},
    **dict.fromkeys(("stsb-regression", "geometry"), _STSB),
    **{"stsb": f"{_STSB}test", "stsb-dev": f"{_STSB}dev", "geometry-dev": f"{_STSB}dev"},
    **{name: f"{name.upper()}/" for name in ("mr", "cr", "subj", "mpqa", "trec", "mrpc")},
    **{"sst2": "SST/binary/", "sst5": "SST/fine/"},
    **{"banking77": "banking77/", "clinc150": "clinc150/", "stackoverflow": "stackoverflow_short_text/"},
}


@dataclass(frozen=True, kw_only=True)
class File:
    """What is known of a file."""

    rows: int
    last: int  # bytes of the last line, without its end
    sha256: str


@cache
def known_files() -> Mapping[str, File]:
    """Return the known files by their paths below SentEval's ``downstream``, or by folder and name."""
    content = Path(__file__).with_name("manifest.toml").read_text(encoding="utf-8")
    return {path: File(**entry) for path, entry in tomllib.loads(content).items()}


def differing(task: str, folder: Path) -> list[str]:
    """Return which of a task's files differ from the known ones; none for a task of which no files are known.

    Args:
        folder: SentEval's ``downstream``, or what holds the folder of an intent set.

    Raises:
        UserError: a file ends within its last row.
    """
    start = FILES.get(task)
    found = []
    for path, file in known_files().items() if start else ():
        if not path.startswith(start or ""):
            continue
        content = (folder / path).read_bytes()
        if hashlib.sha256(content).hexdigest() == file.sha256:
            continue
        last = content.rsplit(b"\n", 1)[-1]
        # A copy whose last line is whole and only lacks its end is not cut short.
        if last and len(last.rstrip(b"\r")) < file.last:
            raise UserError(
                f"{folder / path} is cut short: its last row ends after {len(last)} bytes where {file.last} are known; "
                "get the data again"
            )
        found.append(path)
    return found
