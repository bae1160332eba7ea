"""DeCLUTR's averages: 18 downstream tasks, 10 probing tasks, and the mean of the two means.

    downstream       each task's main number (accuracy; MRPC the mean of accuracy and F1; SICK-R and STS-B the Spearman
                     of trained regressions; caption-image retrieval the mean of six recalls; STS12-16 the mean over
                     sub-files), averaged over the tasks
    without SNLI     the same over the other 17
    probing          accuracy, averaged over the tasks
    average          (downstream + probing) / 2: the paper's "Avg.".  The released script averages all 28 tasks
                     instead, which is ``of_all_tasks``.

Source: Giorgi et al. 2021, https://arxiv.org/abs/2006.03659, Tables 2 and 3.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from selfsent.errors import DataError
from selfsent.evaluation.score import Score

# task -> (metric, aggregation) of each score whose mean stands for the task
ACCURACY = (("accuracy", ""),)
DOWNSTREAM: dict[str, tuple[tuple[str, str], ...]] = {
    **dict.fromkeys(("cr", "mr", "mpqa", "subj", "sst2", "sst5", "trec"), ACCURACY),
    "mrpc": (("accuracy", ""), ("f1", "")),
    "snli": ACCURACY,
    "sick-e": ACCURACY,
    "sickr-regression": (("spearman", ""),),  # not the cosine of "sickr"
    "stsb-regression": (("spearman", ""),),
    "captions": (("recall", "mean of 1, 5 and 10 in both directions"),),
    **dict.fromkeys(("sts12", "sts13", "sts14", "sts15", "sts16"), (("spearman", "mean"),)),
}
PROBING: dict[str, tuple[tuple[str, str], ...]] = dict.fromkeys(
    (
        "sentence_length",
        "word_content",
        "tree_depth",
        "top_constituents",
        "bigram_shift",
        "past_present",
        "subj_number",
        "obj_number",
        "odd_man_out",
        "coordination_inversion",
    ),
    ACCURACY,
)


@dataclass(frozen=True, kw_only=True)
class Averages:
    """Means over the tasks that were measured, in points; None where none of a group was."""

    downstream: float | None
    without_snli: float | None
    probing: float | None
    average: float | None  # (downstream + probing) / 2
    of_all_tasks: float | None
    missing: tuple[str, ...]  # tasks of the 28 that were not measured: with any, the figures are not the paper's


def averages(scores: Iterable[Score]) -> Averages:
    """Average test scores as DeCLUTR does; a task counts when all its parts were measured, on all its rows.

    Raises:
        DataError: the accuracies come from different classifiers, whose numbers differ by points.
    """
    # "rows" is in the protocol of sub-sampled tasks only.
    counted = [
        score
        for score in scores
        if score.task in DOWNSTREAM | PROBING and score.split == "test" and "rows" not in score.protocol
    ]
    used = {
        str(score.protocol["classifier"])
        for score in counted
        if (score.metric, score.aggregation) in ACCURACY and "classifier" in score.protocol
    }
    if len(used) > 1:
        raise DataError(
            f"scores of {' and '.join(sorted(used))} cannot be averaged: their numbers differ by points; "
            "score all tasks with one classifier"
        )
    values = {(score.task, score.metric, score.aggregation): score.value for score in counted}

    def mains(group: dict[str, tuple[tuple[str, str], ...]]) -> dict[str, float]:
        return {
            task: fmean(values[task, *part] for part in parts)
            for task, parts in group.items()
            if all((task, *part) in values for part in parts)
        }

    downstream, probing = mains(DOWNSTREAM), mains(PROBING)
    of_downstream, of_probing = _mean(downstream.values()), _mean(probing.values())
    return Averages(
        downstream=of_downstream,
        without_snli=_mean(value for task, value in downstream.items() if task != "snli"),
        probing=of_probing,
        average=None if of_downstream is None or of_probing is None else (of_downstream + of_probing) / 2,
        of_all_tasks=_mean([*downstream.values(), *probing.values()]),
        missing=tuple(task for task in (*DOWNSTREAM, *PROBING) if task not in downstream | probing),
    )


def summary(measured: Averages) -> str:
    """Return a line with the averages, the number of tasks behind each, and the missing tasks."""
    parts = []
    for name, group, value in (("downstream", DOWNSTREAM, measured.downstream), ("probing", PROBING, measured.probing)):
        count = sum(task not in measured.missing for task in group)
        parts.append(f"{name} {'none' if value is None else f'{value:.2f}'} ({count} of {len(group)} tasks)")
    if measured.average is not None:
        parts.append(f"their mean {measured.average:.2f}")
    line = f"DeCLUTR's averages: {', '.join(parts)}"
    return f"{line}; missing: {' '.join(measured.missing)}" if measured.missing else line


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return fmean(values) if values else None
