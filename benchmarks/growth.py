"""What preparing, training, encoding and indexing cost a text, from a thousand of them to a million.

    python benchmarks/growth.py LINES --base builtin-static --folder DIR --json growth.json --figure growth.png

Each figure is a whole command, a process of its own, from its start to its end: `selfsent train --prepare-only`,
training by SimCSE for one pass over the texts (after that, so that the corpus is there; with its evaluations, and the
word vectors that it is compared with), `selfsent encode` and `selfsent index`, on the first lines of the file.  The
picture shows the time a text over the number of texts, both in powers of ten: a flat line is a cost that grows with the
texts. A count that is measured is not measured again.
"""

import json
import os
import sys
from itertools import islice
from pathlib import Path

import harness
import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

COUNTS = (1_000, 10_000, 100_000, 1_000_000)
COMMANDS = ("prepare", "train", "encode", "index")
Table = dict[str, dict[str, dict[str, float]]]  # command -> texts -> seconds and MiB


def words_of(command: str, base: str, texts: Path, folder: Path) -> list[str]:
    """Return a command line."""
    made = str(folder / f"{texts.stem}-{command}")
    settings = harness.set_words(("train.batch_size=256", "train.evaluate_every=0", "train.epochs=1"))
    rest = {
        "prepare": [str(texts), "--method", "simcse", "--base", base, "--prepare-only"],
        "train": [str(texts), "--method", "simcse", "--base", base, "--out", made, *settings],
        "encode": [str(texts), "--model", base, "--out", f"{made}.npy", "--overwrite"],
        "index": [str(texts), "--model", base, "--out", made],
    }
    return harness.selfsent("train" if command == "prepare" else command, *rest[command])


def cut(lines: Path, count: int, folder: Path) -> Path:
    """Write the first lines to a file of their own."""
    texts = folder / f"{count}.txt"
    if not texts.exists():
        copied = 0  # a line at a time: the peak memory of a child begins with what this process holds
        with lines.open("rb") as source, texts.open("wb") as target:
            for line in islice(source, count):
                target.write(line)
                copied += 1
        if copied < count:
            texts.unlink()
            sys.exit(f"{lines} has {copied:,} lines, and {count:,} are asked for")
    return texts


def draw(table: Table, path: Path) -> None:
    """Draw the microseconds a text."""
    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.subplots()
        for name, row in table.items():
            counts = sorted(map(int, row))
            cost = [1e6 * row[str(count)]["seconds"] / count for count in counts]
            axes.plot(counts, cost, marker="o", label=name)
        axes.set(xscale="log", yscale="log", xlabel="texts", ylabel="microseconds a text, whole command")
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.grid(True, color="#dddddd", linewidth=0.7)
        axes.legend(frameon=False)
        figure.savefig(path, dpi=150)


def main() -> None:
    """Measure what is not measured yet, and draw."""
    parser = harness.options(__doc__, folder=True)
    parser.add_argument("lines", type=Path, help="a file, a text a line")
    parser.add_argument("--base", default="builtin-static")
    parser.add_argument("--counts", type=int, nargs="+", default=list(COUNTS))
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    os.environ["SELFSENT_CACHE"] = str(arguments.folder / "cache")  # nothing is prepared already
    table: Table = {name: {} for name in COMMANDS}
    if arguments.json and arguments.json.exists():
        table = json.loads(arguments.json.read_text())
    for count in arguments.counts:
        texts = cut(arguments.lines, count, arguments.folder)
        for command in arguments.commands:
            if str(count) in table[command]:
                continue
            log = arguments.folder / f"{count}-{command}.log"
            seconds, memory = harness.measure_command(words_of(command, arguments.base, texts, arguments.folder), log)
            table[command][str(count)] = {"seconds": seconds, "peak_memory_mib": memory}
            harness.keep(arguments, table)
    harness.head("command", "texts", "seconds", "microseconds a text", "peak memory")
    for command, row in table.items():
        for count, run in sorted(row.items(), key=lambda entry: int(entry[0])):
            cost, memory = 1e6 * run["seconds"] / int(count), run["peak_memory_mib"]
            harness.row(command, f"{int(count):,}", f"{run['seconds']:,.1f}", f"{cost:,.0f}", f"{memory:,.0f} MiB")
    if arguments.figure:
        draw(table, arguments.figure)


if __name__ == "__main__":
    main()
