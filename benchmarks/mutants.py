"""Plant small faults in the code, one at a time, and see which of them the tests notice.

    run       plant each mutant of ``mutants.json`` in a copy of the tree, and run tests until one fails: the one that
              noticed it last, then the module's own test file, those that import the module, and the room's others
    write     run the tests that caught a mutant without it, where they must pass; put the outcomes into
              ``results/planted-mutants.json``, and the tests that caught into the list

Outcomes: ``caught`` (a test failed or hung, or the package could not be imported), ``missed``, ``gone`` (the code is no
longer there); the list may say "why".
``run`` goes on where it was stopped: the file of --results has a line for every mutant that was tried.  Evaluation data
and golden values are found as the tests find them.

Example:
    python benchmarks/mutants.py run --results mutants.jsonl
    python benchmarks/mutants.py write --results mutants.jsonl
"""

import argparse
import ast
import datetime
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mutant_list import Mutant, Tree, locate

ROOT = Path(__file__).resolve().parent.parent
DRAWN, SEED = "12d79de", 51  # whose benchmarks/mutant_list.py has drawn the list
LIST = Path(__file__).with_name("mutants.json")  # "before": at DRAWN; "by": the test that caught it last
PRELOADED = "torch numpy transformers sentence_transformers datasets safetensors.torch scipy.stats xxhash filelock"
PRELOADED += (
    " hypothesis.strategies sklearn.linear_model pydantic typer rich jaxtyping beartype matplotlib.pyplot pyarrow"
)
HANGS = 90  # seconds beyond all others after which tests have hung
MEMORY = 8 * 2**30  # bytes, also of a file: a mutant may loop


