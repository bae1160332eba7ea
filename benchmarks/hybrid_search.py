"""Does fusing the ranking by words with that by meaning find more?  MRR@10 of an index, by mode, with intervals.

    python benchmarks/hybrid_search.py CORPUS MODEL... [--documents 3000] [--queries 500] [--json FILE]

The first sentence of a document, which is taken out of it, has to find the rest among the rests of all documents.  The
intervals of the differences are paired: the same queries are drawn for both modes.
"""

import argparse
import json
import re
import tempfile
from pathlib import Path

import numpy as np

from selfsent.corpus import sources
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.quantize import unit
from selfsent.searching.index import Index
from selfsent.text import clean

MODES = ("dense", "bm25", "hybrid")
_WORDS = (5, 20)  # of a query and of a passage, at least


def pairs(corpus: str, count: int) -> list[tuple[str, str]]:
    """First sentences and what follows, of documents drawn at random."""
    columns = sources.Columns(text="text", title="title", summary="summary")
    found = []
    for source in sources.resolve_sources([corpus]):
        for document in source.documents(columns):
            text = clean.one_line(" ".join(filter(None, (document.summary, document.text))))
            first, _, rest = re.sub(r"(?<=[.!?])\s", "\0", text, count=1).partition("\0")
            if len(first.split()) >= _WORDS[0] and len(rest.split()) >= _WORDS[1]:
                found.append((first, rest))
    draw = np.random.default_rng(0)
    return [found[row] for row in draw.permutation(len(found))[:count]]


def reciprocal_ranks(index: Index, queries: list[str], vectors: np.ndarray, mode: str) -> np.ndarray:
    """1 / rank of the answer to query i, which is document i; 0 behind the tenth."""
    values = []
    for answer, (query, vector) in enumerate(zip(queries, vectors, strict=True)):
        (ranked,) = index.rank([query], vector[None], 10, mode)
        documents = [document for document, _ in ranked]
        values.append(1 / (1 + documents.index(answer)) if answer in documents else 0.0)
    return 100 * np.array(values)


def interval(values: np.ndarray) -> tuple[float, float]:
    """95 % of the means of resampled queries."""
    draw = np.random.default_rng(0)
    means = [values[draw.integers(0, len(values), len(values))].mean() for _ in range(2000)]
    return tuple(round(float(one), 1) for one in np.quantile(means, [0.025, 0.975]))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--documents", type=int, default=3000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    asked = pairs(given.corpus, given.documents)
    queries = [query for query, _ in asked[: given.queries]]
    results = {}
    with tempfile.TemporaryDirectory() as place:
        corpus = Path(place) / "passages.jsonl"
        corpus.write_text("".join(json.dumps({"text": passage}) + "\n" for _, passage in asked), encoding="utf-8")
        for number, model in enumerate(given.models):
            Index.make([corpus], Path(place) / f"{number}", model=model)
            index = Index.open(Path(place) / f"{number}")
            encoder = load_encoder(model)
            vectors = unit(encode(encoder, queries, prompt=index.facts["fingerprint"]["query"])).astype(np.float32)
            of = {mode: reciprocal_ranks(index, queries, vectors, mode) for mode in MODES}
            row = {mode: [round(float(one.mean()), 1), interval(one)] for mode, one in of.items()}
            for other in ("dense", "bm25"):
                gain = of["hybrid"] - of[other]
                row[f"hybrid - {other}"] = [round(float(gain.mean()), 1), interval(gain)]
            results[model] = row
            print(
                model, *(f"{name} {mean} {low_high}" for name, (mean, low_high) in row.items()), sep="\n  ", flush=True
            )
    if given.json:
        given.json.write_text(json.dumps({"corpus": given.corpus, "documents": len(asked), **results}, indent=1))


if __name__ == "__main__":
    main()
