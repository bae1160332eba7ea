"""From the names of sources to a corpus on disk, once; afterwards from the cache."""

import dataclasses
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xxhash
from numpy.typing import NDArray

from selfsent.atomic import build_folder, cache_folder
from selfsent.corpus import dedup
from selfsent.corpus.columns import Table
from selfsent.corpus.dataset import Corpus, write_facts
from selfsent.corpus.heldout import Kind, Selection
from selfsent.corpus.read import Columns, Document, Source, resolve_sources
from selfsent.corpus.statistics import CorpusStatistics
from selfsent.corpus.tokenize import Rules, Stage, open_document
from selfsent.corpus.tokens import WordPieces
from selfsent.errors import UserError
from selfsent.progress import SILENT, Progress

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FORMAT = 1  # of the folder; raised whenever the same input would give another corpus

_ROWS = 1 << 15  # stored at a time
_LONGEST = 4096  # word pieces; longer texts are counted as so long

Unit = Literal["sentences", "documents"]


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """How raw text becomes training texts."""

    max_length: int = 32  # word pieces of a text, special tokens included; the rest is cut off
    max_texts: int | None = None  # stop after so many kept texts; None: keep all
    split: Literal["auto", "yes", "no"] = "auto"  # into sentences; auto: rows of tables yes, lines of .txt no
    language: str = "en"  # whose rules of sentence splitting apply, as a two-letter code
    min_words: int | None = None  # shorter texts are dropped; None: 5 for sentences that were split, else 1
    max_words: int | None = 100  # longer sentences are dropped as lists or failed splits; lines given as texts stay
    deduplicate: Literal["near", "exact", "none"] = "near"  # exact: equal but for case, white space, Unicode variant
    near_threshold: float = 0.7  # Jaccard similarity of the pairs of neighbouring word pieces
    text_column: str = "text"  # of jsonl, json, csv, tsv, parquet and hub rows
    title_column: str = "title"  # kept with held-out documents; need not exist
    summary_column: str = "summary"  # query of the label-free test instead of the first sentence; need not exist
    positives: Literal["column", "adjacent"] = "column"  # adjacent: a sentence's is the next one of its document
    positive_column: str = "positive"  # a row that has one is a pair, kept whole; then rows without one are dropped
    held_out: int = 1000  # documents at most for each of dev and test of the label-free test
    held_out_share: float = 0.05  # of all documents, for dev and test together

    def __post_init__(self) -> None:
        """Refuse what cannot mean anything."""
        if self.max_length < 4:
            raise ValueError(f"max_length must be at least 4 word pieces, got {self.max_length}")
        if not 0 < self.near_threshold <= 1:
            raise ValueError(f"near_threshold must be above 0 and at most 1, got {self.near_threshold}")
        if self.max_texts is not None and self.max_texts < 1:
            raise ValueError(f"max_texts must be at least 1, got {self.max_texts}")
        if self.held_out < 0:
            raise ValueError(f"held_out must be 0 or more, got {self.held_out}")
        if not 0 <= self.held_out_share <= 0.5:
            raise ValueError(f"held_out_share must be from 0 to 0.5, got {self.held_out_share}")
        if self.min_words is not None and self.max_words is not None and self.min_words > self.max_words:
            raise ValueError(f"min_words must not exceed max_words, got {self.min_words} and {self.max_words}")


def prepare_corpus(
    sources: Sequence[str],
    config: CorpusConfig,
    tokenizer: "PreTrainedTokenizerBase",
    *,
    unit: Unit = "sentences",
    cache: Path | None = None,
    progress: Progress = SILENT,
) -> Corpus:
    """Turn sources into a corpus on disk, or open the one that was made of them before.

    Args:
        sources: files, folders, hub datasets (``owner/name[/config][:split]``) or ``pydocs``.
        config: what makes a text.
        tokenizer: the fast tokenizer of the encoder that will be trained.
        unit: ``documents`` keeps every document whole, neither split nor cut at ``max_length``.
        cache: root of all caches; the default is ``SELFSENT_CACHE`` or ``~/.cache/selfsent``.
        progress: hears (stage, done, total); the stage ``read`` counts bytes, or documents where there is no file
            and the total is not known.

    Raises:
        UserError: a source cannot be read, or nothing is left of it.
    """
    found = resolve_sources([str(source) for source in sources])
    if config.positives == "adjacent" and unit == "documents":
        raise UserError(
            "corpus.positives = 'adjacent' pairs sentences, and this method learns from documents: leave it out"
        )
    pieces = WordPieces(tokenizer)
    settings = dataclasses.asdict(config)
    for name in ("positive_column", "positives"):
        if settings[name] == getattr(CorpusConfig, name):
            del settings[name]  # so that what was prepared before there were pairs is found again
    identity = {
        "format": FORMAT,
        "unit": unit,
        "config": settings,
        "sources": [source.identity() for source in found],
        "tokenizer": pieces.identity,
    }
    fingerprint = xxhash.xxh3_128_hexdigest(json.dumps(identity, sort_keys=True).encode())
    folder = cache_folder("corpora", fingerprint, cache)
    reused = folder.exists()
    if not reused:
        with build_folder(folder) as scratch:
            _build(found, config, pieces, unit, scratch, progress)
    return Corpus(folder, reused=reused)


