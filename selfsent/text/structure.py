"""Pairs of texts that belong together by the structure of their document; no labels are needed.

    adjacent    a sentence and the next one of the document
    summary     the summary, or else the first sentence, and the text after it
    title       the title and the text
    halves      the text of the first half and of the second

Texts are cut to passages of about 60 words.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

from selfsent.text import clean

PairKind = Literal["adjacent", "summary", "title", "halves"]
PAIR_KINDS: tuple[PairKind, ...] = get_args(PairKind)
SENTENCE_WORDS = range(5, 101)  # of a sentence that is paired with its neighbour
_PASSAGE_WORDS = 60  # about
_PASSAGE_LEAST = 8
_LEAST_SENTENCES = 4  # of a document that is halved


class StructuralPair(NamedTuple):
    """Two texts of one document."""

    kind: PairKind
    text: str
    positive: str


def pairs_of_document(title: str, summary: str, sentences: Sequence[str]) -> Iterator[StructuralPair]:
    """Yield the pairs of one document, in the order of ``PAIR_KINDS``."""
    fits = [clean.count_words(sentence) in SENTENCE_WORDS for sentence in sentences]
    for pair, both in zip(pairwise(sentences), pairwise(fits), strict=True):
        if all(both):
            yield StructuralPair("adjacent", *pair)
    rest = [sentence for sentence in sentences if sentence not in summary] if summary else sentences[1:]
    queries: tuple[tuple[PairKind, str, Sequence[str]], ...] = (
        ("summary", summary or sentences[0], rest),
        ("title", title, without_title(title, sentences)),
    )
    for kind, query, texts in queries:
        body = passage(texts)
        if query and body and clean.content_key(query) != clean.content_key(body):
            yield StructuralPair(kind, query, body)
    if len(sentences) >= _LEAST_SENTENCES:
        middle = len(sentences) // 2
        halves = passage(sentences[:middle]), passage(sentences[middle:])
        if all(halves):
            yield StructuralPair("halves", *halves)


def without_title(title: str, sentences: Sequence[str]) -> list[str]:
    """Leave out the sentences that repeat a title, as the heading of a page does: whoever asks for it would find it."""
    words = clean.words(title)
    return [sentence for sentence in sentences if clean.words(sentence) != words]


def passage(sentences: Sequence[str]) -> str:
    """Join sentences up to about 60 words; empty if they are too few."""
    chosen: list[str] = []
    words = 0
    for sentence in sentences:
        more = clean.count_words(sentence)
        if chosen and words + more > _PASSAGE_WORDS:
            break
        chosen.append(sentence)
        words += more
    return " ".join(chosen) if words >= _PASSAGE_LEAST else ""
