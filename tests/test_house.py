"""Imports only go down, and every module says what it is for."""

import ast
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import selfsent

PACKAGE = Path(selfsent.__file__).parent
FLOORS = {
    1: {
        "atomic",
        "embedding_queue",
        "errors",
        "functional",
        "hardware",
        "launch",
        "lifeline",
        "loading",
        "locks",
        "portable",
        "precision",
        "progress",
    }
    | {"randomness", "ranks", "word_lookup"},
    2: {
        "batching",
        "builtin",
        "bulk_encode",
        "config",
        "corpus",
        "encoder",
        "evaluation",
        "optimizer",
        "recipes",
        "run",
    }
    | {"encode_parts", "encoded_shards", "ray_engine", "remote_shards", "search_index", "semantic_search", "tracking"},
    3: {"augment", "composition", "objective", "scoring", "validation"},
    4: {"methods", "pretraining", "trainer"},
    5: {"api", "baselines", "final_scores", "label_free_verdict", "objective_loss", "report"},
    6: {"export", "publishing", "reproduction", "selection", "serving"},
    7: {"__init__", "__main__", "cli"},
}
FLOOR = {room: floor for floor, rooms in FLOORS.items() for room in rooms}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "selfsent":
            rooms |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("selfsent."):
            rooms.add(node.module.split(".")[1])
    return rooms


def test_every_room_has_a_floor():
    assert {room(path) for path in modules()} <= set(FLOOR)


def test_imports_only_go_down():
    upward = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in modules()
        for name in imported(path) & set(FLOOR)
        if name != room(path) and FLOOR[name] > FLOOR[room(path)]
    ]
    assert upward == []


def test_methods_and_trainer_never_meet_and_no_method_imports_another():
    for path in (PACKAGE / "methods").glob("*.py"):
        assert "trainer" not in imported(path)
        if path.stem != "__init__":
            assert "methods" not in imported(path)
    assert "methods" not in imported(PACKAGE / "trainer.py")


def test_every_module_says_what_it_is_for():
    silent = [str(path) for path in modules() if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert silent == []


def test_no_two_public_things_share_a_name():
    """Commands in cli/ are named after what they call; everything else can be searched for by its name."""
    homes: dict[str, list[str]] = {}
    for path in modules():
        if room(path) != "cli":
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_every_public_name_resolves_and_no_module_takes_its_place():
    """An imported submodule becomes an attribute of the package, and would hide a function of its name."""
    assert {name: getattr(selfsent, name) for name in selfsent.__all__}.keys() == set(dir(selfsent))
    assert not {room(path) for path in modules()} & set(selfsent.__all__)
    for path in modules():
        if path.name != "__main__.py":
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            import_module(".".join(parts).removesuffix(".__init__"))
    assert [name for name in selfsent.__all__ if isinstance(getattr(selfsent, name), ModuleType)] == []


def test_no_function_is_longer_than_80_lines_and_no_file_than_400():
    long = []
    for path in modules():
        source = path.read_text(encoding="utf-8")
        if source.count("\n") > 400:
            long.append(str(path.relative_to(PACKAGE)))
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= 80:
                long.append(f"{path.relative_to(PACKAGE)}:{node.name}")
    assert long == []


def test_whole_or_absent_files_are_written_in_one_module():
    """What is renamed into its place, or flushed to the disk, goes through selfsent/atomic.py."""
    calls = ("os.fsync", "os.replace", "os.rename")
    elsewhere = [
        f"{path.relative_to(PACKAGE)}: {ast.unparse(node.func)}"
        for path in modules()
        if path.name != "atomic.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in calls
    ]
    assert elsewhere == []


def test_the_tree_in_contributing_names_every_module_and_no_other():
    contributing = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tree = contributing.split("```text\nselfsent/\n")[1].split("```")[0]
    named, folders = set(), [PACKAGE]
    for line in tree.splitlines():
        name, depth = line.split()[0], (len(line) - len(line.lstrip())) // 2
        assert len(line.split()) > 1, f"{name} is not described"
        folders[depth:] = [folders[depth - 1] / name.removesuffix("/")]
        named.add(folders[depth])
    packages = {path.parent for path in modules()} - {PACKAGE} | {PACKAGE / "recipes"}
    assert named == {path for path in modules() if path.name != "__init__.py"} | packages


def test_the_layers_in_contributing_are_those_that_are_checked():
    table = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n| layer |")[1]
    rows = [line.split("|") for line in table.split("\n\n")[0].splitlines()[2:]]
    written = {int(row[1]): set(re.findall(r"`(\w+)/?`", row[2])) for row in rows}
    assert written == FLOORS


def test_no_library_is_let_run_the_code_of_a_model():
    """transformers asks on standard input unless it is told, and takes a text for the answer."""
    opens = [
        (f"{path.relative_to(PACKAGE)}:{node.lineno}", ast.unparse(node))
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and (
            ast.unparse(node.func).endswith("from_pretrained")
            or ast.unparse(node).startswith("SentenceTransformer(str(")
        )
    ]
    assert len(opens) > 8
    assert [place for place, call in opens if "**CLOSED" not in call and "trust_remote_code=False" not in call] == []
