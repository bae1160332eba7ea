"""Which tests run which lines, for ``mutants.py``: the suite under coverage, with the test as context."""

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from coverage import CoverageData
from mutant_list import Tree, Unit, mentions

CHILD = """import os
if os.environ.get("PYTEST_CURRENT_TEST") and os.environ.get("MUTANTS_CHILDREN"):
    import coverage
    coverage.Coverage(data_file=os.environ["MUTANTS_CHILDREN"], data_suffix=True, auto_data=True,
        source=[os.environ["MUTANTS_SOURCE"]], config_file=os.environ["MUTANTS_RC"],
        context=os.environ["PYTEST_CURRENT_TEST"]).start()
"""  # what a process runs that a test has started: its lines count for that test
RC = """[run]
source = selfsent
disable_warnings = no-data-collected,module-not-imported,module-not-measured,couldnt-parse
"""


def cover(tree: Path, database: Path, durations: Path, processes: int) -> int:
    """Run the suite under coverage, with the test as context; processes that tests start are measured, too."""
    with TemporaryDirectory() as work:
        (Path(work) / "sitecustomize.py").write_text(CHILD)
        (Path(work) / "rc").write_text(RC)
        environment = {
            "PYTHONPATH": f"{tree}{os.pathsep}{work}",
            "COVERAGE_FILE": str(database),
            "MUTANTS_CHILDREN": f"{work}/children",
            "MUTANTS_SOURCE": str(tree / "selfsent"),
            "MUTANTS_RC": f"{work}/rc",
        }
        command = [sys.executable, "-m", "pytest", "-n", str(processes), "--dist", "loadfile", "--cov=selfsent"]
        command += [f"--cov-config={work}/rc", "--cov-context=test", "--cov-report=", f"--junitxml={durations}"]
        command += ["-o", "junit_family=xunit1", "-W", "ignore::coverage.exceptions.CoverageWarning"]
        status = subprocess.run(command, cwd=tree, env=os.environ | environment, check=False).returncode
        merge_children(database, sorted(Path(work).glob("children.*")))
    return status


def merge_children(database: Path, children: Sequence[Path]) -> None:
    """Add what was measured in processes that tests started."""
    data = CoverageData(str(database))
    data.read()
    for path in children:
        child = CoverageData(str(path))
        with suppress(Exception):  # killed while it wrote
            child.read()
            data.update(child)


class Covering:
    """Which tests run which lines, and how long every test takes."""

    def __init__(self, tree: Tree, database: Path, durations: Path) -> None:
        self.tree = tree
        self.data = CoverageData(str(database))
        self.data.read()
        self.seconds: dict[str, float] = {}  # of the tests that passed
        self.tests_of: dict[str, list[str]] = defaultdict(list)  # by file
        for case in ElementTree.parse(durations).iter("testcase"):
            file, name = case.attrib["file"], case.attrib["name"]
            classes = case.attrib["classname"].removeprefix(file.removesuffix(".py").replace("/", ".")).split(".")
            if len(case) == 0 or all(child.tag in ("system-out", "system-err") for child in case):
                test = "::".join([file, *filter(None, classes), name])
                self.seconds[test] = float(case.attrib["time"])
                self.tests_of[file].append(test)

    def tests(self, unit: Unit) -> list[str]:
        """Return the tests that run a statement, those first that are likeliest to notice a change of it.

        A statement that runs at import is run by the tests of the functions that mention its names, and by those of
        the module's own test file.  Where a fixture runs a line, all tests of its file count: others use it, too.
        """
        path = Path(unit.path).relative_to("selfsent")
        name = path.parent.with_suffix(".py") if path.name == "__init__.py" else path
        own = (Path("tests") / name.with_name(f"test_{name.name}")).as_posix()
        spots = [(unit.path, unit.lines)]
        if unit.runs_at_import:
            spots += [(other.path, other.lines) for other in mentions(unit, self.tree)]
        direct, beside = set(), set(self.tests_of[own] if unit.runs_at_import else ())
        for context in {context for path, lines in spots for context in self._contexts(path, lines)}:
            cut = "|" if context.endswith(("|run", "|setup", "|teardown")) else " ("
            test, _, phase = context.rpartition(cut)
            if phase.strip("()") in ("run", "call"):
                direct.add(test)
            else:
                beside.update(self.tests_of[test.partition("::")[0]])
        usable = (direct | beside) & self.seconds.keys()
        return sorted(
            usable, key=lambda test: (test.partition("::")[0] != own, test not in direct, self.seconds[test], test)
        )

    def _contexts(self, path: str, lines: range) -> set[str]:
        table = self.data.contexts_by_lineno(str(self.tree.root / path))
        return {context for line in lines for context in table.get(line, ()) if context}
