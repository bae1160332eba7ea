"""Checksums of known evaluation files, and which of the files that were read differ from them.

``manifest.toml`` holds row count and checksum of every file that has one standard form.  A file with the right number
of rows and other content is still scored, and its scores say so: a re-tokenised or corrected copy gives other numbers.
"""

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from selfsent.errors import DataError

# The known files that a task reads: those whose paths start with its value.
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
    """Row count, end and checksum of a known file."""

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
        folder: SentEval's ``downstream``, or the parent of a public dataset's folder.

    Raises:
        DataError: a file ends within its last row.
    """
    start = FILES.get(task)
    found = []
    for path, file in known_files().items():
        if start is None or not path.startswith(start):
            continue
        content = (folder / path).read_bytes()
        if hashlib.sha256(content).hexdigest() == file.sha256:
            continue
        last = content.rsplit(b"\n", 1)[-1]
        # A copy whose last line is complete and only lacks its line end is not cut short.
        if last and len(last.rstrip(b"\r")) < file.last:
            raise DataError(
                f"{folder / path} is cut short: its last row ends after {len(last)} bytes where {file.last} are known; "
                "get the data again"
            )
        found.append(path)
    return found
