"""selfsent evaluate: a model in, named numbers out."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def evaluate(
    model: Annotated[str, typer.Argument(help="A folder, a name on the hub, or 'builtin'")],
    tasks: Annotated[
        str,
        typer.Option(help="Commas between: sts, stsb, geometry, retrieval, transfer, mr, probing, downstream ..."),
    ] = "sts",
    data: Annotated[Path | None, typer.Option(help="Evaluation data in SentEval's layout")] = None,
    corpus: Annotated[
        list[str] | None,
        typer.Option(help="For retrieval: documents whose held-out part is searched; may be repeated"),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the scores to this file, too.")] = None,
    pooling: Annotated[
        str | None, typer.Option(help="cls, mean, first_last, top2, cls_pooler  \\[default: the model's own]")
    ] = None,
    baselines: Annotated[
        bool,
        typer.Option("--baselines", help="Add training-free poolings and whitening of the same encoder."),
    ] = False,
    classifier: Annotated[
        str, typer.Option(help="For labelled tasks: senteval_full, senteval_fast, senteval_mlp, sklearn")
    ] = "senteval_full",
    stop_on: Annotated[
        Literal["pearson", "spearman"],
        typer.Option(help="What stops sickr-regression and stsb-regression: pearson, spearman"),
    ] = "pearson",
    bootstrap: Annotated[int, typer.Option(help="Resamples behind each 95 % interval; 0: none", min=0)] = 1000,
    precision: Annotated[str, typer.Option(help="auto, bf16 or fp32")] = "auto",
) -> None:
    """Score a model; every score says its split, aggregation and interval."""
    from selfsent.cli.display import Display, results_table

    display = Display()
    display.opening("loading torch and transformers")
    from selfsent import api, encoder, hardware
    from selfsent import evaluation as room
    from selfsent.corpus import CorpusConfig, prepare
    from selfsent.evaluation import averages

    asked = [name.strip() for name in tasks.split(",") if name.strip()]
    names = room.resolve(asked)
    hardware.choose()
    opened = encoder.load(model, pooling=pooling)
    held_out = None
    if "retrieval" in names:
        text = prepare(corpus or ["pydocs"], CorpusConfig(), encoder.tokenizer(opened), report=display.report)
        held_out = (text.held_out.test.queries, text.held_out.test.passages)
    results = api.evaluate(
        opened,
        names,
        data=data,
        held_out=held_out,
        poolings=("cls", "mean", "first_last", "top2") if baselines else (),
        whitening=("pca", "zca", "group") if baselines else (),
        classifier=classifier,
        stop_on=stop_on,
        precision=precision,
        bootstrap=bootstrap,
        progress=display.live,
        report=display.say,
        advance=display.report,
    )
    if json is not None:
        api.write_json(json, results, model)
    display.print(results_table(results))
    if {"downstream", "probing"} & {*asked}:
        for name, scored in results.items():
            display.print(f"{name}: {averages.summary(averages.averages(scored.scores))}")
