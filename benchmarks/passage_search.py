"""What it brings to search documents whole: by all of their passages, or by their first 80 words alone.

    python benchmarks/passage_search.py builtin builtin-static --corpus articles.jsonl.xz

A sentence is taken out of each document behind its first 80 words, and has to find the document among the others
(MRR@10).  Beside it the first sentences, taken out, too: what a question about the whole document loses to the many
passages of others; and titles.  All passages are searched with the titles of their documents and without.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import harness
import numpy as np

from selfsent.encoder.open import open_encoder
from selfsent.encoder.quantize import unit
from selfsent.searching.index import Index
from selfsent.searching.settings import IndexConfig
from selfsent.text import clean

MODES = ("dense", "bm25", "hybrid")
BEGINNING, LEAST = 80, 160  # words: where sentences are taken from behind, and those of a document
SENTENCE = range(8, 41)


def draw(corpus: list[str], count: int, seed: int) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return documents without a sentence and without their first one, these sentences, the first ones, and titles."""
    rng = np.random.default_rng(seed)
    texts, inner, first, titles = [], [], [], []
    for document in harness.read_documents(corpus):
        sentences = clean.sentences(clean.clean_text(document.text), "en")
        if clean.count_words(document.text) < LEAST or clean.count_words(sentences[0]) not in SENTENCE:
            continue
        lengths = [clean.count_words(sentence) for sentence in sentences]
        read = np.cumsum(lengths)
        behind = [n for n in range(1, len(lengths)) if read[n - 1] >= BEGINNING and lengths[n] in SENTENCE]
        if not behind:
            continue
        taken = int(rng.choice(behind))
        inner.append(sentences[taken])
        first.append(sentences[0])
        titles.append(document.title)
        texts.append(" ".join(sentence for n, sentence in enumerate(sentences) if n not in (0, taken)))
        if len(texts) == count:
            break
    return texts, inner, first, titles


def reciprocal_ranks(index: Index, queries: list[str], vectors: np.ndarray, mode: str) -> np.ndarray:
    """1 / rank of the answer to query i, which is document i; 0 behind the tenth."""
    values = []
    for answer, (query, vector) in enumerate(zip(queries, vectors, strict=True)):
        (ranked,) = index.rank([query], vector[None], 10, mode)
        documents = [document for document, _ in ranked]
        values.append(1 / (1 + documents.index(answer)) if answer in documents else 0.0)
    return 100 * np.array(values)


def main() -> None:
    """Print a row for each encoder, way of searching, and number of passages."""
    parser = harness.options(__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--corpus", action="append", required=True)
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    texts, *queries = draw(arguments.corpus, arguments.documents, arguments.seed)
    rows, words = [], [clean.count_words(text) for text in texts]
    print(f"{len(texts):,} documents of {int(np.median(words))} words (median; {sum(words):,} in all)")
    inner = f"inner sentence: {', '.join(MODES)}"
    harness.head("encoder", "searched", "vectors", "seconds", inner, "first sentence", "title")
    with TemporaryDirectory() as scratch:
        bare, titled = Path(scratch) / "bare.jsonl", Path(scratch) / "titled.jsonl"
        harness.write_rows(bare, ({"text": text} for text in texts))
        harness.write_rows(
            titled, ({"title": title, "text": text} for title, text in zip(queries[-1], texts, strict=True))
        )
        ways = ((bare, 1, "first passage"), (bare, None, "all passages"), (titled, None, "all, and titles"))
        for model in arguments.models:
            encoder = open_encoder(model, fastest=True)
            asked = [unit(encoder.embed(kind)).astype(np.float32) for kind in queries]
            for corpus, passages, searched in ways:
                out, began = Path(scratch) / f"{len(list(Path(scratch).iterdir()))}.index", time.perf_counter()
                Index.make([corpus], out, model=model, config=IndexConfig(mode="dense", passages=passages))
                seconds, index = time.perf_counter() - began, Index.open(out)
                cells = [
                    ", ".join(f"{reciprocal_ranks(index, kind, vectors, mode).mean():.1f}" for mode in MODES)
                    for kind, vectors in zip(queries, asked, strict=True)
                ]
                rows.append((model, searched, f"{index.vectors:,}", f"{seconds:.0f}", *cells))
                harness.row(*rows[-1])
    harness.keep(arguments, rows)


if __name__ == "__main__":
    main()
