"""Kill commands with SIGKILL at random moments, repeat them, and compare everything that they leave with a whole run's.

Example: python benchmarks/random_kills.py --minutes 15 --json kills.json

Each command (train, pretrain, fit, sweep, train on a text whose corpus has to be prepared, encode to a file and to
shards, index, export) is run once to its end; then, in turn, it is started in an empty folder, killed after a random
share of the time that it took, started again (with --resume, where the command has that), sometimes killed again, and
let end.  Times, and scores of speed, are left out of the comparison.  Each
is forked from this process, so that a kill meets its work and not the import of its libraries.
``kill_and_resume.py`` kills trainings of every method by the step that they have reached.
"""

import importlib
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

import harness

import selfsent.__main__

SMALL = [
    "train.steps=12",
    "train.batch_size=8",
    "train.evaluate_every=4",
    "train.checkpoint_every=2",
    "corpus.held_out=20",
    "hardware.threads=1",
]
IMPORTED = ["training.train", "pretraining.pretrain", "selection.fit", "sweeping.sweep", "cli.display"]
IMPORTED += ["evaluation.label_free.verdict", "bulk.encode", "searching.index", "export.export"]
TIMES = {"seconds", "texts_per_second", "tokens_per_second", "checksum"}  # a checksum covers the times beside it
AGAIN = 0.3  # of the kills are followed by a second one


def write_texts(folder: Path, words: Sequence[str] = ()) -> tuple[Path, Path]:
    """Write a file of lines and one of documents, the same on every machine."""
    draw = random.Random(0)
    syllables = ["ka", "lo", "mi", "ten", "sor", "va", "du", "ri", "pel", "no"]
    words = words or ["".join(draw.choices(syllables, k=draw.randint(1, 3))) for _ in range(800)]
    lines, documents = folder / "lines.txt", folder / "documents.jsonl"
    lines.write_text("\n".join(" ".join(draw.choices(words, k=12)) for _ in range(3000)), encoding="utf-8")
    rows = []
    for _ in range(500):
        topic = draw.sample(words, 12)
        sentences = [" ".join(draw.choices([*topic, *words[:40]], k=10)).capitalize() + "." for _ in range(8)]
        rows.append({"text": " ".join(sentences)})
    harness.write_rows(documents, rows)
    return lines, documents


def commands(lines: Path, documents: Path) -> dict[str, list[str]]:
    """Return the commands by name; OUT is where each writes."""
    out = ["--out", "OUT", "--resume"]
    train = ["train", str(lines), "--method", "simcse", *harness.set_words(SMALL), *out]
    return {
        "train": train,
        "prepare": train,  # with a cache that is empty at every start
        "pretrain": [
            *("pretrain", str(documents), "--size", "nano", "--vocabulary", "300", "--tokens", "12288"),
            *harness.set_words(
                ["length=32", "batch_size=16", "evaluate_every=4", "corpus.held_out=20", "hardware.threads=1"]
            ),
            *out,
        ],
        "sweep": ["sweep", *train[1:], *harness.set_words(["objective.temperature=0.05,0.2"])],
        "fit": [
            *("fit", str(documents), "--minutes", "6"),
            *harness.set_words(
                ["steps=50", "batch_size=8", "static_steps=25", "static_batch_size=16", "bootstrap=100"]
            ),
            *out,
        ],
        "encode": ["encode", str(lines), "--out", "OUT/embeddings.npy"],
        "shards": ["encode", str(lines), "--out", "OUT/shards"],
        "index": ["index", str(documents), "--model", "builtin", "--out", "OUT"],
        "export": [
            *("export", "builtin", "--to", "static", "--corpus", str(documents), "--documents", "60"),
            *("--accept-loss", "--overwrite", "--out", "OUT"),
        ],
    }


