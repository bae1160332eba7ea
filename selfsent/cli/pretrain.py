"""selfsent pretrain: train a new encoder from raw text."""

from pathlib import Path
from typing import Annotated

import typer

from selfsent.cli.options import Column, Data, Resume, Texts, loading, settings_option


def pretrain(
    text: Texts = None,
    column: Column = None,
    size: Annotated[
        str | None,
        typer.Option(
            help="static (word vectors, minutes), or a masked LM: nano, micro, mini, small, medium  \\[default: mini]"
        ),
    ] = None,
    base: Annotated[
        str | None, typer.Option(help="Continue a masked LM: a folder, a name on the hub, or 'builtin-mlm'")
    ] = None,
    vocabulary: Annotated[
        int | None,
        typer.Option(help="Size of the vocabulary in tokens  \\[default: 16,384, or as many as the text gives]"),
    ] = None,
    hours: Annotated[
        float | None, typer.Option(help="Hours of training, to which the number of steps is fitted")
    ] = None,
    tokens: Annotated[float | None, typer.Option(help="Tokens to train on  \\[default: one epoch]")] = None,
    vectors: Annotated[
        Path | None, typer.Option(help="With --size static: a text file of word vectors (GloVe, fastText, word2vec)")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder  \\[default: runs/pretrain-SIZE]")] = None,
    seed: Annotated[int, typer.Option(help="Of every random draw")] = 42,
    data: Data = None,
    set_: Annotated[list[str] | None, settings_option("Change a setting: learning_rate=5e-4")] = None,
    resume: Resume = False,
) -> object:
    """Train an encoder from scratch, for a language or domain that has none; or, with --base, continue on your text.

    The result opens with SentenceTransformer and, except for static vectors, with AutoModelForMaskedLM; it is a base
    for selfsent train.

    Settings for --set: length, batch_size, learning_rate, objective.*, factors.*, corpus.* ...
    """
    with loading("torch and transformers") as display:
        from selfsent.pretraining.pretrain import pretrain

    result = pretrain(
        text or (),
        out,
        size=size,
        base=base,
        vocabulary=vocabulary,
        hours=hours,
        tokens=tokens,
        vectors=vectors,
        seed=seed,
        data=data,
        column=column,
        settings=set_ or (),
        resume=resume,
        progress=display,
    )
    display.print(str(result))
    return result
