"""Texts in memory, and the names of a corpus, as sources on disk."""

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import xxhash

from selfsent.corpus import formats
from selfsent.errors import CorpusError, a_kind
from selfsent.storage import atomic


def source_names(corpus: Sequence[str | Path] | str | Path) -> list[str]:
    """Return the names of the sources of a corpus, which may be a single one."""
    return [str(name) for name in ([corpus] if isinstance(corpus, str | Path) else corpus)]


def corpus_sources(
    texts: Iterable[object] | None, corpus: Sequence[str | Path] | str | Path | None, column: str | None = None
) -> Sequence[str | Path] | None:
    """Return the sources of a corpus; texts in memory are written to the cache first.

    Raises:
        CorpusError: both are given, or texts is one string.
    """
    if texts is None:
        named = [corpus] if isinstance(corpus, str | Path) else corpus if corpus is None else list(corpus)
        if named is not None and not named:
            raise CorpusError("corpus is empty: give at least one file, folder or name of a data set")
        return named
    if corpus is not None:
        raise CorpusError("texts and corpus are both given: give the texts themselves, or where they are")
    if isinstance(texts, str | Path):
        raise CorpusError(f"texts = {str(texts)!r} is one string: give several texts, or a file or folder as corpus=")
    return [spool_texts(texts, column=column)]


def strings_of(texts: Iterable[object], column: str | None = None) -> Iterator[str]:
    """Return texts from memory one by one, each of which must be a string.

    Args:
        texts: strings; or, with the name of a column, a table of pandas, polars, Arrow or ``datasets``, or mappings.

    Raises:
        CorpusError: a table or a mapping in place of texts; when it comes, an item that is no string.
    """
    table: Any = texts
    kind = type(texts).__name__
    if isinstance(texts, str | Mapping):
        raise CorpusError(f"texts is a {kind}: give a list, an iterator or one column of strings")
    names = getattr(texts, "column_names", None) or getattr(texts, "columns", None)  # Arrow's columns are no names
    if names is not None and column not in (known := list(names)):
        first = "text" if "text" in known else next((name for name in known if isinstance(name, str)), "text")
        raise CorpusError(
            f"texts is a {kind} with the columns {', '.join(map(str, known[:20]))}: add column= with the one of "
            f"the text, or give that alone, as table[{first!r}]"
        )
    if names is not None:
        if hasattr(table, "collect"):
            raise CorpusError(f"texts is a {kind}, which is not computed yet: give what its collect() returns")
        texts = table[column]

    def each() -> Iterator[str]:
        for position, item in enumerate(texts):
            text: Any = item.get(column) if isinstance(item, Mapping) and column is not None else item
            text = text.as_py() if hasattr(text, "as_py") else text  # of Arrow
            if not isinstance(text, str):
                missing = ", a missing value" if text is None or text != text else ""  # NaN
                raise CorpusError(f"item {position} of the texts is {a_kind(text)}{missing}: it must be a string")
            yield text

    return each()


def spool_texts(texts: Iterable[object], cache: Path | None = None, column: str | None = None) -> Path:
    """Write texts from memory to a JSONL file in the cache, named by its content, and return its path.

    Args:
        texts: strings in a list, an iterator, or a column of pandas, polars or ``datasets``; read once, one at a time.

    Raises:
        CorpusError: an item is not a string.
    """
    strings = strings_of(texts, column)
    names = getattr(texts, "column_names", None)
    if column != "positive" and "positive" in list(getattr(texts, "columns", ()) if names is None else names):
        raise CorpusError(
            "texts is a table with a column 'positive', which is read from files: write it to one, such as .parquet"
        )
    root = atomic.cache_folder("texts", "", cache)
    root.mkdir(parents=True, exist_ok=True)
    digest = xxhash.xxh3_128()
    with tempfile.TemporaryFile(dir=root) as spooled:
        for position, text in enumerate(strings):
            line = json.dumps({column or "text": text}).encode() + b"\n"
            if len(line) > formats.LONGEST:
                raise formats.too_long(f"item {position} of the texts")
            digest.update(line)
            spooled.write(line)
        folder = root / digest.hexdigest()
        if not atomic.cached(folder):
            spooled.seek(0)
            with atomic.build_folder(folder) as scratch, (scratch / "texts.jsonl").open("wb") as file:
                shutil.copyfileobj(spooled, file)
    return folder / "texts.jsonl"