def corpus_texts(sources: Sequence[str], config: CorpusConfig, progress: Progress = SILENT) -> Iterator[str]:
    """Yield the texts that ``prepare`` would find, copies among them, before it holds out and deduplicates.

    Raises:
        UserError: a source cannot be read.
    """
    for document, rule in corpus_documents(sources, config, progress=progress):
        yield from filter(rule.fits, open_document(document, rule)[2])


def corpus_documents(
    sources: Sequence[str], config: CorpusConfig, *, unit: Unit = "sentences", progress: Progress = SILENT
) -> Iterator[tuple[Document, Rules]]:
    """Yield the documents that ``prepare`` would read, as they were found, and what makes a text of each.

    Raises:
        UserError: a source cannot be read.
    """
    found = resolve_sources([str(source) for source in sources])
    rules = [_rules(source, config, unit) for source in found]
    yield from _documents(found, rules, _columns(config), progress)


def held_out_selections(sources: Sequence[str], config: CorpusConfig, unit: Unit) -> tuple[Selection, Selection]:
    """Return what holds documents out of these sources, and what holds pairs out, as ``prepare`` does."""
    rules = [_rules(source, config, unit) for source in resolve_sources([str(source) for source in sources])]
    return _selections(rules, config)


def _selections(rules: Sequence[Rules], config: CorpusConfig) -> tuple[Selection, Selection]:
    kind: Kind = "summary-body" if any(rule.split for rule in rules) else "halves"
    size, share = config.held_out, config.held_out_share
    return Selection(kind, size, share), Selection("pairs", size, share)


def _build(
    sources: Sequence[Source],
    config: CorpusConfig,
    pieces: WordPieces,
    unit: Unit,
    folder: Path,
    progress: Progress,
) -> None:
    rules = [_rules(source, config, unit) for source in sources]
    single, pairs = _selections(rules, config)
    near = config.deduplicate == "near"
    width = dedup.band_width(config.near_threshold)
    staged = folder / "stage"
    staged.mkdir()
    with Table(staged) as table:
        stage = Stage(
            table,
            pieces,
            single,
            pairs,
            bands=dedup.MINIMA // width if near else 0,
            width=width,
            adjacent=config.positives == "adjacent",
        )
        reading = _documents(sources, rules, _columns(config), progress)
        enough = config.max_texts and config.max_texts + config.max_texts // 8 + 1000
        while True:
            more = stage.fill(reading, enough)
            table.flush()
            fate = np.zeros(stage.rows, np.uint8)
            examples = _drop(stage, config, fate, staged, progress)
            kept = int((fate == dedup.KEPT).sum())
            if not (config.max_texts and enough and more and kept < config.max_texts):
                break
            enough += 2 * (config.max_texts - kept) + 1000
        if config.max_texts:
            fate[np.flatnonzero(fate == dedup.KEPT)[config.max_texts :]] = dedup.SURPLUS
        if np.count_nonzero(fate == dedup.KEPT) < 2:
            raise _nothing_left(sources, stage, fate)
        lengths, unknown = _store(stage, fate, config.max_length if unit == "sentences" else None, folder, progress)
        account = _account(sources, stage, fate, lengths, unknown, config, unit)
        copies = [(stage.text(a), stage.text(b)) for a, b in examples if fate[a] == dedup.KEPT]
    shutil.rmtree(staged)
    account = dataclasses.replace(account, examples=_telling(copies))
    write_facts(folder, account, stage.selection.found)


def _columns(config: CorpusConfig) -> Columns:
    return Columns(
        text=config.text_column,
        title=config.title_column,
        summary=config.summary_column,
        positive=config.positive_column,
    )


