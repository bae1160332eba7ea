"""Does training text hold rows of evaluation sets?  Exact copies and shared runs of 13 words, a row for each set.

    python benchmarks/overlap.py TEXTS... --against DATA/senteval DATA/mteb --out overlap.json

Texts are compared as their words: case-folded, without punctuation.  *Exact*: a text of the set, of five words or more,
equals a sentence of the training text, or a whole text of a pair.  *13-grams*: thirteen words in a row of a text stand
in a training document in this order.  Every cell of the files of a set counts as a text; a set is a folder that holds
files, the parent of a file that is given alone.
"""

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from selfsent.cli.display import Display
from selfsent.corpus.prepare import read_texts
from selfsent.corpus.settings import CorpusConfig
from selfsent.text import clean

N = 13
LEAST = 5  # words of a text that can be copied: shorter ones stand anywhere
SHOWN = 5
# Multiplied into the hashes of the words of a run, so that their order counts.
FACTORS = np.random.default_rng(0).integers(1 << 62, size=N, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
_known: dict[str, int] = {}


def hashes(words: list[str]) -> NDArray[np.uint64]:
    """Hash each word."""
    found = []
    for word in words:
        value = _known.get(word)
        if value is None:
            value = _known[word] = xxhash.xxh3_64_intdigest(word.encode(errors="replace"))
        found.append(value)
    return np.array(found, np.uint64)


def runs(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a hash of every N words in a row."""
    count = len(values) - N + 1
    if count < 1:
        return np.empty(0, np.uint64)
    total = np.zeros(count, np.uint64)
    for place, factor in enumerate(FACTORS):
        total += values[place : place + count] * factor
    return total


def key(words: list[str]) -> int:
    """Hash a text."""
    return xxhash.xxh3_64_intdigest(" ".join(words).encode(errors="replace"))


def among(values: NDArray[np.uint64], table: NDArray[np.uint64]) -> list[int]:
    """Return the values that stand in a sorted table."""
    places = np.minimum(np.searchsorted(table, values), len(table) - 1)
    return [int(value) for value in values[table[places] == values]]


def texts_of(place: Path) -> Iterator[tuple[str, str]]:
    """Yield every set below a place with each of its texts."""
    for path in [place] if place.is_file() else sorted(place.rglob("*")):
        if not path.is_file() or "readme" in path.name.lower() or path.name.startswith("."):
            continue
        data = path.read_bytes()
        try:
            content = data.decode("utf-8")
        except UnicodeDecodeError:
            content = data.decode("latin-1")
        if path.suffix == ".json":
            found = cells(json.loads(content))
        elif path.suffix == ".csv" and "\t" not in content.partition("\n")[0]:  # STS-B's have tabs
            found = (cell for row in csv.reader(content.splitlines()) for cell in row)
        else:
            found = (cell for line in content.splitlines() for cell in line.split("\t"))
        for cell in found:
            yield path.parent.name, cell


def cells(value: object) -> Iterator[str]:
    """Yield every string in JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from cells(one)


class Evaluation:
    """The texts of all sets, ready to be looked up."""

    def __init__(self, places: list[Path]) -> None:
        """Read them."""
        self.texts: dict[int, str] = {}  # by key
        self.sets: dict[int, set[str]] = defaultdict(set)  # that have it: some hold texts of others
        grams: dict[int, set[int]] = defaultdict(set)  # run -> keys of texts
        self.counts: dict[str, int] = defaultdict(int)
        self.long: dict[str, int] = defaultdict(int)  # texts of N words or more
        for place in places:
            for name, cell in texts_of(place):
                words = clean.words(cell)
                number = key(words)
                if len(words) < LEAST or name in self.sets[number]:
                    continue
                self.sets[number].add(name)
                self.counts[name] += 1
                self.long[name] += len(words) >= N
                if number in self.texts:
                    continue
                self.texts[number] = cell
                for run in runs(hashes(words)).tolist():
                    grams[run].add(number)
        self.exact = np.array(sorted(self.texts), np.uint64)
        self.grams, self.runs = grams, np.array(sorted(grams), np.uint64)


def main() -> None:
    """Read the sets, then the training text, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--against", nargs="+", required=True, type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    evaluation = Evaluation(given.against)
    copied: set[int] = set()
    shared: set[int] = set()
    documents = words_read = 0
    config = CorpusConfig(split="yes")
    for document, summary, sentences in read_texts(given.texts, config, Display()):
        documents += 1
        whole = [clean.one_line(clean.clean_text(document.text)), clean.one_line(clean.clean_text(document.positive))]
        parts = [clean.words(text) for text in (*sentences, summary, document.title, *whole)]
        keys = np.array([key(part) for part in parts], np.uint64)
        copied.update(among(keys, evaluation.exact))
        for part in parts[-2:]:  # the text as a whole, so that runs across sentences are seen
            words_read += len(part)
            for run in among(runs(hashes(part)), evaluation.runs):
                shared |= evaluation.grams[run]
    print(f"{documents:,} documents or pairs, {words_read:,} words; sets: {len(evaluation.counts)}\n")
    print("| set | texts of 5 words | copied | texts of 13 words | with 13 words in a row |")
    print("|---|---|---|---|---|")
    table = {}
    for name in sorted(evaluation.counts):
        mine = {"copied": copied, "shared": shared}
        hits = {kind: [n for n in sorted(one) if name in evaluation.sets[n]] for kind, one in mine.items()}
        table[name] = {
            "texts": evaluation.counts[name],
            "long": evaluation.long[name],
            **{kind: len(found) for kind, found in hits.items()},
            "examples": [evaluation.texts[n] for n in islice(hits["copied"] + hits["shared"], SHOWN)],
        }
        one = table[name]
        print(f"| {name} | {one['texts']:,} | {one['copied']:,} | {one['long']:,} | {one['shared']:,} |")
    if given.out:
        given.out.write_text(json.dumps({"documents": documents, "words": words_read, "sets": table}, indent=1))


if __name__ == "__main__":
    main()
