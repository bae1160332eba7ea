"""What a search by meaning finds and what words find, on held-out documents: the tests that agree with people.

inside     a sentence from inside a document finds the document without it (MRR@10)
meaning    the same, where the sentence has lost the rarer half of the words that it shares with its document
score      their mean

People's judgements on five collections agree with these more than with a first sentence as the query (decision 0032).
Of pairs, a text finds its positive in the same two ways.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property, partial

import numpy as np
from jaxtyping import Float, Int

from selfsent.corpus.held_out import HeldOutPairs
from selfsent.corpus.sources import Document
from selfsent.encoder.quantize import unit
from selfsent.evaluation import bootstrap
from selfsent.evaluation.label_free.document_tests import LEAST
from selfsent.evaluation.label_free.held_out_retrieval import DEPTH, count_nearer, expected_scores
from selfsent.evaluation.label_free.scores import SCORE
from selfsent.evaluation.score import Results, Score, measured
from selfsent.evaluation.task import PromptedTexts, queries_and_documents
from selfsent.searching.modes import add_words
from selfsent.text import clean
from selfsent.text.bm25 import bm25_scores
from selfsent.text.stems import stems

MRR, MEANING = f"mrr@{DEPTH}", "meaning"
RETRIEVAL = "retrieval"
MOST = 400  # documents that are searched, which a large encoder reads in minutes
_QUERY, _REST = range(6, 61), 10  # words of a sentence that is a query; of the rest, at least


class QueriesAndPassages(PromptedTexts):
    """Texts that are encoded behind an encoder's prompt for queries, then those behind its prompt for documents."""

    def __init__(self, queries: Iterable[str], passages: Iterable[str]) -> None:
        super().__init__(queries_and_documents(queries, passages))

    def cosines(
        self, vectors: Float[np.ndarray, "T D"], queries: Sequence[str], passages: Sequence[str]
    ) -> Float[np.ndarray, "Q N"]:
        """Return the cosines of queries and passages, by the vectors of ``texts``."""
        asked = unit(vectors[self.rows(("query", text) for text in queries)])
        cosines: np.ndarray = asked @ unit(vectors[self.rows(("document", text) for text in passages)]).T
        return cosines


class SearchTest(QueriesAndPassages):
    """Queries, the same without their rarer shared words, and the passages that they are to find."""

    def __init__(
        self,
        queries: Sequence[str],
        passages: Sequence[str],
        *,
        language: str,
        resamples: int,
        clusters: Int[np.ndarray, " Q"] | None = None,
    ) -> None:
        """Make the test of queries and passages, line by line.

        Args:
            language: of the stems that words are matched by.
            resamples: behind each interval; 0: no intervals.
            clusters: the document that each query is of, where several are of one.
        """
        self.queries, self.passages, self.language = list(queries), list(passages), language
        self._resamples = resamples
        self._clusters = None if clusters is None else np.unique(clusters, return_inverse=True)[1]
        self.without_words = without_rarer_words(self.queries, self.passages, language)
        super().__init__([*self.queries, *self.without_words], self.passages)

    @property
    def paired(self) -> bool:
        """Whether there are enough queries to judge by."""
        return len(self.queries) >= LEAST

    def score(self, vectors: Float[np.ndarray, "N D"], name: str) -> Results:
        """Score an encoder by its vectors of ``texts``."""
        if not self.paired:
            return Results(scores=[])
        sides = [self._cosines(vectors, queries) for queries in (self.queries, self.without_words)]
        return self._results(*sides)

    def score_words(self) -> Results:
        """Score word matching (BM25)."""
        return self._results(*self._matches) if self.paired else Results(scores=[])

    def score_with_words(self, vectors: Float[np.ndarray, "N D"], words: float) -> Results:
        """Score an encoder and word matching together, the latter with a weight."""
        both = zip((self.queries, self.without_words), self._matches, strict=True)
        return self._results(*(add_words(self._cosines(vectors, queries), match, words) for queries, match in both))

    @cached_property
    def _matches(self) -> list[Float[np.ndarray, "N N"]]:
        return [bm25_scores(queries, self.passages, self.language) for queries in (self.queries, self.without_words)]

    def _cosines(self, vectors: Float[np.ndarray, "T D"], queries: Sequence[str]) -> Float[np.ndarray, "N N"]:
        return self.cosines(vectors, queries, self.passages)

    def _results(self, inside: Float[np.ndarray, "N N"], meaning: Float[np.ndarray, "N N"]) -> Results:
        values = np.column_stack(
            [100 * expected_scores(*count_nearer(each, each.diagonal()))[:, 0] for each in (inside, meaning)]
        )
        values = np.column_stack([values, values.mean(axis=1)])
        drawn = bootstrap.means(values, self._resamples, seed=0, name=RETRIEVAL, clusters=self._clusters)
        protocol = {"passages": len(values), "ties": "expected rank"}

        def made(task: str, split: str, metric: str, column: int) -> Score:
            value = float(values[:, column].mean())
            return measured(task, split, metric, value, drawn[column], len(values), protocol)

        return Results(
            scores=[
                made(RETRIEVAL, "held-out", MRR, 0),
                made(RETRIEVAL, "held-out", MEANING, 1),
                made(SCORE, "search", "mean", 2),
            ]
        )


def without_rarer_words(queries: Sequence[str], passages: Sequence[str], language: str) -> list[str]:
    """Leave out of each query the rarer half of the words that it shares with its passage, by their stems."""
    words_of = partial(stems, language=language, all_words=True)  # the commoner half is mostly stop words
    of_passages = [{*words_of(passage)} for passage in passages]
    holding = Counter(word for words in of_passages for word in words)
    left = []
    for query, words in zip(queries, of_passages, strict=True):
        shared = sorted({*words_of(query)} & words, key=lambda word: (holding[word], word))
        rarer = {*shared[: len(shared) // 2]}
        kept = [word for word in clean.with_gaps(query) if not {*words_of(word)} & rarer]
        left.append("".join(kept).strip() or query)
    return left


def inside_pairs(documents: Sequence[Document]) -> tuple[HeldOutPairs, list[int]]:
    """Return a sentence from inside each document and the document without it, and which document each is of.

    Of more than ``MOST`` documents with such a sentence some are taken that are spread over all.
    """
    step = max(1, len(documents) // MOST)
    pairs: dict[int, tuple[str, str]] = {}
    for number in sorted(range(len(documents)), key=lambda number: (number % step, number)):
        if len(pairs) < MOST and (pair := _inside_and_rest(documents[number])):
            pairs[number] = pair
    numbers = sorted(
        {pairs[number][0]: number for number in sorted(pairs, reverse=True)}.values()
    )  # of equal the first
    queries, passages = ([pairs[number][side] for number in numbers] for side in (0, 1))
    return HeldOutPairs(queries=queries, passages=passages), numbers


def _inside_and_rest(document: Document) -> tuple[str, str] | None:
    sentences = [clean.one_line(line) for line in document.text.split("\n") if line.strip()]
    suits = [number for number, each in enumerate(sentences) if number and clean.count_words(each) in _QUERY]
    if not suits:
        return None
    chosen = suits[clean.content_key(" ".join(sentences)) % len(suits)]
    rest = " ".join([document.title, *(each for each in sentences if each != sentences[chosen])]).strip()
    return (sentences[chosen], rest) if clean.count_words(rest) >= _REST else None