class Watch:
    """A pytest plugin: runs the tests of a list in its order, file by file, and writes down what happens.

    A file stands for all its tests, a test without its parameters for all its cases.
    """

    def __init__(self, tests: Sequence[str], seconds: float, events: Path) -> None:
        self.rank = {test: place for place, test in enumerate(tests)}
        self.files = {test.partition("::")[0]: place for place, test in reversed(list(enumerate(tests)))}
        self.ends, self.events = time.monotonic() + seconds, events
        self.session: pytest.Session | None = None

    def tell(self, what: str, detail: str) -> None:
        """Write a line down, at once."""
        with self.events.open("a", encoding="utf-8") as file:
            file.write(json.dumps([what, detail]) + "\n")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Keep the tests of the list, in its order."""
        self.session = session
        names = {item: (item.nodeid, item.nodeid.partition("[")[0], item.nodeid.partition("::")[0]) for item in items}
        listed = {
            item: min((self.rank[name] for name in names[item] if name in self.rank), default=-1) for item in items
        }
        chosen = [item for item, place in listed.items() if place >= 0]
        items[:] = sorted(chosen, key=lambda item: (self.files[names[item][2]], listed[item]))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be imported."""
        if report.failed:
            self.tell("failed", "import")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note the start of a test."""
        self.tell("started", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        if report.failed:
            self.tell("failed", report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Stop when the time is over."""
        if self.session is not None and time.monotonic() > self.ends:
            self.session.shouldstop = "the time for this mutant is over"

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Note the end."""
        self.tell("ended", str(int(exitstatus)))


class Ending(NamedTuple):
    """How a run of tests ended."""

    how: str  # passed, failed, hung, died
    test: str  # in which it did
    ran: int
    failed: Sequence[str] = ()


def play(tree: Path, tests: Sequence[str], seconds: float, hangs: float, *further: str) -> Ending:
    """Run tests in a forked child, which imports the package of the tree in its present state.

    Args:
        seconds: after them no further test is started.
        hangs: seconds after which the child is killed.
        further: options of pytest.
    """
    home, events = tree.parent, tree.parent / "events"
    for scratch in ("cache", "tmp"):
        shutil.rmtree(home / scratch, ignore_errors=True)
        (home / scratch).mkdir()
    events.write_text("")
    child = os.fork()
    if child == 0:
        status = 70
        try:
            os.setsid()
            log = os.open(home / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_FSIZE, (MEMORY, MEMORY))
            options = ["-x", "-p", "no:cacheprovider", f"--basetemp={home / 'tmp' / 'pytest'}"]
            options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # the parent has imported plugins
            files = dict.fromkeys(test.partition("::")[0] for test in tests)
            status = pytest.main([*options, *further, *files], plugins=[Watch(tests, seconds, events)])
        finally:
            os._exit(status)
    ends, done = time.monotonic() + hangs, False
    while not done and time.monotonic() < ends:
        done = os.waitpid(child, os.WNOHANG)[0] == child
        time.sleep(0.05)
    with suppress(ProcessLookupError):  # what the tests have started ends, too
        os.killpg(child, signal.SIGKILL)
    if not done:
        os.waitpid(child, 0)
    told = [json.loads(line) for line in events.read_text(encoding="utf-8").splitlines()]
    started = [detail for what, detail in told if what == "started"]
    failed = [detail for what, detail in told if what == "failed"]
    if failed:
        return Ending("failed", failed[0], len(started), failed)
    if done and (ended := [detail for what, detail in told if what == "ended"]):
        assert ended[0] not in ("3", "4"), (home / "log").read_text(encoding="utf-8")  # of pytest itself: nothing ran
        return Ending("passed", "", len(started))
    return Ending("died" if done else "hung", started[-1] if started else "import", len(started))


class Worker:
    """Tries mutants in a copy of the tree; the libraries are imported once, the package in a fork for each mutant."""

    def __init__(self, home: Path) -> None:
        self.copy, self.changes = home / "tree", 0
        left_out = {".git", ".venv", "runs", "build", "dist"}  # runs: not that of the package
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(
            ROOT,
            self.copy,
            symlinks=True,
            ignore=lambda folder, names: {"__pycache__", *(left_out if folder == str(ROOT) else ())} & {*names},
        )
        os.nice(5)
        os.chdir(self.copy)
        sys.path[:] = [str(self.copy), *sys.path[1:], str(Path(__file__).parent)]  # processes of tests import this file
        os.environ |= {"PYTHONPATH": str(self.copy), "OMP_NUM_THREADS": "1", "TMPDIR": str(home / "tmp")}
        os.environ |= {"SELFSENT_CACHE": str(home / "cache")}
        for module in PRELOADED.split():
            with suppress(ImportError):
                import_module(module)
        assert "selfsent" not in sys.modules

    def write(self, path: str, content: bytes) -> None:
        """Write a file of the copy with a time of its own, so that no compiled module of another state fits."""
        self.changes += 1
        (self.copy / path).write_bytes(content)
        os.utime(self.copy / path, (self.changes, self.changes))

    def attempt(self, mutant: Mutant, tree: Tree, tests: "Tests", seconds: float) -> dict[str, Any]:
        """Plant one mutant; run the test that noticed it last, then those of its module."""
        start, ran = time.monotonic(), 0
        place = None if "gone" in mutant else locate(mutant, tree)
        if place is None:
            return {"outcome": "gone"}
        unit, at, new, found = place
        self.write(unit.path, tree.planted(unit, at, new))
        for chosen in filter(None, (tests.named(mutant.get("by", "")), tests.beside(unit.path))):
            ending = play(self.copy, chosen, seconds, seconds + HANGS)
            ran += ending.ran
            if ending.how != "passed":
                break
        self.write(unit.path, tree.source[unit.path])
        facts = {"path": unit.path, "function": unit.function, "found": found, "ran": ran}
        caught = {} if ending.how == "passed" else {"by": ending.test, "how": ending.how}
        took = round(time.monotonic() - start, 1)
        return {"outcome": "caught" if caught else "missed", **caught, **facts, "seconds": took}


class Tests:
    """The test files of the tree: what they define, and what they import."""

    def __init__(self) -> None:
        self.defined: dict[str, list[str]] = {}
        self.imported: dict[str, set[str]] = {}
        self.size: dict[str, int] = {}
        for path in sorted((ROOT / "tests").rglob("test_*.py")):
            file, names = path.relative_to(ROOT).as_posix(), set()
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    self.defined.setdefault(node.name, []).append(f"{file}::{node.name}")
                elif isinstance(node, ast.ImportFrom):
                    names |= {node.module or "", *(f"{node.module}.{name.name}" for name in node.names)}
                elif isinstance(node, ast.Import):
                    names |= {name.name for name in node.names}
            self.imported[file], self.size[file] = names, path.stat().st_size

    def named(self, test: str) -> list[str]:
        """Return the tests of a name, wherever they are now."""
        return self.defined.get(test.rpartition("::")[2].partition("[")[0], [])

    def beside(self, path: str) -> list[str]:
        """Return the test files of a module: those named after it or importing it, and its room's; small ones first."""
        module, folders = path.removesuffix(".py").removesuffix("/__init__").replace("/", "."), path.split("/")[1:-1]
        folder, room = ("/".join(["tests", *parts, ""]) for parts in (folders, folders[:1]))
        stem = module.rpartition(".")[2]
        ranks = {
            file: (stem not in Path(file).name, module not in names, not file.startswith(folder), self.size[file])
            for file, names in self.imported.items()
            if module in names or (folders and file.startswith(room))
        }
        return sorted(ranks, key=lambda file: ranks[file])


