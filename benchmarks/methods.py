"""Train each method and its ablations from one base on one corpus with one budget, and table the scores.

Example: python benchmarks/methods.py --corpus wikipedia.jsonl.xz --data senteval --out runs/methods --jobs 2

Every run is ``selfsent train`` in a process of its own; a finished run is not repeated, a killed one is resumed.  The
weights of each are chosen on STS-B dev; what is tabled is measured on the test sets.

The objectives are as published, but for SCD's (see ``SCD``); the training is not, so that it is the same for all: one
learning rate, linear to zero without warm-up, no weight decay, Adam's epsilon 1e-8, bucketed batches (of documents
plain ones), 64 texts a step or 16 documents, and DeCLUTR's spans of 128 tokens at most.
"""

import argparse
import json
import statistics
from dataclasses import dataclass
from pathlib import Path

import harness

TASKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    method: str
    pooling: str
    settings: tuple[str, ...] = ()
    ablation: bool = False  # takes --ablation-seeds instead of --seeds
    corpus: str = "corpus"  # which of --corpus, --documents and --pairs it learns from

    def folder(self, seed: int, out: Path) -> Path:
        """Return the folder of a run."""
        return out / f"{self.name.replace(' ', '-').replace(',', '')}-{seed}"


SCD = ("objective.projector_width=1024", "objective.self_contrast_weight=0.01")  # published: 4096 and 1
JOINED_SCD = ("objective.scd.projector_width=1024", "objective.scd.self_contrast_weight=0.01")
SPANS = ("objective.max_length=128", "train.select=stsb-dev")
# The same texts, each its own positive.  Rows with a positive are not split into sentences, nor may these be.
ALONE = ("corpus.positive_column=none at all", "corpus.split=no")
NEIGHBOURS = ("corpus.positives=adjacent", "objective.head=false", "objective.symmetric=true", "encoder.dropout=0.0")
ROWS = [
    Row("simcse", "simcse", "mean"),
    Row("scd", "scd", "mean", SCD),
    Row("whitenedcse", "whitenedcse", "mean"),
    Row("simcse cls", "simcse", "cls"),
    Row("scd cls", "scd", "cls", SCD),
    Row("whitenedcse cls", "whitenedcse", "cls"),
    Row("scd, decorrelation only", "scd", "mean", (SCD[0], "objective.self_contrast_weight=0"), ablation=True),
    Row("scd, self-contrast only", "scd", "mean", (*SCD, "objective.decorrelation_weight=0"), ablation=True),
    Row("whitenedcse, no shuffling", "whitenedcse", "mean", ("objective.shuffle=false",), ablation=True),
    # The paper's m counts views: m = 2 is 1 positive; its best, m = 3, is the default.
    Row("whitenedcse, 1 positive", "whitenedcse", "mean", ("objective.num_views=2",), ablation=True),
    Row("simcse, neighbouring sentences", "simcse", "mean", NEIGHBOURS),
    Row("simcse, batches not bucketed", "simcse", "mean", ("train.bucketed=false",)),
    Row("whitenedcse, 3 positives", "whitenedcse", "mean", ("objective.num_views=4",), ablation=True),
    Row("whitenedcse, batch norm for whitening", "whitenedcse", "mean", ("objective.whitening=batch_norm",), True),
    Row("declutr", "declutr", "mean", SPANS, corpus="documents"),
    Row("declutr, no masked LM", "declutr", "mean", (*SPANS, "objective.mlm_weight=0.0"), True, "documents"),
    Row("declutr, no contrast", "declutr", "mean", (*SPANS, "objective.contrast_weight=0.0"), True, "documents"),
    Row("declutr, 1 anchor", "declutr", "mean", (*SPANS, "objective.num_anchors=1"), True, "documents"),
    Row("denosent", "denosent", "mean"),
    Row("denosent prompt", "denosent", "prompt"),
    Row("denosent, discrete noise", "denosent", "mean", corpus="pairs"),
    Row("denosent, discrete noise left out", "denosent", "mean", ALONE, True, "pairs"),
    Row("denosent, no denoising", "denosent", "mean", ("objective.denoise_weight=0.0",), True),
    Row("denosent, no contrast", "denosent", "mean", ("objective.contrast_weight=0.0",), True),
    Row("simcse+scd", "simcse+scd", "mean", JOINED_SCD),
    Row("scd+whitenedcse", "scd+whitenedcse", "mean", JOINED_SCD),
    Row("denosent+whitenedcse", "denosent+whitenedcse", "mean"),
]


