"""From the documents of a corpus to the texts that are searched: the beginning of each, and its first sentence."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import xxhash

from selfsent.corpus import clean, read
from selfsent.progress import SILENT, Progress

_WORDS = 80  # of a document that are embedded: its beginning
_OPENING = 40  # words of its first sentence, at most
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")


class SearchText(NamedTuple):
    """A document as it is searched."""

    title: str
    text: str  # its beginning
    opening: str  # its first sentence, which often says what it is about
    id: str = ""  # what it is called in its corpus

    @property
    def key(self) -> bytes:
        """What tells whether a document is the same one: 16 bytes of a hash of all it holds."""
        return xxhash.xxh3_128_digest("\0".join(self if self.id else self[:3]).encode())


def search_text(document: read.Document) -> SearchText | None:
    """Return what is searched of a document; None where it has no text."""
    document = read.Document(*map(clean.encodable, document))
    whole = clean.one_line(" ".join(part for part in (document.summary, document.text) if part))
    if not whole:
        return None
    first = clean.one_line(document.summary) or _SENTENCE_END.split(whole, maxsplit=1)[0]
    return SearchText(document.title, " ".join(whole.split()[:_WORDS]), " ".join(first.split()[:_OPENING]), document.id)


def search_texts(
    sources: Sequence[read.Source], text_column: str, id_column: str | None, progress: Progress = SILENT
) -> Iterator[SearchText]:
    """Yield the texts of the documents that have any."""
    columns = read.Columns(text=text_column, title="title", summary="summary", positive=None, id=id_column)
    found = longer = empty = named = 0
    for source in sources:
        for document in source.documents(columns):
            text = search_text(document)
            if text is None:
                empty += 1
            else:
                found += 1
                longer += len(document.summary.split()) + len(document.text.split()) > _WORDS
                named += bool(text.id)
                yield text
            progress.report("reading", found)
    if longer:
        progress.say(
            f"{longer:,} of {found:,} documents are longer than {_WORDS} words: these are searched, and the rest is not"
        )
    if found and not named and id_column not in (None, "id"):
        progress.say(f"warning: no row has a column {id_column!r}: hits have no id")
    if empty:
        progress.say(f"{empty:,} rows have no text and are left out")
