"""selfsent settings: what there is to train with, and every key that --set takes."""

from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from selfsent.cli.completion import complete_method
from selfsent.cli.listing import Method, listed_keys, listed_methods, method_listing, require_methods
from selfsent.errors import unknown

if TYPE_CHECKING:
    from selfsent.config import Setting

_SHOWN = 3  # documents of a preview
# The commands whose keys are listed behind their name; what a recipe has in common with them is left out there.
_COMMANDS = ("pretrain", "static", "fit", "index", "mine", "serve", "reproduce")
_SHARED = ("corpus.", "hardware.")


def settings(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="[METHOD|PREFIX]",
            autocompletion=complete_method,
            help="A method or preset, to see its paper and keys; or the beginning of keys, such as corpus.max",
        ),
    ] = "",
    preview: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Print spans that declutr samples from the first documents")
    ] = None,
) -> object:
    """List the methods and every key that --set takes, with its default, unit and meaning; or those of one method.

    The keys of objective.* belong to the method.  Those of selfsent pretrain begin with pretrain. and static. here,
    those of fit, index, serve and reproduce with the command's name, of pairs mine with mine., and are given without.
    """
    methods = listed_methods()
    presets = {preset: name for name, method in methods.items() for preset in method.presets}
    if preview is not None:
        require_methods(topic or "declutr")
        _preview(topic or "declutr", preview)
    elif topic in methods or topic in presets:
        name = presets.get(topic, topic)
        return _show_method(methods[name], listed_keys(name), methods[name].presets.get(topic, {}))
    else:
        every = _every_key()
        chosen = [setting for setting in every if setting.key.startswith(topic)]
        section = topic.partition(".")[0]
        alike = [setting.key for setting in every if setting.key.startswith(f"{section}.")]
        if not chosen and "." in topic and not alike:
            return _show_method(*method_listing(topic))  # a module of the user's own
        if not chosen:
            sections = {setting.key.partition(".")[0] for setting in every}
            raise unknown("method or key", topic, alike or [*methods, *presets, *sections])
        if not topic:
            _list_methods(methods)
        return _table(chosen)
    return None


def _every_key() -> "list[Setting]":
    keys = [*listed_keys("recipe")]
    for command in _COMMANDS:
        own = (setting for setting in listed_keys(command) if not setting.key.startswith(_SHARED))
        keys += [setting._replace(key=f"{command}.{setting.key}") for setting in own]
    return keys


def _list_methods(methods: dict[str, Method]) -> None:
    for name, method in methods.items():
        typer.echo(f"{name:<14}{method.title}")
        if method.presets:
            typer.echo(f"{'':<14}presets: {', '.join(method.presets)}")
    typer.echo("\nselfsent settings METHOD shows one; selfsent train TEXT --method METHOD trains with it.\n")


def _show_method(
    method: Method, keys: "Iterable[Setting]", preset: Mapping[str, object] = MappingProxyType({})
) -> object:
    changes = {key.removeprefix("objective."): value for key, value in preset.items()}
    typer.echo(method.about)
    typer.echo(f"\nKeys, for --set objective.KEY=VALUE{'; * differs in this preset' if changes else ''}:\n")
    listed = _table([setting._replace(default=changes.get(setting.key, setting.default)) for setting in keys], changes)
    for name, changed in method.presets.items():
        typer.echo(f"\npreset {name}: " + ", ".join(f"{key}={value}" for key, value in changed.items()))
    return listed


def _table(keys: "Iterable[Setting]", marked: Container[str] = ()) -> object:
    keys = list(keys)
    width = max((len(setting.key) for setting in keys), default=0)
    for key, default, kind, description in keys:
        typer.echo(f" {'*' if key in marked else ' '} {key:<{width}}  {default!s:<12}  {description}  [{kind}]")
    return {"settings": keys}


def _preview(name: str, corpus: str) -> None:
    """Print the spans that a method samples from the first documents of a corpus that are long enough."""
    import numpy as np

    from selfsent.corpus.prepare import corpus_documents
    from selfsent.corpus.settings import CorpusConfig
    from selfsent.encoder.inspect import tokenizer_of
    from selfsent.encoder.load import load_encoder
    from selfsent.errors import ConfigurationError, CorpusError
    from selfsent.objectives.declutr import DeCLUTR
    from selfsent.objectives.registry import find_method, plan_objective
    from selfsent.progress import printable

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
        typer.echo(printable(f"document {shown}, {len(tokens) - 2:,} tokens{title}"))
        for line in objective.preview(tokens, draw):
            typer.echo(printable(f"  {line}"))
        if shown == _SHOWN:
            return
    if not shown:
        raise CorpusError(f"no document of {corpus} has {least:,} tokens, which {name} needs to sample spans")
