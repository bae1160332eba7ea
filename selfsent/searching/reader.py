"""What an index holds and finds: its documents, ranked by vectors, by words and by both."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from selfsent.encoder.quantize import unit
from selfsent.encoder.search_settings import FEEDBACK_SHARE
from selfsent.errors import ConfigurationError
from selfsent.runtime.printed import Printed, Shown
from selfsent.searching import writer
from selfsent.searching.modes import POOL, WordIndex, add_words, best_words, passage_with
from selfsent.searching.nearest import DenseRanking, IVFIndex, faiss_available
from selfsent.searching.segment import Segment
from selfsent.searching.settings import IndexConfig
from selfsent.storage import atomic
from selfsent.text.clean import one_line


@dataclass(frozen=True, repr=False)
class Hit(Printed):
    """A document that was found, and the passage of it that is nearest to the query."""

    document: int  # its number in the index
    score: float  # what it was ranked by: the cosine, BM25, or both added (``modes``)
    cosine: float
    title: str
    text: str  # the passage
    id: str = ""  # in its corpus, where that has a column of them

    @property
    def head(self) -> str:
        """Its id and title, where it has them."""
        return " ".join([f"[{one_line(self.id)}]"] * bool(self.id) + [f"{one_line(self.title)}:"] * bool(self.title))

    @property
    def line(self) -> str:
        """What it was ranked by, its head, and the passage."""
        return f"{self.score:.3f}  {self.head}{' ' * bool(self.head)}{self.text}"

    def shown(self) -> Shown:
        """Return its line."""
        return Shown([self.line])


class Hits(Printed, list[Hit]):
    """The documents that a search found, the best first."""

    def shown(self) -> Shown:
        """Return a table of them."""
        rows = [[f"{hit.score:.3f}", f"{hit.head} {hit.text}"] for hit in self]
        return Shown([] if rows else ["nothing was found"], ["score", "passage"], rows)


class IndexReader:
    """The state of an index that was last published."""

    def __init__(self, folder: Path, facts: dict[str, Any], segments: Sequence[Segment]) -> None:
        self.folder, self.facts = folder, facts
        self.stamps: dict[Path, writer.FileStamp] = {}  # of its files as they were opened
        self.config = IndexConfig(**facts["config"])
        self._segments, advice = segments, writer.advice_for(folder)
        self._starts = np.cumsum([0, *map(len, segments)])
        owners = [segment.owners + start for segment, start in zip(segments, self._starts.tolist(), strict=False)]
        self.deleted = np.zeros(int(self._starts[-1]), bool)
        if deleted := facts["deleted"]:
            atomic.verify(folder / deleted, advice)
            self.deleted[np.load(folder / deleted)] = True
        lists = None
        if facts["lists"] and faiss_available():
            atomic.verify(folder / facts["lists"]["file"], advice)
            lists = IVFIndex.open_file(folder / facts["lists"]["file"])
            lists.probe(facts["lists"]["nprobe"])
        self.dense = DenseRanking(
            [segment.vectors for segment in segments], np.concatenate(owners), self.deleted, lists
        )
        # Of a query's vector, where a search weighs the encoders of a pair otherwise than its vectors do.
        widths, factors = zip(*facts["search"]["scale"] or [(1, 1.0)], strict=True)
        self._scale = np.repeat(np.array(factors, np.float32), widths)
        language = facts["search"]["language"]
        self._words = WordIndex(folder / facts["words"], advice, language) if facts["words"] else None

    def is_current(self) -> bool:
        """Tell whether the folder still holds the state that was opened."""
        return self.stamps == {file: writer.stamp_of(file) for file in self.stamps}

    def is_intact(self) -> bool:
        """Tell whether no file that is mapped was written to; one that was replaced stays as it is while it is open."""
        for file, stamp in self.stamps.items():
            now = writer.stamp_of(file)
            if now and stamp and now != stamp and now[0] == stamp[0]:
                return False
        return True

    def rank(
        self,
        queries: Sequence[str],
        vectors: Float[np.ndarray, "Q D"],
        top: int,
        mode: str | None = None,
        *,
        words: float | None = None,
        feedback: int | None = None,
    ) -> list[list[tuple[int, float]]]:
        """Return, per query, documents and scores, the best first.

        Args:
            vectors: of the queries, of length 1.
            mode, words, feedback: as in ``Index.search``.
        """
        mode = mode or self.mode_with(words)
        weight = self.facts["search"]["words"] if words is None else words
        feedback = self.facts["search"]["feedback"] if feedback is None else feedback
        matches = [np.zeros(0)] * len(queries)
        if mode != "dense":
            if self._words is None:
                raise ConfigurationError(f"{self.folder} holds no words: make an index to search it by {mode}")
            matches = [self._words.score(query, self.deleted) for query in queries]
        if mode == "bm25":
            return [[(int(each), float(row[each])) for each in best_words(row, top)] for row in matches]
        ranked = self._rank_vectors(vectors, matches, max(top, feedback), weight)
        if feedback:
            moved = [self._moved(vector, row[:feedback]) for vector, row in zip(vectors, ranked, strict=True)]
            ranked = self._rank_vectors(np.array(moved, np.float32), matches, top, weight)
        return [row[:top] for row in ranked]

    def _rank_vectors(
        self, vectors: Float[np.ndarray, "Q D"], matches: Sequence[Float[np.ndarray, " _"]], top: int, weight: float
    ) -> list[list[tuple[int, float]]]:
        """Rank by cosine, and where there are matches of words by both: all that either ranks among its first."""
        rankings, vectors = [], vectors * self._scale
        dense = self.dense.rank(vectors, max(top, POOL) if len(matches[0]) else top)
        for vector, (documents, cosines), words in zip(vectors, dense, matches, strict=True):
            if len(words):
                others = np.setdiff1d(best_words(words, max(top, POOL)), documents)
                documents = np.concatenate([documents, others])
                near = [self._cosine(document, vector) for document in others.tolist()]
                cosines = add_words(np.concatenate([cosines, near]), words[documents], weight)  # of the best one is 1
                order = np.lexsort((documents, -cosines))[:top]
                documents, cosines = documents[order], cosines[order]
            rankings.append([*zip(documents.tolist(), cosines.tolist(), strict=True)])
        return rankings

    def _cosine(self, document: int, vector: Float[np.ndarray, " D"]) -> float:
        segment, local = self._locate(document)
        return segment.nearest_passage(local, vector)[1]

    def _moved(self, vector: Float[np.ndarray, " D"], ranked: Sequence[tuple[int, float]]) -> Float[np.ndarray, " D"]:
        """Move a query towards the mean of the vectors by which documents were found."""
        # Pseudo-relevance feedback, Rocchio 1971.
        located = [self._locate(document) for document, _ in ranked]
        found = [segment.nearest_vector(local, vector) for segment, local in located]
        if not found:
            return vector
        mean = unit(np.mean(found, axis=0)[None])[0]
        moved: np.ndarray = unit(((1 - FEEDBACK_SHARE) * vector + FEEDBACK_SHARE * mean)[None])[0]
        return moved

    def hits(self, ranked: Sequence[tuple[int, float]], query: str, vector: Float[np.ndarray, " D"] | None) -> Hits:
        """Return ranked documents, each with its cosine and its passage that is nearest to the query.

        Without a vector the cosine is 0, and the passage the one that holds most words of the query.
        """
        hits = Hits()
        for document, score in ranked:
            segment, local = self._locate(document)
            title, passages, name = segment.text(local)
            if vector is None:
                passage, cosine = passage_with(query, passages), 0.0
            else:
                passage, cosine = segment.nearest_passage(local, vector)
            hits.append(Hit(document, float(score), cosine, title, passages[passage], name))
        return hits

    def __len__(self) -> int:
        return len(self.deleted) - int(self.deleted.sum())

    @property
    def vectors(self) -> int:
        """How many vectors there are: of first sentences and of passages, those of deleted documents included."""
        return len(self.dense.owners)

    @property
    def mode(self) -> str:
        """How a search that names no mode is done."""
        return str(self.facts["mode"])

    def mode_with(self, words: float | None) -> str:
        """How one is done that names a weight of words, which would change nothing by meaning alone."""
        return "hybrid" if words else self.mode

    def text(self, document: int) -> tuple[str, list[str], str]:
        """Return title, passages and id of a document."""
        segment, local = self._locate(document)
        return segment.text(local)

    def opening_vectors(self, documents: Int[np.ndarray, " N"]) -> Float[np.ndarray, "N D"]:
        """Return the vectors of the first sentences of documents, (N, D), float32, of length 1."""
        located = [self._locate(document) for document in documents.tolist()]
        return unit(np.array([segment.vectors[local] for segment, local in located])).astype(np.float32)

    def _locate(self, document: int) -> tuple[Segment, int]:
        """Return the segment of a document and its number there."""
        number = int(np.searchsorted(self._starts, document, side="right")) - 1
        return self._segments[number], document - int(self._starts[number])
