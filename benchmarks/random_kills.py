"""Stop commands by signals at random moments, repeat them, and compare everything that they leave with a whole run's.

    python benchmarks/random_kills.py --minutes 15 --json kills.json
    python benchmarks/random_kills.py encode index structure --minutes 5

Each command that writes is run once to its end; then, in turn, it is started from what it found, stopped by SIGKILL,
SIGTERM or SIGINT after a random share of the time that it took, started again (with --resume, where the command has
that), sometimes stopped again, and let end.  After SIGTERM and SIGINT it has to leave with 143 and 130 and without a
traceback.  Times, and scores of speed, are left out of the comparison; make no commit
meanwhile, which outputs name.  Each is forked from this process, so that a
signal meets its work and not the import of its libraries.  ``kill_and_resume.py`` kills trainings of every method by
the step that they have reached.
"""

import argparse
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
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp

import harness

import selfsent.__main__

sys.path.insert(0, str(harness.ROOT / "tests"))
from rewriting_server import chat, serving
from tiny_marian import train as train_translator
from tiny_marian import write as write_translator

SMALL = [
    "train.steps=12",
    "train.batch_size=8",
    "train.evaluate_every=4",
    "train.checkpoint_every=2",
    "corpus.held_out=20",
    "hardware.threads=1",
]
IMPORTED = ["training.train", "pretraining.pretrain", "selection.fit", "sweeping.sweep", "cli.display"]
IMPORTED += ["evaluation.label_free.verdict", "bulk.encode", "searching.index", "export.export", "pairs.mine"]
IMPORTED += ["pairs.structure", "report.page", "searching.search", "labels.classify"]
IMPORTED += ["labels.topics", "evaluation.comparison", "pairs.translate", "pairs.rewrite", "pairs.convert"]
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TIMES = {"seconds", "broken off", "rates", "texts_per_second", "tokens_per_second", "checksum"}  # it covers times, too
AGAIN = 0.3  # of the stops are followed by a second one


def write_texts(folder: Path, words: Sequence[str] = ()) -> tuple[Path, Path]:
    """Write a file of lines and one of documents, the same on every machine, and two of the first lines beside them."""
    draw = random.Random(0)
    syllables = ["ka", "lo", "mi", "ten", "sor", "va", "du", "ri", "pel", "no"]
    words = words or ["".join(draw.choices(syllables, k=draw.randint(1, 3))) for _ in range(800)]
    lines, documents = folder / "lines.txt", folder / "documents.jsonl"
    drawn = [" ".join(draw.choices(words, k=12)) for _ in range(3000)]
    for file, count in ((lines, 3000), (folder / "few.txt", 300), (folder / "one.txt", 1)):
        file.write_text("\n".join(drawn[:count]), encoding="utf-8")
    rows = []
    for _ in range(500):
        topic = draw.sample(words, 12)
        sentences = [" ".join(draw.choices([*topic, *words[:40]], k=10)).capitalize() + "." for _ in range(8)]
        rows.append({"text": " ".join(sentences)})
    harness.write_rows(documents, rows)
    labelled = [{"text": text, "label": f"{number % 3}"} for number, text in enumerate(drawn[:240])]
    harness.write_rows(folder / "labelled.jsonl", labelled)
    harness.write_rows(folder / "pairs.jsonl", [{"text": a, "positive": b} for a, b in pairwise(drawn)])
    return lines, documents


