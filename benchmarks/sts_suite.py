"""Wall time of the STS benchmarks: `selfsent evaluate` against a plain loop over their files.

Example: python benchmarks/sts_suite.py sentence-transformers/all-MiniLM-L6-v2 --data senteval/

The plain loop is what everybody writes: both columns of each file through ``SentenceTransformer.encode``, in fp32 and,
the model cast, in bf16; one Spearman correlation a task.  It reports no interval.  Each side is a fresh process timed
as a whole, start and imports included; the three take turns.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import mkdtemp

import harness

SIDES = ("plain loop fp32", "plain loop bf16", "ours")


def plain_loop(model: str, data: Path, out: Path, bf16: bool) -> None:
    """Encode file by file and write one correlation a task."""
    import torch
    from scipy.stats import spearmanr
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.util import pairwise_cos_sim

    from selfsent.evaluation.suite import read_suite

    encoder = SentenceTransformer(model, device="cpu", model_kwargs={"dtype": torch.bfloat16} if bf16 else {})
    scores = {}
    for task in read_suite(["sts"], data).tasks:
        similarity: list[float] = []
        for pairs in task.parts:
            left, right = (encoder.encode(side, convert_to_tensor=True) for side in (pairs.left, pairs.right))
            similarity += pairwise_cos_sim(left.float(), right.float()).tolist()
        scores[task.name] = 100 * spearmanr(similarity, task.gold).statistic
    out.write_text(json.dumps(scores))


def ours(model: str, data: Path, out: Path) -> list[str]:
    """Return the command that a user types."""
    program = Path(sys.executable).with_name("selfsent")
    return [str(program), "evaluate", model, "--tasks", "sts", "--data", str(data), "--out", str(out)]


def main() -> None:
    """Time each side in turn; print medians, ratios and the largest difference between their scores."""
    parser = harness.options(__doc__, repeats=3)
    parser.add_argument("model", nargs="?", default="builtin")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--side", choices=SIDES[:2], help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()

    model = harness.shipped(arguments.model)
    if arguments.side:  # one measurement, in a process of its own
        plain_loop(model, arguments.data, arguments.out, arguments.side.endswith("bf16"))
        return
    out = Path(mkdtemp(prefix="sts-suite-")) / "scores.json"
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    scores: dict[str, dict[str, float]] = {}
    for repeat in range(arguments.repeats):
        for side in SIDES:
            words = [sys.executable, "-W", "ignore", __file__, model, "--data", str(arguments.data), "--side", side]
            began = time.perf_counter()
            command = ours(model, arguments.data, out) if side == "ours" else [*words, "--out", str(out)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            seconds[side].append(time.perf_counter() - began)
            scores[side] = _scores(json.loads(out.read_text()))
            print(f"  {repeat + 1}: {side:<16} {seconds[side][-1]:6.1f} s", flush=True)
    for side in SIDES:
        print(f"{side:<16} {statistics.median(seconds[side]):6.1f} s")
    ratios = {}
    for side in SIDES[:2]:
        ratios[f"{side} / ours"] = statistics.median(a / b for a, b in zip(seconds[side], seconds["ours"], strict=True))
        apart = max(abs(scores[side][task] - scores["ours"][task]) for task in scores["ours"])
        print(f"{side} / ours: {ratios[f'{side} / ours']:.2f};  largest difference of a score: {apart:.2f}")
    harness.keep_figures(arguments, seconds, ratios=ratios)


def _scores(content: dict) -> dict[str, float]:
    """Return the correlations by task, from either side's file."""
    if "scores" not in content:
        return content
    return {
        score["task"]: score["value"]
        for score in content["scores"]
        if (score["metric"], score["aggregation"]) == ("spearman", "all") and not score["task"].startswith("average")
    }


if __name__ == "__main__":
    main()
