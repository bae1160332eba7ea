"""Hold documents out of training for a retrieval test that needs no labels.

A summary, or else the first sentence, has to retrieve the body of its document among those of all others; the first
half of a line its second half; of pairs, a text its positive.
"""

import json
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import xxhash

from selfsent.corpus.sources import Document
from selfsent.text import clean

Kind = Literal["summary-body", "halves", "pairs"]
Split = Literal["dev", "test"]
SPLITS: tuple[Split, Split] = ("dev", "test")
_QUERY_WORDS = 3
_PASSAGE_WORDS = 12  # at least
_PASSAGE_MOST = 60  # no further sentence is added that would make it longer
_LINE_WORDS = 12  # at least, of a line that is split into halves


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
    """Queries and passages of the documents held out: dev to choose the weights by, test for the final scores."""

    kind: Kind
    dev: HeldOutPairs = field(default_factory=HeldOutPairs)
    test: HeldOutPairs = field(default_factory=HeldOutPairs)


class Selection:
    """Deterministic selection by content hash.

    Args:
        size: of dev and of test, at most.
        fraction: of the documents, dev and test together.
        file: of the documents held out: a JSON line each, its split and then the fields of ``Document``.
        pair: makes a query and its passage of a summary and sentences, in place of the kind's own way; the query is
            empty if the document does not suit.
    """

    def __init__(
        self,
        kind: Kind,
        size: int,
        fraction: float,
        file: Path,
        pair: Callable[[str, Sequence[str]], tuple[str, str]] | None = None,
    ) -> None:
        self.found = HeldOut(kind)
        self.size, self.fraction, self.file = size, fraction, file
        self.file.unlink(missing_ok=True)
        self.file.touch()
        self.offered = self.last = 0  # documents that were offered, and of these the number of the last that was taken
        self._pair = pair or self._pair_of_kind
        self.keys = array("Q")  # of the texts of the documents held out,
        self.texts: list[str] = []  # and these
        self._seen: set[int] = set()  # keys of the queries and passages taken: at most 4 * size

    @property
    def documents(self) -> int:
        """Count the documents held out."""
        return len(self.found.dev) + len(self.found.test)

    def take(
        self,
        document: Document,
        summary: str,
        sentences: Sequence[str],
        keys: Sequence[int],
        texts: Sequence[str] | None = None,
        stored: Sequence[object] | None = None,
    ) -> bool:
        """Hold a document out if its hash says so and a query can be made of it; return whether it was.

        Args:
            document: stored whole if it is held out.
            summary: the query, if the document has one; otherwise its first sentence is.
            sentences: of the document; the positive of a pair.
            keys: the content keys of its texts.
            texts: near-copies of which are no text to train on; None: its sentences.
            stored: what stands in the file behind the split; None: the document.
        """
        self.offered += 1
        position = xxhash.xxh3_64_intdigest(np.array(keys, np.uint64).data) % 10_000 / 10_000
        split = SPLITS[position >= self.fraction / 2]
        pairs: HeldOutPairs = getattr(self.found, split)
        if position >= self.fraction or len(pairs) >= self.size:
            return False
        query, passage = self._pair(summary, sentences)
        own = {clean.content_key(query), clean.content_key(passage)}
        if not query or len(own) < 2 or own & self._seen:
            return False
        self._seen |= own
        self.last = self.offered
        self.keys.extend(keys)
        self.texts.extend(sentences if texts is None else texts)
        pairs.queries.append(query)
        pairs.passages.append(passage)
        pairs.titles.append(clean.one_line(document.title))
        with self.file.open("a", encoding="ascii") as lines:
            lines.write(json.dumps([split, *(document if stored is None else stored)]) + "\n")
        return True

    def _pair_of_kind(self, summary: str, sentences: Sequence[str]) -> tuple[str, str]:
        """Make a query and its passage; the query is empty if the document does not suit."""
        if self.found.kind == "halves":
            suits = len(sentences) == 1 and clean.count_words(sentences[0]) >= _LINE_WORDS
            return clean.text_halves(sentences[0]) if suits else ("", "")
        if self.found.kind == "pairs":
            suits = min(clean.count_words(summary), clean.count_words(sentences[0])) >= _QUERY_WORDS
            return summary * suits, sentences[0]
        if not summary:
            summary, *sentences = sentences or [""]
        passage: list[str] = []
        words = 0
        for sentence in sentences:
            more = clean.count_words(sentence)
            if words >= _PASSAGE_WORDS and words + more > _PASSAGE_MOST:
                break
            if sentence not in summary:
                passage.append(sentence)
                words += more
        suits = clean.count_words(summary) >= _QUERY_WORDS and words >= _PASSAGE_WORDS
        return summary * suits, " ".join(passage)
