"""Tasks by name: the texts they need, and scores from the vectors of those texts.

suite = read_suite(["sts", "transfer"], data)   # reads and checks the files
vectors = suite.prompted.embed(encoder)         # every distinct text of all tasks, once, behind its prompt
results = suite.score(vectors)                  # trains classifiers where a task has them
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from selfsent.encoder.base import TextEncoder, require_finite
from selfsent.errors import ConfigurationError, DataError, unknown
from selfsent.evaluation import hub_data
from selfsent.evaluation.data_sets import PROBING, TASKS, TRANSFER, YEARS
from selfsent.evaluation.label_free import held_out_retrieval
from selfsent.evaluation.labelled_tasks import read_task
from selfsent.evaluation.own_files.tasks import KINDS, is_custom, read_custom_task
from selfsent.evaluation.score import Results, Score, average
from selfsent.evaluation.senteval import declutr_averages, relatedness
from selfsent.evaluation.senteval.classification import Classification
from selfsent.evaluation.senteval.cross_validation import CLASSIFIERS
from selfsent.evaluation.senteval.relatedness import StopOn
from selfsent.evaluation.task import PromptedTexts, Task, Vectors, fingerprint, used_prompts
from selfsent.progress import SILENT, Prefixed, Progress

HeldOut = tuple[Sequence[str], Sequence[str]]  # queries, and the passage that answers each

GROUPS = {
    "sts": (*YEARS, "stsb", "sickr"),
    "transfer": TRANSFER,
    "probing": tuple(PROBING),
    "downstream": tuple(declutr_averages.DOWNSTREAM),  # DeCLUTR's 18
}
SINGLE = (*TASKS, *PROBING, "retrieval", "captions")
DEFAULT_CLASSIFIER = "senteval_full"


def task_names() -> list[str]:
    """List the names of groups and tasks."""
    return sorted((*GROUPS, *SINGLE))


def resolve_tasks(tasks: Sequence[str]) -> list[str]:
    """Expand groups into tasks, each once, in the given order; own files keep their names.

    Raises:
        ConfigurationError: there is no such task.
    """
    for name in tasks:
        if name not in GROUPS and name not in SINGLE and not is_custom(name):
            files = [f"{kind}:{'FOLDER' if kind == 'retrieval' else 'FILE'}" for kind in KINDS]
            raise unknown("task", name, [*task_names(), *files])
    return list(dict.fromkeys(task for name in tasks for task in GROUPS.get(name, (name,))))


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The tasks whose data were found, and every distinct text they need."""

    tasks: list[Task]
    missing: dict[str, Path | str]  # where the data was expected, or why there is none
    prompted: PromptedTexts
    differing: dict[str, str]  # task -> its files that are not the known ones, where there are any

    @property
    def sentences(self) -> list[str]:
        """The texts, in the order of their vectors."""
        return self.prompted.texts

    @property
    def notes(self) -> list[str]:
        """What a reader of the scores should know about the data, a sentence each."""
        files = dict.fromkeys(self.differing.values())  # several tasks may read the same files
        return [
            *(f"{name} is missing: {absence(place)}" for name, place in self.missing.items()),
            *(
                f"warning: {task.name} is sub-sampled, {task.facts['rows']} rows: not comparable with published scores"
                for task in self.tasks
                if isinstance(task, Classification) and "rows" in task.facts
            ),
            *(f"{file} differs from the known file: its scores may not compare" for file in files),
            *(f"{task.name}: {note}" for task in self.tasks for note in task.notes),
        ]

    def score(
        self,
        vectors: Vectors,
        *,
        bootstrap: int = 1000,
        seed: int = 0,
        protocol: Mapping[str, object] = MappingProxyType({}),
        encoder: TextEncoder | None = None,
        transform: Callable[[Vectors], Vectors] | None = None,
        progress: Progress = SILENT,
    ) -> Results:
        """Compute the scores of all tasks from the vectors of ``sentences``.

        Args:
            bootstrap: resamples behind each interval; 0 leaves the intervals out.
            protocol: what only the caller knows (pooling, max_length, model); goes into every score.
            encoder: whose prompts the texts were encoded behind, for the protocol; None: without any.
            transform: applied to the vectors of each task, whitening fitted to the task for example; a task for which
                it cannot be done is missing.

        Raises:
            EncoderError: a vector holds NaN or infinity.
            DataError: no classifier can be trained on a task's labels.
            ValueError: there is not one vector for each sentence.
        """
        if vectors.ndim != 2 or len(vectors) != len(self.sentences):
            raise ValueError(f"expected {len(self.sentences)} vectors, got an array of shape {vectors.shape}")
        scores: list[Score] = []
        missing = dict(self.missing)
        for number, task in enumerate(self.tasks, start=1):
            given = vectors[self.prompted.rows(task.prompted)]
            require_finite(given, task.texts, of=f" of {task.name}")
            always: dict[str, object] = {"data": task.fingerprint, "bootstrap": f"{bootstrap} resamples, seed {seed}"}
            if task.name in self.differing:
                always["differs"] = self.differing[task.name]
            if encoder is not None:
                always |= used_prompts(encoder, [role for role, _ in task.prompted])
            numbered = Prefixed(progress, f"task {number} of {len(self.tasks)}, ")
            try:
                given = given if transform is None else transform(given)
            except ConfigurationError as error:
                missing[task.name] = str(error)
                continue
            for score in task.score(given, resamples=bootstrap, seed=seed, progress=numbered):
                scores.append(replace(score, protocol={**score.protocol, **always, **protocol}))
        by_task = {score.task: score for score in scores if _is_averaged(score)}
        for group in ("sts", "transfer", "probing"):
            averaged = [by_task[name] for name in GROUPS[group] if name in by_task]
            if len(averaged) > 1:
                scores.append(average(averaged))
        data = "\n".join(f"{task.name} {task.fingerprint}" for task in self.tasks)
        return Results(scores=scores, missing=missing, fingerprint=fingerprint([data]))


