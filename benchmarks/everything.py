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
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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


def evaluate(model: str, out: Path, arguments: argparse.Namespace) -> None:
    """Evaluate one model unless it is done."""
    if out.is_file():
        return
    folder, _, pooling = model.partition("@")
    words = [sys.executable, "-m", "selfsent", "evaluate", folder, "--tasks", arguments.tasks]
    words += ["--data", str(arguments.data), "--classifier", arguments.classifier, "--json", str(out)]
    words += ["--pooling", pooling] if pooling else []
    log = out.with_suffix(".log")
    with log.open("w") as file:
        ended = subprocess.run(words, stdout=file, stderr=subprocess.STDOUT).returncode
    print(f"{out.stem}: {'done' if not ended else f'failed, see {log}'}", flush=True)


def value(found: dict, task: str, split: str | None, metric: str) -> dict | None:
    """Return the score of a column, or None where it was not measured."""
    for score in found["scores"]:
        named = score["task"].startswith(task[:-1]) if task.endswith("*") else score["task"] == task
        right = score["metric"] == metric and split in (None, score["split"]) and score["aggregation"] in ("", "all")
        if named and right:
            return score
    return None


def main() -> None:
    """Evaluate what is not evaluated yet, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", help="NAME=MODEL[@POOLING][,MODEL...]: a recipe and its seeds")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tasks", default=TASKS)
    parser.add_argument("--classifier", default="senteval_full")
    parser.add_argument("--out", type=Path, default=Path("runs/everything"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)

    rows = {}
    for row in arguments.rows:
        name, _, models = row.partition("=")
        slug = name.replace(" ", "-").replace(",", "").replace("/", "-")
        rows[name] = [
            (model, arguments.out / f"{slug}-{seed}.json") for seed, model in enumerate(models.split(","), start=1)
        ]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(lambda job: evaluate(*job, arguments), [job for jobs in rows.values() for job in jobs]))

    figures: dict[str, dict[str, list[float]]] = {}
    averaged: dict[str, tuple[str, ...]] = {}  # metric of an average: the tasks in it
    print("| | seeds | " + " | ".join(COLUMNS) + " |\n|---|" + "---|" * (len(COLUMNS) + 1))
    for name, jobs in rows.items():
        found = [json.loads(out.read_text(encoding="utf-8")) for _, out in jobs if out.is_file()]
        if not found:
            continue
        cells, figures[name] = [], {}
        for title, column in COLUMNS.items():
            scores = [score for score in (value(one, *column) for one in found) if score is not None]
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
        print(f"| {name} | {len(found)} | {' | '.join(cells)} |")
    for method in ("simcse", "scd", "whitenedcse", "declutr", "denosent"):
        row = tables.published_row({"method": method})
        if row is not None:
            cells = [_published(row.figures, column, averaged) for column in COLUMNS.values()]
            print(f"| {method}, {row.base}, published | | {' | '.join(cells)} |")
    if arguments.json:
        arguments.json.write_text(json.dumps({"ratios": {}, "figures": figures}, indent=2) + "\n")


def _published(figures: dict, column: tuple[str, str | None, str], averaged: dict[str, tuple[str, ...]]) -> str:
    """Return a paper's figure in a column; in that of an average, its mean over the tasks of ours."""
    task, _, metric = column
    tasks = averaged.get(metric, ()) if task.endswith("*") else (task,)
    of = [figure for key, figure in figures.items() if key[0] in tasks and key[2] == metric and key[3] in ("", "all")]
    return f"{statistics.mean(of):.2f}" if of and len(of) == len(tasks) else "-"


if __name__ == "__main__":
    main()
