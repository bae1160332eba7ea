"""What the benchmarks share: options, JSON and tables, commands that are timed, and sides that take turns.

    parser = harness.options(__doc__, repeats=3)  # with --json and --repeats
    arguments = parser.parse_args()
    measured = harness.take_turns(("peer", "ours"), arguments.repeats, folder, "rate", "texts/s")
    harness.report(arguments, measured, "rate", "texts/s")

A side of a comparison is measured in a fresh process, and the sides take turns: a drift of the machine then meets all
of them.  Nothing heavy is imported before it is used, because the peak memory of a child begins with what its parent
holds.
"""

import argparse
import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from selfsent.progress import Progress

ROOT = Path(__file__).resolve().parent.parent
PEERS = ("peer fp32", "peer bf16", "ours")  # of the comparisons with other trainers
Rounds = dict[str, list[dict[str, float]]]  # side -> what each of its rounds gave


class Clock(Progress):
    """Reads a clock, or a counter, after every step of a training."""

    def __init__(self, now: Callable[[], object] = time.perf_counter) -> None:
        self.now, self.times = now, []

    def step(self, step: int, texts: int, terms: object) -> None:
        """Read the clock."""
        self.times.append(self.now())

    def seconds(self, warmup: int) -> float:
        """Return the seconds of the steps after the warm-up."""
        return self.times[-1] - self.times[warmup - 1]


# ------------------------------------------------------------------------------------------------- options and results


def options(
    description: str, *, repeats: int | None = None, folder: bool = False, sides: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """Return a parser with --json, and with --repeats where a number is given.

    Args:
        folder: with --folder, where everything goes for the time being.
        sides: those that ``take_turns`` measures, which start this script as a process of one side.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="a file that keeps the figures")
    if repeats is not None:
        parser.add_argument("--repeats", type=int, default=repeats)
    if folder:
        parser.add_argument("--folder", type=Path, required=True, help="where everything goes for the time being")
    if sides:
        parser.add_argument("--side", choices=sides, help=argparse.SUPPRESS)
        parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser


def keep(arguments: argparse.Namespace, content: object) -> None:
    """Write a JSON file where --json asks for one."""
    if arguments.json:
        arguments.json.write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")


def keep_figures(arguments: argparse.Namespace, figures: object, **more: object) -> None:
    """Write figures, and ratios, into a JSON file where --json asks for one."""
    keep(arguments, {"ratios": {}, "figures": figures, **more})


def row(*cells: object) -> None:
    """Print a row of a table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def head(*names: object) -> None:
    """Print the head of a table."""
    row(*names)
    print("|" + "---|" * len(names))


# ----------------------------------------------------------------------------------------------------------- commands


def set_words(settings: Iterable[str]) -> list[str]:
    """Return settings as options of a command."""
    return [word for setting in settings for word in ("--set", setting)]


def selfsent(*words: object, settings: Iterable[str] = ()) -> list[str]:
    """Return a command of selfsent."""
    return [sys.executable, "-m", "selfsent", *map(str, words), *set_words(settings)]


def finish(words: Sequence[str], **how: object) -> None:
    """Run a command to its end, and end with what it said where it failed."""
    ended = subprocess.run(words, capture_output=True, text=True, **how)
    if ended.returncode:
        sys.exit(f"{' '.join(words)}\nended with {ended.returncode}: {ended.stderr[-2000:]}")


def measure_command(words: Sequence[str], log: Path) -> tuple[float, float]:
    """Run a command to its end; return seconds and its peak memory in MiB."""
    began = time.perf_counter()
    with log.open("w") as file:
        process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT)
    _, status, usage = os.wait4(process.pid, 0)  # the usage of this child alone
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(words)}\nended with {process.returncode}: {log.read_text()[-2000:]}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def run_all(commands: Mapping[Path, Sequence[str]], jobs: int) -> None:
    """Run the command of each file that is missing, so many at a time; logs lie beside the files' folders or files."""

    def run(target: Path, words: Sequence[str]) -> None:
        if target.is_file():
            return
        name = target.parent if target.name == "scores.json" else target.with_suffix("")
        log = name.with_name(f"{name.name}.log")
        with log.open("w") as file:
            failed = subprocess.run(words, stdout=file, stderr=subprocess.STDOUT).returncode
        print(f"{name.name}: {f'failed, see {log}' if failed else 'done'}", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, commands, commands.values()))


