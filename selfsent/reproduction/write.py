"""What a reproduction leaves of a table or figure: Markdown, CSV, JSON and a picture, with the paper's values."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selfsent.reproduction.figures import CurveSet, Sketch, draw_artifact
from selfsent.reproduction.findings import Cell, ClaimFinding, name_measured
from selfsent.reproduction.plan import ArtifactPlan, PlannedRow
from selfsent.runtime.printed import Printed, Shown
from selfsent.storage import atomic

PAPER, OURS = "paper", "here"


@dataclass(frozen=True, kw_only=True, repr=False)
class ArtifactOutcome(Printed):
    """A table or figure, measured."""

    plan: ArtifactPlan
    cells: Mapping[str, Mapping[str, Cell]]  # by the names of row and measure
    findings: Sequence[ClaimFinding]
    curves: Mapping[str, CurveSet]  # by the name of the row
    seeds: int
    scale: str  # how the runs differ from the published ones
    folder: Path
    sketch: Sketch | None = None  # of a figure without scores

    def shown(self) -> Shown:
        """Return what becomes of the paper's claims, and the table."""
        return Shown([self.plan.artifact.title, *(each.sentence for each in self.findings)], *table_lines(self))

    def as_dict(self) -> dict[str, Any]:
        """Return the content of its JSON file."""
        artifact, sketch = self.plan.artifact, self.sketch
        return {
            "id": artifact.id,
            "title": artifact.title,
            "note": artifact.note,
            "scale": self.scale,
            "seeds": self.seeds,
            "tasks": list(self.plan.tasks),
            "missing": self.plan.missing,
            "rows": [_row_content(planned, self.cells.get(planned.row.name, {})) for planned in self.plan.rows],
            "findings": [finding.as_dict() for finding in self.findings],
            "sketch": [dict(zip(sketch.heads, row, strict=True)) for row in sketch.rows] if sketch else [],
            "curves": {name: dict(curves) for name, curves in self.curves.items()},
        }


def write_artifact(outcome: ArtifactOutcome) -> None:
    """Write the four files, each whole or not at all; the JSON last."""
    name = outcome.plan.artifact.id
    atomic.write_text(outcome.folder / f"{name}.md", "\n".join(markdown_lines(outcome)) + "\n")
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(_csv_rows(outcome))
    atomic.write_text(outcome.folder / f"{name}.csv", text.getvalue())
    with atomic.replacing(outcome.folder / f"{name}.png") as partial:
        sketch = outcome.sketch
        figure = sketch.figure if sketch else draw_artifact(outcome.plan, outcome.cells, outcome.curves)
        figure.savefig(partial, format="png", dpi=150, metadata={"Software": None})
    atomic.write_sealed(outcome.folder / f"{name}.json", outcome.as_dict())


