"""selfsent evaluate: a model in, named numbers out."""

from pathlib import Path
from typing import Annotated, Literal

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
        bool, typer.Option("--compare", help="Say how much the first of two models lies above the second.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(help="A folder in SentEval's layout, or hub: copies of the sets on the hub, as far as there are"),
    ] = None,
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
    from selfsent.cli.display import Display

    display = Display()
    display.opening("loading torch and transformers")
    from selfsent import hardware, scoring
    from selfsent.cli.tables import difference_table, results_table
    from selfsent.corpus.prepare import CorpusConfig, prepare_corpus
    from selfsent.encoder.inspect import tokenizer_of
    from selfsent.encoder.load import load_encoder
    from selfsent.errors import UserError
    from selfsent.evaluation import mteb
    from selfsent.evaluation.senteval import declutr_averages
    from selfsent.evaluation.suite import resolve_tasks

    asked = [name.strip() for name in tasks.split(",") if name.strip()]
    public = [name for name in asked if name.startswith(mteb.PREFIX)]
    names = resolve_tasks([name for name in asked if name not in public]) + public
    if compare != (len(models) == 2) or len(models) > 2:
        raise UserError(
            f"{len(models)} model{'s were' if len(models) > 1 else ' was'} given "
            f"{'with' if compare else 'without'} --compare: give two with it, or one without"
        )
    hardware.choose_hardware()
    if compare:
        if baselines or pooling or json or public or "retrieval" in names:
            raise UserError(
                "--compare goes without --baselines, --pooling, --json and the tasks retrieval and mteb:NAME, "
                "which have no part in it: leave them out"
            )
        one, two = ([seed for seed in model.split(",") if seed] for model in models)
        first, second, differences = scoring.compare(
            one,
            two,
            names,
            data=data,
            classifier=classifier,
            stop_on=stop_on,
            precision=precision,
            bootstrap=bootstrap,
            progress=display,
        )
        display.print(difference_table(models, first, second, differences, display.width))
        return
    (model,) = models
    opened = load_encoder(model, pooling=pooling)
    held_out = None
    if "retrieval" in names:
        text = prepare_corpus(corpus or ["pydocs"], CorpusConfig(), tokenizer_of(opened), progress=display)
        held_out = (text.held_out.test.queries, text.held_out.test.passages)
    results = scoring.evaluate(
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
        progress=display,
    )
    if json is not None:
        scoring.write_scores(json, results, model)
    display.print(results_table(results, display.width))
    if {"downstream", "probing"} & {*asked}:
        for name, scored in results.items():
            display.print(f"{name}: {declutr_averages.summary(declutr_averages.averages(scored.scores))}")
