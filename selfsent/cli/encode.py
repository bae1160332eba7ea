"""selfsent encode: write the embeddings of texts to disk."""

from pathlib import Path
from typing import Annotated

import typer

from selfsent.cli.options import (
    Column,
    Engine,
    Model,
    Overwrite,
    Precision,
    Workers,
    open_display,
    require_engine,
    standard_input,
)


def encode(
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Files, folders or data sets, of lines or tables  \\[default: stdin]"),
    ] = None,
    model: Model = "builtin",
    out: Annotated[
        str, typer.Option("--out", "-o", help=".npy, .parquet or .arrow; without a suffix, or a URL: shards")
    ] = "embeddings.npy",
    column: Column = None,
    prompt_name: Annotated[str | None, typer.Option(help="A prompt of the model  \\[default: for documents]")] = None,
    precision: Precision = "auto",
    dtype: Annotated[
        str, typer.Option(help="Of the output: float32, float16, int8, uint8, binary or ubinary")
    ] = "float32",
    ranges: Annotated[Path | None, typer.Option(help="NAME.ranges.npy of a larger output, for int8 and uint8")] = None,
    truncate_dim: Annotated[int | None, typer.Option(help="Keep this many leading dimensions", min=1)] = None,
    overwrite: Overwrite = False,
    part: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Encode the I-th of N parts; other processes run the same with theirs"),
    ] = None,
    engine: Engine = "embedded",
    workers: Workers = None,
) -> object:
    """Encode texts into a matrix of embeddings, one row per text, in their order.

    An empty line is a text, too.  Encoding of files is resumable: after a kill, run the same command again.

    Example: selfsent encode sentences.txt --model runs/scd/model --out sentences.npy
    """
    from selfsent.bulk.encode import encode_to, find_sources
    from selfsent.bulk.outputs import require_output
    from selfsent.bulk.store import Store, parse_part
    from selfsent.encoder.open import open_encoder
    from selfsent.errors import ConfigurationError, Interrupted

    display = open_display()
    require_output(out)
    share = parse_part(part) if part else None
    if share and engine == "ray":
        raise ConfigurationError("--part is for other schedulers: the engine ray shares the work out itself")
    require_engine(engine, workers)
    if text:
        find_sources(text)  # a missing file is refused before the model is loaded
    else:
        display.say("standard input cannot be resumed: give a file if this takes long")
    opened = open_encoder(model, fastest=True, progress=display)
    blocks = None
    if engine == "ray":
        from selfsent.bulk.ray import ray_blocks

        blocks = ray_blocks(model, workers)
    try:
        done = encode_to(
            out,
            opened,
            text or None,
            texts=None if text else standard_input(),
            column=column,
            prompt_name=prompt_name,
            precision=precision,
            dtype=dtype,
            ranges=ranges,
            truncate_dim=truncate_dim,
            overwrite=overwrite,
            part=share,
            engine=blocks,
            progress=display,
        )
    except KeyboardInterrupt:
        display.end()
        rows = Store.of(out).rows()
        again = ": run the same command again to resume" if rows else ""
        raise Interrupted(f"stopped with {rows:,} texts kept{again}") from None
    display.end()
    display.print(str(done))
    return done
