"""selfsent export: an encoder for another runtime, judged before it is kept."""

from pathlib import Path
from typing import Annotated

import typer

from selfsent.cli.completion import complete_words
from selfsent.cli.options import Documents, Language, ModelArgument, Overwrite, Precision, loading


def export(
    model: ModelArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            autocompletion=complete_words("onnx", "onnx-int8", "static", "smaller", "whitened"),
            help="onnx, onnx-int8, static, smaller or whitened",
        ),
    ],
    corpus: Annotated[
        list[str] | None, typer.Option(help="Text for the verdict; may be repeated  \\[default: what the run held out]")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder to write  \\[default: exports/NAME-FORMAT]")] = None,
    accept_loss: Annotated[bool, typer.Option("--accept-loss", help="Keep an export that lost by it")] = False,
    overwrite: Overwrite = False,
    documents: Documents = 1000,
    width: Annotated[int, typer.Option(help="Dimensions of static and smaller", min=1)] = 256,
    language: Language = "en",
    column: Annotated[
        str | None, typer.Option(help="Column of tables that holds the text  \\[default: text, or what the run read]")
    ] = None,
    precision: Precision = "auto",
) -> object:
    """Write an encoder as ONNX, with int8 weights, as static vectors, smaller or partly whitened, unless it loses.

    Example: selfsent export runs/tickets --to onnx-int8
    """
    with loading("torch and transformers") as display:
        from selfsent.export.export import export_model

    done = export_model(
        model,
        to,
        corpus=corpus or None,
        out=out,
        accept_loss=accept_loss,
        overwrite=overwrite,
        documents=documents,
        width=width,
        language=language,
        column=column,
        precision=precision,
        progress=display,
    )
    display.end()
    display.print("\n".join(done.shown().sentences))
    return done
