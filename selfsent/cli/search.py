"""selfsent search: find texts by meaning."""

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from selfsent.cli.display import Display
    from selfsent.searching.index import Found
    from selfsent.searching.search import Hit


def search(
    model: Annotated[str, typer.Argument(help="A folder, a name on the hub, or 'builtin'; or an index, alone")],
    corpus: Annotated[
        str | None, typer.Argument(help="A file, a folder, or 'pydocs'; with an index what to look for")
    ] = None,
    query: Annotated[str | None, typer.Argument(help="What to look for  \\[default: each line of stdin]")] = None,
    top: Annotated[int, typer.Option(help="How many to show", min=1)] = 5,
    text_column: Annotated[str, typer.Option(help="The column of a table to search")] = "text",
    id_column: Annotated[
        str, typer.Option(help="The column by which hits name their texts, where there is one")
    ] = "id",
    mode: Annotated[
        str | None, typer.Option(help="Of an index: dense, bm25 or hybrid  \\[default: as it was made]")
    ] = None,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Print every hit as a line of JSON, for programs")] = False,
) -> None:
    """Search a corpus by meaning: its texts are encoded once and kept for the next search.

    Example: selfsent search runs/demo/model pydocs "delete a directory"

    Example: selfsent search runs/demo.index "delete a directory"
    """
    from selfsent.cli.display import Display

    display = Display()
    from selfsent.corpus import formats
    from selfsent.errors import ConfigurationError, EncoderError
    from selfsent.searching.index import is_index
    from selfsent.text import clean

    indexed = is_index(model)
    if indexed and query is not None:
        raise ConfigurationError(f"{model} is an index, which has its model and corpus: give the query alone")
    if indexed and (text_column, id_column) != ("text", "id"):
        raise ConfigurationError(f"--text-column and --id-column do not fit: {model} is an index, which has its texts")
    if not indexed and (corpus is None or mode is not None):
        missing = "--mode is for an index" if corpus else "no corpus was given"
        raise ConfigurationError(f"{missing}, and {model} is none: selfsent search MODEL CORPUS, or selfsent index")
    asked_for = corpus if indexed else query
    if asked_for is not None and not asked_for.strip():
        raise ConfigurationError("the query is empty: say what to look for, or leave it out to be asked")
    if indexed:
        find = _over_index(model, mode, display)
    else:
        find = _over_corpus(model, str(corpus), text_column, id_column, display)
    asked = formats.OpenFile(Path("standard input"))
    asked.stream = sys.stdin.buffer
    for one in [asked_for] if asked_for is not None else filter(str.strip, asked.lines()):
        try:
            hits = find(one.strip(), top)
        except EncoderError as error:
            if asked_for is not None:
                raise
            display.say(f"warning: {error}")  # the next line may be one that it knows
            continue
        if jsonl:
            for rank, hit in enumerate(hits, 1):
                # not by the display, which would break a long line
                typer.echo(json.dumps({"query": clean.encodable(one.strip()), "rank": rank, **dataclasses.asdict(hit)}))
            continue
        for hit in hits:
            head = " ".join(
                [f"[{clean.one_line(hit.id)}]"] * bool(hit.id) + [f"{clean.one_line(hit.title)}:"] * bool(hit.title)
            )
            ranked_by = getattr(hit, "score", hit.cosine)  # of an index: the cosine, BM25, or the sum of fused ranks
            display.print(f"{ranked_by:.3f}  {head}{' ' * bool(head)}{hit.text}")


def _over_corpus(
    model: str, corpus: str, text_column: str, id_column: str, display: "Display"
) -> "Callable[[str, int], Sequence[Hit | Found]]":
    from selfsent.searching.search import build_index

    opened = build_index(model, corpus, text_column=text_column, id_column=id_column, progress=display)
    display.say(f"{len(opened):,} texts {'from the last search' if opened.reused else 'encoded'}")
    return opened.search


def _over_index(folder: str, mode: str | None, display: "Display") -> "Callable[[str, int], Sequence[Hit | Found]]":
    from typing import get_args

    from selfsent.encoder.open import open_encoder
    from selfsent.errors import unknown
    from selfsent.searching.index import CorpusIndex
    from selfsent.searching.make import corpus_changed
    from selfsent.searching.settings import Mode

    if mode is not None and mode not in get_args(Mode):
        raise unknown("mode", mode, get_args(Mode))
    opened = CorpusIndex(folder)
    encoder = open_encoder(opened.facts["model"], fastest=True, progress=display)
    display.say(opened.describe())
    if changed := corpus_changed(opened):
        display.say(f"warning: {changed}")
    return lambda query, top: opened.search_index(encoder, query, top, mode)
