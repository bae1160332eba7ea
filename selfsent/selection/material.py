"""What a selection works with: training texts, pairs made of documents, and documents that are held out of everything.

    texts.jsonl     a document a line, for counting words; single lines as they are
    pairs.jsonl     two texts that belong together, from the structure of documents
    held_out.jsonl  part (dev or test), document, and the number of what it was cut from, a line each

The pairs are those of corpus/structure.py.  A sentence that occurs in a held-out document is taken out of the others.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xxhash
from numpy.typing import NDArray

from selfsent.corpus.held_out import HeldOutPairs, Selection
from selfsent.corpus.prepare import read_texts
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import Document, resolve_sources
from selfsent.errors import CorpusError
from selfsent.evaluation.label_free.document_tests import LEAST
from selfsent.evaluation.label_free.perturbations import dropped_words
from selfsent.progress import Progress
from selfsent.storage import atomic
from selfsent.text import clean
from selfsent.text.structure import SENTENCE_WORDS, pairs_of_document

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
_SECTION = 25  # sentences of a part of a long document
_TESTED = 600  # parts of long documents that tests are made of, at most

_LINE_WORDS, _DROPPED = 5, 2 / 3  # of a single line that is found from the others, and the share that is dropped

Kind = Literal["documents", "pairs", "lines"]
Part = Literal["dev", "test"]
PARTS: tuple[Part, Part] = ("dev", "test")


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
    different: int = 0  # first texts of pairs, or single lines, to train on; 0: not counted

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


class _Lines(Selection):
    """Single lines, each to be found from a random third of its words.

    Halves of a line, one to find the other, would show topic alone, and all words word overlap alone.
    """

    def _pair(self, summary: str, sentences: Sequence[str]) -> tuple[str, str]:
        line = " ".join(sentences)
        if clean.count_words(line) < _LINE_WORDS:
            return "", line
        return dropped_words(line, np.random.default_rng(clean.content_key(line)), share=_DROPPED), line


class Material:
    """The folder that ``gather_material`` made."""

    def __init__(self, folder: Path) -> None:
        self.facts = Facts(**json.loads((folder / "facts.json").read_text(encoding="utf-8")))
        self.texts, self.pairs = folder / "texts.jsonl", folder / "pairs.jsonl"
        self._folder = folder

    def held_out(self, part: Part) -> tuple[list[Document], NDArray[np.int64]]:
        """Return the held-out documents of a part, long ones in sections, and the document of each."""
        found: list[Document] = []
        owners: list[int] = []
        stored = self._held_rows(part)
        most = max(1, -(-_TESTED // max(1, len(stored))))
        clusters = self.clusters(part)
        for number, (title, summary, sentences, *_) in enumerate(stored):
            sections = _sections(title, summary, sentences, most)
            found += sections
            owners += [number if clusters is None else int(clusters[number])] * len(sections)
        return found, np.array(owners, np.int64)

    def clusters(self, part: Part) -> NDArray[np.int64] | None:
        """Return the document that each held-out section is of; None where documents are whole, or too few to draw."""
        sources = np.array([row[3] if len(row) > 3 else place for place, row in enumerate(self._held_rows(part))])
        different = len(np.unique(sources))
        return sources.astype(np.int64) if _LEAST_CLUSTERS <= different < len(sources) else None

    def _held_rows(self, part: Part) -> list[list[Any]]:
        return [row[1:] for row in _rows(self._folder / "held_out.jsonl") if row[0] == part]

    def queries(self, part: Part) -> HeldOutPairs:
        """Return one query and its passage of each held-out document."""
        return HeldOutPairs(**json.loads((self._folder / "queries.json").read_text(encoding="utf-8"))[part])


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
    resolved = resolve_sources(sources)
    size = sum(source.size * (_PACKED if _compressed(source.name) else 1) for source in resolved)
    share = min(1.0, limit / size) if size else 1.0
    counts: dict[Kind, int] = {"documents": 0, "pairs": 0, "lines": 0}
    sentences_read = 0
    with atomic.build_folder(folder) as scratch:
        staged = scratch / "staged.jsonl"
        with staged.open("w", encoding="ascii") as file:
            for document, summary, sentences in read_texts(sources, config, progress):
                if (
                    share < 1
                    and xxhash.xxh3_64_intdigest("\n".join(sentences).encode(errors="replace")) % 10_000
                    >= 10_000 * share
                ):
                    continue
                positive = clean.one_line(clean.clean_text(document.positive))
                kind: Kind = "pairs" if positive else "documents" if len(sentences) >= _SENTENCES else "lines"
                counts[kind] += 1
                sentences_read += len(sentences)
                row = [clean.one_line(document.title), summary, sentences, positive, sum(counts.values())]
                file.write(json.dumps(row) + "\n")
        cut = 0
        if (few := sum(counts.values())) < _FEW and sentences_read >= 2 * _SECTION * few:
            cut, counts = few, {"documents": _cut(staged, scratch / "sections.jsonl"), "pairs": 0, "lines": 0}
            staged.unlink()
            staged = scratch / "sections.jsonl"
        _write(staged, scratch, counts, share, cut)
        staged.unlink()
    return Material(folder)


def _compressed(name: str) -> bool:
    return not name.endswith((".txt", ".jsonl", ".json", ".csv", ".tsv"))


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
    ways: list[tuple[Kind, float]] = [(one, held) for one in (kind, "lines") for held in (share_held, _MOST_SHARE)]
    by_positive = counts["pairs"] > 0 and _fewer_positives(staged)
    for kind, held in dict.fromkeys(ways):
        of_kind: Literal["summary-body", "pairs"] = "summary-body" if kind == "documents" else "pairs"
        selection = (_Lines if kind == "lines" else Selection)(of_kind, HELD_OUT, held, folder / "taken.jsonl")
        taken, held_keys = _hold_out(
            staged, folder / "held_out.jsonl", kind, selection, by_positive=kind == "pairs" and by_positive
        )
        (folder / "taken.jsonl").unlink()
        if all(len(getattr(selection.found, part)) >= LEAST for part in PARTS):
            break
    else:
        raise CorpusError(
            f"only {selection.documents:,} of {total:,} lines can be held out to choose an encoder by, and "
            f"{2 * LEAST} are needed: lines of {_LINE_WORDS} words or more, no two of them alike; {more}"
        )
    found = {part: asdict(getattr(selection.found, part)) for part in PARTS}
    (folder / "queries.json").write_text(json.dumps(found), encoding="utf-8")
    texts, pairs, different = _write_training(staged, folder, taken, held_keys, lines=kind == "lines")
    if different < _LEAST_TRAINING:
        what = "lines" if kind == "lines" else "texts with a pair"
        raise CorpusError(
            f"{different:,} different {what} are left to train on where {selection.documents:,} are held out, and "
            f"{_LEAST_TRAINING} are needed: {more if share < 1 else 'give more different ones'}"
        )
    facts = Facts(
        kind=kind,
        documents=total,
        texts=texts,
        pairs=pairs,
        held_out=selection.documents,
        share=share,
        cut=cut,
        different=different,
    )
    (folder / "facts.json").write_text(json.dumps(asdict(facts)), encoding="utf-8")


def _fewer_positives(staged: Path) -> bool:
    """Tell whether many texts share a positive, rather than many positives a text."""
    texts, positives = set(), set()
    for _, _, sentences, positive, _ in _rows(staged):
        if positive:
            texts.add(clean.content_key(" ".join(sentences)))
            positives.add(clean.content_key(positive))
    return len(positives) < len(texts)


def _hold_out(
    staged: Path, target: Path, kind: Kind, selection: Selection, *, by_positive: bool
) -> tuple[set[int], set[int]]:
    """Write the documents that the selection takes; return their rows, and the keys of all their texts.

    Rows that share their text, or ``by_positive`` their positive, are all drawn or none is: what is held out of one
    would be taken out of the others.
    """
    taken: set[int] = set()
    held_keys: set[int] = set()
    with target.open("w", encoding="ascii") as file:
        for row, (title, summary, sentences, positive, source) in enumerate(_rows(staged)):
            before = len(selection.found.dev)
            fitting = [one for one in sentences if kind != "documents" or clean.count_words(one) in SENTENCE_WORDS]
            texts = [positive] if kind == "pairs" else fitting
            keys = [clean.content_key(text) for text in (texts if by_positive else fitting) if text]
            if keys and selection.take(Document("", title), sentences[0] if positive else summary, texts, keys):
                part = "dev" if len(selection.found.dev) > before else "test"
                file.write(json.dumps([part, title, summary, sentences, source]) + "\n")
                taken.add(row)
                whole = " ".join(sentences)  # a pair may stand in the text the other way round
                held_keys |= {clean.content_key(text) for text in (summary, *sentences, whole, positive) if text}
    return taken, held_keys


def _write_training(
    staged: Path, folder: Path, taken: set[int], held_keys: set[int], *, lines: bool
) -> tuple[int, int, int]:
    """Write texts and pairs of the documents that were not taken, without sentences of those that were.

    Return how many there are, and how many different texts are trained on: lines, otherwise the first ones of pairs.
    """
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
            own = [(" ".join(kept), positive)] if positive else [(one.text, one.positive) for one in made]
            for first, second in own:
                pairs_file.write(json.dumps({"text": first, "positive": second}) + "\n")
            texts, pairs = texts + 1, pairs + len(own)
            read = [" ".join(kept)] if lines else [first for first, _ in own]
            different.update(map(clean.content_key, read))
    return texts, pairs, len(different)


def _sections(title: str, summary: str, sentences: Sequence[str], most: int) -> list[Document]:
    """Cut a long document into parts, and return at most ``most`` of them, evenly spread."""
    cuts = range(0, len(sentences), _SECTION) if len(sentences) >= 2 * _SECTION and most > 1 else [0]
    parts = [sentences[cut : cut + _SECTION] for cut in cuts] if len(cuts) > 1 else [list(sentences)]
    chosen = [parts[int(place)] for place in np.linspace(0, len(parts) - 1, min(most, len(parts)))]
    whole = len(chosen) == 1
    return [Document("\n".join(part), title * whole, summary * whole) for part in chosen]


def _rows(path: Path) -> Iterator[list]:  # type: ignore[type-arg]
    with path.open(encoding="ascii") as file:
        yield from map(json.loads, file)
