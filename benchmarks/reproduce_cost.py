r"""Whether `selfsent reproduce` estimates time and memory of a training rightly: some steps of recipes beside it.

Each recipe of a paper runs in a process of its own, as published but for its text, its steps and its weights, which
are random in the shape of its base.  Seconds a step are the median behind the first steps, memory is the peak of the
process less what it held before the encoder was opened.  Evaluations are left out on both sides.

Example: python benchmarks/reproduce_cost.py --corpus sentences.txt --documents books.jsonl.xz
"""

import argparse
import statistics
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import harness

RECIPES = {  # and the shape of each base
    "simcse-bert-base": (12, 768),
    "scd-bert-base": (12, 768),
    "whitenedcse-bert-base": (12, 768),
    "denosent-bert-base": (12, 768),
    "declutr-distilroberta": (6, 768),
    "declutr-roberta-base": (12, 768),
}
GIB = 2**30


def measure(name: str, folder: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Train some steps of a recipe from random weights."""
    from selfsent.reproduction.cost import time_machine, training_cost
    from selfsent.training import train

    layers, width = RECIPES[name]
    documents = name.startswith("declutr")
    texts = arguments.documents if documents else arguments.corpus
    before = harness.memory("VmRSS")
    settings = [
        f"train.steps={arguments.warmup + arguments.steps}",
        "train.evaluate_every=0",
        "train.select=last",
        "train.baselines=false",
        "corpus.held_out=0",
        f"corpus.max_texts={arguments.texts}",
        *(["objective.max_length=512"] if documents else []),
        *(["corpus.positive_column=none"] if name.startswith("denosent") else []),
    ]
    base = folder / f"{layers}-{width}"
    if not base.exists():
        harness.backbone(base, layers, width, 512)

    clock = harness.Clock()
    train.train(
        name, base=str(base), corpus=texts, out=mkdtemp() + "/run", settings=settings, data=None, progress=clock
    )
    seconds = [b - a for a, b in zip(clock.times, clock.times[1:], strict=False)][max(0, arguments.warmup - 1) :]
    peak, rate = harness.memory("VmHWM"), time_machine(width)
    cost = training_cost(replace(train.resolve(name, base=str(base), settings=settings), data=None))
    return {
        "seconds": statistics.median(seconds),
        "estimated_seconds": cost.hours(rate) * 3600 / cost.steps,
        "memory": (peak - before) / GIB,
        "estimated_memory": cost.memory / GIB,
        "rate": rate / 1e12,
    }


def main() -> None:
    """Measure each recipe once and print the table."""
    parser = harness.options(__doc__, sides=tuple(RECIPES))
    parser.add_argument("recipes", nargs="*", default=list(RECIPES), help=", ".join(RECIPES))
    parser.add_argument("--corpus", action="append", required=True, help="a sentence a line")
    parser.add_argument("--documents", action="append", required=True, help="long documents, for declutr")
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--warmup", type=int, default=3, help="steps that are not timed")
    parser.add_argument("--steps", type=int, default=17, help="steps timed")
    arguments = parser.parse_args()
    if arguments.side:
        return harness.leave(arguments, measure(arguments.side, arguments.folder, arguments))
    if unknown := set(arguments.recipes) - set(RECIPES):
        parser.error(f"no recipe {', '.join(sorted(unknown))}: choose from {', '.join(RECIPES)}")
    folder, figures = Path(mkdtemp(prefix="reproduce-cost-")), {}
    harness.head("recipe", "seconds a step", "estimated", "memory, GiB", "estimated")
    for name in arguments.recipes:
        values = figures[name] = harness.take_turns([name], 1, folder)[name][0]
        cells = []
        for key in ("seconds", "memory"):
            measured, estimated = values[key], values[f"estimated_{key}"]
            cells += [f"{measured:.2f}", f"{estimated:.2f} ({estimated / measured - 1:+.0%})"]
        harness.row(name, *cells)
    harness.keep_figures(arguments, figures)


if __name__ == "__main__":
    main()
