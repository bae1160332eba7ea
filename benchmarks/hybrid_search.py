"""Does fusing the ranking by words with that by meaning find more?  MRR@10 of an index, by mode, with intervals.

    python benchmarks/hybrid_search.py CORPUS MODEL... [--documents 3000] [--queries 500] [--json FILE]

The first sentence of a document, which is taken out of it, has to find the rest among the rests of all documents.  The
intervals of the differences are paired: the same queries are drawn for both modes.
"""

import re
import tempfile
from pathlib import Path

import harness
import numpy as np

from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.quantize import unit
from selfsent.searching.index import Index
from selfsent.text import clean

MODES = ("dense", "bm25", "hybrid")
_WORDS = (5, 20)  # of a query and of a passage, at least


def pairs(corpus: str, count: int) -> list[tuple[str, str]]:
    """First sentences and what follows, of documents drawn at random."""
    split = []
    for document in harness.read_documents([corpus]):
        text = clean.one_line(" ".join(filter(None, (document.summary, document.text))))
        first, _, rest = re.sub(r"(?<=[.!?])\s", "\0", text, count=1).partition("\0")
        if len(first.split()) >= _WORDS[0] and len(rest.split()) >= _WORDS[1]:
            split.append((first, rest))
    draw = np.random.default_rng(0)
    return [split[row] for row in draw.permutation(len(split))[:count]]


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
    return tuple(round(float(bound), 1) for bound in np.quantile(means, [0.025, 0.975]))


def main() -> None:
    """Print a table."""
    parser = harness.options(__doc__)
    parser.add_argument("corpus")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--documents", type=int, default=3000)
    parser.add_argument("--queries", type=int, default=500)
    arguments = parser.parse_args()
    asked = pairs(arguments.corpus, arguments.documents)
    queries = [query for query, _ in asked[: arguments.queries]]
    results = {}
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(scratch) / "passages.jsonl"
        harness.write_rows(corpus, ({"text": passage} for _, passage in asked))
        for number, model in enumerate(arguments.models):
            Index.make([corpus], Path(scratch) / f"{number}", model=model)
            index = Index.open(Path(scratch) / f"{number}")
            encoder = load_encoder(model)
            vectors = unit(encode(encoder, queries, prompt=index.facts["fingerprint"]["query"])).astype(np.float32)
            ranks = {mode: reciprocal_ranks(index, queries, vectors, mode) for mode in MODES}
            ranks |= {f"hybrid - {other}": ranks["hybrid"] - ranks[other] for other in ("dense", "bm25")}
            row = {name: [round(float(values.mean()), 1), interval(values)] for name, values in ranks.items()}
            results[model] = row
            print(
                model, *(f"{name} {mean} {low_high}" for name, (mean, low_high) in row.items()), sep="\n  ", flush=True
            )
    harness.keep(arguments, {"corpus": arguments.corpus, "documents": len(asked), **results})


if __name__ == "__main__":
    main()
