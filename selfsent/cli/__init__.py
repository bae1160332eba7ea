"""The command line, one command per file; heavy modules are imported when a command runs."""

from typing import Annotated

import typer

from selfsent.cli.classify import classify
from selfsent.cli.compare import compare
from selfsent.cli.encode import encode
from selfsent.cli.evaluate import evaluate
from selfsent.cli.export import export
from selfsent.cli.fit import fit
from selfsent.cli.index import index
from selfsent.cli.options import with_json
from selfsent.cli.pairs import app as pairs
from selfsent.cli.pretrain import pretrain
from selfsent.cli.push import push
from selfsent.cli.report import report
from selfsent.cli.reproduce import reproduce
from selfsent.cli.search import search
from selfsent.cli.serve import serve
from selfsent.cli.settings import settings
from selfsent.cli.sweep import sweep
from selfsent.cli.topics import topics
from selfsent.cli.train import train

app = typer.Typer(
    name="selfsent",
    help="Turn raw, unlabelled text into a sentence encoder that you can trust.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    fit,
    train,
    sweep,
    pretrain,
    evaluate,
    compare,
    report,
    reproduce,
    export,
    push,
    encode,
    index,
    search,
    classify,
    topics,
    settings,
):
    app.command()(with_json(command))
app.command()(serve)
app.add_typer(pairs, name="pairs")


def _version(requested: bool | None) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"selfsent {version('selfsent')}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool | None, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = None,
) -> None:
    """Declare the options of ``selfsent`` itself."""
