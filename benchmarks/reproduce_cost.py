r"""Whether `selfsent reproduce` estimates time and memory of a training rightly: some steps of recipes beside it.

Each recipe of a paper runs in a process of its own, as published but for its text, its steps and its weights, which
are random in the shape of its base.  Seconds a step are the median behind the first steps, memory is the peak of the
process less what it held before the encoder was opened.  Evaluations are left out on both sides.

Example: python benchmarks/reproduce_cost.py --corpus sentences.txt --documents books.jsonl.xz
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import turns
from train_throughput import backbone

RECIPES = {  # and the shape of each base
    "simcse-bert-base": (12, 768),
    "scd-bert-base": (12, 768),
    "whitenedcse-bert-base": (12, 768),
    "denosent-bert-base": (12, 768),
    "declutr-distilroberta": (6, 768),
    "declutr-roberta-base": (12, 768),
}
GIB = 2**30


def _memory(key: str) -> float:
    """Return bytes of this process by Linux: VmHWM, its peak, or VmRSS."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * float(next(line.split()[1] for line in lines if line.startswith(key)))


def measure(name: str, folder: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Train some steps of a recipe from random weights."""
    from selfsent.progress import Progress
    from selfsent.reproduction.cost import time_machine, training_cost
    from selfsent.training import train

    layers, width = RECIPES[name]
    documents = name.startswith("declutr")
    texts = arguments.documents if documents else arguments.corpus
    before = _memory("VmRSS")
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
        backbone(base, layers, width, 512)

    class Clock(Progress):
        def __init__(self) -> None:
            self.readings: list[float] = []

        def step(self, step: int, texts: int, terms: object) -> None:
            self.readings.append(time.perf_counter())

    clock = Clock()
    train.train(
        name, base=str(base), corpus=texts, out=mkdtemp() + "/run", settings=settings, data=None, progress=clock
    )
    seconds = [b - a for a, b in zip(clock.readings, clock.readings[1:], strict=False)][max(0, arguments.warmup - 1) :]
    peak, rate = _memory("VmHWM"), time_machine(width)
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", default=list(RECIPES), help=", ".join(RECIPES))
    parser.add_argument("--corpus", action="append", required=True, help="a sentence a line")
    parser.add_argument("--documents", action="append", required=True, help="long documents, for declutr")
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--warmup", type=int, default=3, help="steps that are not timed")
    parser.add_argument("--steps", type=int, default=17, help="steps timed")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--side", choices=RECIPES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        result = measure(arguments.side, arguments.folder, arguments)
        (arguments.folder / "result.json").write_text(json.dumps(result))
        return
    if unknown := set(arguments.recipes) - set(RECIPES):
        parser.error(f"no recipe {', '.join(sorted(unknown))}: choose from {', '.join(RECIPES)}")
    folder, figures = Path(mkdtemp(prefix="reproduce-cost-")), {}
    print("| recipe | seconds a step | estimated | memory, GiB | estimated |\n|---|---|---|---|---|", flush=True)
    for name in arguments.recipes:
        of = figures[name] = turns.take([name], 1, folder)[name][0]
        time_off, memory_off = (of[f"estimated_{what}"] / of[what] - 1 for what in ("seconds", "memory"))
        print(
            f"| {name} | {of['seconds']:.2f} | {of['estimated_seconds']:.2f} ({time_off:+.0%}) "
            f"| {of['memory']:.2f} | {of['estimated_memory']:.2f} ({memory_off:+.0%}) |",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"ratios": {}, "figures": figures}, indent=2) + "\n")


if __name__ == "__main__":
    main()
