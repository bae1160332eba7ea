"""Tests from the structure of documents that nobody labelled: what belongs together is known from where it stands.

    title        the title of a document finds its text
    summary      its summary, or else its first sentence, finds the rest
    halves       the first half of a document, or of a long sentence, finds the second
    neighbours   a sentence finds the next one
    typos, case, truncation, dropped words
                 a sentence so altered finds the sentence
    nearness     pairs of sentences from one and the same to unrelated, in six degrees

The answer to a query stands among those of all the others, and near-duplicates are taken out first, so that no right
answer is counted as wrong.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from selfsent.corpus import clean
from selfsent.corpus.sample import Structured, distinct_texts
from selfsent.evaluation.labelfree import bm25, perturbations

LEAST = 50  # queries of a test: with fewer, an interval says nothing
_TITLE_WORDS = 2
_WORDS = 5  # of a sentence, at least
_LONGEST = 60  # words of a sentence, at most: longer ones are lists, or splits that failed
_PASSAGE = 50  # words that a passage is cut at
_HALF = 12  # words of either half, at least
_DEGREES = 6  # of nearness

Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Matching:
    """Queries, and passages of which the k-th is the answer to the k-th query."""

    name: str
    queries: list[str]
    passages: list[str]
    documents: Int[np.ndarray, " N"]  # from which each comes: the queries of one document are drawn together

    @property
    def texts(self) -> list[str]:
        """All queries, then all passages."""
        return self.queries + self.passages

    @cached_property
    def words_shared(self) -> Float[np.ndarray, "N N"]:
        """BM25's score of every passage for every query."""
        return bm25.bm25([clean.words(text) for text in self.queries], [clean.words(text) for text in self.passages])

    @cached_property
    def hard(self) -> list[Int[np.ndarray, " K"]]:
        """Per query, passages that BM25 cannot tell from the answer; none for many."""
        return bm25.hard_negatives(self.words_shared)


@dataclass(frozen=True, kw_only=True)
class Graded:
    """Pairs of texts, and how near they are to each other."""

    name: str
    left: list[str]
    right: list[str]
    degrees: Float[np.ndarray, " N"]  # the larger, the nearer
    documents: Int[np.ndarray, " N"]  # from which the left text comes

    @property
    def texts(self) -> list[str]:
        """All left sides, then all right sides."""
        return self.left + self.right


