"""selfsent encode: lines of text in, a matrix of embeddings out."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def encode(
    model: Annotated[str, typer.Argument(help="A folder, a name on the hub, or 'builtin'")],
    source: Annotated[Path | None, typer.Argument(help="A file, a text a line  \\[default: standard input]")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help=".npy file to write, (texts, width)")] = Path(
        "embeddings.npy"
    ),
    precision: Annotated[str, typer.Option(help="auto, bf16 or fp32")] = "auto",
) -> None:
    """Turn lines of text into a matrix of embeddings, one row a line.

    Example: selfsent encode runs/scd/model --output sentences.npy < sentences.txt
    """
    from selfsent.errors import UserError

    try:
        text = sys.stdin.read() if source is None else source.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"there is no file {source}: give one with a text a line") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{source or 'standard input'} is not UTF-8 at byte {error.start}: convert it first") from error
    except OSError as error:
        raise UserError(f"cannot read {source}: {error.strerror}") from error
    lines = text.splitlines()
    if not lines:
        raise UserError(f"nothing to encode: {source or 'standard input'} held no lines")
    if output.suffix != ".npy":
        raise UserError(f"output {output} does not fit: give a name that ends in .npy")

    from selfsent.cli.display import Display

    display = Display()
    display.opening("loading torch and transformers")
    import numpy as np

    from selfsent import encoder, hardware

    hardware.choose()
    embeddings = encoder.encode(encoder.load(model), lines, precision=precision, progress=display.live)
    try:
        np.save(output, embeddings)
    except OSError as error:
        raise UserError(f"cannot write {output}: {error.strerror}") from error
    display.say(f"wrote {output}: {embeddings.shape[0]:,} texts, {embeddings.shape[1]} wide")
