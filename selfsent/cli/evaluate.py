"""selfsent evaluate: score a model, or compare two."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer


def evaluate(
    models: Annotated[
        list[str],
        typer.Argument(help="A folder, a name on the hub, or 'builtin'; for --compare two, with commas between seeds"),
    ],
    tasks: Annotated[
        str,
        typer.Option(
            help="Commas between: sts, stsb, geometry, retrieval, transfer, mr, probing, downstream, banking77 ...; "
            "own files: classification:FILE, clustering:FILE, pairs:FILE, reranking:FILE, retrieval:FOLDER; mteb:NAME"
        ),
    ] = "sts",
    compare: Annotated[
        bool, typer.Option("--compare", help="Compare two models by a paired bootstrap: the first less the second.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(help="A folder in SentEval's layout, or hub: the copies on the hub, where there are any"),
    ] = None,
    corpus: Annotated[list[str] | None, typer.Option(help="For retrieval: documents, part of them searched")] = None,
    json: Annotated[Path | None, typer.Option(help="Also write the scores to this file.")] = None,
    mteb_results: Annotated[Path | None, typer.Option(help="Also write mteb:NAME here, for mteb to read")] = None,
    pooling: Annotated[
        str | None,
        typer.Option(help="cls, mean, first_last, first_last_paper, top2, cls_pooler  \\[default: the model's own]"),
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Tokens read of a text  \\[default: the model's own]", min=4)
    ] = None,
    baselines: Annotated[
        bool, typer.Option("--baselines", help="Add training-free poolings and whitening of the same encoder.")
    ] = False,
    whiten_on: Annotated[
        list[str] | None, typer.Option(help="Fit whitening to the lines of this file instead; may be repeated")
    ] = None,
    classifier: Annotated[
        str, typer.Option(help="For labelled tasks: senteval_full, senteval_fast, senteval_mlp, sklearn")
    ] = "senteval_full",
    stop_on: Annotated[
        Literal["pearson", "spearman"],
        typer.Option(help="Correlation that stops sickr-regression and stsb-regression: pearson, spearman"),
    ] = "pearson",
    bootstrap: Annotated[int, typer.Option(help="Resamples behind each 95 % interval; 0: none", min=0)] = 1000,
    precision: Annotated[str, typer.Option(help="auto, bf16 or fp32")] = "auto",
) -> None:
    """Score a model; every score states its split, aggregation and interval."""
    from selfsent.cli.display import Display
    from selfsent.runtime.imports import loading

    with loading("torch", display := Display()):
        from selfsent.cli.tables import difference_table, results_table
        from selfsent.evaluation import evaluate as scoring
        from selfsent.evaluation.senteval import declutr_averages
        from selfsent.runtime import hardware
        from selfsent.storage import locks

    names = [name.strip() for name in tasks.split(",") if name.strip()]
    _require_fitting(len(models), compare, [baselines, whiten_on, pooling, json, mteb_results, "retrieval" in names])
    how: dict[str, Any] = {"data": data, "classifier": classifier, "stop_on": stop_on, "precision": precision}
    how |= {"bootstrap": bootstrap, "max_length": max_length, "progress": display}
    with locks.reserved(json):
        hardware.choose_hardware()
        if compare:
            one, two = ([seed for seed in model.split(",") if seed] for model in models)
            return display.print(difference_table(models, *scoring.compare(one, two, names, **how)))
        results = scoring.evaluate(
            models[0],
            names,
            corpus=corpus or ["pydocs"],
            pooling=pooling,
            poolings=("cls", "mean", "first_last", "first_last_paper", "top2") if baselines else (),
            whitening=("pca", "zca", "group") if baselines or whiten_on else (),
            whiten_on=whiten_on or (),
            **how | {"mteb_results": mteb_results},
        )
        display.print(results_table(results))
        for name, scored in results.items() if {"downstream", "probing"} & {*names} else ():
            display.print(f"{name}: {declutr_averages.summary(declutr_averages.averages(scored.scores))}")
        if json is not None:  # last: a full disk costs no scores
            scoring.write_scores(json, results, models[0])


def _require_fitting(count: int, compare: bool, of_one: Iterable[object]) -> None:
    """Refuse a number of models, or options of one model, that do not go with ``--compare``."""
    from selfsent.errors import ConfigurationError

    if compare != (count == 2) or count > 2:
        raise ConfigurationError(
            f"{count} model{'s were' if count > 1 else ' was'} given {'with' if compare else 'without'} --compare: "
            "give two with it, or one without"
        )
    if compare and any(of_one):
        raise ConfigurationError(
            "--compare goes without --baselines, --whiten-on, --pooling, --json, --mteb-results and the task retrieval"
        )
