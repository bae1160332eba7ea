"""selfsent sweep: train a recipe under many settings, and say whether one is better than the recipe."""

from pathlib import Path
from typing import Annotated

import typer

from selfsent.cli.completion import complete_recipe, complete_setting


def sweep(
    method: Annotated[
        str,
        typer.Argument(
            metavar="METHOD|RECIPE",
            autocompletion=complete_recipe,
            help="As of selfsent train; or a recipe with a table \\[sweep], such as scd-grid",
        ),
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            autocompletion=complete_setting,
            metavar="KEY=A,B,C",
            help="Values to try: objective.temperature=0.05,0.1; one value changes the recipe",
        ),
    ] = None,
    range_: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="KEY=LOW..HIGH",
            help="Numbers to draw from: train.learning_rate=1e-5..1e-3:log; for random and tpe",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of every setting; a conclusion needs 3")] = 1,
    sampler: Annotated[
        str, typer.Option(help="grid (every combination), random, or tpe (guided by the scores so far)")
    ] = "grid",
    trials: Annotated[int | None, typer.Option(help="Settings to try  \\[default: all of a grid, else 20]")] = None,
    prune: Annotated[bool, typer.Option("--prune", help="Give up settings below the median of the others")] = False,
    base: Annotated[str | None, typer.Option(help="A folder, or a name on the hub  \\[default: builtin]")] = None,
    corpus: Annotated[
        list[str] | None, typer.Option(help="A file, folder or hub name; may be repeated  \\[default: pydocs]")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The sweep's folder  \\[default: runs/METHOD-sweep]")] = None,
    seed: Annotated[int | None, typer.Option(help="The first seed  \\[default: 42]")] = None,
    data: Annotated[Path | None, typer.Option(help="Evaluation data in SentEval's layout, or hub")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the sweep in --out")] = False,
) -> None:
    """Train a recipe under many settings, and say whether the best is better than the recipe.

    The best is chosen by dev scores; the held-out test says whether it is better, corrected for the number of settings.
    """
    from selfsent.cli.display import Display
    from selfsent.cli.methods import require_methods
    from selfsent.config import is_recipe
    from selfsent.runtime.imports import loading

    if not is_recipe(method):
        require_methods(method)  # a mistyped name is refused before torch is loaded
    display = Display()
    with loading("torch and transformers", display):
        from selfsent.cli.tables import text_table
        from selfsent.sweeping import sweep as selection
        from selfsent.sweeping.outcome import explain_table, table_rows, word_rivals

    outcome = selection.sweep(
        method,
        settings=set_ or (),
        ranges=range_ or (),
        seeds=seeds,
        sampler=sampler,
        trials=trials,
        prune=prune,
        corpus=corpus or None,
        base=base,
        out=out,
        seed=seed,
        data=data,
        resume=resume,
        progress=display,
    )
    display.print(text_table(*table_rows(outcome)))
    display.print(explain_table(outcome))
    display.print(f"\n{outcome.decision}", style="bold")
    if rivals := word_rivals(outcome):
        display.print(rivals)
    display.print(f"in {outcome.folder}: sweep.json, sweep.md, sweep.csv, sweep.png, and the runs of every trial")
