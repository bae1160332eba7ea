"""What people call relevant, found in fewer dimensions, and from candidates of one byte or bit a dimension.

    python benchmarks/dimensions.py DATA --base all-MiniLM-L6-v2 --base builtin --collections scifact,cranfield

DATA/<collection> is one of BEIR, as for judged_search.py, whose nDCG@10 of one vector a document this is.  The axes are
learned from sentences and passages of the documents, as `selfsent fit --dimensions` learns them; the first dimensions
alone are what `truncate_dim` gives.  Candidates are the 40 nearest by int8 or binary vectors, ranked by their cosines.
`--lists TEXT` measures instead what the lists of an index of TEXT's sentences propose, of 8 bits a dimension and of 1.
"""

import argparse
import json
import tempfile
from pathlib import Path

import harness
import numpy as np
from judged_search import Collection

from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.principal_axes import principal_axes
from selfsent.encoder.quantize import quantize, ranges_of, unit
from selfsent.searching import nearest
from selfsent.text import clean

WIDTHS, TEXTS, CANDIDATES, FOUND = (256, 128, 64), 4096, 40, 10


def measure(collection: Collection, vectors: np.ndarray) -> dict[str, dict[str, float]]:
    """Return nDCG@10 by width and way, and of quantised candidates also their recall@10 of the exact neighbours."""
    wholes = [text.passages[0] for text in collection.texts["document"]]
    others = sorted({*collection.encoded} - {*collection.queries.values(), *wholes})
    drawn = np.random.default_rng(0).permutation(len(others))[:TEXTS]
    axes = principal_axes(vectors[collection.rows([others[row] for row in drawn])], vectors.shape[1])
    documents, asked = (unit(vectors[collection.rows(texts)]) for texts in (wholes, [*collection.queries.values()]))

    def judge(cosines: np.ndarray) -> float:
        found = np.argsort(-cosines, axis=1, kind="stable")[:, :FOUND]
        names = [[collection.names[row] for row in rows] for rows in found]
        return collection.judge(dict(zip(collection.queries, names, strict=True)))

    figures: dict[str, dict[str, float]] = {}
    for width in (len(axes), *(width for width in WIDTHS if width < len(axes))):
        sides = [unit(side @ axes[:, :width]) for side in (asked, documents)]
        first = [unit(side[:, :width]) for side in (asked, documents)]
        figures[str(width)] = {"axes": judge(sides[0] @ sides[1].T), "first": judge(first[0] @ first[1].T)}
        exact = sides[0] @ sides[1].T
        for kind in ("int8", "binary"):
            near = _proposed(*sides, kind)
            recall = [len({*np.argsort(-row)[:FOUND]} & {*some}) / FOUND for row, some in zip(exact, near, strict=True)]
            only = np.full_like(exact, -np.inf)
            np.put_along_axis(only, near, np.take_along_axis(exact, near, 1), 1)
            figures[str(width)] |= {kind: judge(only), f"{kind} recall": round(float(np.mean(recall)), 3)}
    return figures


def _proposed(asked: np.ndarray, documents: np.ndarray, kind: str) -> np.ndarray:
    """Return the candidates of each query: by the products of a query with quantised documents."""
    if kind == "binary":
        stored = np.where(documents > 0, 1.0, -1.0)  # the query stays as it is
    else:
        ranges = ranges_of(documents)
        step = (ranges[1] - ranges[0]) / 255
        stored = ranges[0] + step * (quantize(documents, "uint8", ranges).astype(np.float64) + 0.5)
    return np.argpartition(-(asked @ stored.T), CANDIDATES, axis=1)[:, :CANDIDATES]


def measure_lists(texts: Path, base: str, folder: Path) -> dict[str, dict[str, float]]:
    """Return recall@10 against exact search, the lists searched for it, and the bytes a vector of the file."""
    rows = [json.loads(line)["text"] for line in texts.open(encoding="utf-8")]
    sentences = list(dict.fromkeys(sentence for row in rows for sentence in clean.sentences(row, "en")))
    vectors = [unit(encode(load_encoder(base), sentences)).astype(np.float16)]
    waiting, figures = nearest.choose_sample(0, len(sentences)), {}
    for bits in (8, 1):
        lists = nearest.IVFIndex(vectors, nearest.lists_for(len(sentences)), bits)
        lists.add_vectors(vectors, waiting)
        nprobe, recall = nearest.measure_recall(lists, vectors, waiting, 0.97)
        lists.save_file(folder / "lists")
        size = round((folder / "lists").stat().st_size / len(lists))
        figures[f"{bits} bits"] = {"vectors": len(lists), "recall": round(recall, 3), "lists": nprobe, "bytes": size}
        harness.row(f"{bits} bits", *figures[f"{bits} bits"].values())
    return figures


def main() -> None:
    """Measure every base on every collection."""
    parser = harness.options(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--base", action="append", default=[])
    parser.add_argument("--collections", default="scifact")
    parser.add_argument("--lists", type=Path)
    given: argparse.Namespace = parser.parse_args()
    if given.lists:
        harness.head("a dimension", "vectors", "recall@10", "lists searched", "bytes a vector")
        with tempfile.TemporaryDirectory() as folder:
            return harness.keep(given, measure_lists(given.lists, given.base[0], Path(folder)))
    kept = {}
    harness.head("base, collection", "dimensions", *(columns := ["axes", "first", "int8", "binary"]), "binary recall")
    for base in given.base:
        encoder = load_encoder(base)
        for name in given.collections.split(","):
            collection = Collection(given.data / name)
            figures = measure(collection, encode(encoder, collection.encoded))
            kept[f"{Path(base).name}, {name}"] = figures
            for width, row in figures.items():
                harness.row(
                    f"{Path(base).name}, {name}", width, *(row[column] for column in columns), row["binary recall"]
                )
    harness.keep(given, kept)


if __name__ == "__main__":
    main()
