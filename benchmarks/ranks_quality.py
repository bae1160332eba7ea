"""Train with dropout in one process and in several at the same batch, and compare their STS scores and their speed.

The masks of dropout depend on which process draws them, so that the weights differ; their STS averages have to lie
within the spread of the seeds.  One process runs with as many threads as there are processes in the other runs.
The runs of a seed take turns, and each is a fresh process; the speed is that of the steps alone.

Example: python benchmarks/ranks_quality.py --corpus wiki.jsonl --data senteval/ --processes 2 --seeds 1 2 3
"""

import argparse
import json
import os
import statistics
from pathlib import Path
from tempfile import mkdtemp

import harness


def work(arguments: argparse.Namespace) -> None:
    """Train once; what each process of a launch runs."""
    from selfsent.training import train

    settings = [
        f"train.steps={arguments.steps}",
        f"train.batch_size={arguments.batch}",
        "train.evaluate_every=0",
        "train.select=last",
        "train.baselines=false",
        "corpus.held_out=100",
        f"corpus.max_texts={arguments.texts}",
        f"hardware.threads={1 if 'RANK' in os.environ else arguments.processes}",
    ]
    trained = train.train(
        arguments.method,
        base=arguments.base,
        corpus=str(arguments.corpus),
        settings=[*settings, *arguments.set],
        seed=arguments.seed,
        out=arguments.work,
    )
    if int(os.environ.get("RANK", "0")) == 0:
        (arguments.work / "speed.json").write_text(json.dumps(trained.outcome.texts_per_second))


def sts(model: Path, data: Path) -> float:
    """Return the average of the six STS sets."""
    from selfsent import evaluate

    average = next(iter(evaluate(model, ["sts"], data=data, bootstrap=0).values())).average()
    assert average is not None
    return average.value


def main() -> None:
    """Print a row for every seed, then the medians."""
    parser = harness.options(__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="a folder in SentEval's layout")
    parser.add_argument("--method", default="simcse")
    parser.add_argument("--base", default="builtin")
    parser.add_argument("--processes", type=int, default=2, help="beside one")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--texts", type=int, default=20_000, help="sentences of the corpus that are read")
    parser.add_argument("--set", nargs="*", default=["encoder.dropout=0.1"], help="further settings")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.corpus, arguments.data = arguments.corpus.resolve(), arguments.data.resolve()
    if arguments.work:
        work(arguments)
        return
    scratch, rows = Path(mkdtemp(prefix="ranks-quality-")), []
    counts = (1, arguments.processes)
    print(f"{'seed':>4} {'processes':>9} {'texts/s':>8} {'STS':>6}")
    for seed in arguments.seeds:
        for count in counts:
            out = scratch / f"{seed}-{count}"
            harness.launch(count, out, "--seed", str(seed))
            speed = float(json.loads((out / "speed.json").read_text()))
            rows.append({"seed": seed, "processes": count, "texts_per_second": speed})
            rows[-1]["sts"] = sts(out / "model", arguments.data)
            print(f"{seed:>4} {count:>9} {speed:>8,.1f} {rows[-1]['sts']:>6.2f}", flush=True)
    alone, several = ([row["texts_per_second"] for row in rows if row["processes"] == count] for count in counts)
    ratios = [b / a for a, b in zip(alone, several, strict=True)]
    print(f"{arguments.processes} processes beside one: {statistics.median(ratios):.2f} times as fast (median)")
    harness.keep(arguments, rows)


if __name__ == "__main__":
    main()
