"""Does what `selfsent fit` keeps find what people call relevant?  nDCG@10 of every candidate, and of a search with it.

    python benchmarks/judged_search.py DATA OUT --base builtin --base all-MiniLM-L6-v2 --collections cranfield,med
    python benchmarks/judged_search.py DATA OUT --table

DATA/<collection> is one of BEIR: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/test.tsv``; fit reads the first alone.
Written to OUT/<collection>-<base>-<seed>.json; what is there is not made again.  Two ways of searching are judged:

document   one vector a document, of title and text, as every vector store does it
index      that of `selfsent index`: openings and passages

For grouping, documents that are relevant to the same query should lie together: see ``_gathered``.
"""

import argparse
import csv
import json
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any

import harness
import ir_measures
import numpy as np
from judged_grouping import gathered
from sentence_transformers import SentenceTransformer

from selfsent.corpus.sources import Document
from selfsent.encoder.encode import encode
from selfsent.encoder.open import as_encoder, open_encoder
from selfsent.encoder.quantize import unit
from selfsent.encoder.search_settings import WORDS
from selfsent.evaluation.label_free.scores import SCORE
from selfsent.evaluation.score import Results
from selfsent.progress import Progress
from selfsent.searching.index import Index
from selfsent.searching.modes import write_word_index
from selfsent.searching.passages import SearchText, embedded_texts, search_text
from selfsent.searching.reader import IndexReader
from selfsent.searching.segment import Segment
from selfsent.searching.settings import IndexConfig
from selfsent.searching.writer import new_facts
from selfsent.selection import fit as fitting
from selfsent.selection.choose import Choice
from selfsent.selection.held_out_tests import difference, figure
from selfsent.selection.judging import BM25
from selfsent.selection.scoreboard import Candidate, Scoreboard, short_name
from selfsent.selection.search_scores import MEANING, MRR

COLLECTIONS = ("cranfield", "cacm", "med", "scifact", "dbpedia")
_FEWEST = 100  # documents, to judge how they are gathered
KEPT, SEARCH, WITH_WORDS = "kept encoder", "kept search", "base with words"


class Told(Progress):
    """Prints what fit says."""

    def say(self, message: str) -> None:
        """Print a line."""
        print(message, flush=True)


class Collection:
    """Documents in both ways of searching, queries, and what people call relevant."""

    def __init__(self, folder: Path) -> None:
        self.corpus, self.name = folder / "corpus.jsonl", folder.name
        rows = [json.loads(line) for line in self.corpus.open(encoding="utf-8")]
        documents = [Document(id=row["_id"], title=row.get("title", ""), text=row["text"]) for row in rows]
        found = [text for document in documents if (text := search_text(document)) is not None]
        wholes = [" ".join([text.title, *text.passages]).strip() for text in found]
        self.texts = {
            "document": [SearchText("", (whole,), whole, text.id) for whole, text in zip(wholes, found, strict=True)],
            "index": found,
        }
        self.names = [text.id for text in found]
        with (folder / "qrels" / "test.tsv").open(encoding="utf-8") as file:
            judged = [*csv.reader(file, delimiter="\t")][1:]
        self.relevant: dict[str, dict[str, int]] = defaultdict(dict)
        for query, document, grade in judged:
            self.relevant[query][document] = int(grade)
        self.relevant = {query: each for query, each in self.relevant.items() if any(each.values())}
        asked = [json.loads(line) for line in (folder / "queries.jsonl").open(encoding="utf-8")]
        self.queries = {row["_id"]: row["text"] for row in asked if row["_id"] in self.relevant}
        encoded = [text for way in self.texts.values() for text in embedded_texts(way)[1]]
        self.encoded = list(dict.fromkeys([*self.queries.values(), *encoded]))
        self._row = {text: number for number, text in enumerate(self.encoded)}

    def rows(self, texts: Sequence[str]) -> list[int]:
        """Return where texts stand among those that are encoded."""
        return [self._row[text] for text in texts]

    def judge(self, rankings: Mapping[str, Sequence[str]]) -> float:
        """Return the mean nDCG@10 of the documents found for each query."""
        return round(float(self.per_query(rankings).mean()), 2)

    def per_query(self, rankings: Mapping[str, Sequence[str]]) -> np.ndarray:
        """Return nDCG@10 of each query, in percent."""
        run = {query: {name: -float(place) for place, name in enumerate(names)} for query, names in rankings.items()}
        found = {each.query_id: each.value for each in ir_measures.nDCG(cutoff=10).iter_calc(self.relevant, run)}
        return 100 * np.array([found.get(query, 0.0) for query in self.queries])


