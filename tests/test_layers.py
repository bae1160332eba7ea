"""Imports only go down, the core imports no wing, and every module says what it is for."""

import ast
import re
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType

import selfsent
from selfsent.objectives.listing import method_files

PACKAGE = Path(selfsent.__file__).parent
HOUSE = tomllib.loads((PACKAGE.parent / "house.toml").read_text(encoding="utf-8"))
CORE, WINGS = HOUSE["core"], HOUSE["wings"]
ROOMS = (*CORE, *WINGS, "cli", "__init__", "__main__")  # from the ground up


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> list[ast.ImportFrom]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("selfsent")]


def imported(path: Path) -> set[str]:
    rooms = set()
    for node in imports(path):
        rooms |= {name.name for name in node.names} if node.module == "selfsent" else {node.module.split(".")[1]}
    return rooms - {room(path)}


def test_every_room_has_a_place():
    assert {room(path) for path in modules()} == set(ROOMS)


def test_every_room_is_a_package_which_a_wheel_takes_along():
    lacking = {path.parent for path in modules()} - {path.parent for path in PACKAGE.rglob("__init__.py")}
    assert not lacking - {PACKAGE / "builtin"}


def test_imports_only_go_down():
    upward = [
        f"{path.relative_to(PACKAGE)} imports {name}, which stands above {room(path)}"
        for path in modules()
        for name in imported(path) & set(ROOMS)
        if ROOMS.index(name) > ROOMS.index(room(path))
    ]
    assert upward == []


def test_the_core_imports_no_wing():
    broken = [
        f"{room(path)}: {path.relative_to(PACKAGE)} imports {name}"
        for path in modules()
        for name in imported(path) & set(WINGS)
        if room(path) in CORE
    ]
    assert broken == []


def test_the_trainer_knows_no_method_and_no_method_imports_another():
    methods = set(method_files())
    for path in modules():
        names = {name.name for node in imports(path) for name in node.names}
        names |= {node.module.split(".")[-1] for node in imports(path)}
        if path.parent.name == "objectives" and path.stem in methods:
            assert not names & methods, path
    trainer = {node.module for node in imports(PACKAGE / "training" / "trainer.py")}
    assert not {f"selfsent.objectives.{name}" for name in ("registry", *methods)} & trainer


def test_every_module_says_what_it_is_for():
    silent = [str(path) for path in modules() if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert silent == []


def test_a_package_that_lists_its_files_lists_them_all():
    for package in PACKAGE.rglob("__init__.py"):
        named = re.findall(
            r"^(\w+\.py) ", ast.get_docstring(ast.parse(package.read_text(encoding="utf-8"))) or "", re.M
        )
        files = {path.name for path in package.parent.glob("*.py")} - {package.name}
        assert not named or {*named} == files, package


def test_no_two_public_things_share_a_name():
    """Commands in cli/ are named after what they call; everything else can be searched for by its name."""
    homes: dict[str, set[str]] = {}  # a set: overloads of one function are one
    for path in modules():
        if room(path) != "cli":
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, set()).add(str(path.relative_to(PACKAGE)))
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
    """What is renamed into its place, or flushed to the disk, goes through selfsent/storage/atomic.py."""
    calls = ("os.fsync", "os.replace", "os.rename")
    elsewhere = [
        f"{path.relative_to(PACKAGE)}: {ast.unparse(node.func)}"
        for path in modules()
        if path.name != "atomic.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in calls
    ]
    assert elsewhere == []


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
