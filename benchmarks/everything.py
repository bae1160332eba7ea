r"""Evaluate encoders under every protocol and table them: a row a recipe, the mean over its seeds.

Example:
    python benchmarks/everything.py --data senteval --out runs/everything --jobs 2 \
        base=builtin "base, cls=builtin@cls" simcse=runs/methods/simcse-1/model,runs/methods/simcse-2/model

Every evaluation is ``selfsent evaluate`` in a process of its own; one that is finished is not repeated.  The papers'
rows follow, where their protocol is the column's; their averages are over the same tasks as ours.
"""

import argparse
import json
import statistics
from pathlib import Path

import harness

from selfsent.runs import tables

TASKS = "sts,transfer,probing,banking77,emotion,clinc150,stackoverflow,geometry"
PROBING = ("sentence_length", "bigram_shift", "past_present", "subj_number", "coordination_inversion")
OWN = ("banking77", "emotion", "clinc150")
COLUMNS = {  # title: (task, split, metric); a task that ends in "*" is the first that begins so
    "STS": ("average of*", None, "spearman"),
    **{task.upper(): (task, "test", "accuracy") for task in tables.TRANSFER},
    "transfer": ("average of*", None, "accuracy"),
    **{task.replace("_", " "): (task, "test", "accuracy") for task in (*PROBING, *OWN)},
    "stackoverflow": ("stackoverflow", "test", "v-measure"),
    "alignment": ("geometry", None, "alignment"),
    "uniformity": ("geometry", None, "uniformity"),
}


def command(model: str, out: Path, arguments: argparse.Namespace) -> list[str]:
    """Return the command that evaluates one model."""
    folder, _, pooling = model.partition("@")
    words = ("evaluate", folder, "--tasks", arguments.tasks, "--data", arguments.data)
    pooled = ("--pooling", pooling) if pooling else ()
    return harness.selfsent(*words, "--classifier", arguments.classifier, "--out", out, *pooled)


def value(content: dict, task: str, split: str | None, metric: str) -> dict | None:
    """Return the score of a column, or None where it was not measured."""
    for score in content["scores"]:
        named = score["task"].startswith(task[:-1]) if task.endswith("*") else score["task"] == task
        right = score["metric"] == metric and split in (None, score["split"]) and score["aggregation"] in ("", "all")
        if named and right:
            return score
    return None


def main() -> None:
    """Evaluate what is not evaluated yet, then print the table."""
    parser = harness.options(__doc__)
    parser.add_argument("rows", nargs="+", help="NAME=MODEL[@POOLING][,MODEL...]: a recipe and its seeds")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tasks", default=TASKS)
    parser.add_argument("--classifier", default="senteval_full")
    parser.add_argument("--out", type=Path, default=Path("runs/everything"))
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)

    rows, commands = {}, {}
    for row in arguments.rows:
        name, _, models = row.partition("=")
        slug = name.replace(" ", "-").replace(",", "").replace("/", "-")
        rows[name] = [arguments.out / f"{slug}-{seed}.json" for seed in range(1, 2 + models.count(","))]
        commands |= {
            out: command(model, out, arguments) for model, out in zip(models.split(","), rows[name], strict=True)
        }
    harness.run_all(commands, arguments.jobs)

    figures: dict[str, dict[str, list[float]]] = {}
    averaged: dict[str, tuple[str, ...]] = {}  # metric of an average: the tasks in it
    harness.head("", "seeds", *COLUMNS)
    for name, outs in rows.items():
        measured = [json.loads(out.read_text(encoding="utf-8")) for out in outs if out.is_file()]
        if not measured:
            continue
        cells, figures[name] = [], {}
        for title, column in COLUMNS.items():
            scores = [score for score in (value(content, *column) for content in measured) if score is not None]
            if scores and column[0].endswith("*"):
                averaged[column[2]] = tuple(scores[0]["task"].partition(": ")[2].split())
            values = figures[name][title] = [score["value"] for score in scores]
            digits = 2 if title in ("STS", "transfer", "alignment", "uniformity") else 1
            cell = f"{statistics.mean(values):.{digits}f}" if values else "-"
            if digits == 2 and len(values) > 1:
                cell += f" ± {statistics.stdev(values):.2f}"
            elif digits == 2 and values and scores[0]["low"] is not None:
                cell += f" [{scores[0]['low']:.{digits}f}, {scores[0]['high']:.{digits}f}]"
            cells.append(cell)
        harness.row(name, len(measured), *cells)
    for method in ("simcse", "scd", "whitenedcse", "declutr", "denosent"):
        row = tables.published_row({"method": method})
        if row is not None:
            cells = [_published(row.figures, column, averaged) for column in COLUMNS.values()]
            harness.row(f"{method}, {row.base}, published", "", *cells)
    harness.keep_figures(arguments, figures)


def _published(figures: dict, column: tuple[str, str | None, str], averaged: dict[str, tuple[str, ...]]) -> str:
    """Return a paper's figure in a column; in that of an average, its mean over the tasks of ours."""
    task, _, metric = column
    tasks = averaged.get(metric, ()) if task.endswith("*") else (task,)
    own = [figure for key, figure in figures.items() if key[0] in tasks and key[2] == metric and key[3] in ("", "all")]
    return f"{statistics.mean(own):.2f}" if own and len(own) == len(tasks) else "-"


if __name__ == "__main__":
    main()
