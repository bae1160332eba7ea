"""selfsent fit: the best encoder for a text, chosen without labels."""

from pathlib import Path
from typing import Annotated

import typer

from selfsent.cli.options import Resume, Texts, settings_option


def fit(
    text: Texts = None,
    base: Annotated[
        list[str] | None,
        typer.Option(
            help="An encoder to start from and to beat: a folder, a run, or a hub name; may be repeated  "
            "\\[default: the two that ship]"
        ),
    ] = None,
    purpose: Annotated[
        str | None,
        typer.Option("--for", help="What the encoder is for: search, grouping or both  \\[default: both]"),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Time budget in minutes  \\[default: 10]")] = None,
    out: Annotated[Path, typer.Option(help="The folder of the selection")] = Path("runs/fit"),
    set_: Annotated[list[str] | None, settings_option("Change a setting: steps=500")] = None,
    resume: Resume = False,
) -> None:
    """Find the best encoder for your text: candidates are trained and compared on documents that none has seen.

    The base is kept unless a candidate is surely better.  `selfsent settings fit` lists what --set changes.
    """
    from selfsent.cli.display import Display
    from selfsent.runtime.imports import loading

    display = Display()
    with loading("torch and transformers", display):
        from selfsent.cli.tables import fit_table
        from selfsent.selection.fit import fit as select

    result = select(
        corpus=text or None,
        base=base or (),
        minutes=minutes,
        out=out,
        settings=[*([f"purpose={purpose}"] if purpose else []), *(set_ or ())],
        resume=resume,
        progress=display,
    )
    display.print(fit_table(result))
    display.print("")
    for number, sentence in enumerate(result.sentences):
        display.print(sentence, style=None if number else "bold")
    if not base:
        display.print(
            "No encoder was downloaded.  A public one as the base, such as --base "
            "sentence-transformers/all-MiniLM-L6-v2, usually adds several points on English text."
        )
    display.print(f"model: {result.model}; a page with the figures: {result.page}")
