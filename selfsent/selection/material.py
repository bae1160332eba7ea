"""What a selection works with: training texts, pairs made of documents, and documents that are held out of everything.

    texts.jsonl     a document a line, for counting words; single lines as they are
    pairs.jsonl     two texts that belong together, from the structure of documents
    held_out.jsonl  split (dev or test), document, and the number of what it was cut from, a line each
    queries.json    by split queries and the passages that they are to find; those of the gate are of all documents

The pairs are those of corpus/structure.py.  A sentence that occurs in a held-out document is taken out of the others.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, Literal

import numpy as np
import xxhash
from numpy.typing import NDArray

from selfsent.corpus.formats import compression_of
from selfsent.corpus.held_out import SPLITS, HeldOutPairs, Selection, Split
from selfsent.corpus.prepare import read_texts
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import Document, Source, resolve_sources
from selfsent.errors import CorpusError
from selfsent.evaluation.label_free.document_tests import LEAST
from selfsent.evaluation.label_free.documents import dropped_words
from selfsent.progress import Progress
from selfsent.selection.search_scores import MOST, inside_pairs
from selfsent.storage import atomic
from selfsent.text import clean
from selfsent.text.structure import SENTENCE_WORDS, pairs_of_document

GATE = "gate"  # the split of documents that may be trained on: what bases find in them decides what is made
HELD_OUT = 1000  # documents in each of dev and test, at most
_SHARE = 0.15  # of the documents, dev and test together
_SMALL, _SHARE_OF_SMALL = 4000, 0.3  # below so many documents
_MOST_SHARE = 0.6  # where less leaves too few to judge by
_FEW = 400  # documents: fewer and long ones are cut into sections
_LEAST_DOCUMENTS = 200  # with fewer there is nothing to judge by
_LEAST_CLUSTERS = 20  # documents whose sections are drawn together for an interval; of fewer each section by itself
_LEAST_TRAINING = 128  # different texts or pairs that are left
_SENTENCES = 4  # of a text that has a structure: a title or a question of two sentences is a single line here
_DOCUMENT_SHARE = 0.08  # of all rows, that have one
_PACKED = 4.0  # bytes of text in a byte of a compressed file, about
_LAID_OUT = 0.1  # and of a document with fonts and pictures
_SECTION = 25  # sentences of a section of a long document
_TESTED = 600  # sections of long documents that tests are made of, at most

_LINE_WORDS, _DROPPED = 5, 2 / 3  # of a single line that is found from the others, and the fraction that is dropped

Kind = Literal["documents", "pairs", "lines"]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What was found in the text."""

    kind: Kind  # some documents of several sentences; rows with a positive; single lines
    documents: int  # used, the held-out ones included
    texts: int  # for training
    pairs: int
    held_out: int
    share: float  # of the sources that was read; 1: everything
    cut: int = 0  # long documents that were cut into sections, because they are few
    different: int  # first texts of pairs, or single lines, to train on

    def line(self) -> str:
        """Say it in a sentence."""
        used = "" if self.share >= 1 else f" (a sample of {self.share:.0%}: more minutes read more)"
        if self.kind == "lines":
            return f"text: {self.documents:,} single lines{used}, {self.held_out:,} of them held out"
        what = "documents" if self.kind == "documents" else "rows of pairs"
        what = f"sections of {self.cut:,} long documents" if self.cut else what
        return (
            f"text: {self.documents:,} {what}{used}; "
            f"{self.held_out:,} are held out, {self.pairs:,} pairs are made of the others"
        )


def _pair_of_line(summary: str, sentences: Sequence[str]) -> tuple[str, str]:
    """Let a single line be found from a random third of its words."""
    # Halves of a line, one to find the other, would show topic alone, and all words word overlap alone.
    line = " ".join(sentences)
    if clean.count_words(line) < _LINE_WORDS:
        return "", line
    return dropped_words(line, np.random.default_rng(clean.content_key(line)), fraction=_DROPPED), line


