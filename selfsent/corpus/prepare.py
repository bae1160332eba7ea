"""From the names of sources to a prepared corpus on disk; made once, then found in the cache."""

import dataclasses
import heapq
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xxhash
from numpy.typing import NDArray

from selfsent.corpus import deduplicate
from selfsent.corpus.columns import Ragged, Table
from selfsent.corpus.dataset import HELD_OUT_DOCUMENTS, Corpus, write_facts
from selfsent.corpus.held_out import Kind
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import Document, Source, read_sources, resolve_sources
from selfsent.corpus.statistics import CorpusStatistics
from selfsent.corpus.tokenize import CorpusEngine, TextRules, TokenizedTexts, WordPieces, split_document
from selfsent.errors import ConfigurationError, CorpusError
from selfsent.progress import SILENT, Progress
from selfsent.storage.atomic import build_folder, cache_folder, cached
from selfsent.text import clean

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FORMAT = 7  # of the folder; raised whenever the same input would give another corpus

_ROWS = 1 << 15  # stored at a time
_LONGEST = 4096  # tokens; longer texts count as this long in the statistics
_SOURCES = 20  # at most, that a first look opens
_SPARE = 1.5  # documents drawn for each that is wanted: some turn out to be near-duplicates

Unit = Literal["sentences", "documents"]


def prepare_corpus(
    sources: Sequence[str],
    config: CorpusConfig,
    tokenizer: "PreTrainedTokenizerBase",
    *,
    unit: Unit = "sentences",
    cache: Path | None = None,
    engine: CorpusEngine | None = None,
    progress: Progress = SILENT,
) -> Corpus:
    """Prepare a corpus on disk, or open the one that was prepared from the same sources and settings.

    Args:
        sources: files, folders, hub datasets (``owner/name[/config][:split]``) or ``pydocs``.
        tokenizer: the fast tokenizer of the encoder that will be trained.
        unit: ``documents`` keeps every document whole, neither split nor truncated.
        cache: root of all caches; the default is ``SELFSENT_CACHE`` or ``~/.cache/selfsent``.
        engine: where documents are split and texts tokenised; the corpus does not depend on it.  Default: here.
        progress: the stage ``read`` counts bytes, or documents where there is no file and the total is unknown.

    Raises:
        CorpusError: a source cannot be read, or fewer than two texts are left.
        ResumeError: the corpus in the cache is damaged.
    """
    if config.positives == "adjacent" and unit == "documents":
        raise ConfigurationError(
            "corpus.positives = 'adjacent' pairs sentences, and this method learns from documents: leave it out"
        )
    resolved = resolve_sources(sources, progress)
    pieces = WordPieces(tokenizer)
    settings = dataclasses.asdict(config)
    del settings["preset"]  # it has set other keys
    # Without these the corpus is the one that was prepared before the setting existed.
    if config.order != "meaningful":
        del settings["order"]
    if config.clean:
        del settings["clean"]
    identities = [source.identity() for source in resolved]
    identity = {"format": FORMAT, "unit": unit, "config": settings, "sources": identities, "tokenizer": pieces.identity}
    fingerprint = xxhash.xxh3_128_hexdigest(json.dumps(identity, sort_keys=True).encode())
    folder = cache_folder("corpora", fingerprint, cache)
    reused = cached(folder)
    if not reused:
        with build_folder(folder) as scratch:
            _build(resolved, config, pieces, unit, scratch, engine or CorpusEngine(), progress)
    return Corpus(folder, reused=reused, sources=identities)


def corpus_texts(
    sources: Sequence[str], config: CorpusConfig, progress: Progress = SILENT, left_out: Counter[str] | None = None
) -> Iterator[str]:
    """Yield the texts that ``prepare_corpus`` would read, before it holds out and deduplicates.

    Args:
        left_out: counts those that are too short or too long.
    """
    left_out = Counter() if left_out is None else left_out
    account = CorpusStatistics()
    for document, rules in _documents(resolve_sources(sources), config, "sentences", progress):
        taken: list[str] = []
        texts = split_document(document, rules, taken)[2]
        account.take_markup(taken)
        for text in texts:
            count = clean.count_words(text)
            if count in rules.words:
                yield text
            elif count < rules.words.start:
                left_out[f"of fewer than {rules.words.start} words"] += 1
            else:
                left_out[f"of more than {rules.words.stop - 1} words"] += 1
    for line in account.markup_lines():
        progress.say(line)


