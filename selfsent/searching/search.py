"""search(): the nearest texts of a corpus, whose index the cache keeps for the next search."""

import hashlib
import json
from pathlib import Path

import numpy as np

from selfsent.config import MANY
from selfsent.corpus.sources import resolve_sources
from selfsent.encoder.coverage import check_coverage
from selfsent.encoder.open import open_encoder
from selfsent.errors import ConfigurationError, CorpusError
from selfsent.progress import SILENT, Progress
from selfsent.searching.index import Index
from selfsent.searching.modes import write_word_index
from selfsent.searching.passages import search_texts
from selfsent.searching.reader import Hits
from selfsent.searching.segment import Segment, split_into_segments
from selfsent.searching.settings import IndexConfig
from selfsent.searching.writer import MANIFEST, new_facts, source_identities
from selfsent.storage import atomic


def search(
    model: str | Path,
    corpus: str | Path,
    query: str,
    *,
    top: int = 10,
    column: str | None = None,
    id_column: str = "id",
    words: float | None = None,
    feedback: int | None = None,
    progress: Progress = SILENT,
) -> Hits:
    """Find the texts of a corpus that are nearest to a query in meaning, and in words where the encoder says so.

    The corpus is encoded once: later searches take its vectors from the cache.

    Args:
        model: "builtin", a folder, or a name on the hub.
        corpus: a file, a folder, the hub name of a data set, or "pydocs".
        top: how many texts to return.
        column: the column of a table that holds the text.
        id_column: the one by which hits name their texts, where there is one.
        words: the weight of word matching, 0 to 1.  Default: what the encoder's folder says, or 0.
        feedback: texts found first that the query is moved towards.  Default: what the encoder's folder says, or 0.

    Raises:
        UserError: no such model or corpus, or no text in it.

    Examples:
        >>> for hit in selfsent.search("builtin", "tickets.jsonl", "cannot log in after the update", top=3):
        ...     print(hit.cosine, hit.text)
    """
    if top < 1:
        raise ConfigurationError(f"top = {top} does not fit: give 1 or more")
    if not isinstance(corpus, str | Path):
        raise CorpusError(
            f"corpus is a {type(corpus).__name__} and no name of a file or folder: save the texts to one, or find the "
            "nearest by selfsent.encode(encoder, [query]) @ selfsent.encode(encoder, texts).T"
        )
    index = open_cached(model, corpus, column=column, id_column=id_column, progress=progress)
    return index.search(query, top, words=words, feedback=feedback)


def open_cached(
    model: str | Path,
    corpus: str | Path,
    *,
    column: str | None = None,
    id_column: str = "id",
    progress: Progress = SILENT,
) -> Index:
    """Open the index of a corpus that the cache keeps, or make it.

    Its vectors are float32 and all of them are compared.
    """
    encoder = open_encoder(model, fastest=True, progress=progress)
    sources, config = resolve_sources([str(corpus)], progress), IndexConfig(mode="dense", exact_vectors=MANY)
    facts = new_facts(encoder, model, [corpus], sources, config, (column, id_column))
    names = ("format", "fingerprint", "search", "text column", "id column")
    identity = [source_identities(sources), *(facts[name] for name in names)]  # by name, too: an id may hold it
    digest = hashlib.sha256(json.dumps(identity, default=str).encode()).hexdigest()[:24]
    folder = atomic.cache_folder("indexes", digest)
    if atomic.cached(folder):
        return Index.open(folder, encoder)
    texts = list(search_texts(sources, column, id_column, progress=progress))
    if not texts:
        raise CorpusError(f"{corpus} holds no text to search: give a file with some")
    check_coverage(encoder, [passage for text in texts for passage in text.passages], str(model), progress)
    segments: dict[str, Segment] = {}
    for documents in split_into_segments(texts):
        segment = Segment.make(documents, encoder, facts["fingerprint"]["document"], np.float32)
        segments[f"segment-{len(segments):05}"] = segment
        progress.report("encode", sum(map(len, segments.values())), len(texts))
    # Without the encoder's word for it, by meaning: nothing is measured for a search that may be the only one.
    facts |= {"mode": facts["search"]["mode"] or "dense", "segments": [*segments], "words": "words"}
    try:
        with atomic.build_folder(folder) as scratch:
            for name, segment in segments.items():
                segment.save(scratch / name)
            titled = ((text.title, " ".join(text.passages)) for text in texts)
            write_word_index(scratch / "words", titled, facts["search"]["language"], progress)
            atomic.write_sealed(scratch / MANIFEST, facts)
        index = Index.open(folder, encoder)
    except (OSError, ConfigurationError) as error:  # a full disk, or a cache that is read-only
        progress.say(
            f"warning: {folder} cannot be written ({getattr(error, 'strerror', error)}): the next search encodes these "
            "texts again, and this one ranks by meaning alone"
        )
        index = Index(folder, facts | {"mode": "dense", "words": None}, [*segments.values()], encoder)
    index.reused = False
    return index
