"""Where the mutants of ``mutants.json`` are in the code of today.

A mutant is known by its function, its statement as ``ast.unparse`` writes it, and the node in that statement: which
child, which child of that, and so on.  It is looked for in its function, in a function of the same name, and anywhere
in the package; then the same with other names of variables and other texts; then by the expression around the node.
What lives on in other words is written into the list anew by hand; where nothing does, "gone" says why.
"""

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

Mutant = dict[str, Any]  # a row of the list
At = tuple[int, ...]  # from a statement to a node in it


@dataclass
class Unit:
    """A statement without its body and annotations, or the default of an argument."""

    path: str
    function: str  # qualified; of a class body the class, of a module ""
    text: str  # normalised
    header: ast.AST  # made of the nodes of the file

    @cached_property
    def blank(self) -> str:
        """The statement with all variables called the same, and without texts for people."""
        return _blank(self.header)


def _blank(header: ast.AST) -> str:
    blanked = copy.deepcopy(header)
    for node in ast.walk(blanked):
        if isinstance(node, ast.Name):
            node.id = "_"
        elif isinstance(node, ast.arg):
            node.arg = "_"
        elif isinstance(node, ast.JoinedStr):
            node.values = []
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            node.value = "_"
    return _unparse(blanked)


def _unparse(node: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(node)).removesuffix("\n    pass")


def _bare(statement: ast.stmt) -> ast.stmt | None:
    """Return a statement without body and annotation; None where nothing in it is to be changed."""
    if isinstance(statement, ast.AnnAssign) and statement.value:
        made = ast.Assign(targets=[statement.target], value=statement.value)
        return ast.copy_location(made, statement)
    if isinstance(statement, (ast.Assign, ast.AugAssign, ast.Expr, ast.Return, ast.Delete)):
        return None if "__all__" in ast.unparse(statement)[:7] else statement
    if isinstance(statement, (ast.If, ast.While, ast.For, ast.With)):
        bare = copy.copy(statement)
        bare.body = [ast.Pass()]
        bare.__dict__.update({"orelse": []} if hasattr(bare, "orelse") else {})
        return bare
    return None


def _units(path: str, body: Sequence[ast.stmt], function: str = "") -> Iterator[Unit]:
    for statement in body:
        name = f"{function}.{getattr(statement, 'name', '')}".strip(".")
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _defaults(path, name, statement)
            yield from _units(path, statement.body, name)
        elif isinstance(statement, ast.ClassDef):
            yield from _units(path, statement.body, name)
        elif not (isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test)):
            if bare := _bare(statement):
                yield Unit(path, function, _unparse(bare), bare)
            parts = [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]
            for block in ("body", "orelse", "finalbody"):
                yield from _units(path, getattr(statement, block, []), function)
            for part in parts:
                yield from _units(path, part.body, function)


def _defaults(path: str, name: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Unit]:
    args = function.args
    usual = [*args.posonlyargs, *args.args]
    pairs = [
        *zip(reversed(usual), reversed(args.defaults), strict=False),
        *zip(args.kwonlyargs, args.kw_defaults, strict=True),
    ]
    for arg, default in pairs:
        if default is not None:
            made = ast.copy_location(ast.Assign(targets=[ast.Name(arg.arg)], value=default), default)
            yield Unit(path, name, f"default: {_unparse(made)}", made)


class Tree:
    """The package, statement by statement."""

    def __init__(self, root: Path) -> None:
        files = sorted(path.relative_to(root).as_posix() for path in (root / "selfsent").rglob("*.py"))
        self.source = {path: (root / path).read_bytes() for path in files}
        self.units = [unit for path, text in self.source.items() for unit in _units(path, ast.parse(text).body)]

    def planted(self, unit: Unit, at: At, new: str) -> bytes:
        """Return the file of a statement with one node of it replaced; all lines keep their numbers."""
        node: Any = _descend(unit.header, at)
        lines = self.source[unit.path].splitlines(keepends=True)
        start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
        end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
        fill = "\n" * (node.end_lineno - node.lineno)
        text = new + fill if isinstance(node, (ast.stmt, ast.keyword)) else f"({new}{fill})"
        return self.source[unit.path][:start] + text.encode() + self.source[unit.path][end:]


def _descend(node: ast.AST, at: At) -> ast.AST:
    for place in at:
        node = list(ast.iter_child_nodes(node))[place]
    return node


def _walk(node: ast.AST, at: At = ()) -> Iterator[tuple[At, ast.AST]]:
    """Yield all nodes with their places."""
    yield at, node
    for place, child in enumerate(ast.iter_child_nodes(node)):
        yield from _walk(child, (*at, place))


def locate(mutant: Mutant, tree: Tree) -> tuple[Unit, At, str, str] | None:
    """Return statement, place, new source, and how it was found; None where it is gone."""
    path, function = mutant["path"], mutant["function"]
    last = function.rpartition(".")[2]
    nearer: list[tuple[str, Callable[[Unit], bool]]] = [
        ("its function", lambda unit: (unit.path, unit.function) == (path, function)),
        ("its function elsewhere", lambda unit: unit.function == function),
        ("a function of its name", lambda unit: unit.function.rpartition(".")[2] == last),
        ("the package", lambda unit: True),
    ]
    place, count = mutant["occurrence"]
    statement = _parse(mutant["statement"])
    for exact, how in ((True, "in "), (False, "with other names in ")):
        known = mutant["statement"] if exact else _blank(statement)
        same = [unit for unit in tree.units if (unit.text if exact else unit.blank) == known]
        for where, near in nearer:
            hits = [unit for unit in same if near(unit)]
            if len(hits) == 1 or (len(hits) == count and len({(unit.path, unit.function) for unit in hits}) == 1):
                unit = hits[min(place, len(hits) - 1)]
                return unit, tuple(mutant["at"]), _renamed(mutant, unit), how + where
    for depth in range(1, len(mutant["at"]) + 1):
        around = _unparse(_descend(statement, tuple(mutant["at"][:depth])))
        for where, near in nearer[:3]:
            inside = [unit for unit in tree.units if near(unit)] if len(around) > 12 else []
            spots = [(unit, at) for unit in inside for at, node in _walk(unit.header) if _unparse(node) == around]
            if len(spots) == 1:
                unit, at = spots[0]
                return unit, (*at, *mutant["at"][depth:]), mutant["new"], f"by the expression in {where}"
    return None


def _parse(text: str) -> ast.AST:
    text = text.removeprefix("default: ")
    return ast.parse(text + "\n    pass" if text.endswith(":") else text).body[0]


def _renamed(mutant: Mutant, unit: Unit) -> str:
    """Return the new source in the variable names of the statement that was found."""
    pairs = _side_by_side(_parse(mutant["statement"]), unit.header)
    names = {a.id: b.id for a, b in pairs if isinstance(a, ast.Name) and isinstance(b, ast.Name)}
    new = ast.parse(mutant["new"])
    for node in ast.walk(new):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
    return mutant["new"] if all(a == b for a, b in names.items()) else _unparse(new)


def _side_by_side(first: ast.AST, second: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    yield first, second
    for pair in zip(ast.iter_child_nodes(first), ast.iter_child_nodes(second), strict=False):
        yield from _side_by_side(*pair)
