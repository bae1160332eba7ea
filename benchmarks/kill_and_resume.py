"""Kill a training run with SIGKILL at random moments, resume it, and compare the model with an uninterrupted run's.

Example: python benchmarks/kill_and_resume.py simcse scd denosent+whitenedcse --corpus texts.txt --kills 20 --jobs 2

Each kill is a run of its own: started, killed a random fraction of a second after its log has reached a random step
(before the first and after the last, too: start-up, evaluations, checkpoints and the final save are all hit), resumed
to its end, and compared byte for byte.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp

import harness

SETTINGS = {  # what keeps a run small
    "scd": ["objective.projector_width=256"],
    "declutr": ["objective.max_length=64", "train.batch_size=4"],
    "denosent": ["objective.decoder_layers=2"],
    "denosent+whitenedcse": ["objective.denosent.decoder_layers=2"],
}


def command(method: str, corpus: Path, out: Path, arguments: argparse.Namespace) -> list[str]:
    """Return the command of one run."""
    settings = [
        f"train.steps={arguments.steps}",
        "train.batch_size=16",
        "train.evaluate_every=10",
        "train.checkpoint_every=5",
        "train.learning_rate=1e-4",
        "train.log_every=1",
        f"hardware.threads={arguments.threads}",
        "corpus.held_out=40",
        *(SETTINGS.get(method, [])),
        *arguments.set,
    ]
    if method == "pretrain":
        return pretraining(out, arguments)
    if method == "declutr":
        corpus = arguments.documents
    return harness.selfsent("train", corpus, "--method", method, "--out", out, "--resume", settings=settings)


def pretraining(out: Path, arguments: argparse.Namespace) -> list[str]:
    """Return the command of a pretraining instead of a training."""
    row, batch = 32, 16
    settings = [
        f"length={row}",
        f"batch_size={batch}",
        "evaluate_every=5",
        f"hardware.threads={arguments.threads}",
        "corpus.held_out=40",
    ]
    tokens = arguments.steps * 2 * row * batch
    words = ("pretrain", arguments.documents, "--size", "nano", "--resume", "--vocabulary", 4000, "--tokens", tokens)
    return harness.selfsent(*words, "--out", out, settings=settings)


def digest(run: Path) -> str:
    """Return the digest of a finished run's weights."""
    return harness.digest(run / "model" / "model.safetensors")


def reached(run: Path) -> str:
    """Say how far a killed run had come."""
    if (run / "scores.json").exists():
        return "after the end"
    if (run / "model").exists():
        return "after the model was saved"
    steps = sorted((run / "checkpoints").glob("step-*"))
    partial = " while saving" if list(run.rglob("*.partial")) else ""
    return (f"checkpoint {int(steps[-1].name[5:])}" if steps else "no checkpoint yet") + partial


def logged(run: Path) -> int:
    """Return the last step that a run has logged; -1 before its start was evaluated."""
    log = run / "log.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return max((json.loads(line)["step"] for line in lines if line.endswith("}")), default=-1)


def kill_once(method: str, out: Path, step: int, delay: float, arguments: argparse.Namespace) -> tuple[str, str]:
    """Start, kill so many seconds after a step was logged, resume; return where it was hit and what came out."""
    words = command(method, arguments.corpus, out, arguments)
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None and logged(out) < step:
        time.sleep(0.02)
    time.sleep(delay)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    where = f"step {logged(out)} logged, {reached(out)}"
    harness.finish(words)
    result = digest(out)
    shutil.rmtree(out)
    return where, result


def main() -> None:
    """Run the comparison for each method and print a line for each kill."""
    parser = harness.options(__doc__)
    parser.add_argument("methods", nargs="*", default=["simcse", "scd", "whitenedcse"])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, each with --threads threads")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--set", action="append", default=[], help="further settings of every run")
    parser.add_argument("--corpus", type=Path, required=True, help="a text file, a text a line")
    parser.add_argument("--documents", type=Path, help="a table of documents, for declutr and pretrain")
    arguments = parser.parse_args()

    folder = Path(mkdtemp(prefix="kill-and-resume-"))
    moments = random.Random(arguments.seed)

    def moment() -> tuple[int, float]:
        return moments.randint(-1, arguments.steps), moments.uniform(0.0, 1.0)

    figures: dict[str, dict[str, int]] = {}
    for method in arguments.methods:
        unkilled = folder / f"{method}-whole"
        words = command(method, arguments.corpus, unkilled, arguments)
        harness.finish(words)  # fills the cache of the corpus
        shutil.rmtree(unkilled)
        harness.finish(words)
        expected = digest(unkilled)
        same = 0
        with ThreadPoolExecutor(arguments.jobs) as pool:
            jobs = [
                pool.submit(kill_once, method, folder / f"{method}-{number}", *moment(), arguments)
                for number in range(arguments.kills)
            ]
            for number, job in enumerate(jobs, start=1):
                where, result = job.result()
                same += result == expected
                verdict = "identical" if result == expected else "DIFFERENT"
                print(f"{method} kill {number:>2} ({where}): {verdict}", flush=True)
        print(f"{method}: {same} of {arguments.kills} resumed runs equal the uninterrupted one", flush=True)
        figures[method] = {"kills": arguments.kills, "identical": same}
    shutil.rmtree(folder)
    harness.keep_figures(arguments, figures)
    sys.exit(any(figure["identical"] != figure["kills"] for figure in figures.values()))


if __name__ == "__main__":
    main()
