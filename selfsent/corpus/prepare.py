"""From the names of sources to a prepared corpus on disk; made once, then found in the cache."""

import dataclasses
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xxhash
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass

from selfsent.atomic import build_folder, cache_folder
from selfsent.config import setting
from selfsent.corpus import dedup
from selfsent.corpus.columns import RaggedColumn, Table
from selfsent.corpus.dataset import HELD_OUT_DOCUMENTS, Corpus, write_facts
from selfsent.corpus.heldout import Kind, Selection
from selfsent.corpus.read import Columns, Document, Source, resolve_sources
from selfsent.corpus.statistics import CorpusStatistics
from selfsent.corpus.tokenize import TextRules, TokenizedTexts, WordPieces, split_document
from selfsent.errors import ConfigurationError, CorpusError
from selfsent.progress import SILENT, Progress

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FORMAT = 3  # of the folder; raised whenever the same input would give another corpus

_ROWS = 1 << 15  # stored at a time
_LONGEST = 4096  # word pieces; longer texts count as this long in the statistics

Unit = Literal["sentences", "documents"]


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """How raw text becomes training texts."""

    max_length: int = setting(32, "word pieces with special tokens; longer texts are truncated", ge=4)
    max_texts: int | None = setting(None, "stop after so many kept texts; None: keep all", ge=1)
    split: Literal["auto", "yes", "no"] = setting(
        "auto", "into sentences; auto: rows of tables yes, lines of .txt files no"
    )
    language: str = setting("en", "two-letter code, for the rules of sentence splitting")
    min_words: int | None = setting(None, "of a text; None: 5 for split sentences, otherwise 1", ge=0)
    max_words: int | None = setting(100, "of a split sentence; longer ones are lists or failed splits")
    deduplicate: Literal["near", "exact", "none"] = setting(
        "near", "exact: texts equal but for case, white space and Unicode variants"
    )
    near_threshold: float = setting(0.7, "Jaccard similarity of word-piece bigrams", gt=0, le=1)
    text_column: str = setting("text", "in jsonl, json, csv, tsv, parquet and hub rows")
    title_column: str = setting("title", "kept with held-out documents; need not exist")
    summary_column: str = setting("summary", "query of the label-free test; need not exist")
    positives: Literal["column", "adjacent"] = setting(
        "column", "adjacent: the positive of a sentence is the next one of its document"
    )
    positive_column: str = setting("positive", "where one row has it, rows without it are dropped")
    held_out: int = setting(1000, "maximum documents in each of dev and test", ge=0)
    held_out_share: float = setting(0.05, "of all documents, dev and test together", ge=0, le=0.5)

    def __post_init__(self) -> None:
        if self.min_words is not None and self.max_words is not None and self.min_words > self.max_words:
            raise ValueError(f"min_words must not exceed max_words, got {self.min_words} and {self.max_words}")

    @property
    def columns(self) -> Columns:
        """The columns to read from tables."""
        return Columns(
            text=self.text_column, title=self.title_column, summary=self.summary_column, positive=self.positive_column
        )


def prepare_corpus(
    sources: Sequence[str],
    config: CorpusConfig,
    tokenizer: "PreTrainedTokenizerBase",
    *,
    unit: Unit = "sentences",
    cache: Path | None = None,
    progress: Progress = SILENT,
) -> Corpus:
    """Prepare a corpus on disk, or open the one that was prepared from the same sources and settings.

    Args:
        sources: files, folders, hub datasets (``owner/name[/config][:split]``) or ``pydocs``.
        tokenizer: the fast tokenizer of the encoder that will be trained.
        unit: ``documents`` keeps every document whole, neither split nor truncated.
        cache: root of all caches; the default is ``SELFSENT_CACHE`` or ``~/.cache/selfsent``.
        progress: the stage ``read`` counts bytes, or documents where there is no file and the total is unknown.

    Raises:
        CorpusError: a source cannot be read, or fewer than two texts are left.
    """
    if config.positives == "adjacent" and unit == "documents":
        raise ConfigurationError(
            "corpus.positives = 'adjacent' pairs sentences, and this method learns from documents: leave it out"
        )
    resolved = resolve_sources(sources)
    pieces = WordPieces(tokenizer)
    identity = {
        "format": FORMAT,
        "unit": unit,
        "config": dataclasses.asdict(config),
        "sources": [source.identity() for source in resolved],
        "tokenizer": pieces.identity,
    }
    fingerprint = xxhash.xxh3_128_hexdigest(json.dumps(identity, sort_keys=True).encode())
    folder = cache_folder("corpora", fingerprint, cache)
    reused = folder.exists()
    if not reused:
        with build_folder(folder) as scratch:
            _build(resolved, config, pieces, unit, scratch, progress)
    return Corpus(folder, reused=reused)


