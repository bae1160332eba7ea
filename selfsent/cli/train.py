"""selfsent train: train a sentence encoder from raw text."""

from pathlib import Path
from typing import Annotated

import typer


def train(
    method: Annotated[
        str,
        typer.Argument(
            metavar="METHOD|RECIPE",
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
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a recipe key: train.steps=500")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --out")] = False,
) -> None:
    """Train a sentence encoder from raw text.

    Every key of a recipe can be changed with --set; `selfsent settings` lists them.
    """
    from selfsent.cli.display import Display
    from selfsent.cli.methods import require_methods
    from selfsent.config import is_recipe

    if not is_recipe(method):
        require_methods(method)  # a mistyped name is refused before torch is loaded
    display = Display()
    display.opening("loading torch and transformers")
    from selfsent import api
    from selfsent.cli.tables import results_table
    from selfsent.evaluation.labelfree.verdict import BASELINES

    result = api.train(
        method,
        base=base,
        corpus=corpus,
        out=out,
        seed=seed,
        data=data,
        settings=set_ or (),
        resume=resume,
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