def read_suite(
    tasks: Sequence[str],
    data: str | Path | None,
    *,
    held_out: HeldOut | None = None,
    classifier: str = DEFAULT_CLASSIFIER,
    stop_on: StopOn = "pearson",
) -> Suite:
    """Find and read the data of the tasks; tasks without data are listed as missing.

    Args:
        data: a folder in SentEval's layout, or ``hub`` for the hub's copies; None where no task needs data.
        held_out: queries and the passage that answers each, for ``retrieval``.
        classifier: trained on the vectors of labelled tasks, one of ``cross_validation.CLASSIFIERS``.
        stop_on: the development correlation that stops the regressions.

    Raises:
        ConfigurationError: an unknown task or classifier, or a task without what it needs.
        DataError: no data at all, or incomplete data.
    """
    if classifier not in CLASSIFIERS:
        raise unknown("classifier", classifier, CLASSIFIERS)
    if stop_on not in relatedness.STOP_ON:
        raise unknown("correlation to stop by", stop_on, relatedness.STOP_ON)
    names = resolve_tasks(tasks)
    if not names:
        raise ConfigurationError(f"no task was asked for: choose some of {', '.join(task_names())}")
    found: list[Task] = []
    missing: dict[str, Path | str] = {}
    differing: dict[str, str] = {}
    for name in names:
        task: Task | Path | str
        if is_custom(name):
            task = read_custom_task(name)
        elif name == "retrieval":
            if held_out is None:
                raise ConfigurationError("retrieval needs held-out queries and their passages, and none were given")
            task = held_out_retrieval.read_heldout_retrieval(held_out)
        elif data is None:
            raise ConfigurationError(
                f"{name} needs evaluation data: give a folder in SentEval's layout with --data, or the hub's own "
                f"copies with --data {hub_data.NAME}"
            )
        else:
            task, differs = read_task(name, Path(data), CLASSIFIERS[classifier], stop_on)
            differing |= {name: differs} if differs else {}
        if isinstance(task, Path | str):
            missing[name] = task
        else:
            found.append(task)
    if not found:
        raise DataError(f"no task has data: {'; '.join(f'{k}: {absence(place)}' for k, place in missing.items())}")
    prompted = PromptedTexts(text for task in found for text in task.prompted)
    return Suite(tasks=found, missing=missing, prompted=prompted, differing=differing)


def absence(place: Path | str) -> str:
    """Return where the data of a missing task was looked for, or why there is none."""
    return f"looked for {place}" if isinstance(place, Path) else place


def _is_averaged(score: Score) -> bool:
    # Only sub-sampled data have "rows" in the protocol; their scores are left out of averages.
    accuracy = (score.metric, score.split) == ("accuracy", "test") and "rows" not in score.protocol
    return accuracy or (score.metric, score.aggregation) == ("spearman", "all")