def table_lines(outcome: ArtifactOutcome) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows for people: of each row the published values, and below them ours."""
    if outcome.sketch:
        return outcome.sketch.heads, outcome.sketch.rows
    columns = _columns(outcome)
    rows = []
    for planned in outcome.plan.rows:
        row, cells = planned.row, outcome.cells.get(planned.row.name, {})
        if row.published:
            published = {name: f"{value:.2f}" for name, value in row.published.items()}
            rows.append([row.name, PAPER, *(published.get(column, "") for column in columns)])
        if cells:
            ours = {name_measured(name, cell): format_cell(cell) for name, cell in cells.items()}
            rows.append(["" if row.published else row.name, OURS, *(ours.get(column, "") for column in columns)])
        elif not row.published:
            rows.append([row.name, "-", *[""] * len(columns)])
    return ["row", "from", *columns], rows


def _columns(outcome: ArtifactOutcome) -> list[str]:
    """Return the names of the columns: those of the paper, each followed by what was measured in part only."""
    names: dict[str, None] = {}
    for measure in outcome.plan.artifact.measures:
        cells = (of_row.get(measure.name) for of_row in outcome.cells.values())
        names |= dict.fromkeys([measure.name, *(name_measured(measure.name, cell) for cell in cells)])
    return [*names]


def format_cell(cell: Cell) -> str:
    """Write a value, with its deviation over the seeds or the interval over the test rows.

    "†": some of the data are sub-sampled.
    """
    text = f"{cell.value:.2f}" + ("†" if cell.sub_sampled else "")
    if cell.spread is not None:
        return f"{text} ± {cell.spread:.2f}"
    if cell.low is None or cell.high is None:
        return text
    digits = 1 if cell.high - cell.low >= 0.5 else 2  # alignment and uniformity are no points
    return f"{text} [{cell.low:.{digits}f}, {cell.high:.{digits}f}]"


def explain_values(outcome: ArtifactOutcome) -> list[str]:
    """Say what the values are, and what is missing."""
    note = [outcome.plan.artifact.note] if outcome.plan.artifact.note else []
    if outcome.sketch:
        return [outcome.scale, *note]
    seeds = "one seed; in brackets the 95 % interval over the test rows"
    if outcome.seeds > 1:
        seeds = (
            f"mean and deviation of {outcome.seeds} seeds; of rows without training, the 95 % interval over test rows"
        )
    lines = [f"{PAPER}: as published.  {OURS}: measured, {seeds}.", outcome.scale]
    cells = [cell for row in outcome.cells.values() for cell in row.values()]
    if any(cell.without for cell in cells):
        lines.append("A mean whose name says what it is without is not the one that the paper prints.")
    if sub_sampled := dict.fromkeys(task for cell in cells for task in cell.sub_sampled):
        lines.append(f"† with sub-sampled data of {', '.join(sub_sampled)}: not comparable with the paper's.")
    return lines + note


def row_notes(plan: ArtifactPlan) -> list[str]:
    """Say of rows what they lack, or that they are the same as another one."""
    notes = []
    for planned in plan.rows:
        name = planned.row.name
        first = next(row for row in plan.rows if row.key == planned.key)
        if planned.row.note:
            notes.append(f"{name}: {planned.row.note}")
        if planned.needs:
            notes.append(f"{name}: needs {', '.join(planned.needs)}")
        elif not planned.key:
            notes.append(f"{name}: of others, as published; --checkpoint measures one")
        elif first is not planned:
            what = "run" if planned.recipe else "encoder"
            notes.append(f"{name}: the same {what} as {first.row.name}, because both start from one base here")
    return notes


def markdown_lines(outcome: ArtifactOutcome) -> Iterator[str]:
    """Yield the lines of the Markdown file."""
    artifact = outcome.plan.artifact
    heads, rows = table_lines(outcome)
    yield from (f"# {artifact.title}", "", f"`{artifact.id}`", "")
    if outcome.findings:
        yield from (*(f"- {finding.sentence}" for finding in outcome.findings), "")
    for row in (heads, ["---"] * len(heads), *rows):
        yield "| " + " | ".join(text.replace("|", "\\|") for text in row) + " |"
    yield ""
    for line in explain_values(outcome):
        yield from (line, "")
    yield from (f"- {note}" for note in row_notes(outcome.plan))
    yield from ("", f"![{artifact.title}]({artifact.id}.png)")


def _csv_rows(outcome: ArtifactOutcome) -> Iterator[Sequence[object]]:
    """Yield one row for every row and measure that has a published or a measured value."""
    if outcome.sketch:
        yield from (outcome.sketch.heads, *outcome.sketch.rows)
        return
    yield ["row", "measure", "paper", "here", "low", "high", "deviation", "seeds", "scores", "of"]
    for planned in outcome.plan.rows:
        cells = outcome.cells.get(planned.row.name, {})
        ours = {name_measured(name, cell): cell for name, cell in cells.items()}
        for column in _columns(outcome):
            paper, cell = planned.row.published.get(column, ""), ours.get(column)
            if cell is not None:
                measured = (cell.value, cell.low, cell.high, cell.spread, len(cell.values), cell.parts, cell.of)
                yield [planned.row.name, column, paper, *measured]
            elif paper != "":
                yield [planned.row.name, column, paper, *[""] * 7]


def _row_content(planned: PlannedRow, cells: Mapping[str, Cell]) -> dict[str, Any]:
    here = {}
    for measure, cell in cells.items():
        table = {name: value for name, value in vars(cell).items() if name != "replicates"}
        here[name_measured(measure, cell)] = {**table, "value": cell.value, "spread": cell.spread}
    return {
        "name": planned.row.name,
        "paper": dict(planned.row.published),
        "here": here,
        "run": planned.run,
        "needs": list(planned.needs),
    }
