"""Sides of a comparison, measured in fresh processes that take turns: a drift of the machine then meets all of them."""

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

Rounds = dict[str, list[dict[str, float]]]  # side -> what each of its rounds gave


def take(sides: Sequence[str], repeats: int, folder: Path, rate: str = "", unit: str = "") -> Rounds:
    """Run the calling benchmark once for each side and round.

    Its process of one side is given ``--side SIDE --folder FOLDER`` beside the options of this one, and leaves its
    figures in ``FOLDER/result.json``.

    Args:
        rate: the figure that is shown as each round ends, in ``unit``; none where it is empty.
    """
    measured: Rounds = {side: [] for side in sides}
    words = [sys.executable, "-W", "ignore", *sys.argv, "--folder", str(folder), "--side"]
    for repeat in range(repeats):
        for side in sides:
            subprocess.run([*words, side], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            measured[side].append(json.loads((folder / "result.json").read_text()))
            if rate:
                print(f"  {repeat + 1}: {side:<10} {measured[side][-1][rate]:10,.1f} {unit}", flush=True)
    return measured


def ratios(measured: Rounds, rate: str) -> dict[str, float]:
    """Return how many times as fast as each other side ours is: medians over the rounds."""
    return {
        f"ours / {side}": statistics.median(a[rate] / b[rate] for a, b in zip(measured["ours"], runs, strict=True))
        for side, runs in measured.items()
        if side != "ours"
    }


def medians(measured: Rounds) -> dict[str, dict[str, float]]:
    """Return the median of every figure of every side."""
    return {
        side: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for side, runs in measured.items()
    }