def _rules(source: Source, config: CorpusConfig, unit: Unit) -> Rules:
    rows = source.kind != ".txt"
    split = config.split == "yes" or (config.split == "auto" and rows) or unit == "documents"
    return Rules(
        split=split,
        whole=unit == "documents",
        language=config.language,
        min_words=config.min_words or (5 if split and unit == "sentences" else 1),
        max_words=config.max_words if split and unit == "sentences" else None,
        pair_min_words=config.min_words or 1,
    )


def _documents(
    sources: Sequence[Source], rules: Sequence[Rules], columns: Columns, progress: Progress
) -> Iterator[tuple[Document, Rules]]:
    total = sum(source.size for source in sources) or None
    before = count = 0
    for source, rule in zip(sources, rules, strict=True):
        told = partial(_in_bytes, progress, before, total) if total else _in_silence
        for count, document in enumerate(source.documents(columns, told), count + 1):  # noqa: B020
            if not total and not count % 256:
                progress.report("read", count, None)
            yield document, rule
        before += source.size
    progress.report("read", total or count, total)


def _in_bytes(progress: Progress, before: int, total: int, here: int) -> None:
    progress.report("read", before + here, total)


def _in_silence(here: int) -> None:
    pass


def _drop(
    stage: Stage, config: CorpusConfig, fate: NDArray[np.uint8], folder: Path, progress: Progress
) -> list[tuple[int, int]]:
    if stage.paired:
        for start in range(0, stage.rows, _ROWS):
            ends = stage.positives.offsets.read(start, min(start + _ROWS, stage.rows) + 1)
            fate[start + np.flatnonzero(ends[1:] == ends[:-1])] = dedup.UNPAIRED
        dedup.drop_held_out(stage.positive_exact, stage.held_out, fate)
        if config.positives == "adjacent" and config.deduplicate != "none":
            # A sentence that follows many would tie all their documents together, and none could share a batch.
            dedup.drop_exact(stage.positive_exact, fate)
    dedup.drop_held_out(stage.exact, stage.held_out, fate)
    if config.deduplicate != "none":
        dedup.drop_exact(stage.exact, fate)
    if config.deduplicate != "near":
        return []
    step = partial(progress.report, "deduplicate")
    return dedup.drop_near(stage.bands, stage.ids, config.near_threshold, fate, folder, step)


def _store(
    stage: Stage, fate: NDArray[np.uint8], max_length: int | None, folder: Path, progress: Progress
) -> tuple[NDArray[np.int64], int]:
    """Write the rows that are kept; count them by their length before cutting, and the unknown pieces."""
    pieces = stage.pieces
    room = None if max_length is None else max_length - pieces.specials
    histogram = np.zeros(_LONGEST + 1, np.int64)
    unknown = 0
    with Table(folder) as table, Table(stage.folder) as scratch:
        ids, texts = table.ragged("ids", pieces.dtype), table.ragged("texts", np.uint8)
        lengths, keys = table.column("lengths", np.int32), table.column("keys", np.uint64)
        positives = table.ragged("positives", pieces.dtype) if stage.paired else None
        positive_keys = scratch.column("positive_keys", np.uint64)
        for start in range(0, stage.rows, _ROWS):
            stop = min(start + _ROWS, stage.rows)
            progress.report("store", start, stage.rows)
            kept = fate[start:stop] == dedup.KEPT
            if not kept.any():
                continue
            values, sizes = _only(*stage.texts.span(start, stop), kept)
            texts.append(values, sizes)
            values, sizes = _only(*stage.ids.span(start, stop), kept)
            unknown += int((values == pieces.unknown).sum()) if pieces.unknown is not None else 0
            histogram += np.bincount(np.minimum(sizes + pieces.specials, _LONGEST), minlength=_LONGEST + 1)
            values, sizes = _framed(*_cut(values, sizes, room), pieces.before, pieces.after)
            ids.append(values, sizes)
            keys.append(dedup.row_keys(values, sizes))
            longer = sizes
            if positives is not None:
                values, sizes = _only(*stage.positives.span(start, stop), kept)
                values, sizes = _framed(*_cut(values, sizes, room), pieces.before, pieces.after)
                positives.append(values, sizes)
                positive_keys.append(dedup.row_keys(values, sizes))
                longer = np.maximum(longer, sizes)
            lengths.append(longer)
        tied = dedup.families(keys, positive_keys) if stage.paired else None
    if tied is not None:
        written = np.load(folder / "keys.npy", mmap_mode="r+")
        written[tied[0]] = written[tied[1]]
    progress.report("store", stage.rows, stage.rows)
    return histogram, unknown


