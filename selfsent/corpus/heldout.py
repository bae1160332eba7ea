"""Set documents apart for a test of retrieval that needs no labels.

The question of the test is whether a summary finds its own body among the bodies of all the others; of pairs,
whether a text finds its positive.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import xxhash

from selfsent.corpus import clean
from selfsent.corpus.read import Document

Kind = Literal["summary-body", "halves", "pairs"]
_QUERY_WORDS = 3
_PASSAGE_WORDS = 12  # at least
_PASSAGE_ENOUGH = 60  # words that no further sentence may carry it beyond
_LINE_WORDS = 12  # at least, of a line that is cut into halves


@dataclass(frozen=True)
class HeldOutPairs:
    """Queries and passages; the answer to query i is passage i."""

    queries: list[str] = field(default_factory=list)
    passages: list[str] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.queries)


@dataclass(frozen=True)
class HeldOut:
    """The documents that training never sees."""

    kind: Kind
    dev: HeldOutPairs = field(default_factory=HeldOutPairs)
    test: HeldOutPairs = field(default_factory=HeldOutPairs)


class Selection:
    """Chooses by a hash of the content, so that the choice hangs on nothing but the document itself."""

    def __init__(self, kind: Kind, size: int, share: float, file: Path) -> None:
        """``file`` receives the documents held out: a JSON line each, its part and then the fields of ``Document``."""
        self.file = file
        file.touch()
        self.found = HeldOut(kind)
        self.size = size
        self.share = share  # of the documents, dev and test together
        self.documents = 0
        self._seen: set[int] = set()  # keys of the queries and passages taken: at most 4 * size

    def take(self, document: Document, summary: str, sentences: Sequence[str], keys: Sequence[int]) -> bool:
        """Hold a document out if its turn has come and it is fit, and say whether it was.

        Args:
            document: stored whole if it is held out; its title is kept beside the pair.
            summary: the query, if the document has one; otherwise its first sentence is.
            sentences: of the document; the positive of a pair.
            keys: the content keys of its texts.
        """
        place = xxhash.xxh3_64_intdigest(np.array(keys, np.uint64).data) % 10_000 / 10_000
        if place >= self.share:
            return False
        part = "dev" if place < self.share / 2 else "test"
        pairs: HeldOutPairs = getattr(self.found, part)
        if len(pairs) >= self.size:
            return False
        pair = self._pair(summary, sentences)
        if pair is None:
            return False
        own = {clean.content_key(text) for text in pair}
        if len(own) < 2 or own & self._seen:
            return False
        self._seen |= own
        self.documents += 1
        pairs.queries.append(pair[0])
        pairs.passages.append(pair[1])
        pairs.titles.append(clean.one_line(document.title))
        with self.file.open("a", encoding="ascii") as lines:
            lines.write(json.dumps([part, *document]) + "\n")
        return True

    def _pair(self, summary: str, sentences: Sequence[str]) -> tuple[str, str] | None:
        if self.found.kind == "halves":
            return _halves(sentences)
        if self.found.kind == "summary-body":
            return _summary_and_body(summary, sentences)
        both = summary, sentences[0]
        return both if min(map(clean.count_words, both)) >= _QUERY_WORDS else None


def _halves(sentences: Sequence[str]) -> tuple[str, str] | None:
    if len(sentences) != 1 or clean.count_words(sentences[0]) < _LINE_WORDS:
        return None
    return clean.text_halves(sentences[0])


def _summary_and_body(summary: str, sentences: Sequence[str]) -> tuple[str, str] | None:
    if not summary:
        summary, sentences = (sentences[0], sentences[1:]) if sentences else ("", [])
    passage: list[str] = []
    words = 0
    for sentence in sentences:
        more = clean.count_words(sentence)
        if words >= _PASSAGE_WORDS and words + more > _PASSAGE_ENOUGH:
            break
        if sentence not in summary:
            passage.append(sentence)
            words += more
    if clean.count_words(summary) < _QUERY_WORDS or words < _PASSAGE_WORDS:
        return None
    return summary, " ".join(passage)