def corpus_texts(sources: Sequence[str], config: CorpusConfig, progress: Progress = SILENT) -> Iterator[str]:
    """Yield the texts that ``prepare_corpus`` would read, before it holds out and deduplicates.

    Raises:
        CorpusError: a source cannot be read.
    """
    for document, rules in corpus_documents(sources, config, progress=progress):
        yield from filter(rules.fits, split_document(document, rules)[2])


def corpus_documents(
    sources: Sequence[str], config: CorpusConfig, *, unit: Unit = "sentences", progress: Progress = SILENT
) -> Iterator[tuple[Document, TextRules]]:
    """Yield the uncleaned documents that ``prepare_corpus`` would read, each with the rules for its texts.

    Raises:
        CorpusError: a source cannot be read.
    """
    resolved = resolve_sources(sources)
    yield from _documents(resolved, [_rules(source, config, unit) for source in resolved], config.columns, progress)


def _rules(source: Source, config: CorpusConfig, unit: Unit) -> TextRules:
    split = config.split == "yes" or (config.split == "auto" and source.kind != ".txt") or unit == "documents"
    sentences = split and unit == "sentences"
    given = config.min_words
    return TextRules(
        split=split,
        whole=unit == "documents",
        language=config.language,
        min_words=(5 if sentences else 1) if given is None else given,
        max_words=config.max_words if sentences else None,
        pair_min_words=1 if given is None else given,
    )


def _documents(
    sources: Sequence[Source], rules: Sequence[TextRules], columns: Columns, progress: Progress
) -> Iterator[tuple[Document, TextRules]]:
    total = sum(source.size for source in sources) or None
    offset = count = 0
    for source, rule in zip(sources, rules, strict=True):
        documents = source.documents(columns, progress, offset=offset, total=total)
        for count, document in enumerate(documents, count + 1):  # noqa: B020
            if not total and not count % 256:
                progress.report("read", count, None)
            yield document, rule
        offset += source.size
    progress.report("read", total or count, total)


