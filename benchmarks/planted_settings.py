"""Plant sixty faults between a setting and its effect, one at a time, and see whether the setting's contract notices.

A fault is a wrong field, a wrong default, a setting that nothing reads, one too many or too few, or a wrong unit.  It
is planted in a copy of the tree (``mutants.py``).  Of the contract tests those run that hold the setting, and then the
tables of defaults beside them.  With --json it goes on where it was stopped.

Example:
    python benchmarks/planted_settings.py --json results/planted-settings.json
"""

import argparse
import ast
import datetime
import json
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

import mutants

ROOT = Path(__file__).resolve().parent.parent
ROOMS = {  # the first part of a setting: the room that holds its contract
    **dict.fromkeys(("simcse", "scd", "denosent", "declutr", "whitenedcse", "distil"), "objectives"),
    **dict.fromkeys(("train", "recipe", "hardware"), "training"),
    **dict.fromkeys(("pretrain", "objective", "factors", "static"), "pretraining"),
    **{"corpus": "corpus", "encoder": "encoder", "classifier": "evaluation", "validation": "evaluation"},
}
FAULTS = Path(__file__).with_suffix(
    ".txt"
)  # a line each: setting | file of the package | text | what is planted instead


def contracts(room: str) -> tuple[dict[str, list[str]], list[str]]:
    """Return which tests of a room hold which settings, and the tests of its tables."""
    path = f"tests/{room}/test_contract_{room}.py"
    held: dict[str, list[str]] = {}
    others = []
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            calls = [mark for mark in node.decorator_list if isinstance(mark, ast.Call)]
            marks = [
                [ast.literal_eval(given) for given in mark.args]
                for mark in calls
                if ast.unparse(mark.func) == "contract"
            ]
            for prefix, keys in marks:
                for key in keys.split():
                    held.setdefault(f"{prefix}.{key}", []).append(f"{path}::{node.name}")
            if not marks:
                others.append(f"{path}::{node.name}")
    return held, others


def idle(settings: list[str]) -> list[str]:
    """Return the settings whose name nothing in the package reads but the check of a configuration class."""
    read = set()
    for path in (ROOT / "selfsent").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        checks = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__post_init__"]
        left_out = {id(inner) for check in checks for inner in ast.walk(check)}
        for node in ast.walk(tree):
            if id(node) not in left_out and isinstance(node, ast.Attribute | ast.arg):
                read.add(node.attr if isinstance(node, ast.Attribute) else node.arg)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
                read.add(getattr(node.args[1], "value", None))
    return [setting for setting in settings if setting.partition(".")[2] not in read]


def main() -> None:
    """Plant the faults, and write what was caught."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="a file that keeps the result")
    parser.add_argument("--work", type=Path, default=Path("/tmp/planted-settings"), help="folder of the copy")
    parser.add_argument("--only", default="", help="faults whose setting begins so")
    arguments = parser.parse_args()
    faults = [
        [part.strip().replace("\\n", "\n") for part in line.split(" | ")] for line in FAULTS.read_text().splitlines()
    ]
    held = {room: contracts(room) for room in dict.fromkeys(ROOMS.values())}
    walked = sorted(setting for tests, _ in held.values() for setting in tests)
    json_file = arguments.json and arguments.json.resolve()
    worker = mutants.Worker(arguments.work.resolve())
    known = json.loads(json_file.read_text(encoding="utf-8"))["rows"] if json_file and json_file.exists() else []
    rows = [row for row in known if row[2] == "caught"]  # goes on where it was stopped
    for setting, name, old, new in faults:
        fault = f"`{old}` to `{new}`"
        if not setting.startswith(arguments.only) or any(row[:2] == [setting, fault] for row in rows):
            continue
        path, began = f"selfsent/{name}", time.monotonic()
        source = (ROOT / path).read_text(encoding="utf-8")
        assert source.count(old) == 1, f"{path} has {source.count(old)} times {old!r}"
        tests, tables = held[ROOMS[setting.partition(".")[0]]]
        worker.write(path, source.replace(old, new).encode())
        # Without the checks of types at run time: the contracts themselves have to notice.
        ending = mutants.play(worker.copy, [*tests.get(setting, []), *tables], 300, 400, "--override-ini=addopts=")
        worker.write(path, source.encode())
        caught = ending.how != "passed" and ending.test != "import"
        rows.append([setting, fault, "caught" if caught else "missed", ending.test.partition("::")[2]])
        print(
            f"{len(rows):>3} {rows[-1][2]:<8}{setting:<30}{rows[-1][3]:<60}{time.monotonic() - began:>6.0f} s",
            flush=True,
        )
        if json_file:
            content = json.dumps(result(rows, walked), indent=1, ensure_ascii=False)
            json_file.write_text(content + "\n", encoding="utf-8")


def result(rows: list[list[str]], walked: list[str]) -> dict[str, object]:
    """Return the content of the file in ``results/``."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    caught, nobody = sum(row[2] == "caught" for row in rows), idle(walked)
    names = ("torch", "transformers", "sentence-transformers", "pytest")
    return {
        "title": "Faults between a setting and its effect",
        "claim": f"Of {len(rows)} faults that were planted between a setting and its effect, the tests of the settings "
        f"caught {caught}; they hold {len(walked)} settings, of which {len(nobody)} only a check reads.",
        "command": "python benchmarks/planted_settings.py --json results/planted-settings.json",
        "commit": commit.stdout.strip(),
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "machine": "2 cores, CPU, beside other work",
        "versions": {name: version(name) for name in names},
        "seeds": [],
        "columns": ["setting", "fault", "outcome", "noticed by"],
        "rows": rows,
        "notes": [
            f"Settings that only a check reads, because they permit another value: {', '.join(nobody) or 'none'}."
        ],
    }


if __name__ == "__main__":
    main()