def _only(
    values: NDArray[Any], sizes: NDArray[np.int64], kept: NDArray[np.bool_]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    return values[np.repeat(kept, sizes)], sizes[kept]


def _cut(values: NDArray[Any], sizes: NDArray[np.int64], room: int | None) -> tuple[NDArray[Any], NDArray[np.int64]]:
    if room is None:
        return values, sizes
    places = np.arange(len(values)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return values[places < room], np.minimum(sizes, room)


def _framed(
    values: NDArray[Any], sizes: NDArray[np.int64], before: Sequence[int], after: Sequence[int]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Put the special tokens around every row."""
    framed = sizes + len(before) + len(after)
    starts = np.cumsum(framed) - framed
    rows = np.empty(int(framed.sum()), values.dtype)
    inner = np.ones(len(rows), bool)
    for place, token in enumerate(before):
        rows[starts + place] = token
        inner[starts + place] = False
    for place, token in enumerate(after):
        rows[starts + len(before) + sizes + place] = token
        inner[starts + len(before) + sizes + place] = False
    rows[inner] = values
    return rows, framed


def _account(
    sources: Sequence[Source],
    stage: Stage,
    fate: NDArray[np.uint8],
    histogram: NDArray[np.int64],
    unknown: int,
    config: CorpusConfig,
    unit: Unit,
) -> CorpusStatistics:
    counts = stage.counts
    fates = np.bincount(fate, minlength=6).tolist()
    kept = fates[dedup.KEPT]
    below = np.cumsum(histogram)
    max_length = config.max_length if unit == "sentences" else None
    content = int((np.arange(len(histogram)) - stage.pieces.specials) @ histogram)
    return CorpusStatistics(
        files=len(sources),
        documents=counts.documents,
        empty_documents=counts.empty_documents,
        cleaned_documents=counts.cleaned_documents,
        texts=counts.texts,
        too_short=counts.too_short + stage.without_pieces,
        too_long=counts.too_long,
        exact_duplicates=fates[dedup.EXACT],
        near_duplicates=fates[dedup.NEAR],
        held_out_documents=stage.selection.documents,
        held_out_texts=counts.held_out_pairs if stage.given else counts.held_out_texts,
        held_out_copies=fates[dedup.HELD_OUT],
        surplus=fates[dedup.SURPLUS],
        without_positive=_without_positive(stage, fates),
        identical_pairs=counts.identical_pairs,
        kept=kept,
        max_length=max_length,
        median_length=int(np.searchsorted(below, 0.5 * kept)),
        long_length=int(np.searchsorted(below, 0.95 * kept)),
        truncated=0.0 if max_length is None else float(histogram[max_length + 1 :].sum() / kept),
        unknown=unknown / max(1, content),
    )


def _without_positive(stage: Stage, fates: Sequence[int]) -> int:
    # Documents were held out while it was not known yet that there are pairs, too.
    return fates[dedup.UNPAIRED] + (stage.counts.held_out_texts if stage.given else 0)


def _telling(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Choose two examples, the shortest, because they can be taken in at a glance."""
    return sorted(pairs, key=lambda pair: len(pair[0]) + len(pair[1]))[:2]


def _nothing_left(sources: Sequence[Source], stage: Stage, fate: NDArray[np.uint8]) -> UserError:
    names = ", ".join(source.name for source in sources[:3]) + (" ..." if len(sources) > 3 else "")
    counts = stage.counts
    if not counts.texts:
        return UserError(f"{names} is empty: there is no text in {counts.documents} rows or lines")
    fates = np.bincount(fate, minlength=6).tolist()
    held_out = counts.held_out_pairs if stage.given else counts.held_out_texts
    reasons = {
        "too short": counts.too_short + stage.without_pieces,
        "too long": counts.too_long,
        "without a positive": _without_positive(stage, fates),
        "equal to their positive": counts.identical_pairs,
        "exact duplicates": fates[dedup.EXACT],
        "near-duplicates": fates[dedup.NEAR],
        "held out or copies of that": held_out + fates[dedup.HELD_OUT],
    }
    why = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items() if count)
    left = "one text is" if fates[dedup.KEPT] else "nothing is"
    return UserError(f"{left} left of the {counts.texts:,} texts in {names} ({why}): give more text or relax [corpus]")
