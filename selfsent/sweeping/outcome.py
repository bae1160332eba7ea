"""What a sweep leaves in its folder: sweep.json with everything, sweep.md, sweep.csv, and the picture sweep.png."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from selfsent.evaluation.comparison import Comparison, Decision
from selfsent.evaluation.label_free.held_out_retrieval import guard_held_out
from selfsent.evaluation.significance import LEVEL
from selfsent.runtime.printed import Printed, Shown
from selfsent.storage import atomic
from selfsent.sweeping.picture import draw_sweep
from selfsent.sweeping.trials import AS_IT_IS, SweepTrial, name_setting, short_value
from selfsent.training.run import RETRIEVAL

JSON = "sweep.json"


@dataclass(frozen=True, kw_only=True, repr=False)
class SweepOutcome(Printed):
    """What a sweep gave: every trial, the recipe as it is first, and what may be concluded."""

    folder: Path
    keys: list[str]
    seeds: int
    selected_by: str  # the dev score
    metric: str  # the test score
    trials: list[SweepTrial]
    best: SweepTrial  # by the dev score
    finding: Literal[Decision, "reference"]  # of the best against the recipe, unless it is the recipe itself
    decision: str

    def shown(self) -> Shown:
        """Return the decision, and every trial."""
        return Shown([self.decision, f"in {self.folder}"], *table_rows(self))


def guard_trial(trial: SweepTrial) -> Comparison | None:
    """Return the comparison of a trial with the recipe, its decision withheld where the test cannot show it."""
    if trial.comparison is None or trial.comparison.task != RETRIEVAL:
        return trial.comparison
    return guard_held_out(trial.comparison, structured=all(run.structured for run in trial.runs))


def describe_decision(best: SweepTrial, comparison: Comparison | None, number: int) -> str:
    """Put the decision into one sentence.

    Args:
        number: of comparisons that p is corrected for.
    """
    name = name_setting(best.settings)
    if best.number is None:
        return f"No setting is better: {AS_IT_IS} has the best dev score itself."
    if comparison is None:
        return f"Cannot tell: {name} has the best dev score, but no test documents could be held out to measure it on."
    what = f"{comparison.task} {comparison.metric} on the held-out test"
    if comparison.p is not None:
        what += f" (p = {comparison.p:.2g}" + (f", corrected for {number} comparisons)" if number > 1 else ")")
    return comparison.sentence(what, (name, AS_IT_IS))


def describe_rivals(outcome: SweepOutcome) -> str:
    """Say how many settings cannot be told from the best; empty where it was not compared."""
    others = [trial for trial in outcome.trials if trial.state == "complete" and trial.number != outcome.best.number]
    compared = [trial.p_best for trial in others if trial.p_best is not None]
    if not compared:
        return ""
    same = sum(p >= LEVEL for p in compared)
    return (
        f"Of the {len(compared)} other settings, the recipe among them, {same} cannot be told from "
        f"{name_setting(outcome.best.settings)} (p corrected for all pairs of settings)."
    )


def table_rows(outcome: SweepOutcome) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of the table for people: the best dev score first, what did not end last."""
    short = {key: key.rpartition(".")[2] for key in outcome.keys}
    names = [short[key] if [*short.values()].count(short[key]) == 1 else key for key in outcome.keys]
    heads = ["trial", *names, f"dev {outcome.selected_by}", f"test {outcome.metric}", "to the recipe", "p"]
    order = sorted(outcome.trials, key=lambda trial: -np.inf if trial.dev is None else trial.dev, reverse=True)
    rows = []
    for trial in order:
        cells = [short_value(trial.settings.get(key, "as it is")) for key in outcome.keys]
        if trial.state == "complete":
            scores = [_spread([run.dev for run in trial.runs]), _spread([run.test for run in trial.runs])]
            p = "" if trial.p_reference is None else f"{trial.p_reference:.2g}"
            difference = "" if trial.number is None or trial.comparison is None else trial.comparison.cell
            rows.append([trial.name, *cells, *scores, difference, p])
        else:
            same = "as the recipe" if trial.same_as is None else f"as trial {trial.same_as}"
            rows.append([trial.name, *cells, same if trial.state == "repeated" else trial.state, "", "", ""])
    return heads, rows


def _spread(values: Sequence[float | None]) -> str:
    scores = [value for value in values if value is not None]
    if len(scores) < len(values) or not scores:
        return ""
    return f"{np.mean(scores):.2f}" + (f" ± {np.std(scores, ddof=1):.2f}" if len(scores) > 1 else "")


def explain_table(outcome: SweepOutcome) -> str:
    """Say what the columns mean."""
    over = "" if outcome.seeds == 1 else f", mean and deviation of {outcome.seeds} seeds"
    return (
        f"Scores in points{over}.  The dev score chooses; the test score, of other held-out texts, is compared with "
        "the recipe as it is: difference, 95 % interval for all settings at once, and p after Holm's correction."
    )


def write_outcome(outcome: SweepOutcome, plan: Mapping[str, object]) -> None:
    """Write the four files, each whole or not at all; sweep.json, which says that the sweep is finished, last."""
    heads, rows = table_rows(outcome)
    said = [outcome.decision, *filter(None, [describe_rivals(outcome)])]
    lines = [f"# Sweep of {', '.join(outcome.keys)}", "", *said, ""]
    lines += [_markdown(cells) for cells in (heads, ["---"] * len(heads), *rows)]
    notes = [f"- trial {trial.name} {trial.state}: {trial.reason}" for trial in outcome.trials if trial.reason]
    lines += ["", explain_table(outcome), *(["", *notes] if notes else []), "", "![scores](sweep.png)"]
    atomic.write_text(outcome.folder / "sweep.md", "\n".join(lines) + "\n")
    atomic.write_text(outcome.folder / "sweep.csv", _csv(outcome))
    with atomic.replacing(outcome.folder / "sweep.png") as partial:
        draw_sweep(outcome.trials, outcome.keys).savefig(partial, format="png", dpi=150, metadata={"Software": None})
    atomic.write_sealed(outcome.folder / JSON, {"plan": plan, "finished": True, **_content(outcome)})


def _markdown(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _csv(outcome: SweepOutcome) -> str:
    """Write one line for each run, and one for each trial without a run."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "state", *outcome.keys, "seed", "dev", "test", "base", "p"])
    for trial in outcome.trials:
        cells = [trial.name, trial.state, *(trial.settings.get(key, "") for key in outcome.keys)]
        for run in trial.runs:
            writer.writerow([*cells, run.seed, run.dev, run.test, run.base_test, trial.p_reference])
        if not trial.runs:
            writer.writerow([*cells, "", "", "", "", ""])
    return text.getvalue()


def _content(outcome: SweepOutcome) -> dict[str, object]:
    """Return what sweep.json holds beside the plan: nothing in it depends on the clock."""
    trials = []
    for trial in outcome.trials:
        runs = [{"seed": run.seed, "dev": run.dev, "before": run.base_test, "test": run.test} for run in trial.runs]
        content = asdict(replace(trial, runs=[])) | {"dev": trial.dev, "test": trial.test, "runs": runs}
        del content["score"]  # the dev score, of a repeated trial that of another
        trials.append(content)
    return {
        "decision": outcome.decision,
        "finding": outcome.finding,
        "best": {"number": outcome.best.number, "settings": outcome.best.settings},
        "selected_by": outcome.selected_by,
        "metric": outcome.metric,
        "trials": trials,
    }
