"""From scores to cells, and from two rows to a sentence: same direction as the paper, opposite, or cannot tell.

A row that is trained has a value for each seed.  Two rows are compared by the seeds and the test rows that they share
(``selfsent.evaluation.significance``); the intervals of one table hold for all of its claims at once (Bonferroni).
Below three seeds nothing can be concluded about a training.  Two encoders without training are compared over the test
rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
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
    without: tuple[str, ...] = ()  # its tasks that were not measured

    @property
    def value(self) -> float:
        """The mean over the seeds."""
        return float(np.mean(self.values))

    @property
    def spread(self) -> float | None:
        """The deviation over the seeds."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None


def name_measured(measure: str, *cells: Cell | None) -> str:
    """Return the name of a measure; with the tasks that it lacks, a mean has not the name of the published one."""
    lacking = dict.fromkeys(task for cell in cells if cell for task in cell.without)
    return f"{measure} without {', '.join(lacking)}" if lacking else measure


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
    measured: str = ""  # the measure by what it is without; empty: the claim's

    @property
    def sentence(self) -> str:
        """The finding in one sentence."""
        text = self.claim.words(self.measured or self.claim.measure, self.paper)
        text += f": {_DIRECTIONS.get(self.direction, self.direction)}"
        if self.lead is not None:
            text += f", {self.lead.value:+.2f}"
            if self.lead.low is not None and self.lead.high is not None:
                text += f" [{self.lead.low:+.2f}, {self.lead.high:+.2f}]"
        return "; ".join([text, *self.reasons]) + "."

    def as_dict(self) -> dict[str, object]:
        """Return it for JSON, with the claim's own keys."""
        lead = self.lead and self.lead._asdict()
        found = {"published difference": self.paper, "direction": self.direction, "lead": lead}
        return vars(self.claim) | found | {"sentence": self.sentence}


def find_cell(measure: Measure, results: Sequence[Results]) -> Cell | None:
    """Return the value of a measure for the results of each seed; None where a block has no score that was measured.

    A score that is missing is left out of the mean.
    """
    values, replicates = [], []
    sub_sampled: dict[str, None] = {}
    for result in results:
        found = {part: _find_score(result, part) for part in chain(*measure.groups)}
        blocks = [
            [[score for part in group if (score := found[part])] for group in block if all(map(found.get, group))]
            for block in measure.blocks
        ]
        if not all(blocks):
            return None
        scores = [score for group in chain(*blocks) for score in group]
        sub_sampled |= {score.task: None for score in scores if "rows" in score.protocol}  # is in no other protocol
        values.append(float(_mean_of_blocks(blocks, lambda score: np.array(score.value))))
        if all(score.replicates is not None for score in scores):
            replicates.append(_mean_of_blocks(blocks, lambda score: np.array(score.replicates)))
    drawn = np.stack(replicates) if len(replicates) == len(values) else None
    low, high = (None, None) if drawn is None else np.quantile(drawn.mean(axis=0), (0.025, 0.975)).tolist()
    return Cell(
        values=tuple(values),
        low=low,
        high=high,
        parts=len(scores),
        of=len(found),
        replicates=drawn,
        sub_sampled=tuple(sub_sampled),
        without=tuple(dict.fromkeys(part.task for part, score in found.items() if not score)),
    )


def _mean_of_blocks(blocks: list[list[list[Score]]], value: Callable[[Score], np.ndarray]) -> np.ndarray:
    """Average a value over each group's scores, over the groups of each block, and over the blocks."""
    of_groups = [[np.mean([value(score) for score in group], axis=0) for group in block] for block in blocks]
    return np.asarray(np.mean([np.mean(block, axis=0) for block in of_groups], axis=0))


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
            finding = replace(finding, direction="not measured", lead=None, reasons=(reason,))
        findings.append(finding)
    return findings


def _judge(
    plan: ArtifactPlan, claim: PaperClaim, cells: Mapping[str, Mapping[str, Cell]], level: float
) -> ClaimFinding:
    names = claim.first, claim.second
    first, second = (cells.get(name, {}).get(claim.measure) for name in names)
    paper = plan.artifact.published_lead(claim)
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
    measured = name_measured(claim.measure, first, second)
    return ClaimFinding(
        claim=claim, paper=paper, direction=direction, lead=lead, reasons=tuple(reasons), measured=measured
    )


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
