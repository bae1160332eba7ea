"""Write an index: documents are added behind those that are there, and a new state is published at once.

``index.json`` names the files that belong to the index; it is replaced as the last step of every change, so that a kill
leaves the index as it was.  It also holds the fingerprint of the encoder, and nothing is compared with vectors of
another one.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from selfsent.corpus.sources import Source, at_home
from selfsent.encoder.base import Encoder
from selfsent.encoder.coverage import BEGINNING, check_coverage
from selfsent.encoder.folder import SHIPPED
from selfsent.encoder.released import find_encoder
from selfsent.encoder.search_settings import WORDS, SearchSettings, read_search_settings
from selfsent.errors import ConfigurationError, CorpusError, ResumeError, UserError
from selfsent.progress import SILENT, Progress
from selfsent.searching import nearest
from selfsent.searching.modes import measure_modes, write_word_index
from selfsent.searching.passages import SearchText, search_texts
from selfsent.searching.segment import DOCUMENTS, MAPPED, Segment, split_into_segments
from selfsent.searching.settings import IndexConfig
from selfsent.storage import atomic, locks
from selfsent.storage.windows import left_if_open

FileStamp = tuple[int, int, int] | None
MANIFEST = "index.json"
FORMAT = 10  # raised whenever an older index cannot be read
_AGAIN = "again.json"  # by what a state is embedded again; gone when it is published
_BEGUN = "begun.json"  # beside what is encoded so far; gone when the index is published
_KINDS = ("words-", "deleted-", "lists-", "begun.", "again.")
_OWN = ("segment-", *_KINDS, *(f".{kind}" for kind in _KINDS))
_OUTGROWN = 4  # times as many vectors as the lists were learned from: they are learned again


def is_index(folder: str | Path) -> bool:
    """Tell whether a folder is an index."""
    return (Path(folder) / MANIFEST).is_file()


def stamps_of(folder: Path, facts: dict[str, Any]) -> dict[Path, FileStamp]:
    """Return what tells, for a few microseconds each, whether ``index.json`` and the files that are mapped changed.

    Files of ours are replaced, and the old one stays mapped; another program may write into one, or cut it off, and
    what is mapped is then of another index, or kills the process that reads it.
    """
    files = [folder / MANIFEST, *(folder / name / mapped for name in facts["segments"] for mapped in MAPPED)]
    if facts["words"]:
        files += sorted((folder / facts["words"]).glob("*.npy"))
    if facts["lists"]:
        files.append(folder / facts["lists"]["file"])
    return {file: stamp_of(file) for file in files}


def stamp_of(file: Path) -> FileStamp:
    """Return number, size and time of change of a file; None where there is none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def advice_for(folder: Path) -> str:
    """Return what mends an index that is damaged."""
    return f"delete {folder} and make the index again"


def fingerprint_of(encoder: Encoder) -> dict[str, Any]:
    """Return what has to be equal for a query's vector to be comparable with the vectors of an index."""
    return {
        "digest": encoder.digest,
        "width": encoder.width,
        "document": encoder.task_prompt("document"),
        "query": encoder.task_prompt("query"),
    }


def source_identities(sources: Sequence[Source]) -> list[Any]:
    """Return what changes when the texts do, as JSON holds it."""
    return [[source.name, *map(str, source.identity())] for source in sources]


def new_facts(
    encoder: Encoder,
    model: str | Path,
    corpus: Sequence[str | Path],
    sources: Sequence[Source],
    config: IndexConfig,
    columns: Sequence[str | None],
) -> dict[str, Any]:
    """Return what ``index.json`` holds of an index without documents, with the columns of text and id."""
    return {
        "format": FORMAT,
        "state": 0,  # how many times it was published
        "model": lasting(model),
        "fingerprint": fingerprint_of(encoder),
        "config": {name: getattr(config, name) for name in type(config).__pydantic_fields__},  # type: ignore[attr-defined]
        "text column": columns[0],
        "id column": columns[1],
        "corpus": [lasting(name) for name in corpus],
        "sources": source_identities(sources),
        "search": _search_settings(encoder, model, config),  # what a search takes where it says nothing else
        "mode": None,
        "measured": None,  # MRR@10 of each mode, where it was measured
        "segments": [],
        "deleted": None,
        "words": None,
        "lists": None,
    }


def _search_settings(encoder: Encoder, model: str | Path, config: IndexConfig) -> dict[str, Any]:
    """Return how a search ranks, by the settings of the index and else by the encoder's folder.

    ``scale`` holds the widths of the encoders of a pair, and by how much a query's vector is scaled in each.
    """
    kept = read_search_settings(find_encoder(model))
    words, feedback = (kept.words or WORDS, kept.feedback) if kept else (WORDS, 0)
    language = config.language or (kept.language if kept else SearchSettings.language)
    scale = []
    if kept and kept.weights:
        pairs = zip(encoder.encoders, encoder.weights, kept.weights, strict=True)
        scale = [[each.width, asked / weight] for each, weight, asked in pairs]
    return {
        "words": words if config.words is None else config.words,
        "feedback": feedback if config.feedback is None else config.feedback,
        "mode": None if kept is None else "hybrid" if kept.words else "dense",
        "scale": scale,
        "language": language,
    }


