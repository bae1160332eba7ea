"""Kill a back-translation with SIGKILL three times, start it again each time, and count what was translated.

Example: python benchmarks/augment_resume.py --json figures.json

The models are those of the tests: tiny, trained in seconds, and of known output (every word becomes the next of a list,
twice there and back), so that each row can be checked.  ``--via MODEL_OUT MODEL_BACK --corpus FILE`` runs it with real
ones.  The cache notes how many texts each run handed to the models and how many outputs it kept.
"""

import argparse
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))


def stored(path: Path) -> int:
    """Count the outputs that are on disk."""
    if not path.exists():
        return 0
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return int(database.execute("SELECT count(*) FROM outputs").fetchone()[0])
    except sqlite3.OperationalError:  # not begun
        return 0
    finally:
        database.close()


def kill_after(words: list[str], environment: dict[str, str], cache: Path, goal: int, delay: float) -> int:
    """Start the command, kill it a moment after so many outputs are on disk, and return how many survive."""
    process = subprocess.Popen(
        words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while stored(cache) < goal and process.poll() is None:
        time.sleep(0.005)
    time.sleep(delay)
    if process.poll() is not None:
        sys.exit("the command ended before it could be killed: give more texts")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return stored(cache)


def main() -> None:
    """Run it, and print a line for each kill."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--via", nargs=2, metavar="MODEL", help="real models; default: tiny ones")
    parser.add_argument("--corpus", help="texts for real models")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if bool(arguments.via) != bool(arguments.corpus):
        parser.error("--via and --corpus go together")

    with TemporaryDirectory(prefix="augment-resume-") as name:
        folder = Path(name)
        via, corpus = arguments.via, arguments.corpus
        if via is None:
            from tiny_marian import text, train, write

            model = train()
            via = [str(write(folder / f"{a}-{b}", model, a, b)) for a, b in (("en", "de"), ("de", "en"))]
            (folder / "texts.txt").write_text("".join(f"{text(7 * n)}\n" for n in range(arguments.texts)))
            corpus = str(folder / "texts.txt")
        out, cache = folder / "out.jsonl", folder / "cache" / "augment" / "outputs.sqlite"
        words = [sys.executable, "-m", "selfsent", "augment", "backtranslate", corpus, "--via", *via]
        words += ["--batch-size", str(arguments.batch_size), "--threads", str(arguments.threads), "--out", str(out)]
        words += ["--max-texts", str(arguments.texts)]
        environment = {**os.environ, "SELFSENT_CACHE": str(folder / "cache")}
        moments = random.Random(arguments.seed)
        for kill in range(1, arguments.kills + 1):
            goal = arguments.texts * kill // (arguments.kills + 2)
            left = kill_after(words, environment, cache, goal, moments.uniform(0.0, 0.05))
            print(f"kill {kill}: {left:,} of {arguments.texts:,} outputs are on disk", flush=True)
        said = subprocess.run(words, env=environment, capture_output=True, text=True)
        if said.returncode:
            sys.exit(said.stderr[-2000:])
        speed = float(re.search(r"([\d,.]+) sentences/s", said.stdout)[1].replace(",", ""))

        database = sqlite3.connect(cache)
        runs = database.execute("SELECT asked, stored FROM runs ORDER BY id").fetchall()
        rows = database.execute("SELECT count(*) FROM outputs").fetchone()[0]
        database.close()
        texts = json.loads(f"[{','.join(out.read_text(encoding='utf-8').splitlines())}]")
        right = None
        if arguments.via is None:
            from tiny_marian import translated

            right = sum(row["positive"] == translated(row["text"], 2) for row in texts)
    for number, (asked, kept) in enumerate(runs, 1):
        print(f"run {number}: handed {asked:,} texts to the models, kept {kept:,} outputs")
    asked, kept = (sum(column) for column in zip(*runs, strict=True))
    lost = asked - kept
    once = kept == rows and len({row["text"] for row in texts}) == len(texts)
    known = "" if right is None else f", {right:,} of {len(texts):,} pairs as they must be"
    print(f"{kept:,} outputs were kept for {rows:,} rows{known}")
    print(
        f"every row was translated and kept exactly once, but for the {lost} under way at a kill, translated again"
        if once
        else "SOME ROW WAS KEPT TWICE OR NOT AT ALL"
    )
    print(f"{speed:,.1f} sentences/s there and back in the last run")
    figures = {
        "rows": rows,
        "kept": kept,
        "lost_under_way": lost,
        "kills": arguments.kills,
        "sentences_per_second": speed,
    }
    if arguments.json:
        arguments.json.write_text(json.dumps({"ratios": {}, "figures": figures}, indent=2) + "\n")
    sys.exit(not once or (right is not None and right != len(texts)))


if __name__ == "__main__":
    main()
