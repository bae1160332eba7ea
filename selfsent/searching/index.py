"""An index of a corpus in a folder: made once, opened by many, brought up to date where the corpus changed."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from selfsent.corpus.in_memory import source_names
from selfsent.corpus.sources import Document, resolve_sources
from selfsent.encoder.base import Encoder, TextEncoder, require_finite
from selfsent.encoder.coverage import BEGINNING, measure_coverage, require_known_query
from selfsent.encoder.open import as_encoder, open_encoder
from selfsent.encoder.quantize import unit
from selfsent.errors import ConfigurationError, CorpusError, EncoderError, ResumeError, UserError
from selfsent.progress import SILENT, Progress
from selfsent.runtime.printed import Printed, Shown
from selfsent.searching import writer
from selfsent.searching.passages import SearchText, search_text, search_texts
from selfsent.searching.reader import Hits, IndexReader
from selfsent.searching.segment import DOCUMENTS, Segment, missing_and_new
from selfsent.searching.settings import IndexConfig, require_options
from selfsent.searching.writer import (
    FORMAT,
    MANIFEST,
    fingerprint_of,
    is_index,
    source_identities,
    stamp_of,
    stamps_of,
    write_state,
)
from selfsent.storage import atomic, locks

_TRIES = 5  # to open an index that is published again and again meanwhile
# The digest, which holds the others, says the least.
_NAMES = {"width": "width", "document": "prompt for documents", "query": "prompt for queries", "digest": "model"}


@dataclass(frozen=True, kw_only=True, repr=False)
class Changed(Printed):
    """What a call did to an index, in documents."""

    added: int
    deleted: int
    kept: int

    def shown(self) -> Shown:
        """Return the three counts."""
        added = f"{self.added:,} document{'s' * (self.added != 1)} added"
        return Shown([f"{added}, {self.deleted:,} deleted, {self.kept:,} kept"])


class Index(Printed, IndexReader):
    """An index that is open.

    ``Index.make`` makes one of a corpus, and ``Index.open`` opens its folder.

    Examples:
        >>> index = selfsent.Index.make(["tickets.jsonl"], "runs/tickets.index", model="runs/tickets/model")
        >>> for hit in index.search("cannot log in after the update", top=3):
        ...     print(hit.score, hit.id, hit.text)
    """

    def __init__(
        self, folder: Path, facts: dict[str, Any], segments: Sequence[Segment], encoder: Encoder | None = None
    ) -> None:
        super().__init__(folder, facts, segments)
        self.reused = True  # and not encoded for this search
        self._encoder = encoder
        if encoder is not None:
            self.require_encoder(fingerprint_of(encoder), "this model")

    @classmethod
    def open(cls, folder: str | Path, encoder: TextEncoder | None = None) -> "Index":
        """Open an index.

        Args:
            encoder: that made it.  Default: opened by its name when it is first needed.

        Raises:
            UserError: the folder is no index, or is damaged; or another encoder.
        """
        folder, opened = Path(folder), None if encoder is None else as_encoder(encoder)
        if folder.is_file():
            inside = is_index(folder.parent)
            made = f"make one with selfsent index {folder} --out {folder.with_suffix('.index')}"
            raise ConfigurationError(
                f"{folder} is a file, and an index is a folder: {f'give {folder.parent}' if inside else made}"
            )
        if not is_index(folder):
            raise ConfigurationError(f"{folder} is no index: make one with selfsent index CORPUS --out {folder}")
        advice = writer.advice_for(folder)
        for left in range(_TRIES, -1, -1):
            first = stamp_of(folder / MANIFEST)  # before it is read
            facts = atomic.read_sealed(folder / MANIFEST, advice)
            if facts.get("format") != FORMAT:
                raise ResumeError(f"{folder} is an index of another version: {advice}")
            try:
                stamps = stamps_of(folder, facts) | {folder / MANIFEST: first}
                index = cls(folder, facts, [Segment.open(folder / name, advice) for name in facts["segments"]], opened)
                index.stamps = stamps
                return index
            except (ResumeError, OSError):  # another process may have published another state, and removed this one
                if not left or atomic.read_sealed(folder / MANIFEST, advice)["state"] == facts["state"]:
                    raise
        raise AssertionError

    @classmethod
    def make(
        cls,
        corpus: Sequence[str | Path],
        folder: str | Path,
        *,
        model: str | Path = "builtin",
        column: str | None = None,
        id_column: str = "id",
        config: IndexConfig | None = None,
        segment_documents: int = DOCUMENTS,
        beginning: int = BEGINNING,
        progress: Progress = SILENT,
    ) -> "Index":
        """Make an index of every document of a corpus; after a kill, the same call goes on.

        Args:
            corpus: files, folders, hub names of data sets, or "pydocs".
            folder: one that does not exist yet, is empty, or holds what a killed call of the same arguments left.
            model: "builtin", a folder, or a name on the hub; documents get its prompt for documents.
            id_column: the column of a table, where it has one, by which hits name their documents.
            segment_documents: of a segment, at most, which are encoded again after a kill.
            beginning: documents at the beginning by which vocabulary and modes are measured.

        Raises:
            UserError: no such model or corpus, no text in it, or a folder that holds something else.
        """
        folder = Path(folder)
        names = [*map(writer.lasting, source_names(corpus))]
        sources = resolve_sources(names, progress)
        writer.require_unused(folder)
        encoder = open_encoder(model, fastest=True, progress=progress)
        columns = column, id_column
        facts = writer.new_facts(encoder, model, names, sources, config or IndexConfig(), columns)
        sizes = {"segment_documents": segment_documents, "beginning": beginning}
        writer.write_index(sources, folder, encoder, facts, **sizes, progress=progress)
        return cls.open(folder, encoder)

    def update(self, corpus: Sequence[str | Path] = (), *, progress: Progress = SILENT) -> Changed:
        """Bring the index up to date: documents that are new are encoded, those that are gone are deleted.

        Args:
            corpus: what the index is to hold from now on.  Default: the corpus that it was made of.

        Raises:
            UserError: the model changed or is gone, or nothing would be left.
        """
        with self._locked() as encoder:
            names = [*map(writer.lasting, source_names(corpus))] or list(self.facts["corpus"])
            sources = resolve_sources(names, progress)
            identities = source_identities(sources)
            columns = self.facts["text column"], self.facts["id column"]
            texts = search_texts(sources, *columns, self.config.passages, progress)
            gone, new, kept = missing_and_new(self._segments, self.deleted, texts)
            if not new and not kept:
                raise CorpusError(f"{', '.join(names)} holds no text to search: the index is left as it is")
            facts = {**self.facts, "corpus": names, "sources": identities}
            return self._publish(encoder, facts, new, gone, progress)

    def embed_again(
        self, model: str | Path, corpus: Sequence[str | Path] = (), *, progress: Progress = SILENT
    ) -> Changed:
        """Encode every document with another encoder, and exchange the vectors at once; searches see the old till then.

        Args:
            model: "builtin", a folder, or a name on the hub.
            corpus: as of ``update``, which documents that were added by themselves are no part of, either.

        Raises:
            UserError: no such model, or no text in the corpus: the index is left as it is.
        """
        encoder, had = open_encoder(model, fastest=True, progress=progress), len(self)
        names = [*map(writer.lasting, source_names(corpus))] or list(self.facts["corpus"])
        sources = resolve_sources(names, progress)
        with self._locked(encoder):
            columns = self.facts["text column"], self.facts["id column"]
            facts = writer.new_facts(encoder, model, names, sources, self.config, columns)
            writer.write_again(sources, self.folder, encoder, {**facts, "state": self.facts["state"]}, progress)
        return Changed(added=len(self), deleted=had, kept=0)

    def add(self, documents: Iterable[Document | str], *, progress: Progress = SILENT) -> Changed:
        """Add documents, whether the corpus has them or not; ``update`` takes them out again.

        Raises:
            UserError: no text in the documents, or the model changed.
        """
        several = [documents] if isinstance(documents, str) else documents
        given = (Document(each) if isinstance(each, str) else each for each in several)
        new = [text for document in given if (text := search_text(document, self.config.passages)) is not None]
        if not new:
            raise CorpusError("the documents hold no text to add: give one with some")
        with self._locked() as encoder:
            return self._publish(encoder, self.facts, new, [], progress)

    def delete(self, documents: Sequence[int], *, progress: Progress = SILENT) -> Changed:
        """Delete documents by the numbers that a search returns.

        Raises:
            UserError: a number that no document has, or now another one; nothing would be left; or the model changed.
        """
        known = {document: self._key(document) for document in documents if 0 <= document < len(self.deleted)}
        with self._locked() as encoder:
            for document in documents:
                if not 0 <= document < len(self.deleted) or self.deleted[document]:
                    raise ConfigurationError(f"the index has no document {document}: name numbers that a search prints")
                if known.get(document, self._key(document)) != self._key(document):
                    raise ConfigurationError(f"{self.folder} was made again, with other numbers: search it again first")
            gone = sorted(set(documents))
            if len(gone) == len(self):
                raise ConfigurationError(f"{self.folder} would be left without a document: delete the folder instead")
            return self._publish(encoder, self.facts, [], gone, progress)

    def search(
        self,
        query: str,
        top: int = 10,
        mode: str | None = None,
        *,
        words: float | None = None,
        feedback: int | None = None,
    ) -> Hits:
        """Encode a query with the prompt for queries, and return the documents that answer it, the best first.

        An index whose folder holds another state by now is opened anew before.

        Args:
            mode: "dense" by meaning, "bm25" by words, or "hybrid" by both.  Default: the index's own.
            words: the weight of words, 0 to 1; above 0 the mode is "hybrid" by default.  Default: the index's own.
            feedback: documents found first that the query is moved towards.  Default: the index's own.

        Raises:
            UserError: no query, one without a known word, an encoder that is gone or did not make this index, or a
                folder that was emptied, damaged or replaced by an index of another encoder.
        """
        if not query.strip():
            raise ConfigurationError("the query is empty: say what to look for")
        if top < 1:
            raise ConfigurationError(f"top = {top} does not fit: give 1 or more")
        if not self.is_current():
            vars(self).update(vars(Index.open(self.folder, self._encoder)))
        mode = mode or self.mode_with(words)
        require_options(mode, words, feedback)
        encoder = self.load_encoder()
        if measure_coverage(encoder, [query]).lost:
            if mode != "dense":  # the number of a spare part, say: its words may be in the documents
                hits = self.hits(self.rank([query], np.zeros((1, 0), np.float32), top, "bm25")[0], query, None)
                if hits:
                    return hits
            require_known_query(encoder, query)
        vector = encoder.embed([query], prompt=self.facts["fingerprint"]["query"])
        require_finite(vector, [query])
        vector = unit(vector).astype(np.float32)
        (ranked,) = self.rank([query], vector, top, mode, words=words, feedback=feedback)
        return self.hits(ranked, query, vector[0])

    def shown(self) -> Shown:
        """Return where it is and how it is searched."""
        return Shown([f"{self.folder}: {self.describe()}"])

    def describe(self) -> str:
        """Say how it is searched."""
        lists, measured, count = self.facts["lists"], self.facts["measured"], f"{self.vectors:,} vectors"
        if measured is not None:
            count += f", {self.mode} (MRR@10 {', '.join(f'{name} {value:.1f}' for name, value in measured.items())})"
        if lists is None:
            return f"{len(self):,} documents, {count}, searched exactly"
        way = "exactly, because faiss is not installed"
        if self.dense.lists is not None:
            way = f"in {min(lists['nprobe'], self.dense.lists.lists):,} of {self.dense.lists.lists:,} lists"
        return (
            f"{len(self):,} documents, {count}, searched {way}; "
            f"its recall@10 against exact search was measured as {lists['recall']:.3f}"
        )

    def corpus_change(self) -> str | None:
        """Say in one sentence that the corpus changed since the index was made; None if not, or it is not here."""
        try:
            now = source_identities(resolve_sources([str(name) for name in self.facts["corpus"]]))
        except UserError:  # the index works without its corpus
            return None
        if [source[1:] for source in now] == [source[1:] for source in self.facts["sources"]]:
            return None
        return f"the corpus changed since {self.folder} was made: selfsent index --update --out {self.folder}"

    def require_related(self, corpus: Sequence[str | Path]) -> None:
        """Refuse a corpus that would replace all of the index: it is more likely a mistake for adding to it.

        Raises:
            ConfigurationError: no source of the index is in the corpus.
        """
        own, asked = (
            [Path(writer.lasting(name)).resolve() for name in names] for names in (self.facts["corpus"], corpus)
        )
        if asked and not {*asked} & {*own}:
            raise ConfigurationError(
                f"{self.folder} was made of {', '.join(self.facts['corpus'])}, and --update brings it to exactly the "
                "corpus that is given: name that, too, to add to it, or make another index with another --out"
            )

    def load_encoder(self, progress: Progress = SILENT) -> Encoder:
        """Open the encoder that made the vectors, once.

        Raises:
            EncoderError: it is gone, or is another one now.
        """
        if self._encoder is None:
            name = self.facts["model"]
            encoder = open_encoder(name, fastest=True, progress=progress)
            self.require_encoder(fingerprint_of(encoder), name)
            self._encoder = encoder
        return self._encoder

    def require_encoder(self, fingerprint: dict[str, Any], name: str) -> None:
        """Refuse an encoder that did not make the vectors.

        Raises:
            EncoderError: another model, width or prompt; the message names which.
        """
        made = self.facts["fingerprint"]
        if fingerprint != made:
            other = next(words for key, words in _NAMES.items() if fingerprint[key] != made[key])
            raise EncoderError(
                f"{self.folder} was made with another {other} than that of {name}: search it with "
                f"{self.facts['model']}, or make the index again"
            )

    def _key(self, document: int) -> bytes:
        """Return what tells a document from another one of the same number."""
        segment, local = self._locate(document)
        return bytes(segment.keys[local])

    @contextmanager
    def _locked(self, other: Encoder | None = None) -> Iterator[Encoder]:
        """Keep other processes away for the block, and be the index as they left it, and then as the block does.

        Args:
            other: an encoder that the block puts in the place of the index's own.
        """
        encoder = other or self.load_encoder()
        with locks.exclusive(self.folder):
            vars(self).update(vars(Index.open(self.folder, None if other else encoder)))
            yield encoder
        vars(self).update(vars(Index.open(self.folder, encoder)))

    def _publish(
        self,
        encoder: Encoder,
        facts: dict[str, Any],
        new: Sequence[SearchText],
        gone: Sequence[int],
        progress: Progress,
    ) -> Changed:
        deleted = [*np.flatnonzero(self.deleted).tolist(), *gone]
        write_state(self.folder, encoder, facts, new, deleted, progress=progress)
        if 2 * len(deleted) > len(self.deleted) + len(new):
            progress.say(
                f"{len(deleted):,} deleted documents take more room than the others: make the index again to free it"
            )
        return Changed(added=len(new), deleted=len(gone), kept=len(self) - len(gone))
