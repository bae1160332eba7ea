"""Pairs that exist already, in two aligned files or in a table, to a pairs file."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path

from selfsent.corpus import formats
from selfsent.corpus.sources import file_identity, read_lines, read_rows
from selfsent.errors import ConfigurationError, CorpusError
from selfsent.pairs.cache import identity_digest
from selfsent.pairs.write import PairsSummary, check_pairs_file, write_pairs
from selfsent.progress import SILENT, Progress
from selfsent.storage import locks
from selfsent.text import clean

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


def convert_pairs(
    first: Path,
    second: Path | None,
    out: Path,
    *,
    column: str | None = None,
    positive_column: str | None = None,
    drop: str | None = None,
    ignore_figures: bool = False,
    progress: Progress = SILENT,
) -> PairsSummary:
    """Write the pairs of two aligned files, or of one table, as a pairs file.

    Args:
        first: lines of text, or a table; of a file named ``*.source*``, the second is ``*.target*``.
        column: of a table.
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
    if second is not None and (column or positive_column):
        raise ConfigurationError("columns are those of one table, and two files are given: leave the columns out")
    check_pairs_file(out, files)
    for table in files[: 0 if second is None else 2]:
        if formats.format_of(table) not in ("", ".txt"):
            raise CorpusError(f"{table} is a table: of two aligned files each line is a text; or give one table alone")
    columns = {"column": column, "positive_column": positive_column} if second is None else {}
    try:
        unwanted = None if drop is None else re.compile(drop)
    except re.error as error:
        raise ConfigurationError(f"{drop!r} is no regular expression: {error}") from error
    rows = _table_rows(first, column, positive_column) if second is None else _aligned(first, second)
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


def _table_rows(path: Path, column: str | None, positive_column: str | None) -> Iterator[tuple[str, list[str]]]:
    for place, row in read_rows(path):
        if column is None or positive_column is None:
            known = next((pair for pair in _KNOWN_COLUMNS if {*pair} <= row.keys()), _KNOWN_COLUMNS[0])
            column, positive_column = column or known[0], positive_column or known[1]
        for name in (column, positive_column):
            if name not in row:
                raise CorpusError(f"{place} has no column {name!r}: name one of {', '.join(map(str, row)) or 'none'}")
        text, positives = row[column], row[positive_column]
        listed = positives if isinstance(positives, list) else [positives]
        for value in (text, *listed):
            if value is not None and not isinstance(value, str):
                raise CorpusError(f"{place}: {column!r} and {positive_column!r} must hold text, not {value!r:.40}")
        yield _line(text or ""), [_line(one or "") for one in listed]


def _line(text: str) -> str:
    return clean.one_line(clean.clean_text(text))
