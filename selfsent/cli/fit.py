"""selfsent fit: the best encoder for a text, chosen without labels."""

import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfsent.cli.options import Column, Resume, Texts, loading, settings_option

if TYPE_CHECKING:
    from selfsent.cli.display import Display

_ANSWERS = {"1": 1, "2": 2, "=": 0}
_MOST_LETTERS = 600  # of a passage that is shown


def fit(
    text: Texts = None,
    column: Column = None,
    base: Annotated[
        list[str] | None,
        typer.Option(
            help="An encoder to start from and to beat: a folder, a run, or a hub name; may be repeated  "
            "\\[default: the two that ship]"
        ),
    ] = None,
    purpose: Annotated[
        str | None, typer.Option("--for", help="What the encoder is for: search, grouping or both  \\[default: both]")
    ] = None,
    queries: Annotated[
        Path | None, typer.Option(help="Queries as people ask them, one a line, to show and judge what they find")
    ] = None,
    judge: Annotated[
        int, typer.Option(help="Pairs of answers that you are asked to judge; the base is kept if you prefer it", min=0)
    ] = 0,
    dimensions: Annotated[
        int | None, typer.Option(help="Of what is kept, by principal axes  \\[default: all that it has]", min=1)
    ] = None,
    update: Annotated[
        Path | None,
        typer.Option(help="Folder of an earlier selection: what it kept is made again from its text and TEXT together"),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Time budget in minutes  \\[default: 10]")] = None,
    out: Annotated[Path, typer.Option(help="The folder of the selection")] = Path("runs/fit"),
    set_: Annotated[list[str] | None, settings_option("Change a setting: steps=500")] = None,
    resume: Resume = False,
) -> object:
    """Find the best encoder for your text: candidates are made, and compared on documents that none has seen.

    For search, static vectors are put beside the base as two of its figures ask for, unless held-out documents say that
    this is surely worse.  `selfsent settings fit` lists what --set changes.
    """
    with loading("torch and transformers") as display:
        from selfsent.cli.search import search_line
        from selfsent.cli.tables import fit_table
        from selfsent.selection.fit import fit as select

    result = select(
        corpus=text or None,
        column=column,
        base=base or (),
        dimensions=dimensions,
        update=update,
        minutes=minutes,
        out=out,
        queries=queries,
        ask=_asker(display, judge) if judge else None,
        purpose=purpose,  # type: ignore[arg-type]  # another is refused, as a setting is
        settings=set_ or (),
        resume=resume,
        progress=display,
    )
    display.print(fit_table(result))
    display.print("")
    for number, sentence in enumerate(result.sentences):
        display.print(sentence, style=None if number else "bold")
    if not base and not update:
        display.print(
            "No encoder was downloaded.  A public one as the base, such as --base "
            "sentence-transformers/all-MiniLM-L6-v2, usually adds several points on English text."
        )
    display.print(result.places())
    display.print(search_line(result.folder, result.jobs.get("search", result.model)))
    return result


def _asker(display: "Display", most: int) -> Callable[[str, str, str], int | None]:
    """Return what shows a query and two passages in the terminal and reads which of them answers better."""
    numbers = count(1)

    def ask(query: str, first: str, second: str) -> int | None:
        number = next(numbers)
        if number > most:
            return None
        shown = [each if len(each) <= _MOST_LETTERS else f"{each[:_MOST_LETTERS]}…" for each in (first, second)]
        display.say(f"\n{number} of {most}: {query}\n  1: {shown[0]}\n  2: {shown[1]}")
        answer = None
        while answer not in (*_ANSWERS, ""):
            display.say("which answers better? 1, 2, = for neither, Enter to stop")
            answer = sys.stdin.readline().strip()
        return _ANSWERS.get(answer)

    return ask
