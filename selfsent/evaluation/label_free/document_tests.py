"""Tests made from the structure of documents, without labels: the answer is known from its place in the document.

    summary      the summary, or else the first sentence, of a document retrieves the rest of it
    halves       the first half of a document, or of a long sentence, retrieves the second
    neighbours   a sentence retrieves the next one
    nearness     pairs of sentences of six degrees of nearness, from a sentence and itself to unrelated ones

and, in detailed tests only, because they enter no score:

    title        the title of a document retrieves its text
    typos, case, truncation, dropped words      a perturbed sentence retrieves the sentence

A query's answer is ranked among the answers of all queries of the test.  Near-duplicates are removed first, so that no
right answer counts as wrong.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from selfsent.evaluation.label_free.documents import PERTURBATIONS, ParsedDocument, distinct_texts
from selfsent.evaluation.task import Prompted, PromptedTexts, queries_and_documents
from selfsent.text import clean
from selfsent.text.bm25 import bm25_scores, hard_negatives
from selfsent.text.structure import without_title

NEARNESS = "nearness"
LEAST = 50  # queries of a test: with fewer, its interval is too wide to be of use
_TITLE_WORDS = 2
_SENTENCE_WORDS = range(5, 61)  # longer ones are lists, or failed splits
_PASSAGE_WORDS = 50  # passages are truncated there
_HALF_WORDS = 12  # of either half, at least

_NEEDS = {  # what a document must have for each test
    "title": "a title and enough text",
    "summary": "a first sentence and enough after it",
    "halves": "two halves that are long enough",
    "neighbours": "two sentences in a row",
    **dict.fromkeys(PERTURBATIONS, "a sentence of their own that it changes"),
}
Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class PairTest:
    """Queries and passages, line by line; in retrieval the answer to the k-th query is the k-th passage."""

    name: str
    queries: list[str]
    passages: list[str]
    documents: Int[np.ndarray, " N"]  # of the queries: those of one document are resampled together
    degrees: Float[np.ndarray, " M"] = field(default_factory=lambda: np.zeros(0))  # of nearness: the larger, the nearer

    @property
    def texts(self) -> list[str]:
        """All queries, then all passages."""
        return self.queries + self.passages

    @property
    def prompted(self) -> list[Prompted]:
        """The texts with what they are: in retrieval queries and documents; nearness is symmetric."""
        if self.name == NEARNESS:
            return [("default", text) for text in self.texts]
        return queries_and_documents(self.queries, self.passages)

    @cached_property
    def bm25(self) -> Float[np.ndarray, "N N"]:
        """BM25's score of every passage for every query."""
        return bm25_scores(self.queries, self.passages)

    @cached_property
    def hard_negatives(self) -> list[Int[np.ndarray, " K"]]:
        """Per query, passages that BM25 ranks next to the answer; none for many."""
        return hard_negatives(self.bm25)


