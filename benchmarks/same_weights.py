"""Train every method with two checkouts at fixed seeds, and compare the weights byte for byte.

Example: git worktree add ../before HEAD~20
         python benchmarks/same_weights.py ../before --corpus wiki.jsonl --documents books.jsonl
"""

import argparse
import os
import sys
from pathlib import Path
from tempfile import mkdtemp

import harness

SHORT = ["train.steps=12", "train.batch_size=16", "train.evaluate_every=6", "train.learning_rate=1e-4"]
METHODS = {  # what keeps a run small, or gives it what it needs
    "simcse": [],
    "scd": ["objective.projector_width=256"],
    "whitenedcse": [],
    "denosent": ["objective.decoder_layers=2"],
    "declutr": ["objective.max_length=64", "train.batch_size=4"],
    "denosent+whitenedcse": ["objective.denosent.decoder_layers=2"],
}
NANO = ["length=32", "batch_size=16", "evaluate_every=5"]


def commands(corpus: Path, documents: Path, precision: str, threads: int) -> dict[str, list[str]]:
    """Return the command of each run, without its output, by name."""
    machine = [f"hardware.threads={threads}", f"hardware.precision={precision}"]

    pretrain = ("pretrain", corpus, "--vocabulary", 4000, "--size")
    held_out = [*machine, "corpus.held_out=40"]
    seeded = ("--seed", 7)
    runs = {
        "static": harness.selfsent(*pretrain, "static", *seeded),
        "nano": harness.selfsent(*pretrain, "nano", "--tokens", 12000, *seeded, settings=[*NANO, *held_out]),
    }
    for method, settings in METHODS.items():
        text = documents if method == "declutr" else corpus
        settings = [*SHORT, *held_out, *settings]
        runs[method] = harness.selfsent("train", text, "--method", method, *seeded, settings=settings)
    return runs


def weights(tree: Path, words: list[str], out: Path, cache: Path) -> dict[str, str]:
    """Run a command of one checkout; return the digests of the weights it wrote."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "SELFSENT_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    harness.finish([*words, "--out", str(out)], env=environment, cwd=cache.parent)
    return {str(path.relative_to(out)): harness.digest(path) for path in (out / "model").rglob("*.safetensors")}


def main() -> None:
    """Print a row a run, and end with status 1 if any byte differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="another checkout of this project")
    parser.add_argument("--corpus", type=Path, required=True, help="a few thousand texts")
    parser.add_argument("--documents", type=Path, required=True, help="documents of 256 tokens or more")
    parser.add_argument("--only", nargs="*", help="names of runs")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    scratch = Path(mkdtemp())
    differ = 0
    for precision in ("fp32", "bf16"):
        for name, words in commands(
            arguments.corpus.resolve(), arguments.documents.resolve(), precision, arguments.threads
        ).items():
            if arguments.only and name not in arguments.only:
                continue
            before, now = (
                weights(tree.resolve(), words, scratch / side / f"{name}-{precision}", scratch / f"cache-{side}")
                for side, tree in (("before", arguments.before), ("now", harness.ROOT))
            )
            differ += before != now
            same = "identical" if before == now else "DIFFERENT"
            print(f"{name:<22} {precision}  {same}  {len(before)} files", flush=True)
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
