"""selfsent sweep: train a recipe under many settings, and say whether one is better than the recipe."""

from pathlib import Path
from typing import Annotated

import typer

from selfsent.cli.listing import require_methods
from selfsent.cli.options import Base, Column, Data, Method, Resume, Seed, Texts, loading, settings_option


def sweep(
    method: Method,
    text: Texts = None,
    column: Column = None,
    set_: Annotated[
        list[str] | None,
        settings_option("Values to try: objective.temperature=0.05,0.1; one value changes the recipe", "KEY=A,B,C"),
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
    base: Base = None,
    out: Annotated[Path | None, typer.Option(help="The sweep's folder  \\[default: runs/METHOD-sweep]")] = None,
    seed: Seed = None,
    data: Data = None,
    resume: Resume = False,
) -> object:
    """Train a recipe under many settings, and say whether the best is better than the recipe.

    The best is chosen by dev scores; the held-out test says whether it is better, corrected for the number of settings.
    A recipe with a table of its own, such as scd-grid, names the values to try.

    Example: selfsent sweep tickets.jsonl --method simcse --set objective.temperature=0.05,0.1 --seeds 3
    """
    require_methods(method)
    with loading("torch and transformers") as display:
        from selfsent.cli.tables import text_table
        from selfsent.sweeping import sweep as selection
        from selfsent.sweeping.outcome import describe_rivals, explain_table, table_rows

    outcome = selection.sweep(
        method,
        settings=set_ or (),
        ranges=range_ or (),
        seeds=seeds,
        sampler=sampler,
        trials=trials,
        prune=prune,
        corpus=text or None,
        column=column,
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
    if rivals := describe_rivals(outcome):
        display.print(rivals)
    display.print(f"in {outcome.folder}: sweep.json, sweep.md, sweep.csv, sweep.png, and the runs of every trial")
    return outcome
