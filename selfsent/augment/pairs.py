"""The pairs file: one row for each text and positive, with the backend and settings that made the positive.

Pairs that exist already, in two aligned files or in a table, are brought into the same form.
"""

import json
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from selfsent import atomic
from selfsent.augment.cache import identity_digest
from selfsent.corpus import clean, read
from selfsent.errors import ConfigurationError, CorpusError, UserError
from selfsent.progress import SILENT, Progress

COLUMNS = (
    "text",
    "positive",
    "backend",  # "backtranslate", "rewrite" or "given"
    "settings",  # for people, as JSON
    "digest",  # of all settings that the positive depends on
    "created",  # the day the positive was made
)
FORMATS = (".parquet", ".jsonl")
_ROWS = 1 << 14  # of a row group
_SAMPLE = 5  # pairs to show
_GIVEN = "given"
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
    identical: int = 0
    empty: int = 0
    truncated: int = 0
    repeated: int = 0  # pairs that were given twice
    failed: Counter[str] = field(default_factory=Counter)  # texts by reason
    sample: list[tuple[str, str]] = field(default_factory=list)
    _random: random.Random = field(default_factory=lambda: random.Random(0), repr=False)

    def count(self, text: str, positive: str) -> bool:
        """Count a text and its positive, and tell whether they are a pair."""
        if not positive:
            self.empty += 1
            return False
        if clean.content_key(text) == clean.content_key(positive):
            self.identical += 1
            return False
        self.pairs += 1
        # Reservoir sampling: each pair has the same chance to be in the sample.
        place = self.pairs - 1 if self.pairs <= _SAMPLE else self._random.randrange(self.pairs)
        if place < _SAMPLE:
            self.sample[place : place + 1] = [(text, positive)]
        return True

    @property
    def texts_per_second(self) -> float:
        """The speed of making, without what was in the cache."""
        return self.made / self.seconds if self.made else 0.0

    def lines(self) -> list[str]:
        """Return the counts as aligned lines of plain text."""
        rows = [
            ("texts", self.texts),
            ("  made now", self.made),
            ("  identical to their text", self.identical),
            ("  empty", self.empty),
            ("  cut off", self.truncated),
            ("  given twice", self.repeated),
            *((f"  failed: {reason}", count) for reason, count in self.failed.most_common()),
            ("pairs", self.pairs),
        ]
        shown = [row for row in rows if row[1] or not row[0].startswith(" ")]
        label = max(len(name) for name, _ in shown)
        number = max(len(f"{count:,}") for _, count in shown)
        return [f"{name:<{label}}  {count:>{number},}" for name, count in shown]


def check_pairs_file(path: Path) -> None:
    """Check that pairs can be written to ``path``, before any work is done for them.

    Raises:
        ConfigurationError: an unknown format, no such folder, or a file that is no pairs file and would be lost.
    """
    if path.suffix not in FORMATS:
        raise ConfigurationError(f"output {path} has an unknown format: the name must end in {' or '.join(FORMATS)}")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise ConfigurationError(
            f"output {path} cannot be written: there is no folder {path.parent} that you may write to"
        )
    if path.exists() and not _is_pairs_file(path):
        raise ConfigurationError(f"output {path} exists and is no pairs file: choose another --out")


def _is_pairs_file(path: Path) -> bool:
    try:
        if path.suffix == ".parquet":
            from pyarrow import parquet

            return parquet.read_schema(path).names == list(COLUMNS)
        with path.open(encoding="utf-8") as file:
            return list(json.loads(file.readline())) == list(COLUMNS)
    except (OSError, ValueError):  # ArrowInvalid and JSONDecodeError are ValueErrors
        return False