class Material:
    """The folder that ``gather_material`` made."""

    def __init__(self, folder: Path) -> None:
        self.facts = Facts(**json.loads((folder / "facts.json").read_text(encoding="utf-8")))
        self.texts, self.pairs = folder / "texts.jsonl", folder / "pairs.jsonl"
        self._folder = folder

    def held_out(self, split: Split) -> tuple[list[Document], NDArray[np.int64]]:
        """Return the held-out documents of a split, long ones in sections, and the document of each."""
        documents: list[Document] = []
        owners: list[int] = []
        stored = self._held_rows(split)
        most = max(1, -(-_TESTED // max(1, len(stored))))
        clusters = self.clusters(split)
        for number, (title, summary, sentences, _) in enumerate(stored):
            sections = cut_sections(title, summary, sentences, most)
            documents += sections
            owners += [number if clusters is None else int(clusters[number])] * len(sections)
        return documents, np.array(owners, np.int64)

    def clusters(self, split: Split) -> NDArray[np.int64] | None:
        """Return the document that each held-out section is of; None where documents are whole, or too few to draw."""
        sources = np.array([source for *_, source in self._held_rows(split)])
        different = len(np.unique(sources))
        return sources.astype(np.int64) if _LEAST_CLUSTERS <= different < len(sources) else None

    def _held_rows(self, split: Split) -> list[list[Any]]:
        return [row[1:] for row in _rows(self._folder / "held_out.jsonl") if row[0] == split]

    def queries(self, split: Split | str) -> HeldOutPairs:
        """Return one query and its passage of each held-out document; for the gate, of documents of all of the text."""
        stored = json.loads((self._folder / "queries.json").read_text(encoding="utf-8"))
        if split == GATE and GATE not in stored:  # of pairs there is nothing but the held-out ones
            return HeldOutPairs(
                **{side: [*stored["dev"][side], *stored["test"][side]] for side in ("queries", "passages")}
            )
        return HeldOutPairs(**stored[split])


def gather_material(
    sources: Sequence[str], config: CorpusConfig, folder: Path, limit: int, progress: Progress
) -> Material:
    """Read the sources once, hold documents out, and make pairs of the others; done once, then opened.

    Args:
        limit: bytes of text to read, about; of larger sources documents are sampled by their content.

    Raises:
        CorpusError: a source cannot be read, or holds too little text.
    """
    if atomic.cached(folder):
        return Material(folder)
    size = sum(map(_text_bytes, resolve_sources(sources)))
    share = min(1.0, limit / size) if size else 1.0
    with atomic.build_folder(folder) as scratch:
        staged, cut = scratch / "staged.jsonl", 0
        counts, sentences = _stage(read_texts(sources, config, progress), share, staged)
        if (few := sum(counts.values())) < _FEW and sentences >= 2 * _SECTION * few:
            whole = staged.rename(scratch / "whole.jsonl")
            cut, counts = few, {"documents": _cut(whole, staged), "pairs": 0, "lines": 0}
            whole.unlink()
        _write(staged, scratch, counts, share, cut)
        staged.unlink()
    return Material(folder)


def _stage(texts: Iterator[tuple[Document, str, list[str]]], share: float, staged: Path) -> tuple[dict[Kind, int], int]:
    """Write a share of the documents, sampled by their content; count them by kind, and their sentences."""
    counts: dict[Kind, int] = {"documents": 0, "pairs": 0, "lines": 0}
    total = 0
    with staged.open("w", encoding="ascii") as file:
        for document, summary, sentences in texts:
            content = "\n".join(sentences).encode(errors="replace")
            if share < 1 and xxhash.xxh3_64_intdigest(content) % 10_000 >= 10_000 * share:
                continue
            positive = clean.one_line(clean.clean_text(document.positive))
            counts["pairs" if positive else "documents" if len(sentences) >= _SENTENCES else "lines"] += 1
            total += len(sentences)
            row = [clean.one_line(document.title), summary, sentences, positive, sum(counts.values())]
            file.write(json.dumps(row) + "\n")
    return counts, total


def _text_bytes(source: Source) -> float:
    """Return about how many bytes of text a source holds."""
    packed = source.kind in (".parquet", ".xlsx") or compression_of(source.path or PurePath(source.name))
    return source.size * (_PACKED if packed else _LAID_OUT if source.kind in (".pdf", ".docx", ".pptx") else 1.0)


def _cut(staged: Path, sections: Path) -> int:
    """Cut the staged documents, books for instance, into sections, each a document from now on; count them."""
    count = 0
    with sections.open("w", encoding="ascii") as file:
        for title, summary, sentences, _, source in _rows(staged):
            for start in range(0, len(sentences), _SECTION):
                first = start == 0
                row = [title * first, summary * first, sentences[start : start + _SECTION], "", source]
                file.write(json.dumps(row) + "\n")
                count += 1
    return count


def _write(staged: Path, folder: Path, counts: dict[Kind, int], share: float, cut: int) -> None:
    """Hold documents out of the staged ones, and write everything else."""
    total = sum(counts.values())
    more = f"a sample of {share:.0%} was read: give more --minutes" if share < 1 else "give 400 or more"
    if total < 2 * _LEAST_DOCUMENTS:
        what = "sections of long documents" if cut else "documents or lines"
        raise CorpusError(f"{total:,} {what} are too few to choose an encoder by: {more}")
    kind: Kind = "lines"
    if counts["pairs"] * 2 >= total:
        kind = "pairs"
    elif counts["documents"] >= _LEAST_DOCUMENTS and counts["documents"] >= _DOCUMENT_SHARE * total:
        kind = "documents"
    share_held = _SHARE_OF_SMALL if total < _SMALL else _SHARE
    ways: list[tuple[Kind, float]] = [(way, held) for way in (kind, "lines") for held in (share_held, _MOST_SHARE)]
    by_positive = counts["pairs"] > 0 and _fewer_positives(staged)
    for kind, held in dict.fromkeys(ways):
        of_kind: Literal["summary-body", "pairs"] = "summary-body" if kind == "documents" else "pairs"
        pair = _pair_of_line if kind == "lines" else None
        selection = Selection(of_kind, HELD_OUT, held, folder / "held_out.jsonl", pair)
        taken, held_keys = _hold_out(staged, kind, selection, by_positive=kind == "pairs" and by_positive)
        if all(len(getattr(selection.found, split)) >= LEAST for split in SPLITS):
            break
    else:
        raise CorpusError(
            f"only {selection.documents:,} of {total:,} lines can be held out to choose an encoder by, and "
            f"{2 * LEAST} are needed: lines of {_LINE_WORDS} words or more, no two of them alike; {more}"
        )
    queries = {str(split): asdict(getattr(selection.found, split)) for split in SPLITS}
    if kind == "documents":
        queries[GATE] = asdict(inside_pairs(_spread(staged, total))[0])
    (folder / "queries.json").write_text(json.dumps(queries), encoding="utf-8")
    texts, pairs, different = _write_training(staged, folder, taken, held_keys, lines=kind == "lines")
    if different < _LEAST_TRAINING:
        what = "lines" if kind == "lines" else "texts with a pair"
        raise CorpusError(
            f"{different:,} different {what} are left to train on where {selection.documents:,} are held out, and "
            f"{_LEAST_TRAINING} are needed: {more if share < 1 else 'give more different ones'}"
        )
    counted = {"documents": total, "texts": texts, "pairs": pairs, "held_out": selection.documents}
    facts = Facts(kind=kind, **counted, share=share, cut=cut, different=different)
    (folder / "facts.json").write_text(json.dumps(asdict(facts)), encoding="utf-8")


def _spread(staged: Path, total: int) -> list[Document]:
    """Return some documents that are spread over the text."""
    step = max(1, total // (4 * MOST))
    rows = islice(_rows(staged), None, None, step)
    return [Document("\n".join(sentences), title) for title, _, sentences, *_ in rows]


def _fewer_positives(staged: Path) -> bool:
    """Tell whether many texts share a positive, rather than many positives a text."""
    texts, positives = set(), set()
    for _, _, sentences, positive, _ in _rows(staged):
        if positive:
            texts.add(clean.content_key(" ".join(sentences)))
            positives.add(clean.content_key(positive))
    return len(positives) < len(texts)


def _hold_out(staged: Path, kind: Kind, selection: Selection, *, by_positive: bool) -> tuple[set[int], set[int]]:
    """Offer every staged document; return the rows of those that were taken, and the keys of all their texts."""
    # Rows that share their text, or ``by_positive`` their positive, are all drawn or none is: what is held out of one
    # would be taken out of the others.
    taken: set[int] = set()
    held_keys: set[int] = set()
    for row, (title, summary, sentences, positive, source) in enumerate(_rows(staged)):
        fitting = [text for text in sentences if kind != "documents" or clean.count_words(text) in SENTENCE_WORDS]
        texts = [positive] if kind == "pairs" else fitting
        keys = [clean.content_key(text) for text in (texts if by_positive else fitting) if text]
        query, stored = sentences[0] if positive else summary, (title, summary, sentences, source)
        if keys and selection.take(Document("", title), query, texts, keys, stored=stored):
            taken.add(row)
            whole = " ".join(sentences)  # a pair may stand in the text the other way round
            held_keys |= {clean.content_key(text) for text in (summary, *sentences, whole, positive) if text}
    return taken, held_keys


def _write_training(
    staged: Path, folder: Path, taken: set[int], held_keys: set[int], *, lines: bool
) -> tuple[int, int, int]:
    """Write texts and pairs of documents not taken; return their numbers, and that of different ones to train on."""
    texts = pairs = 0
    different: set[int] = set()
    with (folder / "texts.jsonl").open("w") as texts_file, (folder / "pairs.jsonl").open("w") as pairs_file:
        for row, (title, summary, sentences, positive, _) in enumerate(_rows(staged)):
            kept = [text for text in sentences if clean.content_key(text) not in held_keys]
            if row in taken or not kept or clean.content_key(" ".join(sentences)) in held_keys:
                continue
            summary, positive = (text * (clean.content_key(text) not in held_keys) for text in (summary, positive))
            texts_file.write(json.dumps({"text": " ".join(kept)}) + "\n")
            made = [] if positive else pairs_of_document(title, summary, kept)
            own = [(" ".join(kept), positive)] if positive else [(pair.text, pair.positive) for pair in made]
            for first, second in own:
                pairs_file.write(json.dumps({"text": first, "positive": second}) + "\n")
            texts, pairs = texts + 1, pairs + len(own)
            read = [" ".join(kept)] if lines else [first for first, _ in own]
            different.update(map(clean.content_key, read))
    return texts, pairs, len(different)


def cut_sections(title: str, summary: str, sentences: Sequence[str], most: int) -> list[Document]:
    """Cut a long document into sections, and return at most ``most`` of them, evenly spread."""
    if len(sentences) < 2 * _SECTION or most <= 1:
        return [Document("\n".join(sentences), title, summary)]
    starts = range(0, len(sentences), _SECTION)
    chosen = [starts[int(place)] for place in np.linspace(0, len(starts) - 1, min(most, len(starts)))]
    return [Document("\n".join(sentences[start : start + _SECTION]), "", "") for start in chosen]


def _rows(path: Path) -> Iterator[list]:  # type: ignore[type-arg]
    with path.open(encoding="ascii") as file:
        yield from map(json.loads, file)
