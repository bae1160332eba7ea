"""What it brings to search documents whole: by all of their passages, or by their first 80 words alone.

    python benchmarks/passage_search.py builtin builtin-static --corpus articles.jsonl.xz

A sentence is taken out of each document behind its first 80 words, and has to find the document among the others
(MRR@10).  Beside it the first sentences, taken out, too: what a question about the whole document loses to the many
passages of others; and titles.  All passages are searched with the titles of their documents and without.
"""

import argparse
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hybrid_search import MODES, reciprocal_ranks

from selfsent.corpus.sources import Columns, resolve_sources
from selfsent.encoder.open import open_encoder
from selfsent.encoder.quantize import unit
from selfsent.searching.index import Index
from selfsent.searching.settings import IndexConfig
from selfsent.text import clean

BEGINNING, LEAST = 80, 160  # words: where sentences are taken from behind, and those of a document
SENTENCE = range(8, 41)


def draw(corpus: list[str], count: int, seed: int) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return documents without a sentence and without their first one, these sentences, the first ones, and titles."""
    rng = np.random.default_rng(seed)
    texts, inner, first, titles = [], [], [], []
    for source in resolve_sources(corpus):
        for document in source.documents(Columns(text="text", title="title", summary="summary")):
            sentences = clean.sentences(clean.clean_text(document.text), "en")
            if clean.count_words(document.text) < LEAST or clean.count_words(sentences[0]) not in SENTENCE:
                continue
            read = np.cumsum([clean.count_words(one) for one in sentences])
            behind = [
                number
                for number, one in enumerate(sentences)
                if number and read[number - 1] >= BEGINNING and clean.count_words(one) in SENTENCE
            ]
            if not behind:
                continue
            taken = int(rng.choice(behind))
            inner.append(sentences[taken])
            first.append(sentences[0])
            titles.append(document.title)
            texts.append(" ".join(one for number, one in enumerate(sentences) if number not in (0, taken)))
            if len(texts) == count:
                return texts, inner, first, titles
    return texts, inner, first, titles


def main() -> None:
    """Print a row for each encoder, way of searching, and number of passages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--corpus", action="append", required=True)
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    texts, *queries = draw(given.corpus, given.documents, given.seed)
    words = [clean.count_words(one) for one in texts]
    print(f"{len(texts):,} documents of {int(np.median(words))} words (median; {sum(words):,} in all)")
    print(f"| encoder | searched | vectors | seconds | inner sentence: {', '.join(MODES)} | first sentence | title |")
    print("|---|---|---|---|---|---|---|")
    with TemporaryDirectory() as place:
        bare, titled = Path(place) / "bare.jsonl", Path(place) / "titled.jsonl"
        bare.write_text("".join(json.dumps({"text": one}) + "\n" for one in texts), encoding="utf-8")
        rows = ({"title": title, "text": text} for title, text in zip(queries[-1], texts, strict=True))
        titled.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        ways = ((bare, 1, "first passage"), (bare, None, "all passages"), (titled, None, "all, and titles"))
        for model in given.models:
            encoder = open_encoder(model, fastest=True)
            asked = [unit(encoder.embed(some)).astype(np.float32) for some in queries]
            for corpus, passages, what in ways:
                out, began = Path(place) / f"{len(list(Path(place).iterdir()))}.index", time.perf_counter()
                Index.make([corpus], out, model=model, config=IndexConfig(mode="dense", passages=passages))
                seconds, index = time.perf_counter() - began, Index.open(out)
                cells = [
                    ", ".join(f"{reciprocal_ranks(index, some, vectors, mode).mean():.1f}" for mode in MODES)
                    for some, vectors in zip(queries, asked, strict=True)
                ]
                print(f"| {model} | {what} | {index.vectors:,} | {seconds:.0f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
