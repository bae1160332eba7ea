"""What a sweep leaves in its folder: sweep.json with everything, sweep.md, sweep.csv, and the picture sweep.png."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from selfsent.evaluation.comparison import Comparison, Decision
from selfsent.evaluation.label_free.held_out_retrieval import guard_held_out
from selfsent.evaluation.significance import LEVEL
from selfsent.report.style import STYLE
from selfsent.storage import atomic
from selfsent.sweeping.trials import TrialState
from selfsent.training.run import RETRIEVAL, Trained

JSON = "sweep.json"
AS_IT_IS = "the recipe as it is"
_DEV, _TEST, _SOFT = "#1f6fb2", "#c2571a", "#666666"
_PANEL = 3.6, 2.8  # inches
_PANELS = 3  # in a row
_VALUES = 8  # of a key, that are drawn with equal distances
_BESIDE = 0.35  # of that distance, over which trials of one value are spread
_DASH = (0, (4, 3))


@dataclass(frozen=True, kw_only=True)
class SweepTrial:
    """One setting of a sweep; scores are means over the seeds, in points."""

    number: int | None  # None: the recipe as it is
    settings: dict[str, str]
    state: TrialState
    reason: str = ""  # why it failed or was pruned
    same_as: int | None = None  # of a repeated one: the earlier trial; None: the recipe as it is
    runs: list[Trained] = field(default_factory=list)  # by seed; empty if it is not complete
    comparison: Comparison | None = None  # with the recipe as it is, corrected for all settings
    p_best: float | None = None  # that it does not differ from the best, corrected for all pairs

    @property
    def dev(self) -> float | None:
        """The score that chooses."""
        return _mean([run.dev for run in self.runs])

    @property
    def test(self) -> float | None:
        """The score that the choice is judged by."""
        return _mean([run.test for run in self.runs])

    @property
    def p_reference(self) -> float | None:
        """The probability of such a difference to the recipe by chance, corrected for all settings."""
        return None if self.comparison is None else self.comparison.p

    @property
    def name(self) -> str:
        """How tables call it."""
        return "recipe" if self.number is None else f"{self.number}"


@dataclass(frozen=True, kw_only=True)
class SweepOutcome:
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


def word_rivals(outcome: SweepOutcome) -> str:
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


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def name_setting(settings: Mapping[str, str]) -> str:
    """Write settings as a reader would call them; floats of a range with four digits."""
    return ", ".join(f"{key}={_short(value)}" for key, value in settings.items()) or AS_IT_IS


def _short(value: str) -> str:
    try:
        return f"{float(value):.4g}" if len(value) > 8 else value
    except ValueError:
        return value


def table_rows(outcome: SweepOutcome) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of the table for people: the best dev score first, what did not end last."""
    short = {key: key.rpartition(".")[2] for key in outcome.keys}
    names = [short[key] if [*short.values()].count(short[key]) == 1 else key for key in outcome.keys]
    heads = ["trial", *names, f"dev {outcome.selected_by}", f"test {outcome.metric}", "to the recipe", "p"]
    order = sorted(outcome.trials, key=lambda trial: -np.inf if trial.dev is None else trial.dev, reverse=True)
    rows = []
    for trial in order:
        cells = [_short(trial.settings.get(key, "as it is")) for key in outcome.keys]
        if trial.state == "complete":
            scores = [_spread([run.dev for run in trial.runs]), _spread([run.test for run in trial.runs])]
            p = "" if trial.p_reference is None else f"{trial.p_reference:.2g}"
            rows.append([trial.name, *cells, *scores, "" if trial.number is None else _difference(trial.comparison), p])
        elif trial.state == "repeated":
            same = "the recipe" if trial.same_as is None else f"trial {trial.same_as}"
            rows.append([trial.name, *cells, f"as {same}", "", "", ""])
        else:
            rows.append([trial.name, *cells, trial.state, "", "", ""])
    return heads, rows


def _spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return ""
    return f"{np.mean(known):.2f}" + (f" ± {np.std(known, ddof=1):.2f}" if len(known) > 1 else "")


