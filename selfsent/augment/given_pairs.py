"""Pairs that exist already: two files of lines that answer each other, or a table of texts and their positives."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

from selfsent.augment.cache import identity_digest
from selfsent.augment.pairs_file import PairsFile
from selfsent.augment.produce import AugmentOutcome
from selfsent.corpus import clean, read
from selfsent.errors import UserError
from selfsent.progress import Progress

NAME = "given"
# Names of the two columns that are tried where none is named.
KNOWN = (
    ("text", "positive"),
    ("anchor", "positive"),
    ("sent0", "sent1"),
    ("sentence1", "sentence2"),
    ("src_text", "tgt_texts"),
    ("source", "target"),
)


def gather_pairs(
    first: Path,
    second: Path | None,
    out: Path,
    *,
    text_column: str | None = None,
    positive_column: str | None = None,
    progress: Progress,
) -> AugmentOutcome:
    """Write the pairs of two aligned files, or of one table, as a pairs file.

    Args:
        first: lines of text, whose ``second`` is found by itself if this is ``*.source*``; or a table.
        text_column: of a table.
        positive_column: of a table; its cells hold a text or a list of texts.

    Raises:
        UserError: a file cannot be read, or its lines or columns do not answer each other.
    """
    second = second or _counterpart(first)
    settings: dict[str, Any] = {"files": [str(first)]}
    if second is not None:
        for path in (first, second):
            if not path.is_file():
                raise UserError(f"there is no file {path}: give two files of lines that answer each other")
        found = _aligned(first, second)
        settings["files"].append(str(second))
        identity: list[object] = [read.file_identity(first), read.file_identity(second)]
    else:
        source = _table(first)
        found = _rows(source, text_column, positive_column)
        settings |= {"text_column": text_column, "positive_column": positive_column}
        identity = [read.file_identity(first), text_column, positive_column]
    outcome = AugmentOutcome(out=out)
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    began = time.perf_counter()
    with PairsFile(out, NAME, identity_digest({"backend": NAME, "source": identity}), settings) as file:
        for text, positives in found:
            outcome.texts += 1
            keys = set()
            for positive in positives:
                key = clean.content_key(positive)
                if key in keys:
                    outcome.repeated += 1
                elif outcome.judge(text, positive if text else ""):
                    file.add(text, positive, today)
                keys.add(key)
            if not outcome.texts % 4096:
                progress.report("read", outcome.texts, None)
        if not outcome.pairs:
            raise UserError(f"{first} holds no pairs: {'; '.join(' '.join(line.split()) for line in outcome.lines())}")
    outcome.seconds = time.perf_counter() - began
    return outcome


def _counterpart(first: Path) -> Path | None:
    if ".source" not in first.name:
        return None
    second = first.with_name(first.name.replace(".source", ".target"))
    if not second.exists():
        raise UserError(f"{first} has no counterpart {second.name} beside it: name the second file, too")
    return second


def _aligned(first: Path, second: Path) -> Iterator[tuple[str, list[str]]]:
    for number, (text, positive) in enumerate(zip_longest(read.read_lines(first), read.read_lines(second)), 1):
        if text is None or positive is None:
            longer, shorter = (second, first) if text is None else (first, second)
            raise UserError(
                f"{longer}, line {number} has no counterpart: {shorter} ends after line {number - 1}; give two files "
                "of as many lines"
            )
        yield _line(text), [_line(positive)]


def _table(path: Path) -> read.Source:
    (source, *more) = read.resolve_sources([str(path)])
    if more or source.path is None or source.kind == ".txt":
        raise UserError(f"{path} is no table of pairs: give a .jsonl, .json, .csv, .tsv or .parquet file, or two files")
    return source


def _rows(source: read.Source, text_column: str | None, positive_column: str | None) -> Iterator[tuple[str, list[str]]]:
    for place, row in read.read_rows(source):
        if text_column is None or positive_column is None:
            known = next((pair for pair in KNOWN if pair[0] in row and pair[1] in row), KNOWN[0])
            text_column, positive_column = text_column or known[0], positive_column or known[1]
        for name, option in ((text_column, "--text-column"), (positive_column, "--positive-column")):
            if name not in row:
                columns = ", ".join(map(str, row)) or "none at all"
                raise UserError(f"{place} has no column {name!r}: set {option} to one of {columns}")
        text, positives = row[text_column], row[positive_column]
        listed = positives if isinstance(positives, list) else [positives]
        for name, value in ((text_column, text), *((positive_column, one) for one in listed)):
            if value is not None and not isinstance(value, str):
                raise UserError(f"{place}: column {name!r} holds a {type(value).__name__}: it must hold text")
        yield _line(text or ""), [_line(one or "") for one in listed]


def _line(text: str) -> str:
    return clean.one_line(clean.clean_text(text))
