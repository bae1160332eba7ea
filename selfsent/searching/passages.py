"""From the documents of a corpus to the texts that are searched: the passages of each, and its first sentence."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from selfsent.corpus.sources import Columns, Document, Source, read_sources
from selfsent.progress import SILENT, Progress
from selfsent.text import clean

_WORDS = 80  # of a passage, at most: what encoders read whole
_OPENING = 40  # words of a document's first sentence, at most
_TITLE = 20  # of its title
_LETTERS = 4_000  # of either that are looked at: a table may be one sentence of megabytes
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[。！？])")


class SearchText(NamedTuple):
    """A document as it is searched."""

    title: str
    passages: tuple[str, ...]  # its text, cut into pieces
    opening: str  # its first sentence, which often says what it is about
    id: str = ""  # what it is called in its corpus

    @property
    def key(self) -> bytes:
        """What tells whether a document is the same one: 16 bytes of a hash of all it holds."""
        return xxhash.xxh3_128_digest(json.dumps(self).encode())


def embedded_texts(texts: Sequence[SearchText]) -> tuple[NDArray[np.int64], list[str]]:
    """Return what is embedded of N documents, and which document each is of (its number).

    First the N first sentences, then the passages, each behind the title of its document; where there is none, only
    those of documents that say more than their first sentence.
    """
    numbers, embedded = [*range(len(texts))], [text.opening for text in texts]
    for number, text in enumerate(texts):
        title = "".join(clean.with_gaps(clean.one_line(text.title)[:_LETTERS])[:_TITLE]).strip()
        if title or text.passages != (text.opening,):
            numbers += [number] * len(text.passages)
            embedded += [f"{title}: {passage}" for passage in text.passages] if title else text.passages
    return np.array(numbers, np.int64), embedded


def search_text(document: Document, passages: int | None = None) -> SearchText | None:
    """Return what is searched of a document, its title where it has nothing else; None where it has no text.

    Args:
        passages: how many of its passages, from the first; None: all.
    """
    document = Document(*map(clean.encodable, document))
    text = clean.one_line(" ".join(field for field in (document.summary, document.text) if field))
    if not text:  # many a catalogue has titles alone
        document = document._replace(text=document.title, title="")
        text = clean.one_line(document.text)
    if not text:
        return None
    first = clean.one_line(document.summary) or _SENTENCE_END.split(text, maxsplit=1)[0]
    opening = "".join(clean.with_gaps(first[:_LETTERS])[:_OPENING]).strip()
    cut = islice(cut_passages(text, even=passages is None), passages)
    return SearchText(document.title, tuple(cut), opening, document.id)


def split_sentences(text: str) -> list[str]:
    """Split a text at the ends of its sentences."""
    return [sentence.strip() for sentence in _SENTENCE_END.split(text) if sentence.strip()]


def cut_passages(text: str, *, even: bool = True) -> Iterator[str]:
    """Cut a text at the ends of sentences into passages of 80 words at most.

    A sentence that does not fit into a passage is cut itself.

    Args:
        even: into passages of about one length, so that no few words are left at the end; otherwise each is as long as
            it may be, whatever follows.
    """
    if len(text) <= _WORDS or (text.isascii() and text.count(" ") < _WORDS):
        yield text  # most texts
        return
    words = clean.with_gaps(text)
    aim = len(words) / -(-len(words) // _WORDS) if even else _WORDS
    first = stop = 0  # where the passage begins, and where its last whole sentence ends
    for number, word in enumerate(words):
        if number - first == _WORDS:
            behind = stop if stop > first else number
            yield "".join(words[first:behind]).strip()
            first = behind
        if _SENTENCE_END.search(word):
            stop = number + 1
            if stop - first >= aim:
                yield "".join(words[first:stop]).strip()
                first = stop
    if first < len(words):
        yield "".join(words[first:]).strip()


def search_texts(
    sources: Sequence[Source],
    column: str | None,
    id_column: str | None,
    passages: int | None = None,
    progress: Progress = SILENT,
) -> Iterator[SearchText]:
    """Yield the texts of the documents that have any."""
    columns = Columns(
        text=column, title="title", summary="summary", positive=None, id=id_column, asked=column is not None
    )
    count, cut, empty, named, where = 0, 0, 0, 0, ""
    for source, document in read_sources(sources, columns, progress):
        text = search_text(document, passages)
        if text is None:
            where = where or document.id or source.name
            empty += 1
        else:
            count += 1
            cut += passages is not None and _is_cut(document, text)
            named += bool(text.id)
            yield text
        progress.report("reading", count)
    if cut:
        progress.say(
            f"{cut:,} of {count:,} documents have more than {passages} passages of at most {_WORDS} words: the "
            "first are searched, and the rest is not"
        )
    if count and not named and id_column not in (None, "id"):
        progress.say(f"warning: no row has a column {id_column!r}: hits have no id")
    if empty:
        progress.say(f"left out, because they have no text: {empty:,}, the first of them {where}")


def _is_cut(document: Document, text: SearchText) -> bool:
    read_of = sum(len("".join(passage.split())) for passage in text.passages)
    return len("".join(f"{document.summary} {document.text}".split())) > read_of