def write_pairs(
    path: Path, pairs: Iterable[tuple[str, str, str]], *, backend: str, digest: str, settings: dict[str, Any]
) -> None:
    """Write (text, positive, day) rows of one backend; the file is replaced whole, or stays as it was.

    Raises:
        ConfigurationError: as ``check_pairs_file``.
        UserError: the file cannot be written.
    """
    check_pairs_file(path)
    constant = (backend, json.dumps(settings, ensure_ascii=False), digest)
    rows = (dict(zip(COLUMNS, (text, positive, *constant, created), strict=True)) for text, positive, created in pairs)
    try:
        with atomic.replacing_file(path) as file:
            if path.suffix == ".jsonl":
                file.writelines((json.dumps(row, ensure_ascii=False) + "\n").encode() for row in rows)
                return
            import pyarrow as pa
            from pyarrow import parquet

            schema = pa.schema([(name, pa.string()) for name in COLUMNS])
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
    progress: Progress = SILENT,
) -> PairsSummary:
    """Write the pairs of two aligned files, or of one table, as a pairs file.

    Args:
        first: lines of text, or a table; of a file named ``*.source*``, the second is ``*.target*``.
        text_column: of a table.
        positive_column: of a table; a cell holds a text or a list of texts.

    Raises:
        CorpusError: a file cannot be read, or its lines or columns do not fit together.
    """
    second = second or _target_of(first)
    settings: dict[str, Any] = {"files": [str(first)]}
    if second is not None:
        for path in (first, second):
            if not path.is_file():
                raise CorpusError(f"there is no file {path}: give two files whose lines correspond")
        rows = _aligned(first, second)
        settings["files"].append(str(second))
        identity: list[object] = [read.file_identity(first), read.file_identity(second)]
    else:
        rows = _table_rows(_table(first), text_column, positive_column)
        settings |= {"text_column": text_column, "positive_column": positive_column}
        identity = [read.file_identity(first), text_column, positive_column]
    summary = PairsSummary(out=out)
    today = datetime.now(UTC).strftime("%Y-%m-%d")

    def pairs() -> Iterator[tuple[str, str, str]]:
        for text, positives in rows:
            summary.texts += 1
            seen = set()
            for positive in positives:
                key = clean.content_key(positive)
                if key in seen:
                    summary.repeated += 1
                elif summary.count(text, positive if text else ""):
                    yield text, positive, today
                seen.add(key)
            if not summary.texts % 4096:
                progress.report("read", summary.texts)
        if not summary.pairs:
            counts = "; ".join(" ".join(line.split()) for line in summary.lines())
            raise CorpusError(f"{first} holds no pairs: {counts}")

    digest = identity_digest({"backend": _GIVEN, "source": identity})
    write_pairs(out, pairs(), backend=_GIVEN, digest=digest, settings=settings)
    return summary


def _target_of(first: Path) -> Path | None:
    if ".source" not in first.name:
        return None
    second = first.with_name(first.name.replace(".source", ".target"))
    if not second.exists():
        raise CorpusError(f"{first} has no counterpart {second.name} beside it: name the second file, too")
    return second


def _aligned(first: Path, second: Path) -> Iterator[tuple[str, list[str]]]:
    for number, (text, positive) in enumerate(zip_longest(read.read_lines(first), read.read_lines(second)), 1):
        if text is None or positive is None:
            longer, shorter = (second, first) if text is None else (first, second)
            raise CorpusError(
                f"{longer}, line {number} has no counterpart: {shorter} ends after line {number - 1}; both files must "
                "have as many lines"
            )
        yield _line(text), [_line(positive)]


def _table(path: Path) -> read.Source:
    (source, *more) = read.resolve_sources([str(path)])
    if more or source.path is None or source.kind == ".txt":
        raise CorpusError(
            f"{path} is no table of pairs: give a .jsonl, .json, .csv, .tsv or .parquet file, or two files"
        )
    return source


def _table_rows(
    source: read.Source, text_column: str | None, positive_column: str | None
) -> Iterator[tuple[str, list[str]]]:
    for place, row in read.read_rows(source):
        if text_column is None or positive_column is None:
            known = next((pair for pair in _KNOWN_COLUMNS if {*pair} <= row.keys()), _KNOWN_COLUMNS[0])
            text_column, positive_column = text_column or known[0], positive_column or known[1]
        for name, option in ((text_column, "--text-column"), (positive_column, "--positive-column")):
            if name not in row:
                columns = ", ".join(map(str, row)) or "none at all"
                raise CorpusError(f"{place} has no column {name!r}: set {option} to one of {columns}")
        text, positives = row[text_column], row[positive_column]
        listed = positives if isinstance(positives, list) else [positives]
        for name, value in ((text_column, text), *((positive_column, one) for one in listed)):
            if value is not None and not isinstance(value, str):
                raise CorpusError(f"{place}: column {name!r} holds a {type(value).__name__}: it must hold text")
        yield _line(text or ""), [_line(one or "") for one in listed]


def _line(text: str) -> str:
    return clean.one_line(clean.clean_text(text))
