"""selfsent reproduce: tables and figures of the papers, measured again."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfsent.cli.options import Data, Resume, loading, settings_option

if TYPE_CHECKING:
    from selfsent.cli.display import Display
    from selfsent.reproduction.measure import PlannedArtifact
    from selfsent.reproduction.scale import ReproduceOptions


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TABLE|FIGURE]...", help="Such as scd-table-1; without any, all are listed"),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Measure every one of which something can be measured")] = False,
    scale: Annotated[
        str, typer.Option(help="full (the published recipes) or small (a few steps from one base)")
    ] = "full",
    base: Annotated[
        str | None, typer.Option(help="In place of every base  \\[default: the published ones; small: builtin-mlm]")
    ] = None,
    corpus: Annotated[
        list[str] | None, typer.Option(help="Text of SCD, SimCSE and WhitenedCSE; may be repeated")
    ] = None,
    documents: Annotated[list[str] | None, typer.Option(help="Text of DeCLUTR; may be repeated")] = None,
    pairs: Annotated[
        list[str] | None, typer.Option(help="Text of DenoSent, with a column of positives; may be repeated")
    ] = None,
    nli: Annotated[
        list[str] | None, typer.Option(help="Sentences that the whitening of rows without training fits")
    ] = None,
    data: Data = None,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FOLDER", help="Measure a model as the row NAME, or as a row of its own"),
    ] = None,
    without: Annotated[list[str] | None, typer.Option(metavar="TASK", help="Leave a task out; may be repeated")] = None,
    seeds: Annotated[int, typer.Option(help="Of every training; a conclusion needs 3")] = 1,
    seed: Annotated[int, typer.Option(help="The first seed")] = 42,
    set_: Annotated[list[str] | None, settings_option("Of small scale, such as steps=20")] = None,
    out: Annotated[Path, typer.Option(help="The folder of runs, scores and tables")] = Path("runs/reproduce"),
    resume: Resume = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what each row is, what would be run, and its cost, and stop")
    ] = False,
) -> object:
    """List the tables and figures of the papers, or measure some again and compare them with the published values.

    Each ends in a sentence for every claim of the paper: same direction, opposite, or cannot tell.
    """
    with loading("torch and transformers") as display:
        from selfsent.config import apply_settings, build_config
        from selfsent.errors import ConfigurationError
        from selfsent.reproduction.describe import describe_rows
        from selfsent.reproduction.measure import plan_reproduction, summary_lines
        from selfsent.reproduction.measure import reproduce as measure
        from selfsent.reproduction.scale import ReproduceOptions, SmallScale

    checkpoints = {}
    for written in checkpoint or ():
        name, equals, folder = written.partition("=")
        if not (name and equals and folder):
            raise ConfigurationError(f"--checkpoint {written!r} does not fit: write NAME=FOLDER")
        checkpoints[name] = folder
    options = ReproduceOptions(
        scale=scale,
        small=build_config(SmallScale, apply_settings({}, set_ or ()), ""),
        seeds=seeds,
        first_seed=seed,
        base=base,
        texts={"sentences": corpus or (), "documents": documents or (), "pairs": pairs or (), "nli": nli or ()},
        data=None if data is None else str(data),
        checkpoints=checkpoints,
        left_out=without or (),
    )
    if plan or not (names or all_):
        planned = plan_reproduction(names or (), options, out)
        for artifact in planned if names else ():
            display.print("\n".join([*describe_rows(artifact.plan, options), ""]))
        return _show_plan(planned, options, display)
    outcomes = measure(names or (), options, out, resume=resume, progress=display)
    for line in summary_lines(outcomes):
        display.print(line)
    display.print(f"in {out}: summary.md, and .md, .csv, .json and .png of {len(outcomes)}")
    return {outcome.plan.artifact.id: outcome for outcome in outcomes}


def _show_plan(planned: "Sequence[PlannedArtifact]", options: "ReproduceOptions", display: "Display") -> object:
    """Print state and cost of each, and of all together; return the costs."""
    from selfsent.cli.tables import text_table
    from selfsent.reproduction.cost import H100, Cost, format_bytes, format_hours, plan_cost, time_machine
    from selfsent.reproduction.scale import explain_scale

    display.say("timing this machine")
    cost = plan_cost([artifact.plan for artifact in planned], options.seeds)
    here = {width: time_machine(width) for width in cost.operations}

    def row(name: str, cost: Cost, left: str = "") -> list[str]:
        counts = [f"{cost.trainings}{left}", f"{cost.steps:,}", f"{cost.texts:,}", format_bytes(cost.memory)]
        return [name, *counts, *(format_hours(cost.hours(rate)) for rate in (H100, here))]

    rows = [row(artifact.plan.artifact.id, artifact.cost, f" ({artifact.left} left)") for artifact in planned]
    if len(planned) > 1:
        rows.append(row("together, shared ones once", cost))
    head = ["table or figure", "trainings", "steps", "texts", "memory", "one H100", "this machine"]
    display.print(text_table(head, rows))
    for artifact in planned:
        display.print(f"{artifact.plan.artifact.id}: {artifact.plan.artifact.title}; {artifact.plan.state}")
    display.print(f"\n{explain_scale(options)}")
    timed = ", ".join(f"{rate:.1e} ({width} wide)" for width, rate in here.items())
    display.print(
        f"Hours are estimates of the trainings alone: {H100:.1e} operations a second on an H100 (assumed), "
        f"{timed or 'none'} here (a timed step of two layers).  Memory is the largest training's, beside the program "
        "itself.  Scoring comes on top."
    )
    return {artifact.plan.artifact.id: artifact.cost for artifact in planned}
