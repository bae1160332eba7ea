"""selfsent verdict: whether training made an encoder better, on text without labels."""

from pathlib import Path
from typing import Annotated

import typer


def verdict(
    base: Annotated[str, typer.Argument(help="The encoder before: 'builtin', a folder, a run, or a name on the hub")],
    trained: Annotated[str, typer.Argument(help="The encoder after; of a run, text that it held out is used")],
    corpus: Annotated[
        list[str] | None,
        typer.Option(
            help="Your text: a file, folder or hub name; may be repeated  \\[default: the documentation here]"
        ),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write everything measured to this file, too.")] = None,
    documents: Annotated[int, typer.Option(help="That tests are made of, at most", min=50)] = 1000,
    static: Annotated[
        bool, typer.Option("--static/--no-static", help="Also score static word vectors of the same text.")
    ] = True,
    language: Annotated[str, typer.Option(help="Whose rules of sentence splitting apply")] = "en",
    bootstrap: Annotated[int, typer.Option(help="Resamples behind each 95 % interval", min=100)] = 1000,
    precision: Annotated[str, typer.Option(help="auto, bf16 or fp32")] = "auto",
) -> None:
    """Say whether training helped, from the structure of your own text: better, worse, or cannot tell."""
    from selfsent.cli.display import Display

    display = Display()
    display.opening("loading torch and transformers")
    from selfsent import label_free_verdict
    from selfsent.cli.tables import verdict_table
    from selfsent.errors import UserError

    said = label_free_verdict.verdict(
        base,
        trained,
        corpus or ["pydocs"],
        documents=documents,
        static=static,
        language=language,
        precision=precision,
        bootstrap=bootstrap,
        progress=display,
    )
    if json is not None:
        import json as writer

        try:
            json.write_text(writer.dumps(said.as_dict(), indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot write {json}: {error.strerror}") from error
    display.print(verdict_table(said))
    for name, why in said.left_out.items():
        display.print(f"left out: {name}, because {why}")
    display.print("")
    for number, sentence in enumerate(said.sentences):
        display.print(sentence, style=None if number else "bold")
