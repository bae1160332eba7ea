"""Semantic search: the texts of a corpus and their embeddings, cached for the next search.

A document has an embedding of every passage, and one of its first sentence alone, which often says what it is about;
the nearest of them counts.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from selfsent.corpus.sources import resolve_sources
from selfsent.encoder.base import Encoder, require_finite
from selfsent.encoder.coverage import check_coverage, require_known_query
from selfsent.encoder.open import open_encoder
from selfsent.errors import ConfigurationError, CorpusError
from selfsent.evaluation.geometry import unit
from selfsent.progress import SILENT, Progress
from selfsent.searching.passages import embedded_texts, search_texts
from selfsent.storage import atomic

_FORMAT = 7  # of the index; raised whenever the same corpus would give another


@dataclass(frozen=True)
class Hit:
    """A text of the corpus, the passage of it that is nearest to the query, and how near that is."""

    document: int  # its number among the texts of the corpus
    cosine: float
    title: str
    text: str  # the passage
    id: str = ""  # in its corpus, where that has a column of them


class SearchIndex:
    """Texts and their unit-length embeddings."""

    def __init__(
        self,
        encoder: Encoder,
        texts: Sequence[tuple[str, Sequence[str], str]],
        documents: NDArray[np.int64],
        embeddings: NDArray[np.float32],
        *,
        reused: bool,
    ) -> None:
        self.reused = reused  # from an earlier search
        self._encoder = encoder
        self._texts = texts  # (title, passages, id)
        self._documents = documents  # of each embedding: once each, for the first sentences, then those of passages
        self._embeddings = embeddings

    @classmethod
    def open(cls, folder: Path, encoder: Encoder) -> "SearchIndex":
        """Open what ``save`` wrote.

        Raises:
            ResumeError: a file is missing or was changed.
        """
        atomic.verify(folder, f"delete {folder} and search again")
        texts = [(title, passages, name) for title, passages, name in json.loads((folder / "texts.json").read_bytes())]
        arrays = (np.load(folder / f"{name}.npy") for name in ("documents", "embeddings"))
        return cls(encoder, texts, *arrays, reused=True)

    def save(self, folder: Path) -> None:
        """Write everything but the encoder."""
        with atomic.build_folder(folder) as scratch:
            (scratch / "texts.json").write_text(json.dumps(self._texts), encoding="utf-8")
            np.save(scratch / "documents.npy", self._documents)
            np.save(scratch / "embeddings.npy", self._embeddings)

    def __len__(self) -> int:
        return len(self._texts)

    def search(self, query: str, top: int) -> list[Hit]:
        """Return the ``top`` texts nearest to the query, which gets the folder's prompt for queries, by cosine.

        Raises:
            UserError: a query without a word, or the encoder gives NaN or infinity for it.
        """
        if not query.strip():
            raise ConfigurationError("the query is empty: say what to look for")
        require_known_query(self._encoder, query)
        vector = self._encoder.embed([query], prompt=self._encoder.task_prompt("query"))
        require_finite(vector, [query])
        cosines = self._embeddings @ unit(vector)[0].astype(np.float32)
        order = np.argsort(-cosines, kind="stable")
        count = 2 * top
        while True:
            _, first = np.unique(self._documents[order[:count]], return_index=True)  # of each document, its nearest
            if len(first) >= min(top, len(self)) or count >= len(order):
                break
            count *= 4
        return [self._hit(int(order[place]), float(cosines[order[place]])) for place in np.sort(first)[:top]]

    def _hit(self, row: int, cosine: float) -> Hit:
        document, count = int(self._documents[row]), len(self._texts)
        passage = row - count - int(np.searchsorted(self._documents[count:], document)) if row >= count else 0
        title, passages, name = self._texts[document]
        return Hit(document, cosine, title, passages[passage], name)


def search(
    model: str | Path,
    corpus: str | Path,
    query: str,
    *,
    top: int = 10,
    text_column: str = "text",
    id_column: str = "id",
    progress: Progress = SILENT,
) -> list[Hit]:
    """Find the texts of a corpus that are nearest to a query in meaning.

    The corpus is encoded once: later searches take its vectors from the cache.

    Args:
        model: "builtin", a folder, or a name on the hub.
        corpus: a file, a folder, the hub name of a data set, or "pydocs".
        top: how many texts to return.
        text_column: the column of a table that holds the text.
        id_column: the one by which hits name their texts, where there is one.

    Raises:
        UserError: no such model or corpus, or no text in it.
    """
    if top < 1:
        raise ConfigurationError(f"top = {top} does not fit: give 1 or more")
    opened = build_index(model, corpus, text_column=text_column, id_column=id_column, progress=progress)
    return opened.search(query, top)


def build_index(
    model: str | Path,
    corpus: str | Path,
    *,
    text_column: str = "text",
    id_column: str = "id",
    progress: Progress = SILENT,
) -> SearchIndex:
    """Encode a corpus with the folder's prompt for documents, or take its vectors from the cache."""
    encoder = open_encoder(model, fastest=True, progress=progress)
    sources = resolve_sources([str(corpus)])
    prompt = encoder.task_prompt("document")
    identity = [[source.identity() for source in sources], encoder.digest, _FORMAT, text_column, id_column, prompt]
    fingerprint = hashlib.sha256(json.dumps(identity, default=str).encode()).hexdigest()[:24]
    folder = atomic.cache_folder("indexes", fingerprint)
    if folder.is_dir():
        return SearchIndex.open(folder, encoder)
    found = list(search_texts(sources, text_column, id_column, progress=progress))
    if not found:
        raise CorpusError(f"{corpus} holds no text to search: give a file with some")
    texts = [(one.title, one.passages, one.id) for one in found]
    documents, embedded = embedded_texts(found)
    check_coverage(encoder, [passage for one in found for passage in one.passages], str(model), progress)
    embeddings = encoder.embed(embedded, prompt=prompt, progress=progress)
    require_finite(embeddings, embedded)
    vectors = unit(embeddings).astype(np.float32)
    index = SearchIndex(encoder, texts, documents, vectors, reused=False)
    try:
        index.save(folder)
    except OSError as error:  # a full disk, or a cache that is read-only
        progress.say(
            f"warning: {folder} cannot be written ({error.strerror}): the next search encodes these texts again"
        )
    return index
