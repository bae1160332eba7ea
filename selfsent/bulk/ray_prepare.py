"""Documents split and texts tokenised by workers of Ray; what depends on other documents stays with the driver."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfsent.bulk.ray_cluster import Pool, open_cluster
from selfsent.corpus.dataset import Corpus
from selfsent.corpus.prepare import Unit, prepare_corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.tokenize import (
    ChunkTokenizer,
    CorpusEngine,
    NewText,
    Read,
    Split,
    SplitDocument,
    TokenizedChunk,
    split_texts,
)
from selfsent.progress import SILENT, Progress

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_DOCUMENTS = 1024  # sent to a worker together,
_LETTERS = 1 << 20  # or as many as have so many letters


class RayCorpus(CorpusEngine):
    """Splits and tokenises by the same workers; to be used, and closed, inside ``open_cluster``."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: Pool[Any, Any] | None = None

    def split(self, documents: Iterator[Read]) -> Iterator[Split]:
        """Yield every document with its texts, in order, once ``tokenize`` has started the workers."""
        assert self._pool is not None
        sent: deque[list[Read]] = deque()

        def groups() -> Iterator[tuple[str, list[Read]]]:
            for group in _groups(documents):
                sent.append(group)
                yield "split", group

        for splits in self._pool.map(groups()):
            for (document, rules), split in zip(sent.popleft(), splits, strict=True):
                yield document, rules, split

    def tokenize(self, work: ChunkTokenizer, chunks: Iterator[list[NewText]]) -> Iterator[TokenizedChunk]:
        """Yield every chunk tokenised, in order."""
        if self._pool is None:
            self._pool = Pool(self._workers, _corpus_worker, work)
        yield from self._pool.map(("tokenize", chunk) for chunk in chunks)

    def close(self) -> None:
        """End the workers."""
        if self._pool is not None:
            self._pool.close()


def _groups(documents: Iterator[Read]) -> Iterator[list[Read]]:
    group: list[Read] = []
    letters = 0
    for read in documents:
        group.append(read)
        letters += len(read[0].text)
        if len(group) >= _DOCUMENTS or letters >= _LETTERS:
            yield group
            group, letters = [], 0
    if group:
        yield group


def _corpus_worker(tokenize: ChunkTokenizer) -> Callable[[tuple[str, Any]], Any]:
    def work(item: tuple[str, Any]) -> list[SplitDocument] | TokenizedChunk:
        what, content = item
        return tokenize(content) if what == "tokenize" else [split_texts(*read) for read in content]

    return work


def prepare_on_ray(
    sources: Sequence[str],
    config: CorpusConfig,
    tokenizer: "PreTrainedTokenizerBase",
    *,
    unit: Unit = "sentences",
    workers: int | None = None,
    cache: Path | None = None,
    progress: Progress = SILENT,
) -> Corpus:
    """Prepare a corpus as ``prepare_corpus`` does, with the same rows, by workers of Ray; the driver writes it.

    Raises:
        UserError: those of ``prepare_corpus`` and of ``open_cluster``.
    """
    with open_cluster(workers) as count:
        engine = RayCorpus(count)
        try:
            return prepare_corpus(sources, config, tokenizer, unit=unit, cache=cache, engine=engine, progress=progress)
        finally:
            engine.close()