def launch(count: int, out: Path, *words: str) -> None:
    """Start the calling script as ``count`` processes, which are told ``--work OUT`` beside the options of this one."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SELFSENT_CACHE": str(out.parent / "cache")}
    start = [sys.executable]
    if count > 1:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    subprocess.run([*start, *sys.argv, "--work", str(out), *words], env=environment, check=True)


def memory(key: str, process: int | str = "self") -> float:
    """Return bytes of a process by Linux: VmHWM, its own peak, or VmRSS."""
    status = Path(f"/proc/{process}/status").read_text()
    return 1024.0 * int(re.search(rf"{key}:\s+(\d+)", status)[1])


def digest(file: Path) -> str:
    """Return the digest of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


# -------------------------------------------------------------------------------------------------------------- sides


def take_turns(sides: Sequence[str], repeats: int, folder: Path, rate: str = "", unit: str = "") -> Rounds:
    """Run the calling benchmark once for each side and round.

    Its process of one side is given ``--side SIDE --folder FOLDER`` beside the options of this one, and leaves its
    figures there by ``leave``.

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


def leave(arguments: argparse.Namespace, result: Mapping[str, float]) -> None:
    """Leave the figures of one side for the process that takes turns."""
    (arguments.folder / "result.json").write_text(json.dumps(result))


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


def report(arguments: argparse.Namespace, measured: Rounds, rate: str, unit: str) -> None:
    """Print the median rate of every side and what ours is of the others, and of the ceiling where it was measured."""
    figures, compared = medians(measured), ratios(measured, rate)
    if "share" in figures["ours"]:
        compared["share of the ceiling"] = figures["ours"]["share"]
    for side, values in figures.items():
        print(f"{side:<10} {values[rate]:10,.1f} {unit}")
    for name, ratio in compared.items():
        print(f"{name}: {ratio:.2f}")
    keep_figures(arguments, figures, ratios=compared, rounds=measured)


def rates_in_turn(sides: Mapping[str, Callable[[], object]], count: int, repeats: int) -> dict[str, list[float]]:
    """Return texts a second of each side in one process; a first round, for caches and threads, is left out."""
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for repeat in range(repeats + 1):
        for side, work in sides.items():
            began = time.perf_counter()
            work()
            if repeat:
                rates[side].append(count / (time.perf_counter() - began))
    return rates


# --------------------------------------------------------------------------------------------------- encoders and texts


def backbone(folder: Path, layers: int, width: int, max_length: int, heads: int | None = None) -> None:
    """Write a random BERT of the shape asked for, with the built-in tokenizer."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    from selfsent.encoder.inspect import tokenizer_of
    from selfsent.encoder.load import load_encoder

    tokenizer = tokenizer_of(load_encoder("builtin"))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads or (width // 32 if width < 768 else 12),
        intermediate_size=4 * width,
    )
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.model_max_length = max_length
    tokenizer.save_pretrained(folder)


def shipped(model: str) -> str:
    """Return a folder that other libraries open: that of a shipped encoder by its name."""
    from selfsent.encoder.folder import SHIPPED

    return str(SHIPPED.get(model, model))


def cosines(left, right):
    """Return the cosines of two sets of vectors (N, D), row by row."""
    import numpy as np

    from selfsent.encoder.quantize import unit

    return np.einsum("nd,nd->n", unit(np.asarray(left)), unit(np.asarray(right)))


def read_documents(corpus: Iterable[str]) -> Iterator:
    """Yield the documents of sources."""
    from selfsent.corpus.sources import Columns, resolve_sources

    for source in resolve_sources(corpus):
        yield from source.documents(Columns(text="text", title="title", summary="summary"))


def write_rows(file: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write rows as JSON lines."""
    file.write_text("".join(json.dumps(values) + "\n" for values in rows), encoding="utf-8")