def _difference(comparison: Comparison | None) -> str:
    return "" if comparison is None else comparison.cell


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
    lines = [f"# Sweep of {', '.join(outcome.keys)}", "", outcome.decision, *filter(None, [word_rivals(outcome)]), ""]
    lines += [_markdown(cells) for cells in (heads, ["---"] * len(heads), *rows)]
    notes = [f"- trial {trial.name} {trial.state}: {trial.reason}" for trial in outcome.trials if trial.reason]
    lines += ["", explain_table(outcome), *(["", *notes] if notes else []), "", "![scores](sweep.png)"]
    atomic.write_text(outcome.folder / "sweep.md", "\n".join(lines) + "\n")
    atomic.write_text(outcome.folder / "sweep.csv", _csv(outcome))
    with atomic.replacing(outcome.folder / "sweep.png") as partial:
        draw_sweep(outcome).savefig(partial, format="png", dpi=150, metadata={"Software": None})
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
        content = asdict(replace(trial, runs=[])) | {"dev": trial.dev, "test": trial.test}
        content["runs"] = [
            {"seed": run.seed, "dev": run.dev, "before": run.base_test, "test": run.test} for run in trial.runs
        ]
        trials.append(content)
    return {
        "decision": outcome.decision,
        "finding": outcome.finding,
        "best": {"number": outcome.best.number, "settings": outcome.best.settings},
        "selected_by": outcome.selected_by,
        "metric": outcome.metric,
        "trials": trials,
    }


def draw_sweep(outcome: SweepOutcome) -> Figure:
    """Draw dev and test score against each swept key: a point and its deviation over the seeds for each trial."""
    columns = min(_PANELS, len(outcome.keys))
    lines = -(-len(outcome.keys) // columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * lines + 0.3), layout="constrained")
        panels = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
        for place, axes in enumerate(panels):
            if place < len(outcome.keys):
                _draw_key(axes, outcome, outcome.keys[place])
            else:
                axes.set_axis_off()
        panels[0].set_ylabel("points")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def _draw_key(axes: Axes, outcome: SweepOutcome, key: str) -> None:
    """Draw the trials against one key: a few values with equal distances, many on a scale."""
    runs = {trial.number: trial.runs for trial in outcome.trials}
    done = [
        (trial.settings[key], trial.runs or (runs.get(trial.same_as, []) if trial.state == "repeated" else []))
        for trial in outcome.trials[1:]
    ]
    done = [(value, of_trial) for value, of_trial in done if of_trial]
    known = list(dict.fromkeys(value for value, _ in done))
    on_scale = len(known) > _VALUES and _number(known) is not None
    if on_scale:
        places = [float(value) for value, _ in done]
        if min(places) > 0 and max(places) / min(places) >= 20:
            axes.set_xscale("log")
    else:
        if _number(known) is not None:
            known.sort(key=float)
        axes.set_xticks(range(len(known)), known)
        axes.set_xlim(-0.5, len(known) - 0.5)
        # Trials of one value stand beside each other: their dev scores left of it, their test scores right of it.
        seen = [[value for value, _ in done[:place]].count(value) for place, (value, _) in enumerate(done)]
        places = [
            known.index(value) + _BESIDE * (nth + 0.5) / (max(seen) + 1)
            for (value, _), nth in zip(done, seen, strict=True)
        ]
    for part, colour, marker, aside in (("dev", _DEV, "o", -_BESIDE), ("test", _TEST, "s", 0.0)):
        shift = 0.0 if on_scale else aside
        shown = [
            (x + shift, [getattr(run, part) for run in of_trial]) for x, (_, of_trial) in zip(places, done, strict=True)
        ]
        shown = [(x, scores) for x, scores in shown if None not in scores]
        means = [float(np.mean(scores)) for _, scores in shown]
        spread = [float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0 for _, scores in shown]
        axes.errorbar(
            [x for x, _ in shown], means, spread, fmt=marker, color=colour, markersize=4, capsize=2, label=part
        )
        recipe = getattr(outcome.trials[0], part)
        if recipe is not None:
            axes.axhline(recipe, color=colour, linewidth=1, linestyle=_DASH)
    axes.plot([], [], color=_SOFT, linewidth=1, linestyle=_DASH, label=AS_IT_IS)
    axes.set_xlabel(key)


def _number(values: Sequence[str]) -> list[float] | None:
    try:
        return [float(value) for value in values]
    except ValueError:
        return None
