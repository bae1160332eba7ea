"""Lines of every room against its budget, and the other rules of the house that have a number.

    python benchmarks/house.py            # the table; exit status 1 where a rule is broken
    python benchmarks/house.py --json house.json

``house.toml`` holds the budgets and the order of the rooms.  A change that needs more lines raises a number there, in
its own commit, and says in the message what the reader gets for them.
"""

import argparse
import ast
import json
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "selfsent"
RUN = 8  # lines of code in a row that make a duplicate
NO_CODE = re.compile(r'#|from |import |"""|@|def |\) ->|\w+: [^:]*,$')  # imports, comments and signatures repeat


def lines_of(path: Path) -> int:
    """Return how many lines a file, or every Python file of a folder, has."""
    files = path.rglob("*.py") if path.is_dir() else [path]
    return sum(file.read_text(encoding="utf-8").count("\n") for file in files)


def room_of(path: Path) -> str:
    """Return the room of a file: the folder on the top floor, or the name of a loose module."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    """Return the dotted name of a file's module, without ``selfsent``."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def imports_of(tree: ast.AST, modules: set[str]) -> Iterator[str]:
    """Yield the modules of the package that a module imports anywhere, in functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "selfsent":
            origin = node.module.removeprefix("selfsent").removeprefix(".")
            for alias in node.names:
                submodule = f"{origin}.{alias.name}".removeprefix(".")
                yield submodule if submodule in modules else origin


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other in a loop: strongly connected components of two and more."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [*arrows[start]]
        while waiting:
            module = waiting.pop()
            if module not in seen:
                seen.add(module)
                waiting += arrows.get(module, ())
        return seen

    reach = {module: reached(module) for module in arrows}
    groups = {tuple(sorted({other for other in reach[m] if m in reach.get(other, ())} | {m})) for m in arrows}
    return [list(group) for group in sorted(groups) if len(group) > 1]


def duplicates(files: list[Path]) -> list[str]:
    """Return where ``RUN`` lines of code in a row, to the letter, stand a second time."""
    seen: dict[tuple[str, ...], str] = {}
    repeated: dict[tuple[Path, str], str] = {}
    for path in files:
        numbered = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        lines = [(number, line.strip()) for number, line in numbered if len(line.strip()) > 2]
        lines = [(number, line) for number, line in lines if not NO_CODE.match(line)]
        for first in range(len(lines) - RUN + 1):
            run = tuple(line for _, line in lines[first : first + RUN])
            here = f"{path.relative_to(ROOT)}:{lines[first][0]}"
            other = seen.setdefault(run, here)
            if other != here:
                repeated.setdefault((path, other.partition(":")[0]), f"{here} repeats {other}")
    return sorted(repeated.values())


def survey() -> tuple[dict[str, int], dict[str, list[str]]]:
    """Return the lines of every room, and what breaks each rule that has no number."""
    house = tomllib.loads((ROOT / "house.toml").read_text(encoding="utf-8"))
    order = [*house["core"], *house["wings"], "cli", "__init__", "__main__"]
    files = sorted(PACKAGE.rglob("*.py"))
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in files}
    modules = {module_of(path) for path in files}
    lines: dict[str, int] = defaultdict(int)
    arrows: dict[str, set[str]] = {}
    broken: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees.items():
        lines[room_of(path)] += lines_of(path)
        arrows[module_of(path)] = {*imports_of(tree, modules)} - {module_of(path), ""}
        for module in sorted(arrows[module_of(path)]):
            here, there = room_of(path), module.partition(".")[0]
            arrow = f"{path.relative_to(ROOT)} imports {module}"
            if here != there and order.index(there) > order.index(here):
                broken["imports that go up"].append(arrow)
            if here in house["core"] and there in house["wings"]:
                broken["the core imports a wing"].append(arrow)
        if lines_of(path) > house["limits"]["file"]:
            broken["long files"].append(f"{path.relative_to(ROOT)}: {lines_of(path)} lines")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= house["limits"]["function"]:
                broken["long functions"].append(f"{path.relative_to(ROOT)}: {node.name}")
    broken["circles"] = [" <-> ".join(group) for group in circles(arrows)]
    broken["duplicates"] = duplicates(files)
    loose = [path.stem for path in PACKAGE.glob("*.py") if not path.stem.startswith("__")]
    totals = {"selfsent": sum(lines.values()), "tests": lines_of(ROOT / "tests")}
    totals |= {"benchmarks": lines_of(ROOT / "benchmarks"), "files": len(files), "loose": len(loose)}
    measured = {**totals, **{room: lines[room] for room in order}}
    budgets = {**house["totals"], **house["rooms"]}
    for name, count in measured.items():
        if count > budgets[name]:
            broken["above the budget"].append(f"{name}: {count:,} of {budgets[name]:,}")
    return measured, {rule: places for rule, places in broken.items() if places}


def main() -> None:
    """Print the table, and what breaks a rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    house = tomllib.loads((ROOT / "house.toml").read_text(encoding="utf-8"))
    budgets = {**house["totals"], **house["rooms"]}
    measured, broken = survey()
    print(f"{'':<14}{'lines':>8}{'budget':>8}{'target':>8}")
    for name, count in measured.items():
        target = house["targets"].get(name, budgets[name])
        print(f"{name:<14}{count:>8,}{budgets[name]:>8,}{target:>8,}{'  above' if count > budgets[name] else ''}")
    for rule, places in broken.items():
        print(f"\n{rule}:", *places, sep="\n  ")
    if given.json:
        given.json.write_text(json.dumps({"lines": measured, "broken": broken}, indent=1) + "\n", encoding="utf-8")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