def start(words: list[str], out: Path, cache: Path) -> int:
    """Start a command in a process of its own, forked from this one, which has imported everything; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setsid()
        os.environ["SELFSENT_CACHE"] = str(cache)
        out.mkdir(exist_ok=True)
        said = os.open(out.with_name(f"{out.name}.log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        sys.argv = ["selfsent", *(word.replace("OUT", str(out)) for word in words)]
        selfsent.__main__.main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def finish(words: list[str], out: Path, cache: Path) -> tuple[int, str]:
    """Run a command to its end; return its status and what it said."""
    _, status = os.waitpid(start(words, out, cache), 0)
    return status, out.with_name(f"{out.name}.log").read_text(encoding="utf-8", errors="replace")


def kill_after(seconds: float, words: list[str], out: Path, cache: Path) -> bool:
    """Start a command and kill it; return whether it was still running."""
    pid, until = start(words, out, cache), time.monotonic() + seconds
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return False
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def without_times(value: object) -> object:
    """Drop what no two runs share."""
    if isinstance(value, dict):
        return {key: without_times(inner) for key, inner in value.items() if key not in TIMES}
    return [without_times(inner) for inner in value] if isinstance(value, list) else value


def content(folder: Path) -> dict[str, object]:
    """Return what a command left, by path; no journals, pages and pictures, which hold times, and no hidden files."""
    files: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if not path.is_file() or path.name.startswith(".") or path.suffix in (".journal", ".html", ".png"):
            continue
        is_table = path.suffix == ".json" and "model" not in name.parts
        files[str(name)] = without_times(json.loads(path.read_text("utf-8"))) if is_table else path.read_bytes()
    return files


def main() -> None:
    """Kill until the time is up, and print a line for each kill."""
    parser = harness.options(__doc__)
    parser.add_argument("names", nargs="*", help="commands  [default: all]")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    arguments = parser.parse_args()

    for module in IMPORTED:
        importlib.import_module(f"selfsent.{module}")
    folder = Path(mkdtemp(prefix="random-kills-"))
    words = commands(*write_texts(folder))
    draw, until = random.Random(arguments.seed), time.monotonic() + 60 * arguments.minutes
    expected, taken = {}, {}
    for name in arguments.names or words:
        out, began = folder / name, time.monotonic()
        cache = folder / ("cache-prepare" if name == "prepare" else "cache")
        status, said = finish(words[name], out, cache)
        if status:
            sys.exit(f"{name} ended with {status}: {said[-2000:]}")
        taken[name], expected[name] = time.monotonic() - began, content(out)
    figures = {name: {"kills": 0, "identical": 0} for name in expected}
    while time.monotonic() < until:
        name = min(
            figures, key=lambda command: figures[command]["kills"] * taken[command]
        )  # about as much time for each
        out, cache = folder / name, folder / ("cache-prepare" if name == "prepare" else "cache")
        kills = 0
        while not kills or draw.random() < AGAIN:
            if not kills:
                for used in (out, *([cache] if name == "prepare" else [])):
                    shutil.rmtree(used, ignore_errors=True)
            late = not kill_after(draw.uniform(0.05, 1.0) * taken[name], words[name], out, cache)
            kills = 0 if late else kills + 1
        status, said = finish(words[name], out, cache)
        now = content(out)
        wrong = [file for file in {**expected[name], **now} if now.get(file) != expected[name].get(file)]
        same = not status and not wrong
        figures[name]["kills"] += kills
        figures[name]["identical"] += kills * same
        print(
            f"{name}: {kills} kills, {'identical' if same else f'DIFFERENT {wrong}'}{said[-500:] if status else ''}",
            flush=True,
        )
    for name, figure in figures.items():
        print(f"{name}: {figure['identical']} of {figure['kills']} kills ended as the whole run ({taken[name]:.0f} s)")
    shutil.rmtree(folder)
    harness.keep_figures(arguments, figures)
    sys.exit(any(figure["identical"] != figure["kills"] for figure in figures.values()))


if __name__ == "__main__":
    main()
