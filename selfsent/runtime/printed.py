"""How a result is shown: in at most 12 lines of text, as a table in a notebook, as JSON for programs."""

import dataclasses
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from io import StringIO
from typing import Any, NamedTuple

from selfsent.progress import printable

LINES = 12
_WIDTH = 100  # of a line of text
_FEWEST = 4  # rows of a table that sentences leave room for
_CELL = 50  # letters
_FIGURE = re.compile(r"[-+]?[\d.,]+( .*)?|-?")


class Shown(NamedTuple):
    """What a reader sees of a result."""

    sentences: Sequence[str]  # the most important one first
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


class Printed:
    """A result that says of itself what a reader needs; ``shown`` is what a class has to define."""

    def shown(self) -> Shown:
        """Return what is printed of this result."""
        raise NotImplementedError

    def __repr__(self) -> str:
        lines, heads, rows = _fit(self.shown())
        return "\n".join([*lines, *_table(heads, rows)])

    def _repr_html_(self) -> str:
        lines, heads, rows = _fit(self.shown())
        said = "".join(f"<div>{escape(line)}</div>" for line in lines)
        if not rows:
            return said
        cells = [f"<th>{escape(head)}</th>" for head in heads]
        body = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
        return f"{said}<table>{''.join(f'<tr>{row}</tr>' for row in (''.join(cells), *body))}</table>"


def _fit(shown: Shown) -> tuple[list[str], list[str], list[list[str]]]:
    """Return the lines of the sentences, the heads and the rows that fit; what is left out is counted."""
    number = len(shown.rows)
    rows = [[_one_line(cell, _CELL) for cell in row] for row in shown.rows[:LINES]]
    room = LINES - ((1 + min(number, _FEWEST)) if rows else 0)
    lines = [line for each in shown.sentences for line in textwrap.wrap(_one_line(each, LINES * _WIDTH), _WIDTH)]
    if len(lines) > room:
        lines = [*lines[: room - 1], f"{lines[room - 1][: _WIDTH - 2]} …"]
    room = LINES - len(lines) - 1
    if rows and number > room:
        more = [f"… and {number - room + 1:,} more", *[""] * (len(shown.heads) - 1)]
        rows = [*rows[: room - 1], more]
    return lines, [_one_line(head, _CELL) for head in shown.heads], rows


def _one_line(text: str, most: int) -> str:
    text = printable(" ".join(text[: 4 * most].split()))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay rows out in columns, figures to the right; rich knows how wide a letter is."""
    if not rows:
        return []
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, head in enumerate(heads):
        figures = place > 0 and all(_FIGURE.fullmatch(row[place]) for row in rows)
        table.add_column(Text(head), justify="right" if figures else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    Console(file=(out := StringIO()), width=10_000, color_system=None, force_terminal=False).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def plain(value: object) -> Any:  # noqa: ANN401 - of any shape
    """Return what JSON can hold of a result: ``as_dict`` where there is one, or else the fields that are shown."""
    if isinstance(value, bool | int | str | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "as_dict"):
        return plain(value.as_dict())
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value) if field.repr}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return plain(value.tolist()) if hasattr(value, "tolist") else str(value)