def run(options: argparse.Namespace) -> None:
    """Try the mutants without a result, those first that were caught; with --again also those that were missed."""
    results, done = options.results.resolve(), read_results(options.results)
    tree, tests, worker = Tree(ROOT), Tests(), Worker(options.work.resolve())
    for mutant in sorted(json.loads(LIST.read_text()), key=lambda row: row.get("before", "none")):
        outcome = done.get(mutant["id"], {}).get("outcome")
        if not mutant["id"].startswith(options.only) or outcome not in (None, options.again and "missed"):
            continue
        line = {"id": mutant["id"], **worker.attempt(mutant, tree, tests, options.seconds)}
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{line['id']:<28}{line['outcome']:<12}{line.get('by', '')}", flush=True)


def read_results(path: Path) -> dict[str, dict[str, Any]]:
    """Return the last result of every mutant."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {row["id"]: row for row in map(json.loads, lines)}


def write(options: argparse.Namespace) -> int:
    """Write the result; 1 where a mutant is missed that was caught before, or a test fails without one."""
    done, mutants = read_results(options.results), json.loads(LIST.read_text())
    caught = sorted({row["by"] for row in done.values() if row.get("by", "import") != "import"})
    ending = play(Worker(options.work.resolve()).copy, caught, 3600, 3600 + HANGS, "--maxfail=0")
    if ending.how != "passed":
        print(f"Without a mutant, too, {ending.how}:", *(ending.failed or [ending.test]), sep="\n")
        return 1
    tried = [row | {"now": done[row["id"]]["outcome"]} for row in mutants if row["id"] in done]
    listed = [row for row in tried if "before" in row]
    new = Counter(row["now"] for row in tried if "before" not in row)
    turns = {f"{then} then, {now} now": 0 for then in ("caught", "missed") for now in ("caught", "gone", "missed")}
    counts = {room: dict(turns) for room in (*dict.fromkeys(row["room"] for row in listed), "all")}
    for row in listed:
        for room in (row["room"], "all"):
            counts[room][f"{row['before']} then, {row['now']} now"] += 1
    kept, gone, lost, *missed = counts["all"].values()
    git = ["git", "rev-parse", "--short", "HEAD"]
    result = {
        "title": "Small faults in the code",
        "claim": f"Of {len(listed)} small faults the tests of {DRAWN} caught {kept + gone + lost}: today's tests catch "
        f"{kept} of these and miss {lost}, and the code of {gone} is gone.  Of the {sum(missed)} that were missed then "
        f"they catch {missed[0]}.",
        "command": "python benchmarks/mutants.py run, then write",
        "commit": subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip(),
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "machine": "2 cores, CPU, beside other work",
        "versions": {name: version(name) for name in ("torch", "transformers", "sentence-transformers", "pytest")},
        "seeds": [SEED],
        "columns": ["room", "faults", *turns],
        "rows": [[room, *map(str, (sum(row.values()), *row.values()))] for room, row in counts.items()],
        "notes": [
            f"At {DRAWN} {len(mutants)} faults were drawn, of which {len(listed)} were planted there.",
            "The rooms are those of the draw.  Code that was moved has the fault where it is now.",
            f"Of the {sum(new.values())} that were not planted there today's tests catch {new['caught']} and miss "
            f"{new['missed']}; the code of {new['gone']} is gone.",
            *(f"Gone now: `{row['old']}` to `{row['new']}`: {row['gone']}." for row in listed if row["now"] == "gone"),
            *(
                f"{row['now'].title()} now: `{row['old']}` to `{row['new']}` in `{row['statement']}`: {row['why']}."
                for row in tried
                if row["now"] != "gone" and "why" in row
            ),
        ],
    }
    content = json.dumps(result, indent=1, ensure_ascii=False)
    (ROOT / "results" / "planted-mutants.json").write_text(content + "\n", encoding="utf-8")
    lines = (row | {"by": done[row["id"]]["by"]} if "by" in done.get(row["id"], ()) else row for row in mutants)
    LIST.write_text("[\n " + ",\n ".join(map(json.dumps, lines)) + "\n]\n", encoding="utf-8")
    return int(lost > 0)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "write"])
    parser.add_argument("--results", type=Path, default=Path("mutants.jsonl"), help="a line for each that was tried")
    parser.add_argument("--work", type=Path, default=Path("/tmp/mutants-work"), help="folder of the copy")
    parser.add_argument("--only", default="", help="mutants whose names begin so")
    parser.add_argument("--seconds", type=float, default=60, help="of tests for a mutant, at most")
    parser.add_argument("--again", action="store_true", help="run those again that were missed")
    options = parser.parse_args()
    if options.command == "write":
        return write(options)
    run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
