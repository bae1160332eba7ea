"""selfsent methods and selfsent settings: what there is to train with, and every key that --set takes."""

import ast
import sys
from collections.abc import Container, Sequence
from typing import Annotated

import typer

from selfsent.cli.completion import complete_method
from selfsent.config import RECIPES
from selfsent.errors import unknown
from selfsent.objectives import method_files

_SHOWN = 3  # documents of a preview


def method_outlines() -> dict[str, tuple[str, list[str]]]:
    """Return first line and presets of every method, read from its source: importing torch takes seconds."""
    found = {}
    for path in method_files().values():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        fields = [node for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and node.value]
        presets = [node.value for node in fields if ast.unparse(node.target) == "presets"]
        keys = [key for value in presets if isinstance(value, ast.Dict) for key in value.keys]
        names = [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
        found[path.stem] = (ast.get_docstring(tree) or "").partition("\n")[0], names
    return found


def require_methods(names: str) -> None:
    """Refuse what is neither a method nor a preset, nor looks like a module, before torch is loaded."""
    outlines = method_outlines()
    known = [*outlines, *(preset for _, presets in outlines.values() for preset in presets)]
    for name in (part.strip() for part in names.split("+")):
        if "." not in name and name not in known:
            raise unknown("method", name, [*known, *(path.stem for path in RECIPES.glob("*.toml"))])


def methods(
    name: Annotated[
        str | None, typer.Argument(autocompletion=complete_method, help="A method or preset, to see its paper and keys")
    ] = None,
    preview: Annotated[
        str | None, typer.Option(metavar="CORPUS", help="Print spans that declutr samples from the first documents")
    ] = None,
) -> None:
    """List the methods, or show one: its paper, its formulas, and every key with its default."""
    if name is None:
        for method, (title, presets) in method_outlines().items():
            typer.echo(f"{method:<14}{title}")
            if presets:
                typer.echo(f"{'':<14}presets: {', '.join(presets)}")
        typer.echo("\nselfsent methods NAME shows one; selfsent train NAME trains with it.")
        return
    require_methods(name)
    if preview is not None:
        _preview(name, preview)
        return
    from selfsent.config import describe
    from selfsent.objectives.registry import find_method, preset_settings

    method_class, changes = find_method(name)
    typer.echo((sys.modules[method_class.__module__].__doc__ or "").strip())
    typer.echo(f"\nKeys, for --set objective.KEY=VALUE{'; * differs in this preset' if changes else ''}:\n")
    _table([one._replace(default=changes.get(one.key, one.default)) for one in describe(method_class.Config)], changes)
    for preset, changed in method_class.presets.items():
        typer.echo(f"\npreset {preset}: " + ", ".join(f"{k}={v}" for k, v in preset_settings(changed).items()))


def _preview(name: str, corpus: str) -> None:
    """Print the spans that a method samples from the first documents of a corpus that are long enough."""
    import numpy as np

    from selfsent.cli.display import printable
    from selfsent.corpus.prepare import corpus_documents
    from selfsent.corpus.settings import CorpusConfig
    from selfsent.encoder.inspect import tokenizer_of
    from selfsent.encoder.load import load_encoder
    from selfsent.errors import ConfigurationError, CorpusError
    from selfsent.objectives.declutr import DeCLUTR
    from selfsent.objectives.registry import find_method, plan_objective

    if find_method(name)[0] is not DeCLUTR:
        raise ConfigurationError(f"{name} samples no spans: --preview is for declutr")
    encoder = load_encoder("builtin")
    objective = plan_objective(name, {"short_doc": "shrink", "mlm_weight": 0.0}).build(encoder)
    assert isinstance(objective, DeCLUTR)
    least = 2 * objective.config.num_anchors * objective.config.min_length + 2
    shown, draw = 0, np.random.default_rng(0)
    for document in corpus_documents([corpus], CorpusConfig()):
        tokens = tokenizer_of(encoder)(document.text, verbose=False)["input_ids"]
        if len(tokens) < least:
            continue
        shown += 1
        title = f": {document.title}" if document.title else ""
        typer.echo(printable(f"document {shown}, {len(tokens) - 2:,} word pieces{title}"))
        for line in objective.preview(tokens, draw):
            typer.echo(printable(f"  {line}"))
        if shown == _SHOWN:
            return
    if not shown:
        raise CorpusError(f"no document of {corpus} has {least:,} word pieces, which {name} needs to sample spans")


def settings(
    prefix: Annotated[str, typer.Argument(help="Only the keys that begin so, such as train or corpus.max")] = "",
) -> None:
    """List every key of a recipe that --set takes, with its default, unit and meaning.

    The keys of objective.* belong to the method: selfsent methods NAME.  Those of selfsent pretrain begin with
    pretrain. and static. here, those of selfsent fit with fit., of selfsent index with index., of selfsent
    mine with mine. and of selfsent serve with serve., and are given without that.
    """
    from selfsent.config import Recipe, describe
    from selfsent.corpus.settings import CorpusConfig

    keys = [*describe(Recipe), *describe(CorpusConfig, "corpus.")]
    if prefix.startswith(("pretrain", "static")) or not prefix:
        from selfsent.pretraining.pretrain import PretrainConfig
        from selfsent.word_vectors.static_vectors import StaticConfig

        for kind, place in ((PretrainConfig, "pretrain."), (StaticConfig, "static.")):
            shared = (f"{place}corpus.", f"{place}hardware.")
            keys += [one for one in describe(kind, place) if not one.key.startswith(shared)]
    if prefix.startswith("fit") or not prefix:
        from selfsent.selection.settings import FitConfig

        keys += [one for one in describe(FitConfig, "fit.") if not one.key.startswith("fit.corpus.")]
    if prefix.startswith("index") or not prefix:
        from selfsent.searching.settings import IndexConfig

        keys += describe(IndexConfig, "index.")
    if prefix.startswith("mine") or not prefix:
        from selfsent.pairs.mining_settings import MineConfig

        keys += describe(MineConfig, "mine.")
    if prefix.startswith("serve") or not prefix:
        from selfsent.serving.settings import ServeConfig

        keys += describe(ServeConfig, "serve.")
    chosen = [one for one in keys if one.key.startswith(prefix)]
    if not chosen:
        raise unknown("key", prefix, [one.key for one in keys])
    _table(chosen)


def _table(keys: Sequence[tuple[str, object, str, str]], marked: Container[str] = ()) -> None:
    width = max((len(key) for key, *_ in keys), default=0)
    for key, default, kind, description in keys:
        value = "none" if default is None else str(default)
        typer.echo(f" {'*' if key in marked else ' '} {key:<{width}}  {value:<12}  {description}  [{kind}]")
