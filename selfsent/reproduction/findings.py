"""From scores to cells, and from two rows to a sentence: same direction as the paper, opposite, or cannot tell.

A row that is trained has a value for each seed.  Two rows are compared by the seeds and the test rows that they share
(`selfsent.evaluation.significance`); the intervals of one table hold for all of its claims at once (Bonferroni).  Below
three seeds nothing can be concluded about a training.  Two encoders without training are compared over the test rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy import stats

from selfsent.evaluation.score import Results, Score
from selfsent.evaluation.significance import LEAST_SEEDS, LEVEL, Lead, SeedScores, compare_settings
from selfsent.reproduction.artifact import Measure, PaperClaim, ScorePart, Training
from selfsent.reproduction.plan import ArtifactPlan, PlannedRow

Direction = Literal["same", "opposite", "cannot tell", "not measured"]
_WORDS = {
    "same": "same direction as the paper",
    "opposite": "opposite to the paper",
    "cannot tell": "cannot tell",
    "not measured": "not measured",
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A measured value: mean over the seeds, with what is behind it."""

    values: tuple[float, ...]  # of each seed
    low: float | None  # 95 % interval over the test rows; of the mean over the seeds
    high: float | None
    parts: int  # scores that were measured
    of: int  # scores that the measure has
    replicates: Float[np.ndarray, "S R"] | None = None
    sub_sampled: tuple[str, ...] = ()  # its tasks whose data are a part of the published ones

    @property
    def value(self) -> float:
        """The mean over the seeds."""
        return float(np.mean(self.values))

    @property
    def spread(self) -> float | None:
        """The deviation over the seeds."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None


@dataclass(frozen=True, kw_only=True)
class ClaimFinding:
    """What the measured rows say about a claim of the paper."""

    claim: PaperClaim
    paper: float | None  # the published difference
    direction: Direction
    lead: Lead | None = None
    reasons: tuple[str, ...] = ()  # why it cannot be told, and what the figures leave out

    @property
    def sentence(self) -> str:
        """The finding in one sentence."""
        claim = self.claim
        relation = "above" if claim.margin is None else f"within {claim.margin:g} of"
        text = f"{claim.first} {relation} {claim.second} in {claim.measure}"
        text += f" (paper {self.paper:+.2f})" if self.paper is not None else ""
        text += f": {_WORDS[self.direction]}"
        if self.lead is not None:
            text += f", {self.lead.value:+.2f}"
            if self.lead.low is not None and self.lead.high is not None:
                text += f" [{self.lead.low:+.2f}, {self.lead.high:+.2f}]"
        return "; ".join([text, *self.reasons]) + "."


def find_cell(measure: Measure, results: Sequence[Results]) -> Cell | None:
    """Return the value of a measure for the results of each seed; None where none of its scores was measured.

    A score that is missing is left out of the mean.
    """
    values, drawn = [], []
    parts = 0
    # Only sub-sampled data have "rows" in the protocol.
    shortened: dict[str, None] = {}
    for result in results:
        groups = [[_find(result, part) for part in group] for group in measure.groups]
        found = [group for group in groups if None not in group]
        if not found:
            return None
        parts = sum(map(len, found))
        shortened |= {score.task: None for group in found for score in group if score and "rows" in score.protocol}
        values.append(float(np.mean([np.mean([score.value for score in group if score]) for group in found])))
        replicates = [[score.replicates for score in group if score] for group in found]
        if all(one is not None for group in replicates for one in group):
            drawn.append(np.mean([np.mean(group, axis=0) for group in replicates], axis=0))  # type: ignore[arg-type]
    whole = np.stack(drawn) if len(drawn) == len(values) else None
    low, high = (None, None) if whole is None else np.quantile(whole.mean(axis=0), (0.025, 0.975)).tolist()
    total = sum(map(len, measure.groups))
    return Cell(
        values=tuple(values),
        low=low,
        high=high,
        parts=parts,
        of=total,
        replicates=whole,
        sub_sampled=tuple(shortened),
    )


def _find(result: Results, part: ScorePart) -> Score | None:
    for score in result.scores:
        named = part.metric in ("", score.metric) and part.aggregation in ("", score.aggregation)
        if named and score.task == part.task and (score.split == part.split or not part.metric):
            return score
    return None


def judge_claims(plan: ArtifactPlan, cells: Mapping[str, Mapping[str, Cell]]) -> list[ClaimFinding]:
    """Say of every claim of a table or figure whether what was measured has its direction.

    Args:
        cells: by the names of row and measure.
    """
    rows = {row.row.name: row for row in plan.rows}
    level = LEVEL / max(1, len(plan.artifact.claims))
    known: dict[tuple[str, str, str], PaperClaim] = {}  # by the runs that are compared
    found = []
    for claim in plan.artifact.claims:
        compared = rows[claim.first].key, rows[claim.second].key, claim.measure
        earlier = known.setdefault(compared, claim) if all(compared) else claim
        finding = _judge(plan, claim, rows, cells, level)
        if earlier is not claim and finding.lead is not None:
            reason = f"the same two runs as {earlier.first} and {earlier.second} at this scale"
            finding = ClaimFinding(claim=claim, paper=finding.paper, direction="not measured", reasons=(reason,))
        found.append(finding)
    return found


def _judge(
    plan: ArtifactPlan,
    claim: PaperClaim,
    rows: Mapping[str, PlannedRow],
    cells: Mapping[str, Mapping[str, Cell]],
    level: float,
) -> ClaimFinding:
    first, second = (cells.get(name, {}).get(claim.measure) for name in (claim.first, claim.second))
    printed = [plan.artifact.row(name).published.get(claim.measure) for name in (claim.first, claim.second)]
    paper = claim.paper
    if paper is None and printed[0] is not None and printed[1] is not None:
        paper = printed[0] - printed[1]
    if first is None or second is None:
        return ClaimFinding(claim=claim, paper=paper, direction="not measured")
    if rows[claim.first].key == rows[claim.second].key:
        reason = "both rows are one run at this scale"
        return ClaimFinding(claim=claim, paper=paper, direction="not measured", reasons=(reason,))
    pair = (claim.first, first), (claim.second, second)
    # A checkpoint in place of a training counts as one seed of it.
    seeds = [len(cell.values) for name, cell in pair if isinstance(rows[name].row.source, Training)]
    lead = compare_cells(first, second, level=level, trained=bool(seeds))
    direction: Direction = "cannot tell"
    reasons = []
    if seeds and min(seeds) < LEAST_SEEDS:
        reasons.append(f"{LEAST_SEEDS} seeds of each training are needed")
        of_rows = lead.low is not None and max(len(first.values), len(second.values)) < LEAST_SEEDS
        reasons += ["the interval is over the test rows alone"] if of_rows else []
    elif lead.low is None or lead.high is None:
        reasons.append("these scores have no interval")
    else:
        direction = _direction(claim, lead.low, lead.high)
        reasons += (
            ["the interval is over the seeds alone"] if first.replicates is None or second.replicates is None else []
        )
    return ClaimFinding(
        claim=claim, paper=paper, direction=direction, lead=lead, reasons=(*reasons, *_left_out(first, second))
    )


def _direction(claim: PaperClaim, low: float, high: float) -> Direction:
    if claim.margin is None:
        return "same" if low > 0 else "opposite" if high < 0 else "cannot tell"
    inside = -claim.margin < low and high < claim.margin
    outside = low > claim.margin or high < -claim.margin
    return "same" if inside else "opposite" if outside else "cannot tell"


def _left_out(first: Cell, second: Cell) -> list[str]:
    """Say what keeps a measure from being the published one."""
    fewer = min(first, second, key=lambda cell: cell.parts)
    found = [f"over {fewer.parts} of {fewer.of} scores"] if fewer.parts < fewer.of else []
    shortened = dict.fromkeys((*first.sub_sampled, *second.sub_sampled))
    return found + ([f"with sub-sampled data of {', '.join(shortened)}"] if shortened else [])


def compare_cells(first: Cell, second: Cell, *, level: float, trained: bool) -> Lead:
    """Return how far the first lies above the second; a row without training counts with every seed of the other."""
    seeds = max(len(first.values), len(second.values))
    drawn = first.replicates is not None and second.replicates is not None
    one, two = (_for_seeds(cell, seeds, drawn) for cell in (first, second))
    if trained and seeds >= LEAST_SEEDS:
        return compare_settings(one, two, level=level)
    value = float((one.values - two.values).mean())
    gap = (one.replicates - two.replicates).mean(axis=0)
    if not gap.any():
        return Lead(value=value)
    half = float(stats.norm.isf(level / 2) * gap.std(ddof=1))
    return Lead(value=value, low=value - half, high=value + half)


def _for_seeds(cell: Cell, seeds: int, drawn_of_both: bool) -> SeedScores:
    """Return the values and replicates of a cell for so many seeds; where one of two has no replicates, zeros."""
    values = np.array(cell.values)
    drawn = np.zeros((len(values), 2)) if cell.replicates is None or not drawn_of_both else cell.replicates
    if len(values) == 1:
        values, drawn = np.repeat(values, seeds), np.repeat(drawn, seeds, axis=0)
    return SeedScores(values=values, replicates=drawn)
