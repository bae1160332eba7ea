"""Plant small faults in the code, one at a time, and see which of them the tests notice.

    make      draw the list: 300 mutants of six rooms by a seed, and those written by hand (``mutant_list.py``)
    cover     run the whole suite once; keep which test runs which line, and the seconds of every test
    run       plant each mutant in a copy of the tree, and run the tests that run its line: first those of the module's
              own test file, of these the cheapest first
    compare   put two runs beside each other; fails where a mutant was caught and no longer is

Outcomes: ``caught`` (a test failed or hung, or the package could not be imported), ``missed``, ``not covered`` (no test
runs the line), ``gone`` (the code is no longer there).  A test that fails without the mutant, too, catches nothing.
``run`` goes on where it was stopped: the file of --results has a line for every mutant that was tried.  Evaluation data
and golden values are found as the tests find them.
``cover`` needs pytest-cov and pytest-xdist.

Example:
    python benchmarks/mutants.py cover
    python benchmarks/mutants.py run --moved moved.toml --results after.jsonl --json after.json
    python benchmarks/mutants.py compare before.json after.json
"""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from mutant_list import SEED, Mutant, Tree, locate, make

if TYPE_CHECKING:
    from mutant_coverage import Covering

LIST = Path(__file__).with_name("mutants.json")
PRELOADED = "torch numpy transformers sentence_transformers datasets safetensors.torch scipy.stats xxhash filelock"
PRELOADED += (
    " hypothesis.strategies sklearn.linear_model pydantic typer rich jaxtyping beartype matplotlib.pyplot pyarrow"
)
HANGS = 90  # seconds beyond all others after which tests have hung
MEMORY = 8 * 2**30  # bytes, also of a file: a mutant may loop


class Watch:
    """A pytest plugin: runs the tests of a list in its order, file by file, and writes down what happens."""

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
        """Keep the tests of the list, in its order; a test named without its parameters stands for all of them."""
        self.session = session
        listed = {item: self.rank.get(item.nodeid, self.rank.get(item.nodeid.partition("[")[0])) for item in items}
        chosen = [item for item, place in listed.items() if place is not None]
        items[:] = sorted(chosen, key=lambda item: (self.files[item.nodeid.partition("::")[0]], listed[item]))

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
        return Ending("failed", failed[0], len(started))
    if done and any(what == "ended" for what, _ in told):
        return Ending("passed", "", len(started))
    return Ending("died" if done else "hung", started[-1] if started else "import", len(started))


class Worker:
    """Tries mutants in a copy of the tree; the libraries are imported once, the package in a fork for each mutant."""

    def __init__(self, tree: Tree, covering: "Covering", home: Path, options: argparse.Namespace) -> None:
        self.tree, self.covering, self.options, self.copy = tree, covering, options, home / "tree"
        self.clean: dict[str, bool] = {}  # does a test pass without a mutant
        self.changes = 0
        ignored = shutil.ignore_patterns(".git", ".venv", "runs", "build", "dist", "__pycache__")
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(tree.root, self.copy, symlinks=True, ignore=ignored)
        os.nice(5)
        os.chdir(self.copy)
        sys.path[0] = str(self.copy)
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

    def play(self, tests: Sequence[str]) -> Ending:
        """Run tests; in every file the first may have to pay for what the slowest has paid before: the fixtures."""
        files = {test.partition("::")[0] for test in tests}
        slowest = sum(max(self.covering.seconds[test] for test in self.covering.tests_of[file]) for file in files)
        return play(self.copy, tests, self.options.seconds, self.options.seconds + HANGS + 2 * slowest)

    def attempt(self, mutant: Mutant, moved: dict[str, str]) -> dict[str, Any]:
        """Plant one mutant and run its tests."""
        start = time.monotonic()
        place = locate(mutant, self.tree, moved)
        if place is None:
            return {"outcome": "gone"}
        unit, at, new, found = place
        covering = self.covering.tests(unit)
        facts = {"path": unit.path, "function": unit.function, "found": found, "covering": len(covering)}
        while True:
            usable = [test for test in covering if self.clean.get(test, True)][: self.options.tests]
            total, tests = 0.0, list[str]()
            for test in usable:
                total += self.covering.seconds[test]
                if total <= self.options.seconds or not tests:
                    tests.append(test)
            if not tests:
                return {"outcome": "not covered", **facts}
            self.write(unit.path, self.tree.planted(unit, at, new))
            ending = self.play(tests)
            self.write(unit.path, self.tree.source[unit.path])
            if ending.how != "passed" and ending.test != "import":
                if ending.test not in self.clean:
                    self.clean[ending.test] = self.play([ending.test]).how == "passed"
                if not self.clean[ending.test]:
                    continue
            caught = {} if ending.how == "passed" else {"by": ending.test, "how": ending.how}
            seconds = round(time.monotonic() - start, 1)
            return {
                "outcome": "caught" if caught else "missed",
                **caught,
                **facts,
                "ran": ending.ran,
                "seconds": seconds,
            }


def work(number: int, rows: Sequence[Mutant], options: argparse.Namespace, claims: str) -> None:
    """Try the mutants that no other process has taken."""
    from mutant_coverage import Covering  # needs pytest-cov, as cover does

    tree = Tree(options.tree)
    worker = Worker(tree, Covering(tree, options.coverage, options.durations), options.work / str(number), options)
    moved = tomllib.loads(options.moved.read_text()) if options.moved else {}
    for mutant in rows:
        try:
            (Path(claims) / mutant["id"].replace("/", "-")).touch(exist_ok=False)
        except FileExistsError:
            continue
        line = {"id": mutant["id"], **worker.attempt(mutant, moved)}
        with options.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{line['id']:<28}{line['outcome']:<12}{line.get('by', '')}", flush=True)


