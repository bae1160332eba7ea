"""What counting and factorising the co-occurrences of a billion words takes: time, memory, and disk.

    python benchmarks/billion_words.py TEXT... --words 1000000000 --vocabulary 65536

The words are those of the texts, numbered by frequency, over and over; from the second time on a tenth of them, drawn
anew each time, is replaced by words drawn by frequency, so that pairs keep being met that were not before, more of them
than in real text.  Peak memory is that of the process without pages of files, which the system takes back when it
needs them.
"""

import argparse
import re
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from selfsent.corpus import sources
from selfsent.progress import SILENT
from selfsent.word_vectors import cooccurrences, factorization

REPLACED = 0.1


class Text:
    """Documents of word numbers, as ``read_words`` reads a corpus."""

    def __init__(self, ids: NDArray[np.int32], ends: NDArray[np.int64], words: int, folder: Path) -> None:
        self.ids, self.ends, self.folder = ids, ends, folder
        self.begins = np.concatenate([[0], ends])
        self.times = max(1, round(words / len(ids)))
        self.tokens = self.times * len(ids)
        self.lengths = np.tile(np.diff(ends, prepend=0), self.times)

    def __len__(self) -> int:
        return self.times * len(self.ends)

    def span(self, start: int, stop: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the words of documents end to end, and the length of each."""
        parts, lengths = [], []
        while start < stop:
            again, first = divmod(start, len(self.ends))
            last = min(len(self.ends), first + stop - start)
            begins = self.begins[first : last + 1]
            ids = self.ids[begins[0] : begins[-1]]
            if again:
                draw = np.random.default_rng([again, first])
                other = draw.random(len(ids)) < REPLACED
                ids = np.where(other, self.ids[draw.integers(0, len(self.ids), len(ids))], ids)
            parts.append(ids)
            lengths.append(np.diff(begins))
            start += last - first
        return np.concatenate(parts), np.concatenate(lengths)


def numbered(names: list[str], vocabulary: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the words of all documents as numbers, frequent ones low, and where each document ends."""
    columns = sources.Columns(text="text", title="title", summary="summary")
    numbers: dict[str, int] = {}
    met, ends, count = [], [], 0
    for source in sources.resolve_sources(names):
        for document in source.documents(columns):
            words = re.findall(r"\w+", document.text.lower())
            met.append(np.fromiter((numbers.setdefault(word, len(numbers)) for word in words), np.int32, len(words)))
            count += len(words)
            ends.append(count)
    ids = np.concatenate(met)
    by_frequency = np.argsort(-np.bincount(ids, minlength=len(numbers)), kind="stable")
    rank = np.empty(len(numbers), np.int32)
    rank[by_frequency] = np.arange(1, len(numbers) + 1)
    rank[rank >= vocabulary] = 0  # no word: it is left out
    return rank[ids], np.array(ends)


def watch(peak: Counter[str], stop: threading.Event) -> None:
    """Keep the largest amount of memory that is no page of a file."""
    while not stop.wait(0.2):
        status = Path("/proc/self/status").read_text()
        now = 1024 * int(re.search(r"RssAnon:\s+(\d+)", status)[1])  # type: ignore[index]
        peak["memory"] = max(peak["memory"], now)


def main() -> None:
    """Count, factorise, and say what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--words", type=float, default=1e9)
    parser.add_argument("--vocabulary", type=int, default=65_536)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--folder", type=Path, default=Path())
    given = parser.parse_args()
    began = time.perf_counter()
    text = Text(*numbered(given.texts, given.vocabulary), int(given.words), given.folder / "words")
    print(f"{len(text.ids):,} words in {len(text.ends):,} documents, {text.times} times", flush=True)
    print(f"read in {time.perf_counter() - began:.0f} s", flush=True)
    peak, stop = Counter[str](), threading.Event()
    watching = threading.Thread(target=watch, args=(peak, stop), daemon=True)
    watching.start()

    def since(what: str, start: float) -> float:
        print(f"{what}: {time.perf_counter() - start:.0f} s, {peak['memory'] / 2**30:.2f} GiB at the peak", flush=True)
        peak["memory"] = 0
        return time.perf_counter()

    start = time.perf_counter()
    counts, words = cooccurrences.count_cooccurrences(text, given.vocabulary, 5, np.array([0]), SILENT)  # type: ignore[arg-type]
    start = since(f"{int(words.sum()):,} words counted, {len(counts)} parts of {[c.nnz for c in counts]} pairs", start)
    bands = cooccurrences.ppmi(counts, given.folder)
    start = since(f"PPMI, {len(bands)} bands of {[band.nnz for band in bands]} entries", start)
    vectors = factorization.factorise(bands, factorization.FactorConfig(width=given.width), 42)
    since(f"factorised, {tuple(vectors.shape)}", start)
    stop.set()


if __name__ == "__main__":
    main()