def read_texts(
    sources: Sequence[str], config: CorpusConfig, progress: Progress = SILENT
) -> Iterator[tuple[Document, str, list[str]]]:
    """Yield every document that has text, its cleaned summary, and its sentences or its single line."""
    account = CorpusStatistics()
    for document, rules in _documents(resolve_sources(sources), config, "sentences", progress):
        taken: list[str] = []
        _, summary, sentences = split_document(document, rules, taken)
        account.take_markup(taken)
        if sentences:
            yield document, clean.one_line(summary), sentences
    for line in account.markup_lines():
        progress.say(line)


def corpus_documents(sources: Sequence[str], config: CorpusConfig, progress: Progress = SILENT) -> Iterator[Document]:
    """Yield the uncleaned documents that ``prepare_corpus`` would read."""
    return (document for document, _ in _documents(resolve_sources(sources), config, "sentences", progress))


def first_texts(sources: Sequence[str], config: CorpusConfig, size: int) -> list[str]:
    """Return about ``size`` uncleaned texts from the beginnings of some sources, evenly spread over all."""
    resolved = resolve_sources(sources)
    chosen = resolved[:: -(-len(resolved) // _SOURCES)]
    each = -(-size // len(chosen))
    return [document.text for source in chosen for document in islice(source.documents(config.columns), each)]


def draw_documents(
    sources: Sequence[str], config: CorpusConfig, size: int, progress: Progress = SILENT
) -> list[Document]:
    """Draw the documents with the smallest content hashes: ``size``, and half as many to spare."""
    hashed = (
        (xxhash.xxh3_64_intdigest(document.text.encode(errors="replace")), -number, document)
        for number, document in enumerate(corpus_documents(sources, config, progress))
        if document.text.strip()
    )
    return [document for *_, document in heapq.nsmallest(round(size * _SPARE), hashed)]


def _splits(source: Source, config: CorpusConfig, unit: Unit) -> bool:
    return config.split == "yes" or (config.split == "auto" and (unit == "documents" or source.kind != ".txt"))


def _documents(
    sources: Sequence[Source], config: CorpusConfig, unit: Unit, progress: Progress
) -> Iterator[tuple[Document, TextRules]]:
    total = sum(source.size for source in sources) or None
    count, at = 0, None
    for count, (source, document) in enumerate(read_sources(sources, config.columns, progress, total), 1):
        if source is not at:  # rows of two sources are no neighbours: each has rules of its own
            at, rules = source, TextRules(config, _splits(source, config, unit), whole=unit == "documents")
        if not total and not count % 256:
            progress.report("read", count, None)
        yield document, rules
    progress.report("read", total or count, total)


def _build(
    sources: Sequence[Source],
    config: CorpusConfig,
    pieces: WordPieces,
    unit: Unit,
    folder: Path,
    engine: CorpusEngine,
    progress: Progress,
) -> None:
    documents = engine.split(_documents(sources, config, unit, progress))
    kind: Kind = "summary-body" if any(_splits(source, config, unit) for source in sources) else "halves"
    with TemporaryDirectory(dir=folder) as staging, Table(Path(staging)) as table:
        texts = TokenizedTexts(table, pieces, config, kind, engine)
        limit = config.max_texts and config.max_texts + config.max_texts // 8 + 1000
        while True:
            more = texts.fill(documents, limit)
            drop_reason, near_pairs = _drop(texts, config, progress)
            kept = int((drop_reason == deduplicate.KEPT).sum())
            if not (config.max_texts and limit and more and kept < config.max_texts):
                break
            limit += max(limit, 2 * (config.max_texts - kept) + 1000)  # doubled, or duplicates cost the square
        if config.max_texts:
            drop_reason[np.flatnonzero(drop_reason == deduplicate.KEPT)[config.max_texts :]] = deduplicate.SURPLUS
        _count(sources, texts, drop_reason)
        _store(texts, drop_reason, config.max_length if unit == "sentences" else None, folder, progress)
        examples = [(texts.text(a), texts.text(b)) for a, b in near_pairs if drop_reason[a] == deduplicate.KEPT]
        examples.sort(key=lambda pair: len(pair[0]) + len(pair[1]))
        texts.counts.examples = examples[:2]  # the shortest are read at a glance
        texts.selection.file.rename(folder / HELD_OUT_DOCUMENTS)
    write_facts(folder, texts.counts, texts.selection.found)


def _drop(
    texts: TokenizedTexts, config: CorpusConfig, progress: Progress
) -> tuple[NDArray[np.uint8], list[tuple[int, int]]]:
    """Return for every text whether it is dropped, and why; and pairs of near-duplicates (kept, dropped)."""
    drop_reason = np.zeros(len(texts), np.uint8)
    held_out = np.array(texts.selection.keys, np.uint64)
    if texts.paired:
        for start in range(0, len(texts), _ROWS):
            ends = texts.positives.offsets.read(start, min(start + _ROWS, len(texts)) + 1)
            drop_reason[start + np.flatnonzero(ends[1:] == ends[:-1])] = deduplicate.UNPAIRED
        deduplicate.drop_held_out(texts.positive_keys, held_out, drop_reason)
        if config.positives == "adjacent" and config.deduplicate != "none":
            # A sentence that follows many would tie all their documents together, and none could share a batch.
            deduplicate.drop_exact(texts.positive_keys, drop_reason)
    deduplicate.drop_held_out(texts.keys, held_out, drop_reason)
    # Rows with positives of their own are copies only if both sides are: several answers to a question all teach.
    others = texts.positives if texts.has_pairs else None
    if config.deduplicate != "none":
        deduplicate.drop_exact(texts.keys, drop_reason, texts.positive_keys if texts.has_pairs else None)
    if config.deduplicate != "near":
        return drop_reason, []
    if texts.selection.texts:
        held = texts.pieces.encode(texts.selection.texts)
        deduplicate.drop_near_held_out(texts.bands, texts.ids, *held, config.near_threshold, drop_reason)
        if texts.paired:
            deduplicate.drop_near_held_out(None, texts.positives, *held, config.near_threshold, drop_reason)
    near = deduplicate.drop_near(
        texts.bands, texts.ids, config.near_threshold, drop_reason, texts.folder, progress, others
    )
    return drop_reason, near


def _store(
    texts: TokenizedTexts, drop_reason: NDArray[np.uint8], max_length: int | None, folder: Path, progress: Progress
) -> None:
    """Write the rows that are kept, and count their tokens before truncation."""
    counts, pieces = texts.counts, texts.pieces
    histogram = np.zeros(_LONGEST + 1, np.int64)  # rows by length, special tokens included
    unknown = tokens = longer_than = 0
    with Table(folder) as table, Table(texts.folder) as scratch:
        ids, whole_texts = table.ragged("ids", pieces.dtype), table.ragged("texts", np.uint8)
        lengths, keys = table.column("lengths", np.int32), table.column("keys", np.uint64)
        positives = table.ragged("positives", pieces.dtype) if texts.paired else None
        positive_keys = scratch.column("framed_positive_keys", np.uint64)
        for start in range(0, len(texts), _ROWS):
            progress.report("store", start, len(texts))
            kept = drop_reason[start : start + _ROWS] == deduplicate.KEPT
            if not kept.any():
                continue
            whole_texts.append(*_chosen(texts.texts, start, kept))
            values, sizes = _chosen(texts.ids, start, kept)
            unknown += int((values == pieces.unknown).sum()) if pieces.unknown is not None else 0
            tokens += int(sizes.sum())
            longer_than += 0 if max_length is None else int((sizes + pieces.specials > max_length).sum())
            histogram += np.bincount(np.minimum(sizes + pieces.specials, _LONGEST), minlength=_LONGEST + 1)
            values, sizes = _framed(values, sizes, pieces, max_length)
            ids.append(values, sizes)
            keys.append(deduplicate.row_keys(values, sizes))
            longer = sizes
            if positives is not None:
                values, sizes = _framed(*_chosen(texts.positives, start, kept), pieces, max_length)
                positives.append(values, sizes)
                positive_keys.append(deduplicate.row_keys(values, sizes))
                longer = np.maximum(longer, sizes)
            lengths.append(longer)
        tied = deduplicate.families(keys, positive_keys) if texts.paired else None
    if tied is not None:
        written = np.load(folder / "keys.npy", mmap_mode="r+")
        written[tied[0]] = written[tied[1]]
    progress.report("store", len(texts), len(texts))
    below = np.cumsum(histogram)
    counts.max_length = max_length
    counts.median_length = int(np.searchsorted(below, 0.5 * counts.kept))
    counts.long_length = int(np.searchsorted(below, 0.95 * counts.kept))
    counts.truncated = longer_than / counts.kept
    counts.unknown = unknown / max(1, tokens)


def _chosen(column: Ragged, start: int, kept: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    values, sizes = column.span(start, start + len(kept))
    return values[np.repeat(kept, sizes)], sizes[kept]


def _framed(
    values: NDArray[Any], sizes: NDArray[np.int64], pieces: WordPieces, max_length: int | None
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Truncate rows that stand end to end, and put the special tokens around each."""
    if max_length is not None:
        room = max_length - pieces.specials
        positions = np.arange(len(values)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        values, sizes = values[positions < room], np.minimum(sizes, room)
    ends = np.cumsum(sizes)
    around = np.stack([ends - sizes, ends], axis=1).repeat([len(pieces.before), len(pieces.after)], axis=1)
    specials = np.tile(np.array([*pieces.before, *pieces.after], values.dtype), len(sizes))
    return np.insert(values, around.ravel(), specials), sizes + pieces.specials


def _count(sources: Sequence[Source], texts: TokenizedTexts, drop_reason: NDArray[np.uint8]) -> None:
    """Complete the counts of reading, and refuse a corpus of fewer than two texts."""
    counts = texts.counts
    kept, exact, near, copies, surplus, unpaired = np.bincount(drop_reason, minlength=6).tolist()
    counts.files, counts.kept, counts.surplus = len(sources), kept, surplus
    counts.exact_duplicates, counts.near_duplicates, counts.held_out_copies = exact, near, copies
    counts.held_out_documents, held_out_texts = texts.selection.documents, len(texts.documents.keys)
    until = texts.selection.last
    counts.held_out_until = until if 2 * until < texts.selection.offered else 0
    counts.held_out_texts = counts.held_out_documents if texts.has_pairs else held_out_texts
    # Documents that were held out before the first pair was read have no positive either.
    counts.without_positive = unpaired + texts.has_pairs * held_out_texts
    counts.too_short += texts.without_pieces
    if kept >= 2:
        return
    names = ", ".join(source.name for source in sources[:3]) + (" ..." if len(sources) > 3 else "")
    if not counts.texts:
        raise CorpusError(f"{names} is empty: there is no text in {counts.documents} rows or lines")
    why = ", ".join(f"{count:,} {reason}" for reason, count in counts.dropped() if count)
    left = "one text is" if kept else "nothing is"
    advice = "give more text or relax [corpus]"
    if texts.paired and not texts.has_pairs and not texts.positives.values.rows:
        where = "document, and no two rows follow each other" if texts.rows_adjacent else "document"
        advice = (
            f"corpus.positives = 'adjacent' finds no pair, because no two sentences follow each other in a {where}; "
        )
        if not texts.rows_adjacent:
            advice += "if the order of the lines or rows means something, set corpus.order=meaningful; otherwise "
        advice += "leave corpus.positives out"
    raise CorpusError(f"{left} left of the {counts.texts:,} texts in {names}{f' ({why})' if why else ''}: {advice}")