class Reader:
    """A collection as an index holds it, with the vectors of any candidate."""

    def __init__(self, collection: Collection, way: str, folder: Path) -> None:
        self.collection, self.texts, self.folder = collection, collection.texts[way], folder
        write_word_index(folder / "words", ((text.title, " ".join(text.passages)) for text in self.texts), "en")

    def judge(self, vectors: np.ndarray, **search: Any) -> float:
        """Return nDCG@10 of a search with the vectors of ``Collection.encoded``."""
        scale = search.pop("scale", [])
        facts = {
            **{"config": asdict(IndexConfig()), "deleted": None, "lists": None, "words": "words", "mode": "dense"},
            "search": {"words": WORDS, "feedback": 0, "scale": scale, "language": "en"},
        }
        segment = Segment.make(self.texts, _Given(self.collection, vectors), "", np.float32)
        queries = self.collection.queries
        asked = unit(vectors[self.collection.rows([*queries.values()])]).astype(np.float32)
        found = IndexReader(self.folder, facts, [segment]).rank([*queries.values()], asked, 10, **search)
        names = [[self.collection.names[document] for document, _ in row] for row in found]
        return self.collection.judge(dict(zip(queries, names, strict=True)))


class _Given:
    """An encoder whose vectors are known."""

    def __init__(self, collection: Collection, vectors: np.ndarray) -> None:
        self.collection, self.vectors = collection, vectors

    def embed(self, texts: Sequence[str], *, prompt: str) -> np.ndarray:
        return self.vectors[self.collection.rows(texts)]


def select(corpus: Path, base: str, out: Path, seed: int, minutes: float) -> tuple[Scoreboard, Choice, int]:
    """Fit, and return every candidate, the choice, and the seconds that it took."""
    seen: list[tuple[Scoreboard, Choice]] = []

    def remember(board: Scoreboard) -> Choice:
        seen.append((board, choose(board)))
        return seen[0][1]

    choose, began = fitting.choose, time.perf_counter()
    fitting.choose = remember
    (out / fitting.REPORT).unlink(missing_ok=True)  # a finished one is read again, from what it keeps
    try:
        named = () if base == "builtin" else base
        settings = [f"seed={seed}"]
        fitting.fit(
            corpus=corpus, base=named, out=out, minutes=minutes, settings=settings, resume=True, progress=Told()
        )
    finally:
        fitting.choose = choose
    took = out / "seconds.txt"  # of the first time: later ones find most of it made
    if not took.is_file():
        took.write_text(f"{time.perf_counter() - began:.0f}", encoding="utf-8")
    return *seen[0], int(took.read_text(encoding="utf-8"))


