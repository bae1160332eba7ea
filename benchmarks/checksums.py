"""What checksums cost: prepare, train and encode with them and without, taking turns.

Without them every checksum is 0 and nothing is read again to be compared; all else, fsync included, stays.  Each run is
a process of its own, forked with its libraries imported.

Example: python benchmarks/checksums.py --corpus wiki.jsonl --rounds 5 --json checksums.json
"""

import argparse
import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import selfsent.__main__
from selfsent.storage import atomic


def commands(corpus: Path, folder: Path, steps: int) -> dict[str, list[str]]:
    """Return the command lines; the cache is in ``folder``, so that training does not prepare anew."""
    return {
        "prepare": ["prepare", str(corpus)],
        "train": ["train", "simcse", "--corpus", str(corpus), "--base", "builtin-static", "--out", str(folder / "run")]
        + [f"--set=train.{setting}" for setting in (f"steps={steps}", "evaluate_every=50", "checkpoint_every=10")],
        "encode": ["encode", "builtin-static", str(corpus), "--output", str(folder / "vectors.npy")],
    }


class Every(str):
    """Equal to every other checksum."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


def without() -> None:
    """Take the checksums out of this process."""
    atomic.file_digest = lambda path: Every("0:0")
    atomic.bytes_digest = lambda content: Every("0:0")
    atomic.verify = lambda *given, **named: None


def timed(words: list[str], prepare: Callable[[], None] | None) -> tuple[float, float]:
    """Run a command in a process of its own; return its seconds, and those of its processor time."""
    began = time.monotonic()
    child = os.fork()
    if not child:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        if prepare:
            prepare()
        sys.argv = ["selfsent", *words]
        try:
            selfsent.__main__.main()
        except SystemExit as end:
            os._exit(int(end.code or 0))
        os._exit(0)
    _, status, usage = os.wait4(child, 0)
    if status:
        sys.exit(f"{' '.join(words)} ended with {status}")
    return time.monotonic() - began, usage.ru_utime + usage.ru_stime


def main() -> None:
    """Print the medians of both sides of each command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    for module in ("training.train", "bulk.encode", "corpus.prepare", "encoder.load", "cli.display"):
        importlib.import_module(f"selfsent.{module}")
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for _ in range(arguments.rounds):
        for side, change in (("with", None), ("without", without)):
            with TemporaryDirectory() as scratch:
                os.environ["SELFSENT_CACHE"] = str(Path(scratch) / "cache")
                for name, words in commands(arguments.corpus.resolve(), Path(scratch), arguments.steps).items():
                    found.setdefault(name, {}).setdefault(side, []).append(timed(words, change))
    rows = []
    for name, sides in found.items():
        row: dict[str, object] = {"command": name}
        for side, times in sides.items():
            row[f"{side}, seconds"] = round(statistics.median(seconds for seconds, _ in times), 2)
            row[f"{side}, processor"] = round(statistics.median(processor for _, processor in times), 2)
        rows.append(row)
        print(row, flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
