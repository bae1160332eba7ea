"""selfsent train: train a sentence encoder from raw text."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfsent.cli.completion import complete_recipe, complete_setting, complete_words

if TYPE_CHECKING:
    from selfsent.cli.display import Display


def train(
    method: Annotated[
        str,
        typer.Argument(
            metavar="METHOD|RECIPE",
            autocompletion=complete_recipe,
            help="A method or preset (selfsent methods), or several joined by +; or a recipe, as a .toml file or "
            "by the name of one that comes with the package",
        ),
    ],
    base: Annotated[str | None, typer.Option(help="A folder, or a name on the hub  \\[default: builtin]")] = None,
    corpus: Annotated[
        list[str] | None, typer.Option(help="A file, folder or hub name; may be repeated  \\[default: pydocs]")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder  \\[default: runs/METHOD]")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random number  \\[default: 42]")] = None,
    data: Annotated[Path | None, typer.Option(help="Evaluation data in SentEval's layout, or hub")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", autocompletion=complete_setting, metavar="KEY=VALUE", help="Change a recipe key: train.steps=500"
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Train with so many seeds, in OUT/seed-42 and so on")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --out")] = False,
    tracker: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_words("tensorboard", "wandb", "mlflow"),
            help="Also send losses and scores to tensorboard, wandb or mlflow",
        ),
    ] = None,
) -> None:
    """Train a sentence encoder from raw text.

    Every key of a recipe can be changed with --set; `selfsent settings` lists them.
    """
    from selfsent.cli.display import Display
    from selfsent.cli.methods import require_methods
    from selfsent.config import is_recipe
    from selfsent.runtime.imports import loading

    if tracker is not None:
        from selfsent.training.tracking import require_tracker

        require_tracker(tracker)
    if not is_recipe(method):
        require_methods(method)  # a mistyped name is refused before torch is loaded
    display = Display()
    if seeds != 1:
        _train_seeds(display, method, seeds, base, corpus, out, seed, data, set_ or [], resume, tracker)
        return
    with loading("torch and transformers", display):
        from selfsent.cli.tables import results_table
        from selfsent.evaluation.label_free.differences import BASELINES
        from selfsent.training.train import train

    result = train(
        method,
        base=base,
        corpus=corpus or None,
        out=out,
        seed=seed,
        data=data,
        settings=set_ or (),
        resume=resume,
        tracker=tracker,
        progress=display,
    )
    beside = {BASELINES[name]: scores for name, scores in result.baselines.items()}
    display.print(results_table({"base encoder": result.before, "trained encoder": result.after}, beside))
    display.print(f"\n{result.verdict}", style="bold")
    outcome = result.outcome
    display.print(
        f"weights of step {outcome.best_step:,} of {outcome.steps:,}, selected by {outcome.selected_by}; "
        f"{outcome.texts_per_second:,.0f} texts/s while training"
    )
    display.print(f"model: {result.model}   opens with SentenceTransformer({str(result.model)!r})")


def _train_seeds(
    display: "Display",
    method: str,
    seeds: int,
    base: str | None,
    corpus: list[str] | None,
    out: Path | None,
    seed: int | None,
    data: Path | None,
    settings: list[str],
    resume: bool,
    tracker: str | None,
) -> None:
    """Train several seeds, and print their scores, mean and deviation, and the verdict over them."""
    import numpy as np

    from selfsent.runtime.imports import loading

    with loading("torch and transformers", display):
        from selfsent.cli.tables import text_table
        from selfsent.training.seeds import train_seeds

    result = train_seeds(
        method,
        seeds=seeds,
        base=base,
        corpus=corpus or None,
        out=out,
        seed=seed,
        data=data,
        settings=settings,
        resume=resume,
        tracker=tracker,
        progress=display,
    )
    columns = [[getattr(run, name) for run in result.runs] for name in ("dev", "before", "test")]
    rows = [[str(run.seed), *(_points(column[place]) for column in columns)] for place, run in enumerate(result.runs)]
    for name, measure in (("mean", np.mean), ("deviation", lambda column: np.std(column, ddof=1))):
        rows.append([name, *("" if None in column else _points(float(measure(column))) for column in columns)])
    metric = result.runs[0].metric or "test"
    display.print(
        text_table(["seed", f"dev {result.runs[0].selected_by}", f"base {metric}", f"trained {metric}"], rows)
    )
    display.print(f"\n{result.verdict}", style="bold")
    display.print(f"models: {result.folder}/seed-*/model")


def _points(score: float | None) -> str:
    return "" if score is None else f"{score:.2f}"