def commands(lines: Path, documents: Path, translator: Path, endpoint: str) -> dict[str, list[str]]:
    """Return the commands by name; OUT is where each writes."""
    few, labelled = str(lines.with_name("few.txt")), str(lines.with_name("labelled.jsonl"))
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
        "encode": ["encode", few, "--out", "OUT/embeddings.npy"],
        "shards": ["encode", *20 * [str(lines)], "--model", "builtin-static", "--out", "OUT/shards"],
        "index": ["index", str(documents), "--model", "builtin-static", "--out", "OUT"],
        "update": [  # of an index of one document
            *("index", str(lines.with_name("one.txt")), str(documents), "--update", "--out", "OUT"),
        ],
        "search": ["search", str(documents), "kalo", "--model", "builtin-static"],  # OUT is its cache
        "structure": ["pairs", "structure", str(documents), "--out", "OUT/pairs.parquet"],
        "mine": [
            "pairs",
            "mine",
            str(lines),
            "--model",
            "builtin-static",
            "--set",
            "margin=0.1",
            "--out",
            "OUT/pairs.jsonl",
        ],
        "evaluate": [
            *("evaluate", "builtin-static", "--tasks", "retrieval", "--corpus", str(documents)),
            *("--out", "OUT/scores.json"),
        ],
        "export": [
            *("export", "builtin", "--to", "static", "--corpus", str(documents), "--documents", "60"),
            *("--accept-loss", "--overwrite", "--out", "OUT"),
        ],
        "onnx": [
            *("export", "builtin-static", "--to", "onnx", "--corpus", str(documents), "--documents", "60"),
            *("--accept-loss", "--overwrite", "--out", "OUT"),
        ],
        "compare": [
            *("compare", str(documents), "builtin-static", "builtin", "--documents", "60", "--out", "OUT/scores.json"),
        ],
        "report": ["report", "OUT", "--out", "OUT/page.html"],  # of a run, which it leaves as it is
        "classify": ["classify", "builtin-static", labelled, "--out", "OUT/labels.joblib"],
        "labels": ["classify", "builtin-static", labelled, "--texts", str(lines), "--out", "OUT/labels.csv"],
        "topics": ["topics", "builtin-static", str(lines), "--out", "OUT/topics.html"],
        "convert": ["pairs", "convert", str(lines.with_name("pairs.jsonl")), "--out", "OUT/pairs.parquet"],
        "translate": ["pairs", "translate", few, "--via", *2 * [str(translator)], "--out", "OUT/pairs.parquet"],
        "rewrite": [
            *("pairs", "rewrite", few, "--endpoint", endpoint, "--model", "any", "--yes"),
            *("--out", "OUT/pairs.parquet"),
        ],
    }


