"""The pairs file: one row for each text and positive, with the backend and settings that made the positive."""

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from selfsent.corpus.sources import read_rows
from selfsent.errors import ConfigurationError, CorpusError
from selfsent.runtime.printed import Printed, Shown
from selfsent.storage import atomic
from selfsent.text import clean

COLUMNS = (
    "text",
    "positive",
    "backend",  # "backtranslate", "rewrite", "mined", "structure" or "given"
    "settings",  # for people, as JSON
    "digest",  # of all settings that the positive depends on
    "created",  # the day the positive was made
)
_ROWS = 1 << 14  # of a row group
_SAMPLE = 5  # pairs to show


@dataclass(kw_only=True, repr=False)
class PairsSummary(Printed):
    """How many texts became pairs, and why the others did not."""

    out: Path
    texts: int = 0
    made: int = 0  # by this run; the others were in the cache
    seconds: float = 0.0  # that making them took
    pairs: int = 0
    dropped: Counter[str] = field(default_factory=Counter)  # outputs by reason
    failed: Counter[str] = field(default_factory=Counter)  # texts without an output, by reason
    sample: list[tuple[str, str]] = field(default_factory=list)  # the first pairs

    def count(self, text: str, positive: str, *, truncated: bool = False) -> bool:
        """Count a text and its positive, and tell whether they are a pair."""
        if truncated or not positive:
            self.dropped["cut off" if truncated else "empty"] += 1
        elif clean.content_key(text) == clean.content_key(positive):
            self.dropped["identical to their text"] += 1
        else:
            self.pairs += 1
            self.sample = [*self.sample, (text, positive)][:_SAMPLE]
            return True
        return False

    @property
    def counts(self) -> str:
        """How many texts, what was dropped and why, and how many pairs."""
        failed = {f"failed: {reason}": count for reason, count in self.failed.items()}
        counts = {"texts": self.texts, "made now": self.made, **self.dropped, **failed}
        shown = {name: count for name, count in counts.items() if count} | {"pairs": self.pairs}
        return "; ".join(f"{name} {count:,}" for name, count in shown.items())

    def shown(self) -> Shown:
        """Return the counts, and the first pairs."""
        return Shown([self.counts, f"in {self.out}"], ["text", "positive"], self.sample)


def check_pairs_file(path: Path, sources: Iterable[Path | None] = ()) -> None:
    """Check that pairs can be written to ``path``, before any work is done for them.

    Args:
        sources: files that are read.

    Raises:
        ConfigurationError: an unknown format, no such folder, or a file that would be lost: one that is read, or no
            pairs file.
    """
    if any(source is not None and source.exists() and path.exists() and path.samefile(source) for source in sources):
        raise ConfigurationError(f"output {path} is read, too, and would be lost: choose another --out")
    if path.suffix not in (".parquet", ".jsonl") or not os.access(path.parent, os.W_OK):
        raise ConfigurationError(f"output {path} must be a .parquet or .jsonl file in a folder that you may write to")
    if path.exists():
        try:
            columns = next((list(row) for _, row in read_rows(path)), list(COLUMNS))
        except CorpusError:
            columns = []
        if not {*COLUMNS} <= {*columns}:
            raise ConfigurationError(f"output {path} exists and is no pairs file: choose another --out")


def write_pairs(
    path: Path, pairs: Iterable[tuple[str, str, str]], *, backend: str, digest: str, settings: dict[str, Any]
) -> None:
    """Write (text, positive, day) rows of one backend; the file is replaced whole, or stays as it was.

    Raises:
        ConfigurationError: as ``check_pairs_file``.
        OSError: the file cannot be written.
    """
    rows = (
        {"text": text, "positive": positive, **provenance(backend, settings, digest, created)}
        for text, positive, created in pairs
    )
    write_rows(path, rows, dict.fromkeys(COLUMNS, "string"))


def provenance(backend: str, settings: dict[str, Any], digest: str, created: str) -> dict[str, str]:
    """Return the columns that say how a pair was made."""
    said = clean.encodable(json.dumps(settings, ensure_ascii=False))
    return dict(zip(COLUMNS[2:], (backend, said, digest, created), strict=True))


def write_rows(path: Path, rows: Iterable[dict[str, Any]], kinds: dict[str, str]) -> None:
    """Write rows of a pairs file with any columns; the file is replaced whole, or stays as it was.

    Args:
        kinds: the columns in their order, each with the name of its type in Arrow.

    Raises:
        ConfigurationError: as ``check_pairs_file``.
        OSError: the file cannot be written.
    """
    check_pairs_file(path)
    rows = ({name: row[name] for name in kinds} for row in rows)
    with atomic.replacing_file(path) as file:
        if path.suffix == ".jsonl":
            file.writelines((json.dumps(row, ensure_ascii=False) + "\n").encode() for row in rows)
            return
        import pyarrow as pa
        from pyarrow import parquet

        schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in kinds.items()])
        with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
            while group := list(islice(rows, _ROWS)):
                writer.write_table(pa.Table.from_pylist(group, schema=schema))
