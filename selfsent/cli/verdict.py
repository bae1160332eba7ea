"""selfsent verdict: whether training made an encoder better, on text without labels."""

from pathlib import Path
from typing import Annotated

import typer


def verdict(
    base: Annotated[str, typer.Argument(help="The encoder before: 'builtin', a folder, a run, or a name on the hub")],
    trained: Annotated[str, typer.Argument(help="The encoder after; of a run, its held-out documents are used")],
    corpus: Annotated[
        list[str] | None, typer.Option(help="A file, folder or hub name; may be repeated  \\[default: pydocs]")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Also write all scores to this file.")] = None,
    documents: Annotated[int, typer.Option(help="Maximum number of documents for the tests", min=50)] = 1000,
    static: Annotated[bool, typer.Option(help="Also score static word vectors of the same text.")] = True,
    language: Annotated[str, typer.Option(help="Language of the sentence-splitting rules")] = "en",
    text_column: Annotated[str, typer.Option(help="Column of tables that holds the text")] = "text",
    bootstrap: Annotated[int, typer.Option(help="Resamples behind each 95 % interval", min=100)] = 1000,
    precision: Annotated[str, typer.Option(help="auto, bf16 or fp32")] = "auto",
    details: Annotated[bool, typer.Option("--details", help="Also run the tests that enter no score")] = False,
) -> None:
    """Decide by the structure of your own text whether training helped: better, worse, or cannot tell."""
    from selfsent.cli.display import Display
    from selfsent.runtime.imports import loading

    display = Display()
    with loading("torch", display):
        from selfsent.cli.tables import verdict_table
        from selfsent.errors import ConfigurationError
        from selfsent.evaluation.label_free.verdict import verdict
        from selfsent.storage import atomic, locks

    with locks.reserved(json):
        result = verdict(
            base,
            trained,
            corpus or ["pydocs"],
            documents=documents,
            static=static,
            language=language,
            text_column=text_column,
            precision=precision,
            bootstrap=bootstrap,
            details=details,
            progress=display,
        )
        display.print(verdict_table(result))
        for name, why in result.left_out.items():
            display.print(f"left out: {name}, because {why}")
        display.print("")
        for number, sentence in enumerate(result.sentences):
            display.print(sentence, style=None if number else "bold")
        if json is not None:
            try:
                atomic.write_json(json, result.as_dict())
            except OSError as error:
                raise ConfigurationError(f"cannot write {json}: {error.strerror}") from error
