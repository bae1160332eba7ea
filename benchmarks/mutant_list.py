"""The mutants of ``mutants.py``: which statements there are, what may change in them, and where they are later.

A mutant is known by its function, its statement as ``ast.unparse`` writes it, and the node in that statement.  It is
looked for in the file that it was moved to, in a function of the same name, and anywhere in the package; then the same
with other names of variables and other texts; then by the expression around the node.
"""

import ast
import copy
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Mutant = dict[str, Any]  # a row of the list
At = tuple[int, ...]  # from a statement to a node in it: which child, which child of that, ...

SEED, COUNT, LEAST = 51, 300, 30  # mutants in all, and of a room
ROOMS = {
    "objectives": "methods/ objective.py composition.py functional.py objective_loss.py embedding_queue.py",
    "training": "api.py trainer.py batching.py optimizer.py validation.py final_scores.py baselines.py randomness.py",
    "evaluation": "evaluation/ scoring.py label_free_verdict.py",
    "encoder": "encoder/",
    "selection": "selection/",
    "storage": "run.py atomic.py locks.py portable.py",
}
# By hand: name, file, function, a part of the statement, the expression in it (the first such), what it becomes.
_SPANS = ("methods/declutr", "DeCLUTR.spans")
HAND = [
    ("declutr-anchors", *_SPANS, "in draw_anchors", "config.num_anchors", "config.num_positives"),
    ("declutr-positives", *_SPANS, "near =", "config.num_positives", "config.num_anchors"),
    ("declutr-lengths", *_SPANS, "in draw_anchors", "config.min_length", "1"),
    ("declutr-distribution", "methods/declutr", "draw_positive", "share =", "draw.beta(2, 4)", "draw.beta(4, 2)"),
    ("declutr-adjacency", *_SPANS, "near =", "config.sampling", "'any'"),
    ("whitenedcse-temperature", "methods/whitenedcse", "WhitenedCSE.Config", "temperature =", "0.05", "0.1"),
    ("snli-passes", "evaluation/senteval/transfer", "transfer_task", "unregularised", "passes=1", "passes=4"),
    ("stsb-dev", "evaluation/sts", "read_sts", "'dev' if", "name.endswith('-dev')", "False"),
    ("stsb-dev-hub", "evaluation/hub", "read_hub", "'dev' if", "name == 'stsb-dev'", "False"),
]
COMPARISONS = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
COMPARISONS |= {flipped: usual for usual, flipped in COMPARISONS.items()}
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
ARITHMETIC |= {ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
COLLECTIONS = (ast.JoinedStr, ast.List, ast.ListComp, ast.Tuple, ast.Dict, ast.DictComp, ast.Set)  # no arithmetic
SETTINGS = {"config", "settings", "given", "recipe", "options"}  # names of what holds settings
TOLD = {"say", "opening", "report", "begin", "step", "evaluated", "end", "warn"}  # methods that pass on a text
IDLE = re.compile(r"(strict|stacklevel|indent)=|le=\d{3}")  # keywords whose values change little
PATHS = re.compile(r"folder|path|Path|scratch|parent|root|target|place\b")  # what "/" does not divide
RARER = 0.6  # of the returned Nones are passed over: types alone show them


# ------------------------------------------------------------------------------------------------ statements of a tree


@dataclass
class Unit:
    """A statement without its body and annotations, or the default of an argument."""

    path: str
    function: str  # qualified; of a class body the class, of a module ""
    text: str  # normalised
    header: ast.AST  # made of the nodes of the file
    lines: range  # that a test runs if it runs the statement; of a default those of its function
    runs_at_import: bool
    choices: list[str] = field(default_factory=list)  # the values of its type, where that is a Literal

    @property
    def blank(self) -> str:
        """The statement with all variables called the same, and without texts for people."""
        blanked = copy.deepcopy(self.header)
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


def _literals(annotation: ast.AST | None) -> list[str]:
    found = [node for node in ast.walk(annotation or ast.Pass()) if isinstance(node, ast.Subscript)]
    inner = [node for part in found if "Literal" in ast.unparse(part.value) for node in ast.walk(part.slice)]
    return [node.value for node in inner if isinstance(node, ast.Constant) and isinstance(node.value, str)]


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


def _units(path: str, body: Sequence[ast.stmt], function: str = "", inside: bool = False) -> Iterator[Unit]:
    for statement in body:
        name = f"{function}.{getattr(statement, 'name', '')}".strip(".")
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _defaults(path, name, statement)
            yield from _units(path, statement.body, name, True)
        elif isinstance(statement, ast.ClassDef):
            yield from _units(path, statement.body, name, False)
        elif not (isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test)):
            if bare := _bare(statement):
                blocks = getattr(statement, "body", [])
                last = max(statement.lineno, blocks[0].lineno - 1) if blocks else statement.end_lineno or 0
                choices = _literals(getattr(statement, "annotation", None))
                lines = range(statement.lineno, last + 1)
                yield Unit(path, function, _unparse(bare), bare, lines, not inside, choices)
            parts = [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]
            for block in ("body", "orelse", "finalbody"):
                yield from _units(path, getattr(statement, block, []), function, inside)
            for part in parts:
                yield from _units(path, part.body, function, inside)


