"""selfsent evaluate: score a model."""

from pathlib import Path
from typing import Annotated

import typer

from selfsent.cli.options import Classifier, Corpus, Data, MaxLength, ModelArgument, Precision, Scores, StopOn, loading

TASKS = (
    "Commas between: sts, stsb, geometry, retrieval, transfer, mr, probing, downstream, banking77 ...; own files: "
    "classification:FILE, clustering:FILE, pairs:FILE, reranking:FILE, retrieval:FOLDER; mteb:NAME"
)


def evaluate(
    model: ModelArgument,
    tasks: Annotated[str, typer.Option(help=TASKS)] = "sts",
    data: Data = None,
    corpus: Corpus = None,
    out: Scores = None,
    mteb_results: Annotated[Path | None, typer.Option(help="Also write mteb:NAME here, for mteb to read")] = None,
    pooling: Annotated[
        str | None,
        typer.Option(help="cls, mean, first_last, first_last_paper, top2, cls_pooler  \\[default: the model's own]"),
    ] = None,
    max_length: MaxLength = None,
    baselines: Annotated[
        bool, typer.Option("--baselines", help="Add training-free poolings and whitening of the same encoder")
    ] = False,
    whiten_on: Annotated[
        list[str] | None, typer.Option(help="Fit whitening to the lines of this file instead; may be repeated")
    ] = None,
    classifier: Classifier = "senteval_full",
    stop_on: StopOn = "pearson",
    bootstrap: Annotated[
        int, typer.Option(help="Resamples behind each 95 % interval; 0: none", min=0, max=10**6)
    ] = 1000,
    precision: Precision = "auto",
) -> object:
    """Score a model; every score states its split, aggregation and interval.

    The task retrieval searches documents of --corpus, pydocs unless given.  selfsent compare compares two models.
    """
    with loading("torch") as display:
        from selfsent.cli.tables import results_table
        from selfsent.evaluation import evaluate as scoring
        from selfsent.evaluation.senteval import declutr_averages
        from selfsent.runtime import hardware
        from selfsent.storage import locks

    names = split_tasks(tasks)
    with locks.reserved(out, scoring.SCORES_BY):
        hardware.choose_hardware()
        results = scoring.evaluate(
            model,
            names,
            data=data,
            corpus=corpus or ["pydocs"],
            pooling=pooling,
            max_length=max_length,
            poolings=("cls", "mean", "first_last", "first_last_paper", "top2") if baselines else (),
            whitening=("pca", "zca", "group") if baselines or whiten_on else (),
            whiten_on=whiten_on or (),
            classifier=classifier,
            stop_on=stop_on,
            precision=precision,
            bootstrap=bootstrap,
            mteb_results=mteb_results,
            progress=display,
        )
        display.print(results_table(results))
        for name, scored in results.items() if {"downstream", "probing"} & {*names} else ():
            display.print(f"{name}: {declutr_averages.summary(declutr_averages.averages(scored.scores))}")
        if out is not None:  # last: a full disk costs no scores
            scoring.write_scores(out, results, model)
    return results


def split_tasks(tasks: str) -> list[str]:
    """Return the names in a list with commas between."""
    return [name.strip() for name in tasks.split(",") if name.strip()]
