"""selfsent methods and selfsent settings: what there is to train with, and every key that --set takes."""

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from selfsent.config import Setting

FOLDER = Path(__file__).parent.parent / "methods"


def _outlines() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return docstring and presets of every method, read from its source: importing torch takes seconds."""
    found = {}
    for path in sorted(FOLDER.glob("[!_]*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        fields = [node for outer in tree.body if isinstance(outer, ast.ClassDef) for node in outer.body]
        presets = [n.value for n in fields if isinstance(n, ast.AnnAssign) and ast.unparse(n.target) == "presets"]
        found[path.stem] = ast.get_docstring(tree) or "", ast.literal_eval(presets[0]) if presets and presets[0] else {}
    return found


def require_methods(names: str) -> None:
    """Refuse what is neither a method, a preset nor a recipe, nor looks like a module, before torch is loaded.

    Raises:
        ConfigurationError: it names the nearest.
    """
    recipes = [path.stem for path in (FOLDER.parent / "recipes").glob("*.toml")]
    if names.endswith(".toml") or names in recipes:
        return
    outlines = _outlines()
    known = [*outlines, *(preset for _, presets in outlines.values() for preset in presets)]
    for name in (part.strip() for part in names.split("+")):
        if "." not in name and name not in known:
            from selfsent.errors import unknown

            raise unknown("method", name, [*known, *recipes])


def methods(
    name: Annotated[str | None, typer.Argument(help="A method or preset, to see its paper and keys")] = None,
) -> None:
    """List the methods, or show one: its paper, its formulas, and every key with its default."""
    outlines = _outlines()
    if name is None:
        for method, (docstring, presets) in outlines.items():
            typer.echo(f"{method:<14}{docstring.splitlines()[0]}")
            if presets:
                typer.echo(f"{'':<14}presets: {', '.join(presets)}")
        typer.echo("\nselfsent methods NAME shows one; selfsent train NAME trains with it.")
        return
    require_methods(name)
    from selfsent.config import describe
    from selfsent.methods import find_method

    method_class, changes = find_method(name)
    docstring, presets = outlines.get(method_class.__module__.rpartition(".")[2], (method_class.__doc__ or "", {}))
    typer.echo(docstring.strip())
    typer.echo(
        f"\nKeys, to be given as --set objective.KEY=VALUE{f'; * differs in preset {name}' if changes else ''}:\n"
    )
    _table([one._replace(default=changes.get(one.key, one.default)) for one in describe(method_class.Config)], changes)
    for preset, changed in presets.items():
        typer.echo(f"\npreset {preset}: " + (", ".join(f"{k}={v}" for k, v in changed.items()) or "the defaults"))


def settings(
    prefix: Annotated[str, typer.Argument(help="Only the keys that begin so, such as train or corpus.max")] = "",
) -> None:
    """List every key of a recipe that --set takes, with its default, unit and meaning.

    The keys of objective.* belong to the method: selfsent methods NAME.  Those of selfsent pretrain begin with
    pretrain. and static. here, and are given without that.
    """
    from selfsent.config import Recipe, describe
    from selfsent.corpus.prepare import CorpusConfig

    keys = [*describe(Recipe), *describe(CorpusConfig, "corpus.")]
    if prefix.startswith(("pretrain", "static")) or not prefix:
        from selfsent.pretraining.static_vectors import StaticConfig
        from selfsent.pretraining.train import PretrainConfig

        for kind, place in ((PretrainConfig, "pretrain."), (StaticConfig, "static.")):
            shared = (f"{place}corpus.", f"{place}hardware.")
            keys += [one for one in describe(kind, place) if not one.key.startswith(shared)]
    chosen = [one for one in keys if one.key.startswith(prefix)]
    if not chosen:
        from selfsent.errors import unknown

        raise unknown("key", prefix, [one.key for one in keys])
    _table(chosen)


def _table(keys: "list[Setting]", marked: Any = ()) -> None:  # noqa: ANN401  keys of a preset
    width = max((len(one.key) for one in keys), default=0)
    for one in keys:
        value = "none" if one.default is None else str(one.default)
        mark = "*" if one.key in marked else " "
        typer.echo(f" {mark} {one.key:<{width}}  {value:<12}  {one.description}  [{one.kind}]")
