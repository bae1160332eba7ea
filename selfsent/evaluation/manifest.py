"""Checksums of known evaluation files, and which of the files that were read differ from them.

``manifest.toml`` holds row count and checksum of every file that has one standard form.  A file with the right number
of rows and other content is still scored, and its scores say so: a re-tokenised or corrected copy gives other numbers.
"""

import hashlib
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

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


@cache
def known_files() -> dict[str, dict[str, Any]]:
    """Return ``rows``, ``last`` (bytes of the last line) and ``sha256`` of each known file, as in ``manifest.toml``."""
    return tomllib.loads(Path(__file__).with_name("manifest.toml").read_text(encoding="utf-8"))


def differing(task: str, folder: Path) -> str:
    """Name the first of a task's files that differs from the known one, and count the others; empty if none does.

    Args:
        folder: SentEval's ``downstream``, or the parent of a public dataset's folder.

    Raises:
        DataError: a file ends within its last row.
    """
    found = []
    for path, known in known_files().items():
        if task not in FILES or not path.startswith(FILES[task]):
            continue
        content = (folder / path).read_bytes()
        if hashlib.sha256(content).hexdigest() == known["sha256"]:
            continue
        last = content.rsplit(b"\n", 1)[-1]
        # A copy whose last line is complete and only lacks its line end is not cut short.
        if last and len(last.rstrip(b"\r")) < known["last"]:
            raise DataError(
                f"{folder / path} is cut short: its last row ends after {len(last)} bytes where {known['last']} are "
                "known; get the data again"
            )
        found.append(path)
    return "".join(found[:1]) + (f" (and {len(found) - 1} beside it)" if len(found) > 1 else "")
