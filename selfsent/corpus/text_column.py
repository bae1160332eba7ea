"""Which column of a table is its text, where nobody named it: ``text``, or the one that reads most like prose."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import PurePath
from typing import Any

from selfsent.errors import CorpusError
from selfsent.progress import SILENT, Progress
from selfsent.text import clean

_ROWS, _SHOWN, _LINES, _WIDTH = 200, 5, 3, 100  # rows looked at; columns shown, lines of each, and their characters
_HEADING = 6  # words of a column's name that are rather a text, the first of a table without a header
_told: set[tuple[str, ...]] = set()  # folder, columns, and the one that is read: a command reads a text several times
_JOINED = re.compile(r"\w[^\w\s.()/-]+\w")  # a^b: names that an unknown separator parts


def text_column(rows: Iterable[tuple[object, Mapping[str, Any]]], name: str, progress: Progress = SILENT) -> str:
    """Return the column of text, and say which it is and what else it could be where none is called ``text``.

    Prose are values most of which have two words and more letters than all else; of several columns of prose that with
    the longest values on average is taken.

    Raises:
        CorpusError: no column is prose, the header is a text itself, or the only column holds whole rows.
    """
    first = [row for _, row in islice(rows, _ROWS)]
    names = [*dict.fromkeys(column for row in first for column in row)]
    if "text" in names or not first:
        return "text"
    if len(names) == 1 and _JOINED.search(str(names[0])):
        raise CorpusError(
            f"{name} has one column, {names[0][:80]!r}, which is a whole row: part its columns by a comma, semicolon, "
            "tab or bar, or write sep=; as its first line"
        )
    values = {column: [row[column] for row in first if _said(row.get(column))] for column in names}
    prose = {column: mean for column in names if (mean := _prose(values[column]))}
    if not prose:
        return "text"  # which is refused with the names that there are
    taken = max(prose, key=lambda column: prose[column])
    if clean.count_words(taken) >= _HEADING:
        raise CorpusError(
            f"{name} has no header, or a text in it ({taken[:80]!r}): put a line of names before its rows"
        )
    if (said := (str(PurePath(name).parent), *map(str, names), taken)) in _told:
        return taken
    _told.add(said)
    progress.say(f"{name} has no column 'text': read is {taken!r}, the longest prose in it (--column names another)")
    for column in sorted(prose, key=lambda column: -prose[column])[:_SHOWN]:
        for value in values[column][:_LINES]:
            progress.say(f"  {column[:40]}: {clean.one_line(str(value)[: 2 * _WIDTH])[:_WIDTH]}")
    return taken


def _said(value: object) -> bool:
    return value is not None and bool(str(value).strip())


def _prose(values: Sequence[Any]) -> float:
    """Return the mean length of values most of which are words with spaces between them, otherwise 0."""
    strings = [value[:10_000] for value in values if isinstance(value, str)]
    lettered = [
        2 * sum(len(word) for word in clean.words(value) if not word.isdigit()) > len("".join(value.split()))
        and clean.count_words(value) > 1
        for value in strings
    ]
    return sum(map(len, strings)) / len(strings) if 2 * sum(lettered) > len(values) else 0.0
