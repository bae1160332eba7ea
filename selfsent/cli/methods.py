"""selfsent methods: what there is to train with, and what each leaves open.

Read from the source, not imported: torch takes seconds, and a field's trailing comment is its documentation.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

FOLDER = Path(__file__).parent.parent / "methods"


@dataclass(frozen=True)
class Field:
    """One key of a method's Config."""

    name: str
    kind: str
    default: str
    comment: str


@dataclass(frozen=True)
class Method:
    """A method as its file describes it."""

    name: str
    docstring: str
    fields: list[Field]
    presets: dict[str, dict[str, object]]


def read_method(path: Path) -> Method:
    """Read one method's file."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    tree = ast.parse(source)
    fields: list[Field] = []
    presets: dict[str, dict[str, object]] = {}
    for outer in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for node in outer.body:
            if isinstance(node, ast.ClassDef) and node.name == "Config":
                fields = [_field(item, lines) for item in node.body if isinstance(item, ast.AnnAssign)]
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "presets" and node.value is not None:
                presets = ast.literal_eval(node.value)
    return Method(path.stem, ast.get_docstring(tree) or "", fields, presets)


def _field(node: ast.AnnAssign, lines: list[str]) -> Field:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    comment = lines[node.end_lineno - 1][node.end_col_offset :].strip().removeprefix("#").strip()
    kind = ast.unparse(node.annotation).removeprefix("Literal[").removesuffix("]").replace("'", "")
    default = ast.unparse(node.value) if node.value is not None else ""
    return Field(ast.unparse(node.target), kind, default.strip("'"), comment)


def known_methods() -> dict[str, Method]:
    """Read every method, by its own name and by those of its presets; methods first."""
    found = {path.stem: read_method(path) for path in sorted(FOLDER.glob("[!_]*.py"))}
    return found | {preset: method for method in found.values() for preset in method.presets}


def require_methods(names: str) -> None:
    """Refuse what is neither a method nor a preset, nor looks like a module or a recipe, before torch is loaded.

    Raises:
        UserError: it names the nearest.
    """
    listed = known_methods()
    for name in (part.strip() for part in names.split("+")):
        if "." not in name:
            _find(name, listed)


def _find(name: str, listed: Mapping[str, Method]) -> Method:
    if name not in listed:
        from selfsent.errors import unknown

        raise unknown("method", name, [*listed])
    return listed[name]


def methods(
    name: Annotated[str | None, typer.Argument(help="A method or preset, to see its paper and keys")] = None,
) -> None:
    """List the methods, or show one: its paper, its formulas, and every key with its default."""
    listed = known_methods()
    if name is None:
        for method in (found for key, found in listed.items() if key == found.name):
            typer.echo(f"{method.name:<14}{method.docstring.splitlines()[0]}")
            if method.presets:
                typer.echo(f"{'':<14}presets: {', '.join(method.presets)}")
        typer.echo("\nselfsent methods NAME shows one; selfsent train NAME trains with it.")
        return
    found = _find(name, listed)
    changes = found.presets.get(name, {})
    typer.echo(found.docstring.strip())
    typer.echo(f"\nKeys, to be given as --set objective.KEY=VALUE{f'; preset {name}' if changes else ''}:\n")
    width = max(len(field.name) for field in found.fields) if found.fields else 0
    for field in found.fields:
        value = str(changes.get(field.name, field.default))
        mark = "*" if field.name in changes else " "
        typer.echo(f" {mark} {field.name:<{width}}  {value:<12}  {field.comment}  [{field.kind}]")
    for preset, changed in found.presets.items():
        typer.echo(f"\npreset {preset}: " + (", ".join(f"{k}={v}" for k, v in changed.items()) or "the defaults"))