def _build(
    sources: Sequence[Source],
    config: CorpusConfig,
    pieces: WordPieces,
    unit: Unit,
    folder: Path,
    progress: Progress,
) -> None:
    rules = [_rules(source, config, unit) for source in sources]
    documents = _documents(sources, rules, config.columns, progress)
    width = dedup.band_width(config.near_threshold)
    max_length = config.max_length if unit == "sentences" else None
    staging = folder / "staging"
    staging.mkdir()
    kind: Kind = "summary-body" if any(rule.split for rule in rules) else "halves"
    size, share = config.held_out, config.held_out_share
    single = Selection(kind, size, share, staging / "held_out_documents.jsonl")
    pairs = Selection("pairs", size, share, staging / "held_out_pairs.jsonl")
    with Table(staging) as table:
        texts = TokenizedTexts(
            table,
            pieces,
            single,
            pairs,
            bands=dedup.MINIMA // width if config.deduplicate == "near" else 0,
            width=width,
            adjacent=config.positives == "adjacent",
        )
        limit = config.max_texts and config.max_texts + config.max_texts // 8 + 1000
        while True:
            more = texts.fill(documents, limit)
            table.flush()
            drop_reason = np.zeros(texts.rows, np.uint8)
            near_pairs = _drop(texts, config, drop_reason, progress)
            kept = int((drop_reason == dedup.KEPT).sum())
            if not (config.max_texts and limit and more and kept < config.max_texts):
                break
            limit += 2 * (config.max_texts - kept) + 1000
        if config.max_texts:
            drop_reason[np.flatnonzero(drop_reason == dedup.KEPT)[config.max_texts :]] = dedup.SURPLUS
        statistics = _count(len(sources), texts, drop_reason)
        if statistics.kept < 2:
            raise _nothing_left(sources, statistics)
        examples = [(texts.text(a), texts.text(b)) for a, b in near_pairs if drop_reason[a] == dedup.KEPT]
        measured = _store(texts, drop_reason, max_length, folder, progress)
    texts.selection.file.rename(folder / HELD_OUT_DOCUMENTS)
    shutil.rmtree(staging)
    examples = sorted(examples, key=lambda pair: len(pair[0]) + len(pair[1]))[:2]  # the shortest are read at a glance
    write_facts(folder, dataclasses.replace(statistics, examples=examples, **measured), texts.selection.found)


def _drop(
    texts: TokenizedTexts, config: CorpusConfig, drop_reason: NDArray[np.uint8], progress: Progress
) -> list[tuple[int, int]]:
    """Mark what is dropped, and why; return pairs of near-duplicates (kept, dropped)."""
    if texts.paired:
        for start in range(0, texts.rows, _ROWS):
            ends = texts.positives.offsets.read(start, min(start + _ROWS, texts.rows) + 1)
            drop_reason[start + np.flatnonzero(ends[1:] == ends[:-1])] = dedup.UNPAIRED
        dedup.drop_held_out(texts.positive_keys, texts.held_out_keys, drop_reason)
        if config.positives == "adjacent" and config.deduplicate != "none":
            # A sentence that follows many would tie all their documents together, and none could share a batch.
            dedup.drop_exact(texts.positive_keys, drop_reason)
    dedup.drop_held_out(texts.keys, texts.held_out_keys, drop_reason)
    if config.deduplicate != "none":
        dedup.drop_exact(texts.keys, drop_reason)
    if config.deduplicate != "near":
        return []
    return dedup.drop_near(texts.bands, texts.ids, config.near_threshold, drop_reason, texts.folder, progress)


