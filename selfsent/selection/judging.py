"""What queries find by the base and by what is kept: for the page, and for a person who says which is better.

Tests made of a text can be wrong; twenty answers of a person who knows it are worth more.  A query and one passage by
each encoder are shown, without their names; where the person's choice surely is the base, it is kept.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import resolve_sources
from selfsent.errors import CorpusError
from selfsent.searching.modes import add_words
from selfsent.selection.search_scores import QueriesAndPassages
from selfsent.text import clean
from selfsent.text.bm25 import bm25_scores

JUDGEMENTS = "judgements.json"
BM25 = "words alone (BM25)"
MOST = 50  # queries
_SHOWN = 3  # passages that a search shows
Ask = Callable[[str, str, str], int | None]  # a query and two passages -> 1 or 2, 0 for neither, None to stop


class Searches(QueriesAndPassages):
    """Some queries and the passages that they search."""

    def __init__(
        self, queries: Sequence[str], passages: Sequence[str], language: str, *, own: Sequence[int] | None = None
    ) -> None:
        """Keep queries and passages.

        Args:
            own: the passage that each query belongs to; None: nobody knows.
        """
        drawn = np.random.default_rng(0).permutation(len(queries))[:MOST]
        self.queries, self.passages, self.language = [queries[row] for row in drawn], list(passages), language
        self._own = None if own is None else [own[row] for row in drawn]
        super().__init__(self.queries, self.passages)

    def find(
        self, encoded: QueriesAndPassages, systems: Mapping[str, tuple[Float[np.ndarray, "N D"], float]]
    ) -> list[dict[str, Any]]:
        """Return what each query finds: by BM25, and by vectors with a weight of words.

        Of each: the query, and by system the first ``_SHOWN`` passages and the place of its own.

        Args:
            encoded: whose texts the vectors are of: these queries and passages, or more.
        """
        matches = bm25_scores(self.queries, self.passages, self.language)
        similar = {BM25: matches}
        for name, (vectors, words) in systems.items():
            cosines = encoded.cosines(vectors, self.queries, self.passages)
            similar[name] = add_words(cosines, matches, words) if words else cosines
        orders = {name: np.argsort(-values, axis=1, kind="stable") for name, values in similar.items()}
        examples = []
        for number, query in enumerate(self.queries):
            own, by_system = None if self._own is None else self._own[number], {}
            for name, order in orders.items():
                first = [{"text": self.passages[row], "own": bool(row == own)} for row in order[number, :_SHOWN]]
                rank = None if own is None else int(np.flatnonzero(order[number] == own)[0]) + 1
                by_system[name] = {"place": rank, "first": first}
            examples.append({"query": query, "systems": by_system})
        return examples


def read_queries(name: str) -> list[str]:
    """Return the queries of a file, a line or a row each.

    Raises:
        UserError: there is no such file, or no text in it.
    """
    columns = CorpusConfig().columns
    documents = [document for source in resolve_sources([name]) for document in source.documents(columns)]
    queries = list(dict.fromkeys(filter(None, (clean.one_line(document.text) for document in documents))))
    if not queries:
        raise CorpusError(f"{name} holds no query: give a file with a query on each line")
    return queries


def judge(examples: Sequence[Mapping[str, Any]], base: str, kept: str, ask: Ask) -> Iterator[dict[str, str]]:
    """Ask which of two passages answers a query better, those queries first whose answers differ most.

    Yields:
        Of each judgement the query and who was preferred: "base", "kept" or "".
    """
    differ = []
    for example in examples:
        ours, theirs = ([each["text"] for each in example["systems"][name]["first"]] for name in (kept, base))
        pair = next(((new, old) for new, old in zip(ours, theirs, strict=True) if new != old), None)
        if pair is not None:
            differ.append((len({*ours} & {*theirs}), example["query"], *pair))
    draw = np.random.default_rng(0)
    for _, query, new, old in sorted(differ, key=lambda each: each[0]):
        sides = [("kept", new), ("base", old)]
        if draw.integers(2):
            sides.reverse()
        answer = ask(query, sides[0][1], sides[1][1])
        if answer is None:
            return
        yield {"query": query, "preferred": sides[answer - 1][0] if answer else ""}


def weigh(judged: Sequence[Mapping[str, str]], base: str, kept: str) -> tuple[bool, str]:
    """Return whether a person surely prefers the base, and what the judgements say.

    Sure is what the 95 % interval of the share (Wilson, 1927) leaves on one side of a half.
    """
    from scipy.stats import binomtest

    wins = [row["preferred"] for row in judged if row["preferred"]]
    if not wins:
        return False, f"Of {len(judged)} judged pairs of answers none was better than the other."
    ours = wins.count("kept")
    share = binomtest(ours, len(wins)).proportion_ci(method="wilson")
    said = (
        f"Of {len(judged)} judged pairs of answers {ours} were better by {kept}, {len(wins) - ours} by {base} "
        f"(95 % interval of the share {share.low:.0%} to {share.high:.0%})"
    )
    if share.high < 0.5:
        return True, f"{said}: {base} is kept."
    return False, f"{said}: {'this agrees with the tests' if share.low > 0.5 else 'that decides nothing'}."
