"""selfsent pretrain: raw text in, a new encoder out."""

from pathlib import Path
from typing import Annotated

import typer


def pretrain(
    corpus: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CORPUS]...", help="Files, folders or hub names of raw text, or pydocs"),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            help="static (word vectors, minutes), or a masked LM: nano, micro, mini, small  \\[default: mini]"
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(help="Go on with a masked LM that exists: a folder, a name on the hub, or 'builtin'"),
    ] = None,
    vocabulary: Annotated[
        int | None, typer.Option(help="Word pieces  \\[default: 16,384, or as many as the text gives]")
    ] = None,
    hours: Annotated[float | None, typer.Option(help="Fit the training into so much time")] = None,
    tokens: Annotated[
        float | None, typer.Option(help="Train on so many word pieces  \\[default: one pass over the text]")
    ] = None,
    vectors: Annotated[
        Path | None, typer.Option(help="With --size static: a text file of word vectors (GloVe, fastText, word2vec)")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder  \\[default: runs/pretrain-SIZE]")] = None,
    seed: Annotated[int, typer.Option(help="Decides every random choice")] = 42,
    data: Annotated[
        Path | None, typer.Option(help="Evaluation data in SentEval's layout, or hub, to follow STS-B dev with")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting: learning_rate=5e-4")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
) -> None:
    """Train an encoder from scratch, for a language or domain that has none; or, with --base, further on your text.

    What comes out opens with SentenceTransformer and, but for static vectors, with AutoModelForMaskedLM; it is a base
    for selfsent train.

    Settings for --set: length, batch_size, learning_rate, objective.*, factors.*, corpus.* ...
    """
    from selfsent.cli.display import Display
    from selfsent.errors import UserError

    display = Display()
    display.opening("loading torch and transformers")
    from selfsent.pretraining import train
    from selfsent.pretraining.static_vectors import StaticConfig, build_static_vectors, read_word_vectors

    sources = corpus or ["pydocs"]
    folder = out or Path("runs") / f"pretrain-{size or ('on' if base else train.SIZE)}"
    if size == "static":
        for name, value in (
            ("base", base),
            ("hours", hours),
            ("tokens", tokens),
            ("data", data),
            ("resume", resume or None),
        ):
            if value is not None:
                raise UserError(f"--{name} does not fit --size static, which takes minutes and one pass: leave it out")
        if vectors is not None:
            if corpus or vocabulary or set_:
                raise UserError("--vectors brings its own words: leave CORPUS, --vocabulary and --set out")
            model = read_word_vectors(vectors, folder, progress=display)
        else:
            model = build_static_vectors(
                sources,
                folder,
                train.pretrain_settings(StaticConfig, set_, vocabulary=vocabulary, seed=seed),
                progress=display,
            )
        display.print(f"model: {model}   opens with SentenceTransformer({str(model)!r})")
        return
    if vectors is not None:
        raise UserError("--vectors is for --size static: add it, or leave --vectors out")
    asked = train.pretrain_settings(
        train.PretrainConfig, set_, size=size, base=base, vocabulary=vocabulary, hours=hours, tokens=tokens, seed=seed
    )
    result = train.pretrain_masked_lm(sources, folder, asked, data=data, resume=resume, progress=display)
    if result.scores:
        display.print("  ".join(f"{name} {value:.2f}" for name, value in result.scores.items()))
    display.print(
        f"{result.steps:,} steps, {result.tokens / 1e6:,.1f} M word pieces, {result.tokens_per_second:,.0f} a second"
        + (f", {result.share:.0%} of this machine's ceiling" if result.share else "")
    )
    display.print(f"model: {result.model}   opens with SentenceTransformer({str(result.model)!r})")
