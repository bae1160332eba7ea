"""Write an index: documents are added behind those that are there, and a new state is published at once."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from selfsent.corpus.sources import Source
from selfsent.encoder.base import Encoder
from selfsent.progress import SILENT, Progress
from selfsent.searching import nearest, words
from selfsent.searching.index import FORMAT, MANIFEST, fingerprint_of, source_identities
from selfsent.searching.passages import SearchText
from selfsent.searching.segment import DOCUMENTS, PASSAGES, Segment, holds_texts, write_segment
from selfsent.searching.settings import IndexConfig
from selfsent.storage import atomic
from selfsent.storage.windows import left_if_open

_OURS = ("segment-", "words-", "deleted-", "cells-", "begun.", ".words-", ".deleted-", ".cells-", ".begun.")
_OUTGROWN = 4  # times as many vectors as the cells were learned from: they are learned again


class IndexWriter:
    """Adds documents to an index and deletes them; what a search sees changes at ``publish``.

    What a killed command has encoded is used again: the files of a state have its number in their names.
    """

    def __init__(self, folder: Path, encoder: Encoder, facts: dict[str, Any], progress: Progress = SILENT) -> None:
        self.folder, self.facts = folder, {**facts, "state": facts["state"] + 1}
        self._encoder, self._progress = encoder, progress
        self._done = 0

    def add_documents(self, texts: Iterable[SearchText]) -> int:
        """Encode documents behind those that are there, and return how many there were."""
        rest, before = iter(texts), self._done
        prompt = self.facts["fingerprint"]["document"]

        def embed(part: list[str]) -> Float[np.ndarray, "N D"]:
            return self._encoder.embed(part, prompt=prompt)

        while part := _next_segment(rest):
            name = f"segment-{self.facts['state']}-{len(self.facts['segments']):05}"
            if not holds_texts(self.folder / name, part):
                atomic.remove(self.folder / name)
                write_segment(self.folder / name, part, embed)
            self.facts["segments"] = [*self.facts["segments"], name]
            self._done += len(part)
            self._progress.report("encode", self._done)
        return self._done - before

    def publish(self, deleted: Sequence[int]) -> None:
        """Write what belongs to all documents, then ``index.json``, and remove what it no longer names.

        Args:
            deleted: numbers of all documents that are deleted.
        """
        segments = [Segment(self.folder / name) for name in self.facts["segments"]]
        vectors = [segment.vectors for segment in segments]
        self.facts["deleted"] = None
        if len(deleted):
            self.facts["deleted"] = f"deleted-{self.facts['state']}.npy"
            with atomic.sealed_file(self.folder / self.facts["deleted"]) as file:
                np.save(file, np.sort(np.array(deleted, np.int64)))
        self.facts["words"] = f"words-{self.facts['state']}"
        atomic.remove(self.folder / self.facts["words"])  # a killed command may have left those of other documents
        texts = (
            (title, " ".join(passages))
            for segment in segments
            for title, passages, _ in map(segment.text, range(segment.documents))
        )
        words.write_word_index(self.folder / self.facts["words"], texts, self._progress)
        self.facts["cells"] = self._grow_cells(vectors)
        atomic.write_sealed(self.folder / MANIFEST, self.facts)
        _sweep(self.folder, self.facts)

    def _grow_cells(self, vectors: nearest.Vectors) -> dict[str, Any] | None:
        config, before = IndexConfig(**self.facts["config"]), self.facts["cells"]
        total = sum(map(len, vectors))
        if total <= config.exact_vectors:
            return None
        if not nearest.cells_available():
            self._progress.say(
                f"warning: {total:,} vectors are searched exactly, because faiss is not installed: "
                "pip install '.[search]' in the checkout and make the index again"
            )
            return None
        if before is None or total > _OUTGROWN * before["learned from"]:
            self._progress.report("cells", 0, total)
            before, file = None, nearest.InvertedFile(vectors, min(total, config.cells or nearest.cells_for(total)))
        else:
            file = nearest.InvertedFile.open_file(self.folder / before["file"], grow=True)
        if len(file) == total:
            return before
        waiting = nearest.choose_sample(len(file), total)
        file.add_vectors(vectors, waiting, self._progress)
        if before is None or len(waiting):
            probes, recall = nearest.measure_recall(file, vectors, waiting, config.recall)
        else:  # a handful of new vectors says nothing
            probes, recall = before["probes"], before["recall"]
        file.add_rows(vectors, waiting)
        if recall < config.recall:
            self._progress.say(
                f"warning: recall@10 of the cells is {recall:.3f}, below {config.recall}: give fewer cells, or search "
                "exactly with a larger exact_vectors"
            )
        name = f"cells-{self.facts['state']}.faiss"
        with atomic.replacing(self.folder / name) as partial:
            file.save_file(partial)
        atomic.seal_file(self.folder / name)
        learned_from = total if before is None else before["learned from"]
        return {"file": name, "probes": probes, "recall": recall, "learned from": learned_from}


def _next_segment(texts: Iterator[SearchText]) -> list[SearchText]:
    part: list[SearchText] = []
    passages = 0
    while len(part) < DOCUMENTS and passages < PASSAGES and (one := next(texts, None)):
        part.append(one)
        passages += len(one.passages)
    return part


def remove_begun(folder: Path) -> None:
    """Remove what a command that published nothing has written; what people put there stays."""
    for path in folder.iterdir():
        if path.name.startswith(_OURS) or atomic.is_unfinished(path):
            atomic.remove(path)


def _sweep(folder: Path, facts: dict[str, Any]) -> None:
    """Remove files of former states; an index that is open elsewhere keeps those that it has mapped."""
    cells = facts["cells"]
    named = [*facts["segments"], facts["words"], facts["deleted"], cells and cells["file"]]
    kept = {MANIFEST, atomic.OURS, *filter(None, named)}
    kept |= {atomic.checksum_of(folder / name).name for name in kept}
    for path in folder.iterdir():  # of ours: what people put there stays
        if path.name not in kept and path.name.startswith(_OURS) and not atomic.is_unfinished(path):
            with left_if_open():
                atomic.remove(path)


def new_facts(
    encoder: Encoder,
    model: str,
    sources: Sequence[Source],
    config: IndexConfig,
    columns: Sequence[str],
) -> dict[str, Any]:
    """Return what ``index.json`` holds of an index without documents."""
    return {
        "format": FORMAT,
        "state": 0,  # how many times it was published
        "model": model,
        "fingerprint": fingerprint_of(encoder),
        "config": {name: getattr(config, name) for name in type(config).__pydantic_fields__},  # type: ignore[attr-defined]
        "text column": columns[0],
        "id column": columns[1],
        "corpus": [],
        "sources": source_identities(sources),
        "mode": None,
        "measured": None,  # MRR@10 of each mode, where it was measured
        "segments": [],
        "deleted": None,
        "words": None,
        "cells": None,
    }
