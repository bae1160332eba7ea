"""selfsent search: find texts by meaning."""

import dataclasses
import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfsent.cli.options import Column, IdColumn, open_display, standard_input

if TYPE_CHECKING:
    from selfsent.cli.display import Display
    from selfsent.searching.index import Index


def search(
    text: Annotated[str, typer.Argument(metavar="TEXT|INDEX", help="A file, a folder, 'pydocs', or an index")],
    query: Annotated[str | None, typer.Argument(help="What to look for  \\[default: each line of stdin]")] = None,
    model: Annotated[
        str | None, typer.Option(help="A folder, a name on the hub, or 'builtin'  \\[default: builtin]")
    ] = None,
    top: Annotated[int, typer.Option(help="How many to show", min=1)] = 5,
    column: Column = None,
    id_column: IdColumn = "id",
    mode: Annotated[
        str | None, typer.Option(help="dense (by meaning), bm25 (by words) or hybrid  \\[default: as made or kept]")
    ] = None,
    words: Annotated[
        float | None, typer.Option(help="Weight of words in hybrid, 0 to 1  \\[default: as made or kept]", min=0, max=1)
    ] = None,
    feedback: Annotated[
        int | None,
        typer.Option(help="Texts found first that the query is moved towards  \\[default: as made or kept]", min=0),
    ] = None,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Print every hit as a line of JSON, for programs")] = False,
) -> object:
    """Search a corpus by meaning: its texts are encoded once and kept for the next search.

    Example: selfsent search pydocs "delete a directory" --model runs/demo/model

    Example: selfsent search runs/demo.index "delete a directory"
    """
    from selfsent.errors import ConfigurationError, EncoderError
    from selfsent.searching.search import open_cached
    from selfsent.searching.settings import require_options
    from selfsent.searching.writer import is_index
    from selfsent.text import clean

    display = open_display()
    indexed = is_index(text)
    if indexed and (model, column, id_column) != (None, None, "id"):
        raise ConfigurationError(
            f"--model, --column and --id-column do not fit: {text} is an index, which has its model and its texts"
        )
    if query is not None and not query.strip():
        raise ConfigurationError("the query is empty: say what to look for, or leave it out to be asked")
    require_options(mode, words, feedback)
    if indexed:
        opened = _open_index(text, display)
    else:
        opened = open_cached(model or "builtin", text, column=column, id_column=id_column, progress=display)
        display.say(f"{len(opened):,} texts {'from the last search' if opened.reused else 'encoded'}")
    searches = []
    for line in filter(None, map(str.strip, [query] if query is not None else standard_input())):
        try:
            hits = opened.search(line, top, mode, words=words, feedback=feedback)
        except EncoderError as error:
            if query is not None:
                raise
            display.say(f"warning: {error}")  # the next line may be one that it knows
            continue
        searches.append({"query": line, "hits": hits})
        for rank, hit in enumerate(hits, 1):
            if jsonl:  # not by the display, which would break a long line
                typer.echo(json.dumps({"query": clean.encodable(line), "rank": rank, **dataclasses.asdict(hit)}))
            else:
                display.print(hit.line)
    return {"searches": searches} if query is None else searches[0]


def search_line(folder: Path, model: Path) -> str:
    """Return a command that can be copied and run: it searches the text of a run or a selection with its encoder.

    It looks for the words that the text begins with.
    """
    from selfsent.corpus.prepare import first_texts
    from selfsent.corpus.settings import CorpusConfig
    from selfsent.corpus.sources import at_home
    from selfsent.storage.atomic import read_sealed
    from selfsent.storage.run_folder import PLAN, Run

    if (folder / PLAN).is_file():
        asked = read_sealed(folder / PLAN, "repeat the selection")["asked"]
        sources, reading = asked["sources"], asked["settings"]["corpus"]
    else:
        recipe = Run(folder).config()["recipe"]
        sources, reading = recipe["texts"], recipe["corpus"]
    column, encoding = reading.get("column"), reading.get("encoding")
    texts = first_texts(sources[:1], CorpusConfig(column=column, encoding=encoding), 10)
    words = " ".join(re.findall(r"\w+", " ".join(texts)[:1000])[:8])
    text = str(sources[0]) + f"::{encoding}" * (encoding is not None and at_home(sources[0]).exists())
    named = [] if column is None else ["--column", column]
    return shlex.join(["selfsent", "search", text, words, "--model", str(model), *named])


def _open_index(folder: str, display: "Display") -> "Index":
    from selfsent.searching.index import Index

    opened = Index.open(folder)
    opened.load_encoder(display)
    display.say(opened.describe())
    if changed := opened.corpus_change():
        display.say(f"warning: {changed}")
    return opened
