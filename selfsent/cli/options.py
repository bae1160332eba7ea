"""Arguments and options that several commands share, each declared once."""

import inspect
import json as reader
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from selfsent.cli.completion import complete_recipe, complete_setting
from selfsent.runtime.launch import launched_number
from selfsent.runtime.printed import plain

if TYPE_CHECKING:
    from selfsent.cli.display import Display

_TEXT = "Files, folders or hub names of data sets, or 'pydocs', the Python documentation"
Texts = Annotated[list[str] | None, typer.Argument(metavar="TEXT", help=f"{_TEXT}  \\[default: pydocs]")]
SomeTexts = Annotated[list[str], typer.Argument(metavar="TEXT", help=_TEXT)]
Corpus = Annotated[list[str] | None, typer.Option(help="A file, folder or hub name; may be repeated")]

_MODEL = "A folder, the folder of a run, a name on the hub, or 'builtin'"
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help=_MODEL)]
Model = Annotated[str, typer.Option(help=_MODEL)]
Base = Annotated[str | None, typer.Option(help="A folder, or a name on the hub  \\[default: builtin]")]
Method = Annotated[
    str,
    typer.Option(
        metavar="METHOD|RECIPE",
        autocompletion=complete_recipe,
        help="A method or preset (selfsent settings), or several joined by +; or a recipe, as a .toml file or by the "
        "name of one that comes with the package, which names its own text",
    ),
]

Column = Annotated[
    str | None, typer.Option(help="The column of a table that holds the text  \\[default: text, or the longest prose]")
]
IdColumn = Annotated[str, typer.Option(help="The column by which hits name their texts, where there is one")]
Language = Annotated[str, typer.Option(help="Language of the sentence-splitting rules")]
Split = Annotated[
    Literal["auto", "yes", "no"], typer.Option(help="Into sentences; auto: rows of tables yes, lines of .txt no")
]
Documents = Annotated[int, typer.Option(help="Maximum number of documents for the verdict", min=50)]

Data = Annotated[
    Path | None, typer.Option(help="For sts and other labelled tasks: a folder in SentEval's layout, or hub")
]
Classifier = Annotated[
    str, typer.Option(help="For labelled tasks: senteval_full, senteval_fast, senteval_mlp, sklearn")
]
StopOn = Annotated[
    Literal["pearson", "spearman"],
    typer.Option(help="Correlation that stops sickr-regression and stsb-regression: pearson, spearman"),
]
MaxLength = Annotated[int | None, typer.Option(help="Tokens read of a text  \\[default: the model's own]", min=4)]
Precision = Annotated[str, typer.Option(help="Of the computation: auto, bf16 or fp32")]

PairsFile = Annotated[Path, typer.Option("--out", "-o", help=".parquet or .jsonl file to write")]
MaxTexts = Annotated[int | None, typer.Option(min=1, help="Stop after so many texts  \\[default: all]")]
Scores = Annotated[
    Path | None, typer.Option("--out", "-o", help="Also write the scores to this file; an earlier one is replaced")
]

Seed = Annotated[int | None, typer.Option(help="The first seed of every random draw  \\[default: 42]")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume what is in --out")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an earlier output of this command")]
OverwriteAny = Annotated[bool, typer.Option("--overwrite", help="Replace --out also where it is something else")]
Engine = Annotated[str, typer.Option(help="embedded: this process; ray: workers of a Ray cluster")]
Workers = Annotated[int | None, typer.Option(help="Of the engine ray  \\[default: one a core of the cluster]")]


def settings_option(help: str, metavar: str = "KEY=VALUE") -> Any:  # noqa: ANN401 - typer's
    """Declare ``--set``, which changes a setting of the command and may be repeated."""
    return typer.Option("--set", autocompletion=complete_setting, metavar=metavar, help=f"{help}; may be repeated")


def with_json(command: Callable[..., object]) -> Callable[..., None]:
    """Add ``--json`` to a command: what it returns is printed, and what it prints goes to standard error."""
    option = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object, all else on stderr")]

    @wraps(command)
    def run(*, json: bool, **arguments: object) -> None:
        if not json:
            command(**arguments)
            return
        with redirect_stdout(sys.stderr):
            result = plain(command(**arguments))
        if not launched_number():  # of several processes the first speaks
            typer.echo(reader.dumps(result or {}, allow_nan=False))

    signature = inspect.signature(command)
    added = inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=option)
    vars(run)["__signature__"] = signature.replace(parameters=[*signature.parameters.values(), added])
    run.__annotations__ = {**command.__annotations__, "json": option}
    return run


def open_display() -> "Display":
    """Return the display of a command; rich is imported only then."""
    from selfsent.cli.display import Display

    return Display()


@contextmanager
def loading(what: str) -> Iterator["Display"]:
    """Open the display of a command, and say on it that ``what`` is loaded, which the block imports."""
    from selfsent.runtime import imports

    display = open_display()
    with imports.loading(what, display):
        yield display


def standard_input() -> Iterator[str]:
    """Yield the lines of standard input, without their ends; one that cannot be read is refused by its number."""
    from selfsent.corpus.formats import OpenFile

    stdin = OpenFile(Path("standard input"))
    stdin.stream = sys.stdin.buffer
    return (line.rstrip("\r\n") for line in stdin.lines())


def require_engine(engine: str, workers: int | None) -> None:
    """Refuse an engine that does not exist or cannot run, before anything is loaded.

    Raises:
        ConfigurationError: an unknown engine, Ray that is absent or too old, or workers where there are none.
    """
    from selfsent.errors import ConfigurationError, unknown

    if engine not in ("embedded", "ray"):
        raise unknown("engine", engine, ("embedded", "ray"))
    if engine == "ray":
        from selfsent.bulk.ray import require_ray

        require_ray()
    elif workers is not None:
        raise ConfigurationError("--workers is for --engine ray: one process has no workers")