def lasting(name: str | Path) -> str:
    """Return a name that is found from every folder."""
    path, (whole, mark, part) = at_home(name), str(name).rpartition("::")
    if mark and not path.exists() and at_home(whole).exists():  # a part of a file
        return f"{at_home(whole).absolute()}::{part}"
    return str(path.absolute()) if str(name) not in SHIPPED and path.exists() else str(name)


def write_state(
    folder: Path,
    encoder: Encoder,
    facts: dict[str, Any],
    texts: Iterable[SearchText],
    deleted: Sequence[int] = (),
    *,
    segment_documents: int = DOCUMENTS,
    progress: Progress = SILENT,
) -> None:
    """Add documents behind those of an index, and publish its next state; until then a search sees the last.

    What a killed command has encoded is used again: the files of a state have its number in their names.

    Args:
        facts: of the last state.
        deleted: numbers of all documents that are deleted.
        segment_documents: of a segment, at most: what is encoded again after a kill.
    """
    facts, encoded = {**facts, "state": facts["state"] + 1, "segments": [*facts["segments"]], "deleted": None}, 0
    for documents in split_into_segments(texts, segment_documents):
        path = folder / f"segment-{facts['state']}-{len(facts['segments']):05}"
        if not _is_there(path, documents):
            atomic.remove(path)
            Segment.make(documents, encoder, facts["fingerprint"]["document"]).save(path)
        facts["segments"].append(path.name)
        encoded += len(documents)
        progress.report("encode", encoded)
    segments = [Segment.open(folder / name, advice_for(folder)) for name in facts["segments"]]
    if len(deleted):
        facts["deleted"] = f"deleted-{facts['state']}.npy"
        with atomic.sealed_file(folder / facts["deleted"]) as file:
            np.save(file, np.sort(np.array(deleted, np.int64)))
    facts["words"] = f"words-{facts['state']}"
    atomic.remove(folder / facts["words"])  # a killed command may have left those of other documents
    texts_of = (segment.text(number) for segment in segments for number in range(len(segment)))
    gone = {*deleted}  # BM25's document frequencies and mean length are those of the others
    titled = ((title, " ".join(passages)) for number, (title, passages, _) in enumerate(texts_of) if number not in gone)
    write_word_index(folder / facts["words"], titled, facts["search"]["language"], progress)
    facts["lists"] = _grow_lists(folder, facts, [segment.vectors for segment in segments], progress)
    atomic.write_sealed(folder / MANIFEST, facts)
    _sweep(folder, facts)


def _grow_lists(
    folder: Path, facts: dict[str, Any], vectors: nearest.Vectors, progress: Progress
) -> dict[str, Any] | None:
    """Write the lists of all vectors where they are too many to compare each, and return their facts."""
    config, before = IndexConfig(**facts["config"]), facts["lists"]
    total = sum(map(len, vectors))
    if total <= config.exact_vectors:
        return None
    if not nearest.faiss_available():
        progress.say(
            f"warning: {total:,} vectors are searched exactly, because faiss is not installed: "
            "pip install '.[search]' in the checkout and make the index again"
        )
        return None
    if before is None or total > _OUTGROWN * before["learned from"]:
        progress.report("lists", 0, total)
        lists = min(total, config.lists or nearest.lists_for(total))
        before, file = None, nearest.IVFIndex(vectors, lists, config.bits)
    else:
        file = nearest.IVFIndex.open_file(folder / before["file"], grow=True)
    if len(file) == total:
        return before
    waiting = nearest.choose_sample(len(file), total)
    file.add_vectors(vectors, waiting, progress)
    if before is None or len(waiting):
        nprobe, recall = nearest.measure_recall(file, vectors, waiting, config.recall)
    else:  # a handful of new vectors says nothing
        nprobe, recall = before["nprobe"], before["recall"]
    file.add_rows(vectors, waiting)
    if recall < config.recall:
        progress.say(
            f"warning: recall@10 of the lists is {recall:.3f}, below {config.recall}: give fewer lists, or search "
            "exactly with a larger exact_vectors"
        )
    name = f"lists-{facts['state']}.faiss"
    with atomic.replacing(folder / name) as unfinished:
        file.save_file(unfinished)
    atomic.seal_file(folder / name)
    learned_from = total if before is None else before["learned from"]
    return {"file": name, "nprobe": nprobe, "recall": recall, "learned from": learned_from}


def _is_there(path: Path, texts: Sequence[SearchText]) -> bool:
    """Tell whether a segment is there, whole, of exactly these texts: a command that was killed wrote it."""
    try:
        return path.is_dir() and Segment.open(path, "").holds(texts)
    except ResumeError:
        return False


