"""selfsent search: find texts by meaning."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def search(
    model: Annotated[str, typer.Argument(help="A folder, a name on the hub, or 'builtin'")],
    corpus: Annotated[str, typer.Argument(help="A file, a folder, or 'pydocs' for the Python documentation here")],
    query: Annotated[str | None, typer.Argument(help="What to look for  \\[default: each line of stdin]")] = None,
    top: Annotated[int, typer.Option(help="How many to show", min=1)] = 5,
    text_column: Annotated[str, typer.Option(help="The column of a table to search")] = "text",
) -> None:
    """Search a corpus by meaning: its texts are encoded once and kept for the next search."""
    from selfsent.cli.display import Display

    display = Display()
    display.opening("loading torch and transformers")
    from selfsent import hardware, semantic_search
    from selfsent.corpus import clean, formats
    from selfsent.errors import ConfigurationError

    if query is not None and not query.strip():
        raise ConfigurationError("the query is empty: say what to look for, or leave it out to be asked")
    hardware.choose_hardware()
    opened = semantic_search.build_index(model, corpus, text_column=text_column, progress=display)
    display.say(f"{len(opened):,} texts {'from the last search' if opened.reused else 'encoded'}")
    asked = formats.OpenFile(Path("standard input"))
    asked.stream = sys.stdin.buffer
    for one in [query] if query is not None else filter(str.strip, asked.lines()):
        for hit in opened.search(one.strip(), top):
            title = f"{clean.one_line(hit.title)}: " if hit.title else ""
            display.print(f"{hit.cosine:.3f}  {title}{hit.text[:300]}")
