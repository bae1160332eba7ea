"""From scores to cells, and from two rows to a sentence: same direction as the paper, opposite, or cannot tell.

A row that is trained has a value for each seed.  Two rows are compared by the seeds and the test rows that they share
(``selfsent.evaluation.significance``); the intervals of one table hold for all of its claims at once (Bonferroni).
Below three seeds nothing can be concluded about a training.  Two encoders without training are compared over the test
rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from selfsent.evaluation.comparison import decision_of
from selfsent.evaluation.score import Results, Score
from selfsent.evaluation.significance import LEAST_SEEDS, LEVEL, interval_over_seeds
from selfsent.reproduction.plan import ArtifactPlan
from selfsent.reproduction.spec import Measure, PaperClaim, ScorePart, Training

Direction = Literal["same", "opposite", "cannot tell", "not measured"]
_DIRECTIONS = {"same": "same direction as the paper", "opposite": "opposite to the paper"}


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


class RowDifference(NamedTuple):
    """How far the first of two rows lies above the second, in points."""

    value: float
    low: float | None = None  # interval; None: nothing gives one
    high: float | None = None
    p: float | None = None  # two-sided, over seeds


@dataclass(frozen=True, kw_only=True)
class ClaimFinding:
    """What the measured rows say about a claim of the paper."""

    claim: PaperClaim
    paper: float | None  # the published difference
    direction: Direction = "not measured"
    lead: RowDifference | None = None
    reasons: tuple[str, ...] = ()  # why it cannot be told, and what the figures leave out

    @property
    def sentence(self) -> str:
        """The finding in one sentence."""
        claim = self.claim
        relation = "above" if claim.margin is None else f"within {claim.margin:g} of"
        text = f"{claim.first} {relation} {claim.second} in {claim.measure}"
        text += f" (paper {self.paper:+.2f})" if self.paper is not None else ""
        text += f": {_DIRECTIONS.get(self.direction, self.direction)}"
        if self.lead is not None:
            text += f", {self.lead.value:+.2f}"
            if self.lead.low is not None and self.lead.high is not None:
                text += f" [{self.lead.low:+.2f}, {self.lead.high:+.2f}]"
        return "; ".join([text, *self.reasons]) + "."


def find_cell(measure: Measure, results: Sequence[Results]) -> Cell | None:
    """Return the value of a measure for the results of each seed; None where none of its scores was measured.

    A score that is missing is left out of the mean.
    """
    values, replicates = [], []
    parts = 0
    sub_sampled: dict[str, None] = {}
    for result in results:
        groups = [[_find_score(result, part) for part in group] for group in measure.groups]
        measured = [[score for score in group if score] for group in groups if None not in group]
        if not measured:
            return None
        scores = [score for group in measured for score in group]
        parts = len(scores)
        sub_sampled |= {score.task: None for score in scores if "rows" in score.protocol}  # is in no other protocol
        values.append(float(np.mean([np.mean([score.value for score in group]) for group in measured])))
        if all(score.replicates is not None for score in scores):
            of_groups = [np.mean([score.replicates for score in group], axis=0) for group in measured]  # type: ignore[arg-type]
            replicates.append(np.mean(of_groups, axis=0))
    drawn = np.stack(replicates) if len(replicates) == len(values) else None
    low, high = (None, None) if drawn is None else np.quantile(drawn.mean(axis=0), (0.025, 0.975)).tolist()
    return Cell(
        values=tuple(values),
        low=low,
        high=high,
        parts=parts,
        of=sum(map(len, measure.groups)),
        replicates=drawn,
        sub_sampled=tuple(sub_sampled),
    )


def _find_score(result: Results, part: ScorePart) -> Score | None:
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
    keys = {row.row.name: row.key for row in plan.rows}
    level = LEVEL / max(1, len(plan.artifact.claims))
    judged: dict[tuple[str, str, str], PaperClaim] = {}  # by the runs that are compared
    findings = []
    for claim in plan.artifact.claims:
        compared = keys[claim.first], keys[claim.second], claim.measure
        earlier = judged.setdefault(compared, claim) if all(compared) else claim
        finding = _judge(plan, claim, cells, level)
        if earlier is not claim and finding.lead is not None:
            reason = f"the same two runs as {earlier.first} and {earlier.second} at this scale"
            finding = ClaimFinding(claim=claim, paper=finding.paper, reasons=(reason,))
        findings.append(finding)
    return findings


def _judge(
    plan: ArtifactPlan, claim: PaperClaim, cells: Mapping[str, Mapping[str, Cell]], level: float
) -> ClaimFinding:
    names = claim.first, claim.second
    first, second = (cells.get(name, {}).get(claim.measure) for name in names)
    published = [plan.artifact.row(name).published.get(claim.measure) for name in names]
    paper = claim.paper
    if paper is None and published[0] is not None and published[1] is not None:
        paper = published[0] - published[1]
    if first is None or second is None:
        return ClaimFinding(claim=claim, paper=paper)
    rows = {row.row.name: row for row in plan.rows}
    if rows[claim.first].key == rows[claim.second].key:
        return ClaimFinding(claim=claim, paper=paper, reasons=("both rows are one run at this scale",))
    # A checkpoint in place of a training counts as one seed of it.
    trained = [isinstance(rows[name].row.source, Training) for name in names]
    seeds = [len(cell.values) for cell, is_trained in zip((first, second), trained, strict=True) if is_trained]
    lead = compare_cells(first, second, level=level, trained=bool(seeds))
    direction: Direction = "cannot tell"
    reasons = []
    if seeds and min(seeds) < LEAST_SEEDS:
        reasons.append(f"{LEAST_SEEDS} seeds of each training are needed")
        if lead.low is not None and max(len(first.values), len(second.values)) < LEAST_SEEDS:
            reasons.append("the interval is over the test rows alone")
    elif lead.low is None or lead.high is None:
        reasons.append("these scores have no interval")
    else:
        direction = decide_direction(lead.low, lead.high, claim.margin)
        if first.replicates is None or second.replicates is None:
            reasons.append("the interval is over the seeds alone")
    reasons += _left_out(first, second)
    return ClaimFinding(claim=claim, paper=paper, direction=direction, lead=lead, reasons=tuple(reasons))


def decide_direction(low: float, high: float, margin: float | None) -> Direction:
    """Decide by the interval of a difference that the paper finds above zero; with a margin, within it."""
    if margin is None:
        directions: dict[str, Direction] = {"better": "same", "worse": "opposite"}
        return directions.get(decision_of(low, high), "cannot tell")
    if -margin < low and high < margin:
        return "same"
    return "opposite" if low > margin or high < -margin else "cannot tell"


def _left_out(first: Cell, second: Cell) -> list[str]:
    """Say what keeps a measure from being the published one."""
    fewer = min(first, second, key=lambda cell: cell.parts)
    reasons = [f"over {fewer.parts} of {fewer.of} scores"] if fewer.parts < fewer.of else []
    sub_sampled = dict.fromkeys((*first.sub_sampled, *second.sub_sampled))
    return reasons + ([f"with sub-sampled data of {', '.join(sub_sampled)}"] if sub_sampled else [])


def compare_cells(first: Cell, second: Cell, *, level: float, trained: bool) -> RowDifference:
    """Return how far the first lies above the second; a row without training counts with every seed of the other."""
    gaps = np.subtract(first.values, second.values)
    if first.replicates is None or second.replicates is None:
        replicates = np.zeros((len(gaps), 2))
    else:
        replicates = first.replicates - second.replicates
    value = float(gaps.mean())
    if trained and len(gaps) >= LEAST_SEEDS:
        return RowDifference(value, *interval_over_seeds(gaps, replicates, level=level))
    gap = replicates.mean(axis=0)
    if not gap.any():
        return RowDifference(value)
    half = float(stats.norm.isf(level / 2) * gap.std(ddof=1))
    return RowDifference(value, value - half, value + half)