def _store(
    texts: TokenizedTexts, drop_reason: NDArray[np.uint8], max_length: int | None, folder: Path, progress: Progress
) -> dict[str, Any]:
    """Write the rows that are kept; return the statistics of their word pieces before truncation."""
    pieces = texts.pieces
    histogram = np.zeros(_LONGEST + 1, np.int64)  # rows by length, special tokens included
    unknown = 0

    def rows(column: RaggedColumn, start: int, stop: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        values, sizes = column.span(start, stop)
        kept = drop_reason[start:stop] == dedup.KEPT
        return values[np.repeat(kept, sizes)], sizes[kept]

    with Table(folder) as table, Table(texts.folder) as scratch:
        ids, whole_texts = table.ragged("ids", pieces.dtype), table.ragged("texts", np.uint8)
        lengths, keys = table.column("lengths", np.int32), table.column("keys", np.uint64)
        positives = table.ragged("positives", pieces.dtype) if texts.paired else None
        positive_keys = scratch.column("framed_positive_keys", np.uint64)
        for start in range(0, texts.rows, _ROWS):
            stop = min(start + _ROWS, texts.rows)
            progress.report("store", start, texts.rows)
            if not (drop_reason[start:stop] == dedup.KEPT).any():
                continue
            whole_texts.append(*rows(texts.texts, start, stop))
            values, sizes = rows(texts.ids, start, stop)
            unknown += int((values == pieces.unknown).sum()) if pieces.unknown is not None else 0
            histogram += np.bincount(np.minimum(sizes + pieces.specials, _LONGEST), minlength=_LONGEST + 1)
            values, sizes = _framed(values, sizes, pieces, max_length)
            ids.append(values, sizes)
            keys.append(dedup.row_keys(values, sizes))
            longer = sizes
            if positives is not None:
                values, sizes = _framed(*rows(texts.positives, start, stop), pieces, max_length)
                positives.append(values, sizes)
                positive_keys.append(dedup.row_keys(values, sizes))
                longer = np.maximum(longer, sizes)
            lengths.append(longer)
        tied = dedup.families(keys, positive_keys) if texts.paired else None
    if tied is not None:
        written = np.load(folder / "keys.npy", mmap_mode="r+")
        written[tied[0]] = written[tied[1]]
    progress.report("store", texts.rows, texts.rows)
    kept, below = int(histogram.sum()), np.cumsum(histogram)
    content = int((np.arange(len(histogram)) - pieces.specials) @ histogram)
    return {
        "max_length": max_length,
        "median_length": int(np.searchsorted(below, 0.5 * kept)),
        "long_length": int(np.searchsorted(below, 0.95 * kept)),
        "truncated": 0.0 if max_length is None else float(histogram[max_length + 1 :].sum() / kept),
        "unknown": unknown / max(1, content),
    }


def _framed(
    values: NDArray[Any], sizes: NDArray[np.int64], pieces: WordPieces, max_length: int | None
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Truncate rows that stand end to end, and put the special tokens around each."""
    if max_length is not None:
        room = max_length - pieces.specials
        places = np.arange(len(values)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        values, sizes = values[places < room], np.minimum(sizes, room)
    framed = sizes + pieces.specials
    starts = np.cumsum(framed) - framed
    rows = np.empty(int(framed.sum()), values.dtype)
    inner = np.ones(len(rows), bool)
    before = [(starts + place, token) for place, token in enumerate(pieces.before)]
    after = [(starts + framed - len(pieces.after) + place, token) for place, token in enumerate(pieces.after)]
    for places, token in before + after:
        rows[places] = token
        inner[places] = False
    rows[inner] = values
    return rows, framed


def _count(sources: int, texts: TokenizedTexts, drop_reason: NDArray[np.uint8]) -> CorpusStatistics:
    counts = texts.counts
    reasons = np.bincount(drop_reason, minlength=6).tolist()
    return dataclasses.replace(
        counts,
        files=sources,
        too_short=counts.too_short + texts.without_pieces,
        exact_duplicates=reasons[dedup.EXACT],
        near_duplicates=reasons[dedup.NEAR],
        held_out_documents=texts.selection.documents,
        held_out_texts=texts.selection.documents if texts.has_pairs else counts.held_out_texts,
        held_out_copies=reasons[dedup.HELD_OUT],
        surplus=reasons[dedup.SURPLUS],
        # Documents that were held out before the first pair was read have no positive either.
        without_positive=reasons[dedup.UNPAIRED] + (counts.held_out_texts if texts.has_pairs else 0),
        kept=reasons[dedup.KEPT],
    )


def _nothing_left(sources: Sequence[Source], statistics: CorpusStatistics) -> CorpusError:
    names = ", ".join(source.name for source in sources[:3]) + (" ..." if len(sources) > 3 else "")
    if not statistics.texts:
        return CorpusError(f"{names} is empty: there is no text in {statistics.documents} rows or lines")
    reasons = {
        "too short": statistics.too_short,
        "too long": statistics.too_long,
        "without a positive": statistics.without_positive,
        "equal to their positive": statistics.identical_pairs,
        "exact duplicates": statistics.exact_duplicates,
        "near-duplicates": statistics.near_duplicates,
        "held out or copies of that": statistics.held_out_texts + statistics.held_out_copies,
    }
    why = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items() if count)
    left = "one text is" if statistics.kept else "nothing is"
    return CorpusError(
        f"{left} left of the {statistics.texts:,} texts in {names} ({why}): give more text or relax [corpus]"
    )
