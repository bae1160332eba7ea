"""What encoding to disk costs from a thousand texts to a million, in time and memory, and if a kill changes a byte.

Example: python benchmarks/encode_growth.py builtin --texts sentences.txt --json growth.json

Each count is ``selfsent encode`` on the first lines of the file, a process of its own, from its start to the finished
.npy.  The last count is then encoded once more and killed with SIGKILL ``--kills`` times on the way; its digest has to
be that of the run that was left alone.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp

from selfsent.bulk.store import Store

COUNTS = (1_000, 10_000, 100_000, 1_000_000)


def command(model: str, texts: Path, output: Path) -> list[str]:
    """Return the command that encodes a file."""
    return [sys.executable, "-m", "selfsent", "encode", str(texts), "--model", model, "--out", str(output)]


def measured(words: list[str], log: Path) -> tuple[float, float]:
    """Run a command to its end; return seconds and its peak memory in MiB."""
    began = time.perf_counter()
    with log.open("w") as file:
        process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT)
    _, status, usage = os.wait4(process.pid, 0)  # the usage of this child alone
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(words)}\nended with {process.returncode}: {log.read_text()[-2000:]}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def kill_at(words: list[str], output: Path, rows: int, delay: float) -> int:
    """Start a command, kill it ``delay`` seconds after so many rows are on disk; return how many there are."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None and Store.of(output).rows() < rows:
        time.sleep(0.05)
    time.sleep(delay)
    if process.poll() is not None:
        sys.exit("the command ended before it could be killed: give more texts")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return Store.of(output).rows()


def digest(file: Path) -> str:
    """Return the digest of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def main() -> None:
    """Measure each count, then kill the last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder, a name on the hub, or 'builtin'")
    parser.add_argument("--texts", type=Path, required=True, help="a file, a text a line")
    parser.add_argument("--counts", type=int, nargs="+", default=list(COUNTS))
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--folder", type=Path, help="where the vectors go for the time being  [default: a new one]")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    folder = arguments.folder or Path(mkdtemp(prefix="encode-growth-"))
    folder.mkdir(parents=True, exist_ok=True)
    table = {}
    print("| texts | seconds | texts/s | peak memory |\n|---|---|---|---|")
    for count in arguments.counts:
        texts, output = folder / f"{count}.txt", folder / f"{count}.npy"
        with arguments.texts.open("rb") as source, texts.open("wb") as file:
            lines = list(islice(source, count))
            file.writelines(lines)
        if len(lines) < count:
            parser.error(f"{arguments.texts} has {len(lines):,} lines, and {count:,} are to be encoded")
        del lines
        seconds, memory = measured(command(arguments.model, texts, output), folder / f"{count}.log")
        table[count] = {"seconds": seconds, "texts_per_second": count / seconds, "peak_memory_mib": memory}
        print(f"| {count:,} | {seconds:,.1f} | {count / seconds:,.0f} | {memory:,.0f} MiB |", flush=True)

    whole, again = output, folder / "killed.npy"
    words = command(arguments.model, texts, again)
    moments = random.Random(arguments.seed)
    for kill in range(1, arguments.kills + 1):
        goal = count * kill // (arguments.kills + 1)
        kept = kill_at(words, again, goal, moments.uniform(0.0, 1.0))
        print(f"kill {kill}: {kept:,} of {count:,} rows are on disk", flush=True)
    _, memory = measured(words, folder / "killed.log")
    same = digest(whole) == digest(again)
    print(
        f"after {arguments.kills} kills: {'the same bytes' if same else 'NOT THE SAME'}, peak memory {memory:,.0f} MiB"
    )
    if arguments.json:
        figures = {"growth": table, "kills": arguments.kills, "same": same}
        arguments.json.write_text(json.dumps({"ratios": {}, "figures": figures}, indent=2) + "\n")
    if arguments.folder is None:
        shutil.rmtree(folder)
    sys.exit(not same)


if __name__ == "__main__":
    main()