def start(words: list[str], out: Path, cache: Path) -> int:
    """Start a command in a process of its own, forked from this one, which has imported everything; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a background job of a shell ignores
    os.environ["SELFSENT_CACHE"] = str(cache)
    out.mkdir(exist_ok=True)
    said = os.open(out.with_name(f"{out.name}.log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.argv = ["selfsent", *(word.replace("OUT", str(out)) for word in words)]
    status = 1
    try:
        selfsent.__main__.program()
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
    return status, said_by(out)


def said_by(out: Path) -> str:
    """Return what the last command for an output said."""
    return out.with_name(f"{out.name}.log").read_text(encoding="utf-8", errors="replace")


def stop_after(seconds: float, by: signal.Signals, words: list[str], out: Path, cache: Path) -> tuple[bool, str]:
    """Start a command and send it a signal; return whether it was still running, and what was wrong with its end."""
    pid, until = start(words, out, cache), time.monotonic() + seconds
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return False, ""
        time.sleep(0.005)
    os.kill(pid, by)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status == 0 or status == -by:  # it had ended, or nothing of it is left to be said
        return status != 0, ""
    said = said_by(out)
    wrong = status != 128 + by or "Traceback" in said or not said.rstrip().rpartition("\n")[2].startswith("stopped")
    return True, f"status {status}: {said[-1500:]}" if wrong else ""


def without_times(value: object) -> object:
    """Drop what no two runs share."""
    if isinstance(value, dict):
        return {key: without_times(inner) for key, inner in value.items() if key not in TIMES}
    return [without_times(inner) for inner in value] if isinstance(value, list) else value


def content(folder: Path) -> dict[str, object]:
    """Return what a command left, by path; no journals, reports and pictures, which hold times, and no hidden files."""
    files: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if not path.is_file() or path.name.startswith(".") or path.suffix in (".journal", ".png"):
            continue
        if path.suffix == ".html" and path.name != "topics.html":
            continue
        is_table = path.suffix == ".json" and "model" not in name.parts
        files[str(name)] = without_times(json.loads(path.read_text("utf-8"))) if is_table else path.read_bytes()
    return files


def begin(out: Path, caches: Sequence[Path], before: Path) -> None:
    """Give a command what it found at first, and nothing of what it did."""
    for used in (out, *caches):
        shutil.rmtree(used, ignore_errors=True)
    if before.exists():
        shutil.copytree(before, out)


def main() -> None:
    """Stop commands until the time is up, and print a line for each repetition."""
    parser = harness.options(__doc__)
    parser.add_argument("names", nargs="*", help="commands  [default: all]")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=0, help="of the moments and the signals")
    arguments = parser.parse_args()

    for module in IMPORTED:
        importlib.import_module(f"selfsent.{module}")
    folder = Path(mkdtemp(prefix="random-kills-"))
    translator = write_translator(folder / "translator", train_translator(), "en", "en")
    with serving(lambda text, number: chat(f"otherwise {text}")) as server:
        figures, taken = stop_all(arguments, folder, commands(*write_texts(folder), translator, server.url))
    for name, figure in figures.items():
        print(f"{name}: {figure['identical']} of {figure['stops']} ended as the whole run; wrong: {figure['wrong']}")
    shutil.rmtree(folder)
    harness.keep_figures(arguments, figures, seed=arguments.seed, seconds=taken)
    sys.exit(any(figure["wrong"] or figure["identical"] != figure["stops"] for figure in figures.values()))


def stop_all(
    arguments: argparse.Namespace, folder: Path, words: dict[str, list[str]]
) -> tuple[dict[str, dict], dict[str, float]]:
    """Stop the commands in turn; return the figures of each, and the seconds of its whole run."""
    draw = random.Random(arguments.seed)
    fresh = {name: [folder / f"cache-{name}"] for name in ("prepare", "translate", "rewrite")}  # empty at every start
    caches = {name: cache for name, (cache,) in fresh.items()} | {"search": folder / "search"}
    first = {
        "update": ["index", str(folder / "one.txt"), "--model", "builtin-static", "--out", "OUT"],
        "report": words["train"],
    }
    expected, taken = {}, {}
    for name in arguments.names or words:
        out, cache = folder / name, caches.get(name, folder / "cache")
        if name in first:
            finish(first[name], folder / f"before-{name}", cache)
        begin(out, (), folder / f"before-{name}")
        began = time.monotonic()
        status, said = finish(words[name], out, cache)
        if status:
            sys.exit(f"{name} ended with {status}: {said[-2000:]}")
        taken[name], expected[name] = time.monotonic() - began, content(out)
        print(f"{name}: {taken[name]:.1f} s, {len(expected[name])} files", flush=True)
    figures = {name: {by.name: 0 for by in SIGNALS} | {"stops": 0, "identical": 0, "wrong": []} for name in expected}
    until = time.monotonic() + 60 * arguments.minutes
    while time.monotonic() < until:
        # About as much time for each.
        name = min(figures, key=lambda command: figures[command]["stops"] * taken[command])
        out, cache, figure = folder / name, caches.get(name, folder / "cache"), figures[name]
        begin(out, fresh.get(name, []), folder / f"before-{name}")
        stops: list[str] = []
        while not stops or draw.random() < AGAIN:
            by, share = draw.choice(SIGNALS), draw.uniform(0.02, 1.0)
            running, wrong = stop_after(share * taken[name], by, words[name], out, cache)
            if not running:
                begin(out, fresh.get(name, []), folder / f"before-{name}")
                stops = []
                continue
            stops.append(by.name)
            if wrong:
                figure["wrong"].append(f"{by.name} at {share:.2f}: {wrong}")
        status, said = finish(words[name], out, cache)
        now = content(out)
        differ = [file for file in {**expected[name], **now} if now.get(file) != expected[name].get(file)]
        if status or differ:
            figure["wrong"].append(f"after {stops}: status {status}, {differ} differ: {said[-1500:]}")
        for by in stops:
            figure[by] += 1
        figure["stops"] += len(stops)
        figure["identical"] += len(stops) * (not status and not differ)
        print(f"{name}: {', '.join(stops)}: {figure['wrong'][-1:] if status or differ else 'identical'}", flush=True)
    return figures, taken


if __name__ == "__main__":
    main()