@dataclass(frozen=True, kw_only=True)
class DocumentTests:
    """The tests that a corpus allows."""

    retrieval: list[PairTest]
    nearness: PairTest | None
    left_out: dict[str, str]  # name of a test -> why
    documents: int
    details: bool  # whether tests and metrics that enter no score are among them

    @property
    def every(self) -> list[PairTest]:
        """All of them."""
        return self.retrieval + ([self.nearness] if self.nearness else [])

    @cached_property
    def prompted(self) -> PromptedTexts:
        """Every different text of all tests."""
        return PromptedTexts(text for test in self.every for text in test.prompted)

    @property
    def texts(self) -> list[str]:
        """The same, in the order of their vectors."""
        return self.prompted.texts

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits of the tests and their texts."""
        digest = hashlib.sha256()
        for test in self.every:
            digest.update("\n".join([test.name, *test.texts, ""]).encode(errors="replace"))
        return digest.hexdigest()[:16]


def build_tests(documents: Sequence[ParsedDocument], *, seed: int = 0, details: bool = False) -> DocumentTests:
    """Make every test that the documents, no two of them near-duplicates, allow; ``details`` enter no score."""
    draws = [np.random.default_rng([seed, number]) for number in range(len(documents))]
    # Detailed tests are always drawn: the random draws of the others must not depend on them.
    pairs = [_draw_pairs(document, draw) for document, draw in zip(documents, draws, strict=True)]
    retrieval, left_out = [], {}
    for name, needs in _NEEDS.items():
        if name in ("title", *PERTURBATIONS) and not details:
            continue
        test = _retrieval_test(name, [of_document[name] for of_document in pairs])
        if (found := len(test.queries)) >= LEAST:
            retrieval.append(test)
        else:
            left_out[name] = f"{found} of {len(documents):,} documents have {needs}, {LEAST} are needed"
    nearness = _nearness_test(documents, draws)
    if nearness is None:
        left_out[NEARNESS] = f"fewer than {LEAST} documents have four sentences"
    return DocumentTests(
        retrieval=retrieval, nearness=nearness, left_out=left_out, documents=len(documents), details=details
    )


def _draw_pairs(document: ParsedDocument, draw: np.random.Generator) -> dict[str, Pair | None]:
    """Return the query and the answer of a document for each test."""
    pairs = {"title": _title(document), "summary": _summary(document), "halves": _halves(document), "neighbours": None}
    neighbours = [pair for pair in pairwise(document.sentences) if all(map(_is_sentence, pair)) and pair[0] != pair[1]]
    if neighbours:
        pairs["neighbours"] = neighbours[int(draw.integers(len(neighbours)))]
    sentences = [sentence for sentence in (*document.sentences, document.summary) if _is_sentence(sentence)]
    middle = sentences[len(sentences) // 2] if sentences else None  # the same for all, so that it is encoded once
    for name, perturb in PERTURBATIONS.items():
        pairs[name] = (perturb(middle, draw), middle) if middle else None
    return pairs


def _retrieval_test(name: str, pairs: Sequence[Pair | None]) -> PairTest:
    """Keep the pairs neither of whose sides is a near-duplicate of that of another pair."""
    rows = [row for row, pair in enumerate(pairs) if pair is not None and pair[0] != pair[1]]
    given = [pair for pair in pairs if pair is not None and pair[0] != pair[1]]
    kept = np.flatnonzero(distinct_texts([query for query, _ in given]) & distinct_texts([text for _, text in given]))
    return PairTest(
        name=name,
        queries=[given[place][0] for place in kept],
        passages=[given[place][1] for place in kept],
        documents=np.array(rows, np.int64)[kept],
    )


def _title(document: ParsedDocument) -> Pair | None:
    passage = _passage(without_title(document.title, _with_summary(document)))
    fits = len(clean.words(document.title)) >= _TITLE_WORDS and clean.count_words(passage) >= _HALF_WORDS
    return (document.title, passage) if fits else None


def _summary(document: ParsedDocument) -> Pair | None:
    summary = document.summary or _passage(document.sentences[:1])
    rest = document.sentences if document.summary else document.sentences[1:]
    passage = _passage([sentence for sentence in rest if sentence not in summary])
    fits = clean.count_words(summary) >= _SENTENCE_WORDS.start and clean.count_words(passage) >= _HALF_WORDS
    return (summary, passage) if fits else None


def _halves(document: ParsedDocument) -> Pair | None:
    sentences = _with_summary(document)
    middle = len(sentences) // 2
    first, second = sentences[:middle], sentences[middle:]
    if len(sentences) < 4:
        longest = max(sentences, key=clean.count_words)
        if clean.count_words(longest) < 2 * _HALF_WORDS:
            return None
        first, second = ([half] for half in clean.text_halves(longest))
    halves = _passage(first), _passage(second)
    return halves if min(map(clean.count_words, halves)) >= _HALF_WORDS else None


def _with_summary(document: ParsedDocument) -> list[str]:
    return [document.summary, *document.sentences] if document.summary else document.sentences


def _is_sentence(text: str) -> bool:
    return clean.count_words(text) in _SENTENCE_WORDS


def _passage(sentences: Sequence[str]) -> str:
    words = clean.with_gaps(clean.one_line(" ".join(sentences)))
    return "".join(words[:_PASSAGE_WORDS]).strip()


def _nearness_test(documents: Sequence[ParsedDocument], draws: Sequence[np.random.Generator]) -> PairTest | None:
    """Pair a sentence of each document with six others that are less and less near.

    5 itself with words left out; 4 its first half; 3 the next sentence; 2 one further on in the document; 1 the
    sentence of another document with which it shares most (BM25); 0 that of any other.
    """
    rows, queries, own = [], [], []
    for row, (document, draw) in enumerate(zip(documents, draws, strict=True)):
        places = [place for place, sentence in enumerate(document.sentences) if _is_sentence(sentence)]
        starts = [p for p in places if p + 1 in places and any(abs(q - p) >= 2 for q in places)]
        if not starts:
            continue
        start = int(draw.choice(starts))
        query = document.sentences[start]
        away = [place for place in places if abs(place - start) >= 2]
        perturbed = [PERTURBATIONS[name](query, draw) for name in ("dropped words", "truncation")]
        rows.append(row)
        queries.append(query)
        own.append([*perturbed, document.sentences[start + 1], document.sentences[int(draw.choice(away))]])
    if len(rows) < LEAST:
        return None
    shared = bm25_scores(queries, queries)
    np.fill_diagonal(shared, -1)
    nearest = shared.argmax(axis=1)
    shifts = np.random.default_rng(len(rows)).integers(1, len(rows), len(rows))
    others = (np.arange(len(rows)) + shifts) % len(rows)
    passages = [[*own[i], queries[nearest[i]], queries[others[i]]] for i in range(len(rows))]
    return PairTest(
        name=NEARNESS,
        queries=[query for query in queries for _ in range(6)],
        passages=[passage for six in passages for passage in six],
        documents=np.repeat(np.array(rows, np.int64), 6),
        degrees=np.tile(np.arange(5.0, -1, -1), len(rows)),
    )
