"""An index of a corpus in a folder: made once, opened by many, brought up to date where the corpus changed.

``index.json`` names the files that belong to the index; it is replaced as the last step of every change, so that a kill
leaves the index as it was.  It also holds the fingerprint of the encoder, and nothing is compared with vectors of
another one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from selfsent.corpus.sources import Source
from selfsent.encoder.base import Encoder, TextEncoder
from selfsent.encoder.coverage import measure_coverage, require_known_query
from selfsent.encoder.open import as_encoder
from selfsent.errors import ConfigurationError, EncoderError, ResumeError
from selfsent.evaluation.geometry import unit
from selfsent.searching import nearest
from selfsent.searching.passages import SearchText
from selfsent.searching.segment import Segment
from selfsent.searching.settings import IndexConfig
from selfsent.searching.words import POOL, WordIndex, fuse_rankings, passage_with
from selfsent.storage import atomic

MANIFEST = "index.json"
FORMAT = 6  # raised whenever an older index cannot be read
_PROPOSED = 4_000  # vectors that the cells are asked for; beyond, comparing with every one is faster
_TRIES = 5  # to open an index that is published again and again meanwhile
_NAMES = {"digest": "model", "width": "width", "document": "prompt for documents", "query": "prompt for queries"}


@dataclass(frozen=True)
class Found:
    """A document that was found, and the passage of it that is nearest to the query."""

    document: int  # its number in the index
    score: float  # what it was ranked by: the cosine, BM25, or the reciprocal rank score of both
    cosine: float
    title: str
    text: str
    id: str = ""  # in its corpus, where that has a column of them


def is_index(folder: str | Path) -> bool:
    """Tell whether a folder is an index."""
    return (Path(folder) / MANIFEST).is_file()


def fingerprint_of(encoder: Encoder) -> dict[str, Any]:
    """Return what has to be equal for a query's vector to be comparable with the vectors of an index."""
    return {
        "digest": encoder.digest,
        "width": encoder.width,
        "document": encoder.task_prompt("document"),
        "query": encoder.task_prompt("query"),
    }


