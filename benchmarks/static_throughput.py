"""How many texts a second static vectors encode: ours, sentence-transformers, and model2vec where it is installed.

    python benchmarks/static_throughput.py MODEL --texts sentences.txt --count 96000 --repeats 5 --threads 1

All read the same folder and the same texts, in turns; the first round is not counted.  Medians, their ratios, and the
least cosine to sentence-transformers' vectors are printed.
"""

import os
from functools import partial
from pathlib import Path
from statistics import median

import harness


def main() -> None:
    """Time every program on the same texts."""
    parser = harness.options(__doc__, repeats=5)
    parser.add_argument("model")
    parser.add_argument("--texts", type=Path, required=True, help="a text a line")
    parser.add_argument("--count", type=int, default=96_000)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)  # of tokenizers; read at the first use
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if arguments.threads > 1 else "false"
    import torch
    from sentence_transformers import SentenceTransformer

    from selfsent.encoder.encode import encode
    from selfsent.encoder.load import load_encoder

    torch.set_num_threads(arguments.threads)
    lines = arguments.texts.read_text(encoding="utf-8").splitlines()[: arguments.count]
    ours, theirs = load_encoder(arguments.model), SentenceTransformer(harness.shipped(arguments.model), device="cpu")
    sides = {
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
        sides["model2vec"] = lambda: other.encode(lines, use_multiprocessing=False)
        if arguments.threads > 1:
            sides["model2vec, processes"] = lambda: other.encode(lines, use_multiprocessing=True)
    vectors = {}

    def kept(side: str) -> None:
        vectors[side] = sides[side]()

    rates = harness.rates_in_turn({side: partial(kept, side) for side in sides}, len(lines), arguments.repeats)
    print(f"{len(lines):,} texts, {arguments.threads} threads, medians of {arguments.repeats}")
    reference = vectors["sentence-transformers"]
    filled = abs(reference).max(axis=1) > 1e-6  # a text without a known word has no direction
    for name, values in rates.items():
        ratio = median(ours / other for ours, other in zip(rates["selfsent"], values, strict=True))
        each = ", ".join(f"{value:,.0f}" for value in values)
        least = harness.cosines(vectors[name], reference)[filled].min()
        print(f"{name:24} {median(values):10,.0f} texts/s  ours / it {ratio:5.2f}  least cosine {least:.6f}  ({each})")
    harness.keep_figures(arguments, rates)


if __name__ == "__main__":
    main()
