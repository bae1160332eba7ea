"""structure_pairs(): documents to a pairs file of texts that belong together by the structure of their document."""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import xxhash

from selfsent.config import build_config
from selfsent.corpus.in_memory import source_names
from selfsent.corpus.prepare import read_texts
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import resolve_sources
from selfsent.errors import CorpusError, unknown
from selfsent.pairs.cache import identity_digest
from selfsent.pairs.write import PairsSummary, check_pairs_file, provenance, write_rows
from selfsent.progress import SILENT, Progress
from selfsent.storage import locks
from selfsent.text import clean
from selfsent.text.structure import PAIR_KINDS, StructuralPair, pairs_of_document


def structure_pairs(
    corpus: Sequence[str | Path] | str | Path,
    out: str | Path,
    *,
    kinds: Sequence[str] = PAIR_KINDS,
    max_adjacent: int | None = None,
    max_pairs: int | None = None,
    column: str | None = None,
    language: str = "en",
    progress: Progress = SILENT,
) -> PairsSummary:
    """Write the pairs that the structure of documents gives, in the order of the corpus.

    Args:
        corpus: files, folders, hub names of data sets, or "pydocs".
        out: a .jsonl or .parquet file; a pairs file that is there is replaced.
        kinds: some of "adjacent", "summary", "title", "halves".
        max_adjacent: adjacent pairs of one document, at most, so that long documents do not prevail.
        max_pairs: of each kind, at most; which are kept depends on their content alone.  With it the pairs are held
            in memory.
        language: of the sentences, for splitting.

    Raises:
        UserError: no such corpus or kind; no pair found; an output that is no pairs file.
    """
    for kind in kinds:
        if kind not in PAIR_KINDS:
            raise unknown("kind", kind, PAIR_KINDS)
    columns = {"split": "yes", "column": column, "language": language}
    reading = build_config(CorpusConfig, columns, "corpus")
    out, sources = Path(out), source_names(corpus)
    found_sources = resolve_sources(sources, progress)
    check_pairs_file(out, [source.path for source in found_sources])
    identity = [source.identity() for source in found_sources]
    facts = {"kinds": [*kinds], "max_adjacent": max_adjacent, "max_pairs": max_pairs, **columns}
    digest = identity_digest({"backend": "structure", "source": identity, "config": asdict(reading), **facts})
    constant = provenance("structure", facts, digest, datetime.now(UTC).strftime("%Y-%m-%d"))
    summary = PairsSummary(out=out)
    found = _document_pairs(sources, reading, {*kinds}, max_adjacent, summary, progress)
    pairs = found if max_pairs is None else _sample(found, max_pairs, summary)

    def rows() -> Iterator[dict[str, str]]:
        counts: Counter[str] = Counter()
        for kind, text, positive in pairs:
            if summary.count(text, positive):
                counts[kind] += 1
                yield {"text": text, "positive": positive, "kind": kind, **constant}
        if not summary.pairs:
            raise CorpusError(f"{', '.join(sources)} holds no document with two sentences or a title")
        progress.say("; ".join(f"{kind} {counts[kind]:,}" for kind in PAIR_KINDS if counts[kind]))

    with locks.exclusive(out, folder=False):
        write_rows(out, rows(), dict.fromkeys(("text", "positive", "kind", *constant), "string"))
    return summary


def _document_pairs(
    sources: Sequence[str],
    reading: CorpusConfig,
    kinds: set[str],
    max_adjacent: int | None,
    summary: PairsSummary,
    progress: Progress,
) -> Iterator[StructuralPair]:
    for document, own_summary, sentences in read_texts(sources, reading, progress):
        summary.texts += 1
        title = clean.one_line(document.title)
        every = dict.fromkeys(pairs_of_document(title, own_summary, sentences))  # a refrain makes a pair twice
        made = [pair for pair in every if pair.kind in kinds]
        adjacent = [pair for pair in made if pair.kind == "adjacent"]
        left_out = set() if max_adjacent is None else {*sorted(adjacent, key=_rank)[max_adjacent:]}
        summary.dropped["beyond max_adjacent"] += len(left_out)
        yield from (pair for pair in made if pair not in left_out)


def _sample(pairs: Iterator[StructuralPair], size: int, summary: PairsSummary) -> Iterator[StructuralPair]:
    """Yield the ``size`` different pairs of each kind whose hashes are lowest, in their order."""
    kept: dict[str, list[tuple[int, int, StructuralPair]]] = {}
    ranks: dict[str, set[int]] = {}
    for number, pair in enumerate(pairs):
        heap, known, rank = kept.setdefault(pair.kind, []), ranks.setdefault(pair.kind, set()), _rank(pair)
        if rank in known:  # a footer would fill the sample with its copies
            summary.dropped["given twice"] += 1
            continue
        heapq.heappush(heap, (-rank, number, pair))
        known.add(rank)
        if len(heap) > size:
            known.discard(-heapq.heappop(heap)[0])
            summary.dropped["beyond max_pairs"] += 1
    every = sorted((number, pair) for heap in kept.values() for _, number, pair in heap)
    yield from (pair for _, pair in every)


def _rank(pair: StructuralPair) -> int:
    return xxhash.xxh3_64_intdigest("\n".join(pair).encode(errors="replace"))