def run(options: argparse.Namespace) -> int:
    """Try the mutants without a result; with --again also those that were missed, where tests of them are left."""
    for name in ("tree", "coverage", "durations", "results", "work"):
        setattr(options, name, getattr(options, name).resolve())
    rows = json.loads(options.list.read_text())
    done = read_results(options.results)
    left = {name for name, row in done.items() if row["outcome"] == "missed" and row["ran"] < row["covering"]}
    rows = [row for row in rows if row["id"] not in done or (options.again and row["id"] in left)]
    with TemporaryDirectory() as claims:
        context = multiprocessing.get_context("fork")
        workers = [
            context.Process(target=work, args=(number, rows, options, claims)) for number in range(options.processes)
        ]
        for process in workers:
            process.start()
        for process in workers:
            process.join()
    if options.json:
        write_json(options)
    return int(any(process.exitcode for process in workers))


def read_results(path: Path) -> dict[str, dict[str, Any]]:
    """Return the last result of every mutant."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {row["id"]: row for row in map(json.loads, lines)}


def write_json(options: argparse.Namespace) -> None:
    """Write the list with its outcomes, and how it came about."""
    done = read_results(options.results)
    kept = ("id", "room", "operator", "path", "function", "line", "old", "new")
    rows = [{key: row[key] for key in kept} for row in json.loads(options.list.read_text())]
    rows = [
        row | {f"now_{key}" if row.get(key, value) != value else key: value for key, value in done[row["id"]].items()}
        for row in rows
        if row["id"] in done
    ]
    described = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=options.tree, capture_output=True, text=True, check=False
    )
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    head = {
        "claim": "which small faults in the code the tests notice",
        "command": shlex.join(["python", "benchmarks/mutants.py", *sys.argv[1:]]),
        "commit": described.stdout.strip(),
        "machine": f"{platform.platform()}, {os.cpu_count()} cores, {names[0].partition(': ')[2] if names else ''}",
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("torch", "transformers", "sentence-transformers", "pytest", "coverage")},
        "seeds": [SEED],
        "limits": {"tests": options.tests, "seconds": options.seconds},
        "figures": {
            room: dict(Counter(row["outcome"] for row in rows if room in (row["room"], "all")))
            for room in ["all", *dict.fromkeys(row["room"] for row in rows)]
        },
    }
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    options.json.write_text(f'{json.dumps(head, indent=1)[:-2]},\n "mutants": [\n  {lines}\n ]\n}}\n', encoding="utf-8")


def compare(before: Path, after: Path) -> int:
    """Print what became of the mutants; 1 where one was caught and is now missed."""
    was, now = ({row["id"]: row for row in json.loads(path.read_text())["mutants"]} for path in (before, after))
    turns = Counter((was[name]["outcome"], now[name]["outcome"]) for name in was if name in now)
    for (old, new), count in sorted(turns.items()):
        print(f"{old:<12} -> {new:<12} {count:>4}")
    lost = [name for name in was if was[name]["outcome"] == "caught" and now.get(name, {}).get("outcome") != "caught"]
    for name in lost:
        row = was[name]
        end = now.get(name, {}).get("outcome", "not run")
        print(f"{name}: {end}; {row['path']} {row['function']}: {row['old']} -> {row['new']}; caught by {row['by']}")
    return int(any(now.get(name, {}).get("outcome") != "gone" for name in lost))


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["make", "cover", "run", "compare"])
    parser.add_argument("files", nargs="*", type=Path, help="of compare: two files of --json, the earlier first")
    parser.add_argument("--tree", type=Path, default=Path(), help="a checkout")
    parser.add_argument("--list", type=Path, default=LIST, help="the mutants, written by make")
    parser.add_argument("--coverage", type=Path, default=Path("mutants.coverage"), help="written by cover")
    parser.add_argument("--durations", type=Path, default=Path("mutants.xml"), help="written by cover")
    parser.add_argument("--moved", type=Path, help='TOML: "old path" = "new path", or "path::function" for both')
    parser.add_argument(
        "--results", type=Path, default=Path("mutants.jsonl"), help="a line for each mutant that was run"
    )
    parser.add_argument("--json", type=Path, help="results with the list, and how they came about")
    parser.add_argument("--work", type=Path, default=Path("/tmp/mutants-work"), help="folder of the copies")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--tests", type=int, default=40, help="that are run for a mutant, at most")
    parser.add_argument("--seconds", type=float, default=60, help="of tests for a mutant, at most")
    parser.add_argument("--again", action="store_true", help="with higher limits: run those again that were missed")
    options = parser.parse_args()
    if options.command == "make":
        rows = ",\n ".join(json.dumps(row) for row in make(Tree(options.tree.resolve())))
        options.list.write_text(f"[\n {rows}\n]\n", encoding="utf-8")
    elif options.command == "cover":
        from mutant_coverage import cover

        tree, database, durations = map(Path.resolve, (options.tree, options.coverage, options.durations))
        return cover(tree, database, durations, options.processes)
    elif options.command == "run":
        return run(options)
    else:
        return compare(*options.files)
    return 0


if __name__ == "__main__":
    sys.exit(main())
