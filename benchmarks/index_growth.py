"""What does an index of many texts cost: building it, its size and memory, queries a second, and what the lists miss.

    python benchmarks/index_growth.py TEXT... [--model builtin-static] [--texts 10000 1000000] [--json FILE]

Every sentence of six words or more is a document.  Each step is a process of its own, whose peak of memory is its own.
Queries are sentences drawn from the same text, which are not in the index; recall@10 is against exact search.  Up to
200,000 vectors all are compared, and there is no recall; ``--exact-vectors 0`` makes lists of fewer, to try the script.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness
import numpy as np

QUERIES = 500


def sentences(names: list[str], count: int) -> list[str]:
    """Distinct sentences, in the order of the text."""
    from selfsent.text import clean

    distinct: dict[str, None] = {}
    for document in harness.read_documents(names):
        for sentence in re.split(r"(?<=[.!?])\s+", clean.one_line(document.text)):
            if len(sentence.split()) >= 6:
                distinct.setdefault(sentence)
        if len(distinct) >= count:
            break
    return list(distinct)[:count]


def build(corpus: Path, folder: Path, model: str, exact_vectors: int) -> dict:
    """Make the index."""
    from selfsent.searching.index import Index
    from selfsent.searching.settings import IndexConfig

    began = time.perf_counter()
    Index.make([corpus], folder, model=model, config=IndexConfig(exact_vectors=exact_vectors))
    seconds = time.perf_counter() - began
    index = Index.open(folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {"build s": round(seconds, 1), "MB on disk": round(size / 1e6), "vectors": index.vectors} | {
        "lists": index.facts["lists"]
    }


def measure(folder: Path, model: str, queries: Path) -> dict:
    """Search by the index and exactly."""
    from selfsent.encoder.open import open_encoder
    from selfsent.encoder.quantize import unit
    from selfsent.searching.index import Index

    began = time.perf_counter()
    index = Index.open(folder)
    row: dict = {"open s": round(time.perf_counter() - began, 2)}
    asked = queries.read_text(encoding="utf-8").splitlines()
    vectors = unit(open_encoder(model).embed(asked)).astype(np.float32)
    ranked = {}
    for mode in ("dense", "bm25", "hybrid"):
        index.rank(asked[:5], vectors[:5], 10, mode)
        began = time.perf_counter()
        pairs = zip(asked, vectors, strict=True)
        ranked[mode] = [index.rank([query], vector[None], 10, mode)[0] for query, vector in pairs]
        row[f"{mode} queries/s"] = round(len(asked) / (time.perf_counter() - began), 1)
    lists, index.dense.lists = index.dense.lists, None
    began = time.perf_counter()
    for vector in vectors[:20]:
        index.rank([""], vector[None], 10, "dense")
    row["exact queries/s"] = round(20 / (time.perf_counter() - began), 1)
    began = time.perf_counter()
    exact = index.rank(asked, vectors, 10, "dense")
    row["exact queries/s, 500 at once"] = round(len(vectors) / (time.perf_counter() - began), 1)
    if lists is not None:
        recalls = [
            len(dict(hits).keys() & dict(right)) / len(right)
            for hits, right in zip(ranked["dense"], exact, strict=True)
        ]
        row["recall@10"] = round(float(np.mean(recalls)), 4)
    return row


def main() -> None:
    """Print a row for each number of texts."""
    parser = harness.options(__doc__)
    parser.add_argument("texts_of", nargs="*", metavar="TEXT")
    parser.add_argument("--model", default="builtin-static")
    parser.add_argument("--texts", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--exact-vectors", type=int, default=200_000, help="above which number there are lists")
    parser.add_argument("--step", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        step, first, second, third = arguments.step
        if step == "build":
            row = build(Path(first), Path(second), third, arguments.exact_vectors)
        else:
            row = measure(Path(first), second, Path(third))
        row["MB of memory at the peak"] = round(harness.memory("VmHWM") / 2**20)
        print(json.dumps(row))
        return
    texts = sentences(arguments.texts_of, max(arguments.texts) + QUERIES)
    drawn = set(np.random.default_rng(0).choice(len(texts), QUERIES, replace=False).tolist())
    queries, texts = (
        [texts[number] for number in sorted(drawn)],
        [text for n, text in enumerate(texts) if n not in drawn],
    )
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        corpus, asked, folder = Path(scratch) / "corpus.jsonl", Path(scratch) / "queries.txt", Path(scratch) / "index"
        asked.write_text("\n".join(queries), encoding="utf-8")
        for count in arguments.texts:
            harness.write_rows(corpus, ({"text": text} for text in texts[:count]))
            row: dict = {"texts": count}
            for step in (
                ["build", str(corpus), str(folder), arguments.model],
                ["measure", str(folder), arguments.model, str(asked)],
            ):
                words = [sys.executable, __file__, "--exact-vectors", str(arguments.exact_vectors), "--step", *step]
                done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
                row[step[0]] = json.loads(done.stdout.splitlines()[-1])
            rows.append(row)
            print(row, flush=True)
            shutil.rmtree(folder)
    harness.keep(arguments, rows)


if __name__ == "__main__":
    main()