@dataclass(frozen=True, kw_only=True)
class DocumentTests:
    """What a corpus can be asked, and what it cannot."""

    matchings: list[Matching]
    graded: list[Graded]
    left_out: dict[str, str]  # name -> why
    documents: int

    @property
    def every(self) -> list[Matching | Graded]:
        """All of them."""
        return [*self.matchings, *self.graded]

    @cached_property
    def texts(self) -> list[str]:
        """Every different text of all tests."""
        return list(dict.fromkeys(text for test in self.every for text in test.texts))

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits of the tests and their texts."""
        digest = hashlib.sha256()
        for test in self.every:
            digest.update("\n".join([test.name, *test.texts, ""]).encode(errors="replace"))
        return digest.hexdigest()[:16]


def build_tests(documents: Sequence[Structured], *, seed: int = 0, least: int = LEAST) -> DocumentTests:
    """Make every test that the documents allow.

    Args:
        documents: no two of them nearly the same.
        least: queries that a test must have; otherwise it is left out, and named.
    """
    matchings, graded, left_out = [], [], {}
    draws = [np.random.default_rng([seed, number]) for number in range(len(documents))]
    for name, (pair, missing) in _PAIRS.items():
        test = _matching(name, [pair(one, draw) for one, draw in zip(documents, draws, strict=True)])
        if len(test.queries) >= least:
            matchings.append(test)
        else:
            left_out[name] = f"{len(test.queries)} of {len(documents):,} documents have {missing}, {least} are needed"
    sentences = [_one_sentence(one, draw) for one, draw in zip(documents, draws, strict=True)]
    nearness = _nearness(documents, sentences, draws)
    if nearness is not None and len(set(nearness.documents)) >= least:
        graded.append(nearness)
    else:
        left_out["nearness"] = f"fewer than {least} documents have four sentences"
    return DocumentTests(matchings=matchings, graded=graded, left_out=left_out, documents=len(documents))


def _matching(name: str, pairs: Sequence[Pair | None]) -> Matching:
    """Keep the pairs neither of whose sides is nearly that of another pair."""
    rows = [row for row, pair in enumerate(pairs) if pair is not None and pair[0] != pair[1]]
    queries, passages = ([pairs[row][side] for row in rows] for side in (0, 1))  # type: ignore[index]
    kept = np.flatnonzero(distinct_texts(queries) & distinct_texts(passages))
    return Matching(
        name=name,
        queries=[queries[place] for place in kept],
        passages=[passages[place] for place in kept],
        documents=np.array(rows, np.int64)[kept],
    )


def _title(one: Structured, draw: np.random.Generator) -> Pair | None:
    passage = _passage([one.summary, *one.sentences] if one.summary else one.sentences)
    if len(clean.words(one.title)) < _TITLE_WORDS or clean.count_words(passage) < _HALF:
        return None
    return one.title, passage


def _summary(one: Structured, draw: np.random.Generator) -> Pair | None:
    summary, rest = (one.summary, one.sentences) if one.summary else (_passage(one.sentences[:1]), one.sentences[1:])
    passage = _passage([sentence for sentence in rest if sentence not in summary])
    if clean.count_words(summary) < _WORDS or clean.count_words(passage) < _HALF:
        return None
    return summary, passage


def _halves(one: Structured, draw: np.random.Generator) -> Pair | None:
    sentences = [one.summary, *one.sentences] if one.summary else one.sentences
    if len(sentences) >= 4:
        middle = len(sentences) // 2
        first, second = _passage(sentences[:middle]), _passage(sentences[middle:])
    else:
        longest = max(sentences, key=clean.count_words)
        if clean.count_words(longest) < 2 * _HALF:
            return None
        first, second = clean.text_halves(longest)
        first, second = _passage([first]), _passage([second])
    return (first, second) if min(clean.count_words(first), clean.count_words(second)) >= _HALF else None


def _neighbours(one: Structured, draw: np.random.Generator) -> Pair | None:
    pairs = [pair for pair in pairwise(one.sentences) if all(map(_is_sentence, pair)) and pair[0] != pair[1]]
    return pairs[int(draw.integers(len(pairs)))] if pairs else None


def _variant(variant: perturbations.Variant, one: Structured, draw: np.random.Generator) -> Pair | None:
    sentence = _one_sentence(one, draw)
    return None if sentence is None else (variant(sentence, draw), sentence)


def _one_sentence(one: Structured, draw: np.random.Generator) -> str | None:
    # Always the same one: what is asked for often is encoded once.
    sentences = [sentence for sentence in (*one.sentences, one.summary) if _is_sentence(sentence)]
    return sentences[len(sentences) // 2] if sentences else None


def _is_sentence(text: str) -> bool:
    return _WORDS <= clean.count_words(text) <= _LONGEST


def _passage(sentences: Sequence[str]) -> str:
    words = clean.with_gaps(clean.one_line(" ".join(sentences)))
    return "".join(words[:_PASSAGE]).strip()


_PAIRS: dict[str, tuple[Callable[[Structured, np.random.Generator], Pair | None], str]] = {
    "title": (_title, "a title and enough text"),
    "summary": (_summary, "a first sentence and enough after it"),
    "halves": (_halves, "two halves that are long enough"),
    "neighbours": (_neighbours, "two sentences in a row"),
    **{
        name: (partial(_variant, variant), "a sentence of their own that it changes")
        for name, variant in perturbations.VARIANTS.items()
    },
}


def _nearness(
    documents: Sequence[Structured], sentences: Sequence[str | None], draws: Sequence[np.random.Generator]
) -> Graded | None:
    """Pair a sentence of each document with others that are further and further away.

    5 itself with words left out; 4 its first half; 3 the next sentence; 2 one further on in the document; 1 the
    sentence of another document with which it shares most (BM25); 0 that of any other.
    """
    rows = []
    for row, one in enumerate(documents):
        places = [place for place, sentence in enumerate(one.sentences) if _is_sentence(sentence)]
        starts = [p for p in places if p + 1 in places and any(abs(q - p) >= 2 for q in places)]
        if starts:
            rows.append((row, starts, places))
    if len(rows) < 2:
        return None
    chosen, pairs = [], []
    for row, starts, places in rows:
        draw, own = draws[row], documents[row].sentences
        start = int(draw.choice(starts))
        away = [place for place in places if abs(place - start) >= 2]
        sentence = own[start]
        chosen.append(sentence)
        pairs.append(
            [
                perturbations.dropped_words(sentence, draw),
                perturbations.truncation(sentence, draw),
                own[start + 1],
                own[int(draw.choice(away))],
            ]
        )
    words = [clean.words(text) for text in chosen]
    shared = bm25.bm25(words, words)
    np.fill_diagonal(shared, -1)
    turn = np.random.default_rng(len(rows)).integers(1, len(rows), len(rows))
    left: list[str] = []
    right: list[str] = []
    degrees: list[int] = []
    owners: list[int] = []
    for number, ((row, _, _), others) in enumerate(zip(rows, pairs, strict=True)):
        others = [*others, chosen[int(shared[number].argmax())], chosen[(number + int(turn[number])) % len(rows)]]
        left += [chosen[number]] * _DEGREES
        right += others
        degrees += range(_DEGREES - 1, -1, -1)
        owners += [row] * _DEGREES
    return Graded(
        name="nearness",
        left=left,
        right=right,
        degrees=np.array(degrees, np.float64),
        documents=np.array(owners, np.int64),
    )