def _defaults(path: str, name: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Unit]:
    args, lines = function.args, range(function.body[0].lineno, (function.end_lineno or 0) + 1)
    usual = [*args.posonlyargs, *args.args]
    pairs = [
        *zip(reversed(usual), reversed(args.defaults), strict=False),
        *zip(args.kwonlyargs, args.kw_defaults, strict=True),
    ]
    for arg, default in pairs:
        if default is not None:
            made = ast.copy_location(ast.Assign(targets=[ast.Name(arg.arg)], value=default), default)
            yield Unit(path, name, f"default: {_unparse(made)}", made, lines, False, _literals(arg.annotation))


class Tree:
    """The package in a checkout, statement by statement."""

    def __init__(self, root: Path) -> None:
        self.root = root
        files = sorted(path.relative_to(root).as_posix() for path in (root / "selfsent").rglob("*.py"))
        self.source = {path: (root / path).read_bytes() for path in files}
        self.parsed = {path: ast.parse(source) for path, source in self.source.items()}
        self.units = [unit for path, tree in self.parsed.items() for unit in _units(path, tree.body)]
        self.kinds: dict[str, set[str]] = defaultdict(set)  # of fields, by name: their annotations
        for node in (node for tree in self.parsed.values() for node in ast.walk(tree)):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self.kinds[node.target.id].add(ast.unparse(node.annotation).removesuffix(" | None"))

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
    """Yield all nodes that may be changed, with their places: no texts for people, no types."""
    yield at, node
    told = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TOLD
    if told and any(word in ast.unparse(node.func) for word in ("progress", "warn")):  # type: ignore[attr-defined]
        return
    for place, child in enumerate(ast.iter_child_nodes(node)):
        idle = isinstance(child, ast.keyword) and IDLE.match(ast.unparse(child))
        if not idle and not isinstance(child, (ast.JoinedStr, ast.expr_context)) and not _literals(child):
            yield from _walk(child, (*at, place))


# ---------------------------------------------------------------------------------------------------- making the list


def mutations(unit: Unit, tree: Tree) -> Iterator[tuple[str, At, str]]:
    """Yield operator, place and new source of every change to a statement."""
    for at, node in _walk(unit.header):
        for operator, changed in _changes(node, unit, at, tree):
            yield operator, at, _unparse(changed)
        tests = [node.test] if isinstance(node, (ast.If, ast.While, ast.IfExp)) else getattr(node, "ifs", [])
        for place, child in enumerate(ast.iter_child_nodes(node)):
            if any(child is test for test in tests):
                is_not = isinstance(child, ast.UnaryOp) and isinstance(child.op, ast.Not)
                negated = child.operand if is_not else ast.UnaryOp(ast.Not(), child)  # type: ignore
                yield "negated condition", (*at, place), _unparse(negated)


def _changes(node: ast.AST, unit: Unit, at: At, tree: Tree) -> Iterator[tuple[str, ast.AST]]:
    whole, parent = unit.header, _descend(unit.header, at[:-1])
    is_default = unit.text.startswith("default: ") or (
        isinstance(parent, ast.Call) and ast.unparse(parent.func) == "setting" and node in parent.args[:1]
    )
    if isinstance(node, ast.Compare):
        for place, usual in enumerate(node.ops):
            changed = copy.copy(node)
            changed.ops = [*node.ops[:place], COMPARISONS[type(usual)](), *node.ops[place + 1 :]]
            yield "comparison", changed
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        sides = (node.left, node.right)
        texts = any(isinstance(one, COLLECTIONS) or isinstance(getattr(one, "value", 0), str) for one in sides)
        if not texts and not (isinstance(node.op, ast.Div) and PATHS.search(ast.unparse(node.left))):
            yield "arithmetic", ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC and not isinstance(node.value, COLLECTIONS):
        yield "arithmetic", ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value)
    elif isinstance(node, ast.BoolOp):
        yield "and or", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        value = node.value
        new = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else 2 * value or 1.0
        yield "default" if is_default else "constant", ast.Constant(new)
    elif isinstance(node, ast.Constant) and is_default and node.value in unit.choices:
        yield "default", ast.Constant(unit.choices[unit.choices.index(node.value) - 1])
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        called = isinstance(parent, ast.Call) and parent.func is node
        if not called and ast.unparse(node.value).rpartition(".")[2] in SETTINGS:
            others = {
                other
                for other in _read_beside(node, tree.parsed[unit.path])
                if tree.kinds[other] & tree.kinds[node.attr]
            }
            yield from (("swapped field", ast.Attribute(node.value, other, ast.Load())) for other in sorted(others))
    if node is whole and (isinstance(node, ast.AugAssign) or isinstance(getattr(node, "value", 0), ast.Call)):
        told = len(list(_walk(node.value))) == 1  # type: ignore[attr-defined]
        if isinstance(node, (ast.Expr, ast.AugAssign)) and not told:
            yield "removed statement", ast.Pass()
    if at and isinstance(parent, ast.Return) and not (isinstance(node, ast.Constant) and node.value is None):
        yield "returned None", ast.Constant(None)


