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
from selfsent.evaluation import data_sets
from selfsent.evaluation.score import Score

# task -> (metric, aggregation) of each score whose mean stands for the task
Parts = dict[str, tuple[tuple[str, str], ...]]
ACCURACY = (("accuracy", ""),)
DOWNSTREAM: Parts = {
    **dict.fromkeys(("cr", "mr", "mpqa", "subj", "sst2", "sst5", "trec"), ACCURACY),
    "mrpc": (("accuracy", ""), ("f1", "")),
    **dict.fromkeys(("snli", "sick-e"), ACCURACY),
    **dict.fromkeys(("sickr-regression", "stsb-regression"), (("spearman", ""),)),  # not the cosine of "sickr"
    "captions": (("recall", "mean of 1, 5 and 10 in both directions"),),
    **dict.fromkeys(data_sets.YEARS, (("spearman", "mean"),)),
}
PROBING: Parts = dict.fromkeys(data_sets.PROBING, ACCURACY)


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
    counted = {
        (score.task, score.metric, score.aggregation): score
        for score in scores
        if score.task in DOWNSTREAM | PROBING and score.split == "test" and "rows" not in score.protocol
    }
    of_accuracy = [score.protocol for (_, *what), score in counted.items() if tuple(what) in ACCURACY]
    used = sorted({str(protocol["classifier"]) for protocol in of_accuracy if "classifier" in protocol})
    if len(used) > 1:
        raise DataError(
            f"scores of {' and '.join(used)} cannot be averaged: their numbers differ by points; "
            "score all tasks with one classifier"
        )
    mains = {
        task: fmean(counted[task, *part].value for part in parts)
        for task, parts in (DOWNSTREAM | PROBING).items()
        if all((task, *part) in counted for part in parts)
    }

    def mean(tasks: Iterable[str]) -> float | None:
        values = [mains[task] for task in tasks if task in mains]
        return fmean(values) if values else None

    downstream, of_probing = mean(DOWNSTREAM), mean(PROBING)
    return Averages(
        downstream=downstream,
        without_snli=mean(task for task in DOWNSTREAM if task != "snli"),
        probing=of_probing,
        average=None if downstream is None or of_probing is None else (downstream + of_probing) / 2,
        of_all_tasks=mean(DOWNSTREAM | PROBING),
        missing=tuple(task for task in (*DOWNSTREAM, *PROBING) if task not in mains),
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
