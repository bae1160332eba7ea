"""Make an index of a corpus, bring it up to date, and add or delete single documents."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from selfsent.corpus.sources import Document, resolve_sources
from selfsent.encoder.base import Encoder
from selfsent.encoder.coverage import BEGINNING, check_coverage
from selfsent.encoder.folder import SHIPPED
from selfsent.encoder.open import open_encoder
from selfsent.errors import ConfigurationError, CorpusError, UserError
from selfsent.progress import SILENT, Progress
from selfsent.searching.index import CorpusIndex, fingerprint_of, is_index, missing_and_new, source_identities
from selfsent.searching.modes import measure_modes
from selfsent.searching.passages import SearchText, search_text, search_texts
from selfsent.searching.settings import IndexConfig
from selfsent.searching.writer import IndexWriter, new_facts, remove_begun
from selfsent.storage import atomic, locks

_BEGUN = "begun.json"  # beside what is encoded so far; gone when the index is published


@dataclass(frozen=True, kw_only=True)
class Changed:
    """What a call did to an index."""

    added: int
    deleted: int
    kept: int


def make_index(
    corpus: Sequence[str | Path],
    out: str | Path,
    *,
    model: str | Path = "builtin",
    text_column: str = "text",
    id_column: str = "id",
    config: IndexConfig | None = None,
    progress: Progress = SILENT,
) -> Changed:
    """Make an index of every document of a corpus; after a kill, the same call goes on.

    Args:
        corpus: files, folders, hub names of data sets, or "pydocs".
        out: a folder that does not exist yet, is empty, or holds what a killed call of the same arguments left.
        model: "builtin", a folder, or a name on the hub; documents get its prompt for documents.
        id_column: the column of a table, where it has one, by which hits name their documents.

    Raises:
        UserError: no such model or corpus, no text in it, or a folder that holds something else.
    """
    out = Path(out)
    sources = resolve_sources([str(name) for name in corpus])
    _refuse_other_content(out)
    encoder = open_encoder(model, fastest=True, progress=progress)
    facts = new_facts(encoder, _lasting(model), sources, config or IndexConfig(), (text_column, id_column))
    facts["corpus"] = [_lasting(name) for name in corpus]
    with locks.exclusive(out):
        _refuse_other_content(out)  # again: another process may have made an index there meanwhile
        facts |= _begun(out, facts)
        try:
            rest = search_texts(sources, text_column, id_column, facts["config"]["passages"], progress)
            beginning = list(islice(rest, BEGINNING))
            if not beginning:
                raise CorpusError(f"{', '.join(map(str, corpus))} holds no text to search: give a file with some")
            check_coverage(encoder, [one.passages[0] for one in beginning], str(model), progress)
            if facts["mode"] is None:
                _choose_mode(facts, encoder, beginning)
                atomic.write_sealed(out / _BEGUN, facts)
            writer = IndexWriter(out, encoder, facts, progress)
            added = writer.add_documents(chain(beginning, rest))
            writer.publish([])
        except UserError:
            if not any(out.glob("segment-*")):  # nothing was encoded that the next call could use
                remove_begun(out)
            raise
    return Changed(added=added, deleted=0, kept=0)


def _refuse_other_content(out: Path) -> None:
    """Raise an error where a folder holds something that no killed call left."""
    begun = (out / _BEGUN).is_file()
    if is_index(out) and not begun:
        raise ConfigurationError(
            f"{out} is an index already: add --update to bring it up to date, or name another folder"
        )
    if out.exists() and (
        not out.is_dir() or (not begun and any(not atomic.is_unfinished(path) for path in out.iterdir()))
    ):
        raise ConfigurationError(f"{out} exists and is no index: name another folder")


def _begun(out: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """Return what a killed call had measured of the same index; nothing where none was begun.

    Raises:
        ConfigurationError: it was making another index.
    """
    if not (out / _BEGUN).exists():
        return {}
    begun = atomic.read_sealed(out / _BEGUN, f"delete {out} and make the index again")
    if begun["format"] != facts["format"]:
        raise ConfigurationError(
            f"{out} holds the beginning of an index of another version: delete it, or name another"
        )
    measured = {name: begun[name] for name in ("mode", "measured")}
    now = json.loads(json.dumps(facts | measured))
    if {**begun, "sources": now["sources"]} == now:  # of a text that was mended: segments that are equal are kept
        return measured if begun["sources"] == now["sources"] else {}
    if begun != now:
        raise ConfigurationError(
            f"{out} holds the beginning of an index of another text or model, or with other settings: repeat that "
            "command, delete the folder, or name another one"
        )
    return measured


def require_related(out: str | Path, corpus: Sequence[str | Path]) -> None:
    """Refuse a corpus that would replace all of an index: it is more likely a mistake for adding to it.

    Raises:
        ConfigurationError: no source of the index is in the corpus.
    """
    own = [str(name) for name in CorpusIndex(out).facts["corpus"]]
    if corpus and not {Path(_lasting(name)).resolve() for name in corpus} & {Path(name).resolve() for name in own}:
        raise ConfigurationError(
            f"{out} was made of {', '.join(own)}, and --update brings it to exactly the corpus that is given: name "
            "that, too, to add to it, or make another index with another --out"
        )


def update_index(out: str | Path, corpus: Sequence[str | Path] = (), *, progress: Progress = SILENT) -> Changed:
    """Bring an index up to date: documents that are new are encoded, those that are gone are deleted.

    Args:
        corpus: what the index is to hold from now on.  Default: the corpus that it was made of.

    Raises:
        UserError: no index, its model changed or is gone, or nothing would be left.
    """
    encoder = _own_encoder(CorpusIndex(out))
    with locks.exclusive(Path(out)):
        index = _still_of(out, encoder)
        names = [str(name) for name in corpus] or list(index.facts["corpus"])
        sources = resolve_sources(names)
        identities = source_identities(sources)
        columns = index.facts["text column"], index.facts["id column"]
        texts = search_texts(sources, *columns, index.config.passages, progress)
        gone, new, kept = missing_and_new(index, texts)
        if not new and not kept:
            raise CorpusError(f"{', '.join(names)} holds no text to search: the index is left as it is")
        facts = {**index.facts, "corpus": [_lasting(name) for name in names], "sources": identities}
        _publish(index, encoder, facts, new, gone, progress)
    return Changed(added=len(new), deleted=len(gone), kept=kept)


def add_to_index(out: str | Path, documents: Iterable[Document], *, progress: Progress = SILENT) -> Changed:
    """Add documents to an index, whether its corpus has them or not; ``update_index`` takes them out again.

    Raises:
        UserError: no index, no text in the documents, or the model changed.
    """
    opened = CorpusIndex(out)
    encoder = _own_encoder(opened)
    new = [text for one in documents if (text := search_text(one, opened.config.passages)) is not None]
    if not new:
        raise CorpusError("the documents hold no text to add: give one with some")
    with locks.exclusive(Path(out)):
        index = _still_of(out, encoder)
        _publish(index, encoder, dict(index.facts), new, [], progress)
    return Changed(added=len(new), deleted=0, kept=len(index))


def delete_from_index(out: str | Path, documents: Sequence[int], *, progress: Progress = SILENT) -> Changed:
    """Delete documents by the numbers that a search returns.

    Raises:
        UserError: no index, a number that no document has, or nothing would be left.
    """
    encoder = _own_encoder(CorpusIndex(out))
    with locks.exclusive(Path(out)):
        index = _still_of(out, encoder)
        for document in documents:
            index.require_document(document)
        gone = sorted(set(documents))
        if len(gone) == len(index):
            raise ConfigurationError(f"{out} would be left without a document: delete the folder instead")
        _publish(index, encoder, dict(index.facts), [], gone, progress)
    return Changed(added=0, deleted=len(gone), kept=len(index) - len(gone))


def corpus_changed(index: CorpusIndex) -> str | None:
    """Say in one sentence that the corpus changed since the index was made; None where it did not, or is not here."""
    try:
        now = source_identities(resolve_sources([str(name) for name in index.facts["corpus"]]))
    except UserError:  # the index works without its corpus
        return None
    if [one[1:] for one in now] == [one[1:] for one in index.facts["sources"]]:
        return None
    return f"the corpus changed since {index.folder} was made: selfsent index --update --out {index.folder}"


def _publish(
    index: CorpusIndex,
    encoder: Encoder,
    facts: dict[str, Any],
    new: Sequence[SearchText],
    gone: Sequence[int],
    progress: Progress,
) -> None:
    writer = IndexWriter(index.folder, encoder, facts, progress)
    writer.add_documents(new)
    before = [number for number, deleted in enumerate(index.deleted.tolist()) if deleted]
    writer.publish([*before, *gone])
    hidden = len(before) + len(gone)
    if 2 * hidden > len(index.deleted) + len(new):
        progress.say(f"{hidden:,} deleted documents take more room than the others: make the index again to free it")


def _own_encoder(index: CorpusIndex) -> Encoder:
    """Open the model of an index, which must still be what it was."""
    encoder = open_encoder(index.facts["model"], fastest=True)
    index.require_encoder(fingerprint_of(encoder), index.facts["model"])
    return encoder


def _still_of(out: str | Path, encoder: Encoder) -> CorpusIndex:
    """Open an index that this process has locked, as other processes left it."""
    index = CorpusIndex(out)
    index.require_encoder(fingerprint_of(encoder), index.facts["model"])
    return index


def _choose_mode(facts: dict[str, Any], encoder: Encoder, texts: Sequence[SearchText]) -> None:
    """Set the mode of searches that name none, by measurement where the settings leave it open."""
    mode, prompts = facts["config"]["mode"], facts["fingerprint"]
    if mode == "auto":
        facts["measured"] = measure_modes(encoder, texts, prompts["query"], prompts["document"])
        mode = max(facts["measured"], key=facts["measured"].__getitem__) if facts["measured"] else "hybrid"
    facts["mode"] = mode


def _lasting(name: str | Path) -> str:
    """Return a name that is found from every folder."""
    path = Path(name).expanduser()
    return str(path.absolute()) if str(name) not in SHIPPED and path.exists() else str(name)