def command(row: Row, seed: int, arguments: argparse.Namespace) -> list[str]:
    """Return the command of one training."""
    settings = [
        f"train.steps={arguments.document_steps if row.corpus == 'documents' else arguments.steps}",
        f"train.batch_size={16 if row.corpus == 'documents' else 64}",
        "train.schedule=linear",
        "train.warmup_steps=0",
        "train.weight_decay=0.0",
        "train.adam_epsilon=1e-8",
        f"train.learning_rate={arguments.learning_rate}",
        f"train.evaluate_every={arguments.evaluate_every}",
        "train.select=stsb-dev",
        f"encoder.pooling={row.pooling}",
        f"corpus.max_texts={arguments.max_texts}",
        f"corpus.held_out={arguments.held_out}",
        f"hardware.threads={arguments.threads}",
        *row.settings,
        *arguments.set,
    ]
    return harness.selfsent(
        *("train", *getattr(arguments, row.corpus), "--method", row.method, "--base", arguments.base),
        *("--out", row.folder(seed, arguments.out), "--data", arguments.data, "--seed", seed, "--resume"),
        settings=settings,
    )


def scores(results: dict) -> dict[str, dict]:
    """Return the main score of each task, and the average."""
    return {
        "average" if score["task"].startswith("average") else score["task"]: score
        for score in results["scores"]
        if score["metric"] == "spearman" and score["aggregation"] == "all"
    }


def main() -> None:
    """Train what is not trained yet, then print the table."""
    parser = harness.options(__doc__)
    parser.add_argument("--corpus", action="append", required=True)
    parser.add_argument("--documents", action="append", default=[], help="for declutr; its rows are left out without")
    parser.add_argument("--pairs", action="append", default=[], help="for discrete noise; left out without")
    parser.add_argument("--only", action="append", default=[], help="names of rows; all by default")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--base", default="builtin")
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ablation-seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100, help="of 64 texts")
    parser.add_argument("--document-steps", type=int, default=50, help="of 16 documents: about as many tokens")
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--evaluate-every", type=int, default=50)
    parser.add_argument("--max-texts", type=int, default=100_000)
    parser.add_argument("--held-out", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--table-only", action="store_true")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)

    rows = [
        row for row in ROWS if getattr(arguments, row.corpus) and (not arguments.only or row.name in arguments.only)
    ]

    def seeds(row: Row) -> range:
        return range(1, (arguments.ablation_seeds if row.ablation else arguments.seeds) + 1)

    runs = {(row, seed): row.folder(seed, arguments.out) / "scores.json" for row in rows for seed in seeds(row)}
    if not arguments.table_only:
        harness.run_all({file: command(*run, arguments) for run, file in runs.items()}, arguments.jobs)

    figures: dict[str, dict] = {}
    harness.head("run", "seeds", *TASKS, "average", "spread", "95 % interval, each seed")
    for row in rows:
        files = [runs[row, seed] for seed in seeds(row)]
        measured = [json.loads(file.read_text()) for file in files if file.exists()]
        if not measured:
            continue
        by_task = [scores(run["trained"]) for run in measured]
        cells = []
        for task in TASKS:
            values = [of_run[task]["value"] for of_run in by_task if task in of_run]
            cells.append(f"{statistics.mean(values):.1f}" if values else "-")
        averages = [of_run["average"]["value"] for of_run in by_task]
        mean, spread = statistics.mean(averages), statistics.stdev(averages) if len(averages) > 1 else float("nan")
        intervals = ", ".join(f"{of_run['average']['low']:.1f}-{of_run['average']['high']:.1f}" for of_run in by_task)
        harness.row(row.name, len(measured), *cells, f"**{mean:.2f}**", f"{spread:.2f}", intervals)
        figures[row.name] = {
            "averages": averages,
            "mean": mean,
            "spread": spread,
            "stsb_dev": [run["outcome"]["best_score"] for run in measured],
            "best_steps": [run["outcome"]["best_step"] for run in measured],
            "base": scores(measured[0]["base"])["average"]["value"],
        }
    harness.keep_figures(arguments, figures)


if __name__ == "__main__":
    main()