def measure(collection: Collection, base: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """Fit once, and judge every candidate and every way of searching."""
    out = given.out / f"{collection.name}-{short_name(base)}-{seed}"
    board, choice, seconds = select(collection.corpus, base, out, seed, given.minutes)
    kept_vectors: dict[str, np.ndarray] = {}

    def vectors_of(candidate: Candidate) -> np.ndarray:
        if candidate.derive is not None:
            return candidate.derive(*map(vectors_of, candidate.parts))
        if candidate.name not in kept_vectors:
            made_here = candidate not in board.bases
            path = (out if made_here else given.out) / f"vectors-{collection.name}-{candidate.slug}.npy"
            if not path.is_file():
                np.save(path, _embed(candidate.open(), collection))
            kept_vectors[candidate.name] = np.load(path)
        return kept_vectors[candidate.name]

    settings = {"mode": "dense", "feedback": 0}
    found, scale = choice.search, []
    if found is not None:
        folder = out / fitting.MODEL
        facts = new_facts(open_encoder(folder), folder, [], [], IndexConfig(), ("text", "id"))["search"]
        settings, scale = (
            {"mode": facts["mode"], "words": facts["words"], "feedback": facts["feedback"]},
            facts["scale"],
        )
    _save_found(out.with_suffix(".npz"), collection, {each.name: vectors_of(each) for each in board.candidates})
    judged: dict[str, dict[str, float]] = {}
    base_vectors = vectors_of(choice.base)
    for way in collection.texts:
        with tempfile.TemporaryDirectory() as scratch:
            reader = Reader(collection, way, Path(scratch))
            plain = {each.name: reader.judge(vectors_of(each), mode="dense") for each in board.candidates}
            judged[way] = plain | {
                BM25: reader.judge(base_vectors, mode="bm25"),
                WITH_WORDS: reader.judge(base_vectors, mode="hybrid", words=WORDS, feedback=0),
                KEPT: plain[choice.kept.name],
                SEARCH: reader.judge(vectors_of(choice.kept), scale=scale, **settings),
            }
    row = {
        **{"collection": collection.name, "base": choice.base.name, "seed": seed, "seconds": seconds},
        **{"kept": choice.kept.name, "search": asdict(found) if found else None, "sentences": choice.sentences},
        "judged": judged,
        "own": {each.name: _own(each) for each in board.candidates}
        | {BM25: _own(board.vectors.tests["dev"].score_words())},
        "gate": vars(board.search_gate) if board.transformer else None,
        "jobs": {job: candidate.name for job, candidate in choice.jobs.items()},
        "gathered": {each.name: _gathered(collection, vectors_of(each)) for each in board.candidates},
        "decided": [
            (one.name, other.name, difference(one.scores["dev"], other.scores["dev"], SCORE).decision)
            for one, other in combinations(board.candidates, 2)
        ],
    }
    if given.open:
        row["opened"] = _opened(collection, out / fitting.MODEL)
    return row


def _save_found(path: Path, collection: Collection, vectors: Mapping[str, np.ndarray]) -> None:
    """Write which documents every candidate finds first, and their cosines, for ``predictors.py``: Q x 100."""
    documents = [text.opening or text.passages[0] for text in collection.texts["document"]]
    places = collection.rows([*collection.queries.values()]), collection.rows(documents)
    found = {}
    for name, of_texts in vectors.items():
        asked, stored = (unit(of_texts[rows]) for rows in places)
        cosines = asked @ stored.T
        first = np.argsort(-cosines, axis=1, kind="stable")[:, :100]
        found |= {f"{name}|rows": first, f"{name}|cosines": np.take_along_axis(cosines, first, axis=1)}
    np.savez_compressed(path, **found)


def _gathered(collection: Collection, vectors: np.ndarray) -> tuple[float, float] | None:
    """Say how near the documents lie to each other that people call relevant to the same query, and to no other.

    MAP and nearest neighbours, as of classes: the cluster hypothesis (Jardine and van Rijsbergen 1971).
    """
    queries = defaultdict(list)
    for query, documents in collection.relevant.items():
        for name in (name for name, grade in documents.items() if grade > 0):
            queries[name].append(query)
    own = {name: found[0] for name, found in queries.items() if len(found) == 1}
    sizes = Counter(own.values())
    texts = {
        text.id: text.opening or text.passages[0]
        for text in collection.texts["document"]
        if text.id in own and sizes[own[text.id]] > 1
    }
    if len(texts) < _FEWEST:
        return None
    return gathered(unit(vectors[collection.rows([*texts.values()])]), [own[name] for name in texts])


def _embed(encoder: SentenceTransformer, collection: Collection) -> np.ndarray:
    """Return the vectors of queries and documents, each behind its prompt."""
    cut, prompt = len(dict.fromkeys(collection.queries.values())), as_encoder(encoder).task_prompt
    sides = ("query", collection.encoded[:cut]), ("document", collection.encoded[cut:])
    return np.vstack([encode(encoder, texts, prompt=prompt(task)) for task, texts in sides])


def _own(scored: Candidate | Results) -> dict[str, float | None]:
    """Return what fit sees on the documents that choose: a sentence from inside, and without its rarer words."""
    results = scored.scores["dev"] if isinstance(scored, Candidate) else scored
    return {name: figure(results, name) for name in (MRR, MEANING)}


def _opened(collection: Collection, model: Path) -> float:
    """Return nDCG@10 of the folder that fit kept, in an index that ``Index.make`` makes of it."""
    with tempfile.TemporaryDirectory() as scratch:
        index = Index.make([collection.corpus], Path(scratch) / "index", model=model, id_column="_id")
        found = {query: [hit.id for hit in index.search(text)] for query, text in collection.queries.items()}
    return collection.judge(found)


def table(out: Path) -> None:
    """Print a row for every base and collection, means over seeds, and one of all collections."""
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*.json"))]
    groups = defaultdict(list)
    for each in rows:
        for way in each["judged"]:
            groups[way, each["base"], each["collection"]].append(each)
    harness.head("way", "base", "collection", "seeds", BM25, "base alone", WITH_WORDS, KEPT, SEARCH, "best", "seconds")
    lines = defaultdict(list)
    for (way, base, collection), some in groups.items():
        names = (BM25, base, WITH_WORDS, KEPT, SEARCH)
        figures = [mean(each["judged"][way][name] for each in some) for name in names]
        shared = set.intersection(*(set(each["judged"][way]) for each in some)) - {WITH_WORDS, SEARCH, BM25}
        figures.append(max(mean(each["judged"][way][name] for each in some) for name in shared))
        figures.append(mean(each["seconds"] for each in some))
        lines[way, base].append(figures)
        harness.row(way, base, collection, len(some), *(f"{figure:.1f}" for figure in figures))
    for (way, base), some in lines.items():
        harness.row(way, base, "mean", len(some), *(f"{figure:.2f}" for figure in np.mean(some, axis=0)))


def main() -> None:
    """Fit and judge every collection, base and seed, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--base", action="append", default=[])
    parser.add_argument("--collections", default=",".join(COLLECTIONS))
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--open", action="store_true", help="also search an index that the kept folder makes")
    parser.add_argument("--table", action="store_true", help="only print the table")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for seed in map(int, given.seeds.split(",")) if not given.table else ():
        for base in given.base:
            for name in given.collections.split(","):
                target = given.out / f"{name}-{short_name(base)}-{seed}.json"
                if not target.is_file():
                    row = measure(Collection(given.data / name), base, seed, given)
                    target.write_text(json.dumps(row, indent=1), encoding="utf-8")
                    print(json.dumps(row, indent=1), flush=True)
    table(given.out)


if __name__ == "__main__":
    main()