class CorpusIndex:
    """An index that is open.

    Raises:
        UserError: the folder is no index, or is damaged.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not is_index(self.folder):
            raise ConfigurationError(f"{folder} is no index: make one with selfsent index CORPUS --out {folder}")
        advice = f"delete {self.folder} and make the index again"
        for left in range(_TRIES, -1, -1):
            self.facts = atomic.read_sealed(self.folder / MANIFEST, advice)
            try:
                self._open(advice)
            except (ResumeError, OSError):  # another process may have published another state, and removed this one
                if not left or atomic.read_sealed(self.folder / MANIFEST, advice)["state"] == self.facts["state"]:
                    raise
            else:
                break

    def _open(self, advice: str) -> None:
        if self.facts.get("format") != FORMAT:
            raise ResumeError(f"{self.folder} is an index of another version: {advice}")
        self.config = IndexConfig(**self.facts["config"])
        self._segments = [Segment(self.folder / name) for name in self.facts["segments"]]
        self._starts = np.cumsum([0, *(segment.documents for segment in self._segments)])
        self._vectors = [segment.vectors for segment in self._segments]
        self._owners = np.concatenate(
            [segment.owners(np.arange(len(segment.vectors))) + start for segment, start in self._pairs()]
        )
        self.deleted = np.zeros(int(self._starts[-1]), bool)
        if gone := self.facts["deleted"]:
            atomic.verify(self.folder / gone, advice)
            self.deleted[np.load(self.folder / gone)] = True
        self._hidden = self.deleted[self._owners] if self.deleted.any() else None
        self._cells: nearest.InvertedFile | None = None
        if (cells := self.facts["cells"]) and nearest.cells_available():
            atomic.verify(self.folder / cells["file"], advice)
            self._cells = nearest.InvertedFile.open_file(self.folder / cells["file"])
            self._cells.probe(cells["probes"])
        self._words = WordIndex(self.folder / self.facts["words"])

    def _pairs(self) -> Iterable[tuple[Segment, int]]:
        return zip(self._segments, self._starts.tolist(), strict=False)

    def __len__(self) -> int:
        return len(self.deleted) - int(self.deleted.sum())

    @property
    def vectors(self) -> int:
        """How many vectors there are: of first sentences and of passages, those of deleted documents included."""
        return len(self._owners)

    @property
    def mode(self) -> str:
        """How a search that names no mode is done."""
        return str(self.facts["mode"])

    def describe(self) -> str:
        """Say how it is searched."""
        cells, measured, count = self.facts["cells"], self.facts["measured"], f"{self.vectors:,} vectors"
        if measured is not None:
            count += f", {self.mode} (MRR@10 {', '.join(f'{name} {value:.1f}' for name, value in measured.items())})"
        if cells is None:
            return f"{len(self):,} documents, {count}, searched exactly"
        way = "exactly, because faiss is not installed"
        if self._cells is not None:
            way = f"in {min(cells['probes'], self._cells.cells):,} of {self._cells.cells:,} cells"
        return (
            f"{len(self):,} documents, {count}, searched {way}; "
            f"its recall@10 against exact search was measured as {cells['recall']:.3f}"
        )

    def require_encoder(self, fingerprint: dict[str, Any], name: str) -> None:
        """Refuse an encoder that did not make the vectors.

        Raises:
            EncoderError: another model, width or prompt; the message names which.
        """
        made = self.facts["fingerprint"]
        if fingerprint != made:
            other = [words for key, words in _NAMES.items() if fingerprint[key] != made[key]]
            other = [*other[1:], *other[:1]][:1]  # a width or prompt is more telling than the digest, which holds them
            raise EncoderError(
                f"{self.folder} was made with another {other[0]} than that of {name}: search it with "
                f"{self.facts['model']}, or make the index again"
            )

    def require_document(self, document: int) -> None:
        """Refuse a number that no document has.

        Raises:
            ConfigurationError: it was deleted, or never was.
        """
        if not 0 <= document < len(self.deleted) or self.deleted[document]:
            raise ConfigurationError(f"the index has no document {document}: name numbers that a search prints")

    def text(self, document: int) -> tuple[str, list[str], str]:
        """Return title, passages and id of a document."""
        segment, local = self._place(document)
        return segment.text(local)

    def _place(self, document: int) -> tuple[Segment, int]:
        place = int(np.searchsorted(self._starts, document, side="right")) - 1
        return self._segments[place], document - int(self._starts[place])

    def live_keys(self) -> dict[bytes, list[int]]:
        """Return the numbers of the documents that are not deleted, by their keys."""
        found: dict[bytes, list[int]] = {}
        for segment, start in self._pairs():
            for row, key in enumerate(segment.keys):
                if not self.deleted[start + row]:
                    found.setdefault(key.tobytes(), []).append(start + row)
        return found

    def opening_vectors(self, documents: Int[np.ndarray, " N"]) -> Float[np.ndarray, "N D"]:
        """Return the vectors of the first sentences of documents, (N, D), float32, of length 1."""
        places = np.searchsorted(self._starts, documents, side="right") - 1
        rows = [
            self._segments[place].vectors[document - self._starts[place]]
            for place, document in zip(places.tolist(), documents.tolist(), strict=True)
        ]
        return unit(np.array(rows)).astype(np.float32)

    def nearest_documents(self, queries: Float[np.ndarray, "Q D"], count: int) -> list[tuple[list[int], list[float]]]:
        """Return, per query of length 1, the nearest documents and their cosines, the nearest first."""
        return [(documents.tolist(), cosines.tolist()) for documents, cosines in self._rank_dense(queries, count)]

    def rank(
        self, queries: Sequence[str], vectors: Float[np.ndarray, "Q D"], top: int, mode: str | None = None
    ) -> list[list[tuple[int, float]]]:
        """Return, per query, documents and scores, the best first.

        Args:
            vectors: of the queries, of length 1.
            mode: "dense", "bm25" or "hybrid".  Default: the index's own.
        """
        mode = mode or self.mode
        depth = top if mode == "dense" else max(top, POOL)
        dense = [] if mode == "bm25" else self._rank_dense(vectors, depth)
        if mode == "dense":
            return [[*zip(documents.tolist(), cosines.tolist(), strict=True)] for documents, cosines in dense]
        words = [self._words.rank_words(query, self.deleted, depth) for query in queries]
        if mode == "bm25":
            return [[*zip(documents[:top].tolist(), scores[:top].tolist(), strict=True)] for documents, scores in words]
        return [
            fuse_rankings([by_meaning, by_words])[:top]
            for (by_meaning, _), (by_words, _) in zip(dense, words, strict=True)
        ]

    def _rank_dense(
        self, queries: Float[np.ndarray, "Q D"], top: int
    ) -> list[tuple[Int[np.ndarray, " K"], Float[np.ndarray, " K"]]]:
        if self._cells is None:
            return self._rank_exactly(queries, top)
        found = []
        for query in queries:
            ask, ranked = 4 * top, None
            while ask <= max(4 * top, _PROPOSED):
                (proposed,) = self._cells.propose(query[None], ask)
                if self._hidden is not None:
                    proposed = proposed[~self._hidden[proposed]]
                cosines = nearest.take_rows(self._vectors, proposed) @ query
                order = np.argsort(-cosines, kind="stable")
                ranked = self._documents(proposed[order], cosines[order], top)
                if len(ranked[0]) >= min(top, len(self)):
                    break
                ask, ranked = 4 * ask, None  # most of what was proposed is deleted, or passages of few documents
            found.append(ranked or self._rank_all(query[None], top)[0])
        return found

    def _rank_exactly(
        self, queries: Float[np.ndarray, "Q D"], top: int
    ) -> list[tuple[Int[np.ndarray, " K"], Float[np.ndarray, " K"]]]:
        """Rank by comparing with every vector."""
        numbers, cosines = nearest.exact_nearest(queries, self._vectors, self._hidden, 2 * top)
        found = [self._documents(*one, top) for one in zip(numbers, cosines, strict=True)]
        few = [row for row, (documents, _) in enumerate(found) if len(documents) < min(top, len(self))]
        for row, ranked in zip(few, self._rank_all(queries[few], top) if few else [], strict=True):
            found[row] = ranked
        return found

    def _rank_all(
        self, queries: Float[np.ndarray, "Q D"], top: int
    ) -> list[tuple[Int[np.ndarray, " K"], Float[np.ndarray, " K"]]]:
        """Rank every document, where the nearest vectors are passages of too few."""
        best = nearest.best_by_owner(queries, self._vectors, self._owners, len(self.deleted))
        best[:, self.deleted] = -np.inf
        orders = np.argsort(-best, axis=1, kind="stable")[:, : min(top, len(self))]
        return [(order, values[order]) for order, values in zip(orders, best, strict=True)]

    def _documents(
        self, numbers: Int[np.ndarray, " K"], cosines: Float[np.ndarray, " K"], top: int
    ) -> tuple[Int[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Return the documents of vectors, nearest first, each with the largest of its cosines."""
        numbers, cosines = numbers[np.isfinite(cosines)], cosines[np.isfinite(cosines)]
        owners = self._owners[numbers]
        _, first = np.unique(owners, return_index=True)
        first = np.sort(first)[:top]
        return owners[first], cosines[first]

    def found(
        self, ranked: Sequence[tuple[int, float]], query: str, vector: Float[np.ndarray, " D"] | None
    ) -> list[Found]:
        """Return ranked documents, each with its cosine and its passage that is nearest to the query.

        Without a vector the cosine is 0, and the passage the one that holds most words of the query.
        """
        results = []
        for document, score in ranked:
            segment, local = self._place(document)
            title, passages, name = segment.text(local)
            if vector is None:
                passage, cosine = passage_with(query, passages), 0.0
            else:
                passage, cosine = segment.nearest_passage(local, vector)
            results.append(Found(document, float(score), cosine, title, passages[passage], name))
        return results

    def search_index(self, encoder: TextEncoder, query: str, top: int = 10, mode: str | None = None) -> list[Found]:
        """Encode a query with the prompt for queries, and return the documents that answer it, the best first.

        Raises:
            UserError: no query, one without a known word, or an encoder that did not make this index.
        """
        if not query.strip():
            raise ConfigurationError("the query is empty: say what to look for")
        if top < 1:
            raise ConfigurationError(f"top = {top} does not fit: give 1 or more")
        encoder = as_encoder(encoder)
        self.require_encoder(fingerprint_of(encoder), "this model")
        known = not measure_coverage(encoder, [query]).lost
        if not known and (mode or self.mode) != "dense":  # a number of a part, say: its words may be in the documents
            hits = self.found(self.rank([query], np.zeros((1, 0), np.float32), top, "bm25")[0], query, None)
            if hits:
                return hits
        require_known_query(encoder, query)
        vector = unit(encoder.embed([query], prompt=self.facts["fingerprint"]["query"])).astype(np.float32)
        (ranked,) = self.rank([query], vector, top, mode)
        return self.found(ranked, query, vector[0])


def source_identities(sources: Sequence[Source]) -> list[Any]:
    """Return what changes when the texts do, as JSON holds it."""
    return [[source.name, *map(str, source.identity())] for source in sources]


def missing_and_new(index: CorpusIndex, texts: Iterable[SearchText]) -> tuple[list[int], list[SearchText], int]:
    """Compare an index with the documents of a corpus.

    Returns:
        the numbers of the documents that the corpus no longer has, those that the index does not have yet, and how many
        are in both.
    """
    left = index.live_keys()
    kept, new = 0, []
    for text in texts:
        numbers = left.get(text.key)
        if numbers:
            numbers.pop()
            kept += 1
        else:
            new.append(text)
    return sorted(number for numbers in left.values() for number in numbers), new, kept
