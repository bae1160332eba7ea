"""The pairs file: one row for each text and positive, with the backend and settings that made the positive.

Pairs that exist already, in two aligned files or in a table, are brought into the same form.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from selfsent.corpus import formats
from selfsent.corpus.sources import file_identity, read_lines, read_rows
from selfsent.errors import ConfigurationError, CorpusError, UserError
from selfsent.pairs.cache import identity_digest
from selfsent.progress import SILENT, Progress
from selfsent.storage import atomic, locks
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
_FIGURES = re.compile(r"\d+(?:[.,:]\d+)*")
# Pairs of columns that are tried in this order where none are named.
_KNOWN_COLUMNS = (
    ("text", "positive"),
    ("anchor", "positive"),
    ("sent0", "sent1"),
    ("sentence1", "sentence2"),
    ("src_text", "tgt_texts"),
    ("source", "target"),
)


@dataclass(kw_only=True)
class PairsSummary:
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

    def __str__(self) -> str:
        failed = {f"failed: {reason}": count for reason, count in self.failed.items()}
        counts = {"texts": self.texts, "made now": self.made, **self.dropped, **failed}
        shown = {name: count for name, count in counts.items() if count} | {"pairs": self.pairs}
        return "; ".join(f"{name} {count:,}" for name, count in shown.items())


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
        UserError: the file cannot be written.
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
        UserError: the file cannot be written.
    """
    check_pairs_file(path)
    rows = ({name: row[name] for name in kinds} for row in rows)
    try:
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
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def write_given_pairs(
    first: Path,
    second: Path | None,
    out: Path,
    *,
    text_column: str | None = None,
    positive_column: str | None = None,
    drop: str | None = None,
    ignore_figures: bool = False,
    progress: Progress = SILENT,
) -> PairsSummary:
    """Write the pairs of two aligned files, or of one table, as a pairs file.

    Args:
        first: lines of text, or a table; of a file named ``*.source*``, the second is ``*.target*``.
        text_column: of a table.
        positive_column: of a table; a cell holds a text or a list of texts.
        drop: a regular expression; a pair in one of whose texts it is found is left out.
        ignore_figures: leave out pairs that differ in figures alone.

    Raises:
        ConfigurationError: ``drop`` is no regular expression.
        CorpusError: a file cannot be read, or its lines or columns do not fit together.
    """
    if second is None and ".source" in first.name:
        second = first.with_name(first.name.replace(".source", ".target"))
    files = [first] if second is None else [first, second]
    if second is not None and (text_column or positive_column):
        raise ConfigurationError("columns are those of one table, and two files are given: leave the columns out")
    check_pairs_file(out, files)
    for table in files[: 0 if second is None else 2]:
        if formats.format_of(table) not in ("", ".txt"):
            raise CorpusError(f"{table} is a table: of two aligned files each line is a text; or give one table alone")
    columns = {"text_column": text_column, "positive_column": positive_column} if second is None else {}
    try:
        unwanted = None if drop is None else re.compile(drop)
    except re.error as error:
        raise ConfigurationError(f"{drop!r} is no regular expression: {error}") from error
    rows = _table_rows(first, text_column, positive_column) if second is None else _aligned(first, second)
    filters = {name: value for name, value in (("drop", drop), ("ignore_figures", ignore_figures)) if value}
    settings = {"files": [*map(str, files)], **columns, **filters}
    identity = [*map(file_identity, files), *columns.values(), *filters.items()]
    summary = PairsSummary(out=out)
    today = datetime.now(UTC).strftime("%Y-%m-%d")

    def pairs() -> Iterator[tuple[str, str, str]]:
        for text, positives in rows:
            summary.texts += 1
            distinct: dict[int, str] = {}
            for positive in positives:
                distinct.setdefault(clean.content_key(positive), positive)
            summary.dropped["given twice"] += len(positives) - len(distinct)
            for positive in distinct.values():
                if unwanted and (unwanted.search(text) or unwanted.search(positive)):
                    summary.dropped["matched by drop"] += 1
                elif ignore_figures and _without_figures(text) == _without_figures(positive):
                    summary.dropped["equal but for figures"] += 1
                elif summary.count(text, positive if text else ""):
                    yield text, positive, today
            if not summary.texts % 4096:
                progress.report("read", summary.texts)
        if not summary.pairs:
            raise CorpusError(f"{first} holds no pairs: {summary}")

    digest = identity_digest({"backend": "given", "source": identity})
    with locks.exclusive(out, folder=False):
        write_pairs(out, pairs(), backend="given", digest=digest, settings=settings)
    return summary


def _without_figures(text: str) -> int:
    return clean.content_key(_FIGURES.sub("0", text))


def _aligned(first: Path, second: Path) -> Iterator[tuple[str, list[str]]]:
    for number, (text, positive) in enumerate(zip_longest(read_lines(first), read_lines(second)), 1):
        if text is None or positive is None:
            longer = second if text is None else first
            raise CorpusError(f"{longer}, line {number} has no counterpart: both files must have as many lines")
        yield _line(text), [_line(positive)]


def _table_rows(path: Path, text_column: str | None, positive_column: str | None) -> Iterator[tuple[str, list[str]]]:
    for place, row in read_rows(path):
        if text_column is None or positive_column is None:
            known = next((pair for pair in _KNOWN_COLUMNS if {*pair} <= row.keys()), _KNOWN_COLUMNS[0])
            text_column, positive_column = text_column or known[0], positive_column or known[1]
        for name in (text_column, positive_column):
            if name not in row:
                raise CorpusError(f"{place} has no column {name!r}: name one of {', '.join(map(str, row)) or 'none'}")
        text, positives = row[text_column], row[positive_column]
        listed = positives if isinstance(positives, list) else [positives]
        for value in (text, *listed):
            if value is not None and not isinstance(value, str):
                raise CorpusError(f"{place}: {text_column!r} and {positive_column!r} must hold text, not {value!r:.40}")
        yield _line(text or ""), [_line(one or "") for one in listed]


def _line(text: str) -> str:
    return clean.one_line(clean.clean_text(text))