def _read_beside(node: ast.Attribute, module: ast.AST) -> set[str]:
    """Return the other fields that a module reads of the same object."""
    owner = ast.unparse(node.value)
    read = [
        other for other in ast.walk(module) if isinstance(other, ast.Attribute) and ast.unparse(other.value) == owner
    ]
    return {other.attr for other in read} - {node.attr}


def make(tree: Tree) -> list[Mutant]:
    """Draw statements of every room by its share of them, and a change of each: first its operator, then its place."""
    draw, rows = random.Random(SEED), []
    found: dict[str, list[tuple[Unit, list[tuple[str, At, str]]]]] = {}
    for room, paths in ROOMS.items():
        prefixes = tuple(f"selfsent/{path}" for path in paths.split())
        units = [(unit, list(mutations(unit, tree))) for unit in tree.units if unit.path.startswith(prefixes)]
        found[room] = [(unit, changes) for unit, changes in units if changes]
    small = [room for room, units in found.items() if COUNT * len(units) < LEAST * sum(map(len, found.values()))]
    large = {room: len(units) for room, units in found.items() if room not in small}
    left = COUNT - LEAST * len(small)
    ends = [round(left * sum(list(large.values())[:place]) / sum(large.values())) for place in range(len(large) + 1)]
    counts = dict.fromkeys(small, LEAST) | {room: b - a for room, a, b in zip(large, ends, ends[1:], strict=False)}
    for room, count in ((room, counts[room]) for room in ROOMS):
        made = 0
        for unit, changes in draw.sample(found[room], len(found[room])):
            kind = draw.choice(sorted({operator for operator, _, _ in changes}))
            operator, at, new = draw.choice([change for change in changes if change[0] == kind])
            if made < count and not (kind == "returned None" and draw.random() < RARER):
                made += 1
                rows.append(_row(f"{room}-{made:02}", room, tree, unit, operator, at, new))
        print(f"{room:<12}{len(found[room]):>6} statements{count:>5} mutants")
    for name, path, function, part, old, new in HAND:
        inside = [unit for unit in tree.units if (unit.path, unit.function) == (f"selfsent/{path}.py", function)]
        unit = next(unit for unit in inside if part in unit.text and old in unit.text)
        at = next(at for at, node in _walk(unit.header) if _unparse(node) == old)
        room = "evaluation" if path.startswith("evaluation") else "objectives"
        rows.append(_row(f"hand/{name}", room, tree, unit, "by hand", at, new))
    return rows


def _row(name: str, room: str, tree: Tree, unit: Unit, operator: str, at: At, new: str) -> Mutant:
    equal = [one for one in tree.units if (one.path, one.function, one.text) == (unit.path, unit.function, unit.text)]
    place = next(place for place, one in enumerate(equal) if one is unit)
    place_of = {"path": unit.path, "function": unit.function, "line": _descend(unit.header, at).lineno}  # type: ignore[attr-defined]
    known = {"statement": unit.text, "blank": unit.blank, "occurrence": [place, len(equal)], "at": list(at)}
    old = _unparse(_descend(unit.header, at))
    return {"id": name, "room": room, "operator": operator, **place_of, **known, "old": old, "new": new}


# ----------------------------------------------------------------------------------------------- finding a mutant again


def locate(mutant: Mutant, tree: Tree, moved: Mapping[str, str]) -> tuple[Unit, At, str, str] | None:
    """Return statement, place, new source, and how it was found; None where it is gone."""
    whole = f"{mutant['path']}::{mutant['function']}"
    path, _, function = moved.get(
        whole, f"{moved.get(mutant['path'], mutant['path'])}::{mutant['function']}"
    ).partition("::")
    last = function.rpartition(".")[2]
    nearer: list[tuple[str, Callable[[Unit], bool]]] = [
        ("its function", lambda unit: (unit.path, unit.function) == (path, function)),
        ("its function elsewhere", lambda unit: unit.function == function),
        ("a function of its name", lambda unit: unit.function.rpartition(".")[2] == last),
        ("the package", lambda unit: True),
    ]
    place, count = mutant["occurrence"]
    for key, how in (("statement", "in "), ("blank", "with other names in ")):
        same = [unit for unit in tree.units if (unit.text if key == "statement" else unit.blank) == mutant[key]]
        for where, near in nearer:
            hits = [unit for unit in same if near(unit)]
            if len(hits) == 1 or (len(hits) == count and len({(unit.path, unit.function) for unit in hits}) == 1):
                unit = hits[min(place, len(hits) - 1)]
                return unit, tuple(mutant["at"]), _renamed(mutant, unit), how + where
    statement = _parse(mutant["statement"])
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


def mentions(unit: Unit, tree: Tree) -> list[Unit]:
    """Return the statements of functions that mention what a statement of a module or class gives a value to."""
    targets = [
        name.id
        for target in getattr(unit.header, "targets", [])
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    ]
    inside = [other for other in tree.units if not other.runs_at_import and any(name in other.text for name in targets)]
    return [
        other
        for other in inside
        if {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(other.header)} & set(targets)
    ]
