"""selfsent classify: labels for texts from a few labelled ones."""

from pathlib import Path
from typing import Annotated

import typer

from selfsent.cli.options import Column, ModelArgument, OverwriteAny, open_display


def classify(
    model: ModelArgument,
    labelled: Annotated[
        Path, typer.Argument(metavar="LABELLED", help="A table with the columns text and label, or a folder of two")
    ],
    texts: Annotated[str | None, typer.Option(help="Texts to label: a file, folder or data set")] = None,
    column: Column = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The classifier, a .joblib file; with --texts their labels, a .csv or .jsonl file"
        ),
    ] = None,
    overwrite: OverwriteAny = False,
) -> object:
    """Train a classifier on the vectors of MODEL, and say by cross-validation how often it is right.

    Logistic regression and k-nearest neighbours are compared; the better one is fitted on all of LABELLED.

    Example: selfsent classify builtin intents.csv --out intents.joblib

    Example: selfsent classify builtin intents.csv --texts tickets.jsonl --out labels.csv
    """
    from selfsent.labels.classify import classify as train

    display = open_display()
    result = train(model, labelled, new=texts, column=column, out=out, overwrite=overwrite, progress=display)
    display.print(str(result))
    return result
