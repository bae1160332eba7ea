"""selfsent topics: groups of similar texts, named by their words."""

from pathlib import Path
from typing import Annotated

import typer

from selfsent.cli.options import Column, ModelArgument, OverwriteAny, open_display


def topics(
    model: ModelArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A file, a folder, or a data set")],
    topics: Annotated[
        int | None, typer.Option(help="How many  \\[default: the number with the largest silhouette]", min=2)
    ] = None,
    column: Column = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The page; a table of texts and topics, .csv, is written beside it")
    ] = Path("topics.html"),
    overwrite: OverwriteAny = False,
) -> object:
    """Group texts by meaning: one self-contained HTML page, and a table of every text with its topic.

    Example: selfsent topics builtin tickets.jsonl --out topics.html
    """
    from selfsent.labels.topics import topics as group

    display = open_display()
    result = group(model, text, number=topics, column=column, out=out, overwrite=overwrite, progress=display)
    display.print(str(result))
    return result