def _sweep(folder: Path, facts: dict[str, Any]) -> None:
    """Remove files of former states; an index that is open elsewhere keeps those that it has mapped."""
    lists = facts["lists"]
    named = [*facts["segments"], facts["words"], facts["deleted"], lists and lists["file"]]
    kept = {MANIFEST, atomic.LOCK_NAME, *filter(None, named)}
    kept |= {atomic.checksum_of(folder / name).name for name in kept}
    for path in folder.iterdir():  # of ours: what people put there stays
        if path.name not in kept and path.name.startswith(_OWN) and not atomic.is_unfinished(path):
            with left_if_open():
                atomic.remove(path)


def write_index(
    sources: Sequence[Source],
    folder: Path,
    encoder: Encoder,
    facts: dict[str, Any],
    *,
    segment_documents: int,
    beginning: int,
    progress: Progress = SILENT,
) -> None:
    """Write the index of every document of the sources, for ``Index.make``; after a kill, the same call goes on."""
    with locks.exclusive(folder):
        require_unused(folder)  # again: another process may have made an index there meanwhile
        facts |= _begun(folder, facts)
        try:
            first, texts = _begin(sources, encoder, facts, beginning, progress)
            if facts["mode"] is None:
                _choose_mode(facts, encoder, first)
                atomic.write_sealed(folder / _BEGUN, facts)
            write_state(folder, encoder, facts, texts, segment_documents=segment_documents, progress=progress)
        except UserError:
            if not any(folder.glob("segment-*")):  # nothing was encoded that the next call could use
                for path in folder.iterdir():
                    if path.name.startswith(_OWN) or atomic.is_unfinished(path):
                        atomic.remove(path)
            raise


def write_again(
    sources: Sequence[Source], folder: Path, encoder: Encoder, facts: dict[str, Any], progress: Progress
) -> None:
    """Write every document of the sources in the place of those of an index, whose state the facts name, at once."""
    facts = {**facts, "state": facts["state"] + 1}  # the next state is never one that an update has begun
    asked = {"fingerprint": facts["fingerprint"], "state": facts["state"]}
    if not (folder / _AGAIN).is_file() or atomic.read_sealed(folder / _AGAIN, advice_for(folder)) != asked:
        for left in folder.glob(f"segment-{facts['state'] + 1}-*"):  # by a killed call, of another encoder
            atomic.remove(left)
        atomic.write_sealed(folder / _AGAIN, asked)
    first, texts = _begin(sources, encoder, facts, BEGINNING, progress)
    _choose_mode(facts, encoder, first)
    write_state(folder, encoder, facts, texts, progress=progress)


def _begin(
    sources: Sequence[Source], encoder: Encoder, facts: dict[str, Any], beginning: int, progress: Progress
) -> tuple[list[SearchText], Iterable[SearchText]]:
    """Return the first documents, whose words the encoder has to know, and all of them."""
    columns = facts["text column"], facts["id column"]
    rest = search_texts(sources, *columns, facts["config"]["passages"], progress)
    first = list(islice(rest, beginning))
    if not first:
        raise CorpusError(f"{', '.join(facts['corpus'])} holds no text to search: give a file with some")
    check_coverage(encoder, [text.passages[0] for text in first], facts["model"], progress)
    return first, chain(first, rest)


def require_unused(folder: Path) -> None:
    """Refuse a folder that holds something that no killed call left."""
    begun = (folder / _BEGUN).is_file()
    if is_index(folder) and not begun:
        raise ConfigurationError(
            f"{folder} is an index already: add --update to bring it up to date, or name another folder"
        )
    if folder.exists() and (
        not folder.is_dir() or (not begun and any(not atomic.is_unfinished(path) for path in folder.iterdir()))
    ):
        raise ConfigurationError(f"{folder} exists and is no index: name another folder")


def _begun(folder: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """Return what a killed call had measured of the same index, which it must be; nothing where none was begun."""
    if not (folder / _BEGUN).exists():
        return {}
    begun = atomic.read_sealed(folder / _BEGUN, advice_for(folder))
    if begun["format"] != facts["format"]:
        raise ConfigurationError(
            f"{folder} holds the beginning of an index of another version: delete it, or name another"
        )
    measured = {name: begun[name] for name in ("mode", "measured")}
    now = json.loads(json.dumps(facts | measured))
    if {**begun, "sources": now["sources"]} == now:  # of a text that was mended: segments that are equal are kept
        return measured if begun["sources"] == now["sources"] else {}
    raise ConfigurationError(
        f"{folder} holds the beginning of an index of another text or model, or with other settings: repeat that "
        "command, delete the folder, or name another one"
    )


def _choose_mode(facts: dict[str, Any], encoder: Encoder, texts: Sequence[SearchText]) -> None:
    """Set the mode of searches that name none: by the settings, the encoder's folder, or measurement."""
    mode, prompts, search = facts["config"]["mode"], facts["fingerprint"], facts["search"]
    if mode == "auto":
        mode = search["mode"]
    if mode is None:
        measured = measure_modes(
            encoder,
            texts,
            prompts["query"],
            prompts["document"],
            words=search["words"],
            language=facts["search"]["language"],
        )
        facts["measured"] = measured
        mode = "hybrid" if measured is None or measured["bm25"] > measured["dense"] else "dense"
    facts["mode"] = mode
