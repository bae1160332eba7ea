"""How many texts a second static vectors encode: ours, sentence-transformers, and model2vec where it is installed.

    python benchmarks/static_throughput.py MODEL --texts sentences.txt --count 96000 --repeats 5 --threads 1

All read the same folder and the same texts, in turns; the first round is not counted.  Medians, their ratios, and the
least cosine to sentence-transformers' vectors are printed.
"""

import argparse
import os
import time
from pathlib import Path
from statistics import median


def main() -> None:
    """Time every program on the same texts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--texts", type=Path, required=True, help="a text a line")
    parser.add_argument("--count", type=int, default=96_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(given.threads)  # of tokenizers; read at the first use
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if given.threads > 1 else "false"
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer

    from selfsent.encoder.encode import encode
    from selfsent.encoder.folder import SHIPPED
    from selfsent.encoder.load import load_encoder

    torch.set_num_threads(given.threads)
    folder = str(SHIPPED.get(given.model, given.model))
    lines = given.texts.read_text(encoding="utf-8").splitlines()[: given.count]
    ours, theirs = load_encoder(given.model), SentenceTransformer(folder, device="cpu")
    ways = {
        "selfsent": lambda: encode(ours, lines),
        "sentence-transformers": lambda: theirs.encode(lines, batch_size=1024, show_progress_bar=False),
    }
    try:
        from model2vec import StaticModel
    except ImportError:
        print("model2vec is not installed: left out")
    else:
        table = theirs[0].embedding.weight.detach().numpy()
        other = StaticModel(table, theirs[0].tokenizer, normalize=False, max_length=None)
        ways["model2vec"] = lambda: other.encode(lines, use_multiprocessing=False)
        if given.threads > 1:
            ways["model2vec, processes"] = lambda: other.encode(lines, use_multiprocessing=True)
    rates: dict[str, list[float]] = {name: [] for name in ways}
    vectors = {}
    for repeat in range(given.repeats + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            vectors[name] = np.asarray(way(), np.float32)
            if repeat:
                rates[name].append(len(lines) / (time.perf_counter() - began))
    print(f"{len(lines):,} texts, {given.threads} threads, medians of {given.repeats}")
    reference = vectors["sentence-transformers"]
    norms = np.maximum(np.linalg.norm(reference, axis=1), 1e-12)
    for name, values in rates.items():
        own = np.maximum(np.linalg.norm(vectors[name], axis=1), 1e-12)
        cosines = np.einsum("nd,nd->n", vectors[name], reference) / (own * norms)
        ratio = median(ours / other for ours, other in zip(rates["selfsent"], values, strict=True))
        each = ", ".join(f"{value:,.0f}" for value in values)
        least = float(cosines[norms > 1e-6].min())
        print(f"{name:24} {median(values):10,.0f} texts/s  ours / it {ratio:5.2f}  least cosine {least:.6f}  ({each})")


if __name__ == "__main__":
    main()
