"""Tasks by name: which texts they need, and from the vectors of those texts to scores.

    suite = read(["sts", "transfer"], data)       # which files, checked
    vectors = encode(suite.sentences)             # every different text of all tasks, once
    results = suite.score(vectors)                # trains classifiers where a task has them

Whoever has the vectors already, of several poolings or of two models, calls ``score`` alone.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from selfsent.errors import UserError, unknown
from selfsent.evaluation import geometry, hub, manifest, sts
from selfsent.evaluation.custom import public_datasets
from selfsent.evaluation.custom import tasks as files
from selfsent.evaluation.labelfree import heldout_retrieval
from selfsent.evaluation.score import Results, Score, average
from selfsent.evaluation.senteval import caption_retrieval, declutr_averages, probing, relatedness, transfer
from selfsent.evaluation.senteval.classification import Classification
from selfsent.evaluation.senteval.classifiers import CLASSIFIERS, Classifier
from selfsent.evaluation.senteval.files import find_folder, find_probing
from selfsent.evaluation.senteval.relatedness import Relatedness, StopOn
from selfsent.progress import SILENT, Progress

Vectors = Float[np.ndarray, "N D"]
Encode = Callable[[list[str]], Vectors]
Learned = Classification | Relatedness | caption_retrieval.Captions  # train something on the vectors first
Task = (
    sts.STS | geometry.Geometry | heldout_retrieval.HeldOutRetrieval | Learned | files.OwnTask
)  # texts in; their vectors to scores
HeldOut = tuple[Sequence[str], Sequence[str]]  # queries, and the passage that answers each

GROUPS = {
    "sts": (*sts.YEARS, "stsb", "sickr"),
    "transfer": transfer.AVERAGED,
    "probing": tuple(probing.TASKS),
    "downstream": tuple(declutr_averages.DOWNSTREAM),  # DeCLUTR's 18
}
SINGLE = (
    *GROUPS["sts"],
    *("stsb-dev", "sickr-dev", "geometry", "geometry-dev", "retrieval"),
    *transfer.TASKS,
    *relatedness.TASKS,
    *probing.TASKS,
    *public_datasets.TASKS,
    "captions",
)
DEFAULT_CLASSIFIER = "senteval_full"


def task_names() -> list[str]:
    """List the groups and tasks that can be asked for."""
    return sorted((*GROUPS, *SINGLE))


def resolve_tasks(tasks: Sequence[str]) -> list[str]:
    """Expand groups into tasks, each once, in the order asked for; own files stay as they are named.

    Raises:
        UserError: there is no such task.
    """
    for name in tasks:
        if name not in GROUPS and name not in SINGLE and not files.is_custom(name):
            raise unknown("task", name, [*task_names(), *(f"{kind}:FILE" for kind in files.KINDS)])
    return list(dict.fromkeys(task for name in tasks for task in GROUPS.get(name, (name,))))


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The tasks that were found, and every different text they need."""

    tasks: list[Task]
    missing: dict[str, Path | str]  # where it was looked for, or why it cannot be there
    sentences: list[str]
    differing: dict[str, list[str]] = field(default_factory=dict)  # task -> its files that are not the known ones

    @property
    def notes(self) -> list[str]:
        """What a reader of the scores should know about the data, a sentence each."""
        missing = [f"{name} is missing: {absence(place)}" for name, place in self.missing.items()]
        sampled = [
            f"warning: {task.name} is {task.note}"
            for task in self.tasks
            if isinstance(task, Classification) and task.note
        ]
        others = dict.fromkeys(map(_first_of, self.differing.values()))  # several tasks may read the same files
        return (
            missing + sampled + [f"{file} differs from the known file: its scores may not compare" for file in others]
        )

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits of all that was read."""
        parts = "\n".join(f"{task.name} {task.fingerprint}" for task in self.tasks)
        return hashlib.sha256(parts.encode()).hexdigest()[:16]

    def score(
        self,
        vectors: Vectors,
        *,
        bootstrap: int = 1000,
        seed: int = 0,
        protocol: Mapping[str, object] | None = None,
        transform: Callable[[Vectors], Vectors] | None = None,
        progress: Progress = SILENT,
    ) -> Results:
        """Turn the vectors of ``sentences`` into scores.

        Args:
            bootstrap: resamples behind each interval; 0 leaves the intervals out.
            protocol: what only the caller knows (pooling, max_length, model); goes into every score.
            transform: is given all vectors of one task at a time, whitening fit on the target for one.

        Raises:
            UserError: a vector holds NaN or infinity, or a task's labels cannot be learned.
            ValueError: there is not one vector for each sentence.
        """
        if vectors.ndim != 2 or len(vectors) != len(self.sentences):
            raise ValueError(f"expected {len(self.sentences)} vectors, got an array of shape {vectors.shape}")
        broken = ~np.isfinite(vectors).all(axis=1)
        row = {text: index for index, text in enumerate(self.sentences)}
        scores: list[Score] = []
        trained = sum(isinstance(task, Learned) for task in self.tasks)
        number = 0
        for task in self.tasks:
            rows = np.array([row[text] for text in task.texts])
            if broken[rows].any():
                first = self.sentences[rows[broken[rows]][0]]
                many = len(np.unique(rows[broken[rows]]))
                raise UserError(
                    f"the encoder gives NaN or infinity for {many} texts of {task.name}, first for "
                    f"{first[:60]!r}: its weights are broken or its precision is too low"
                )
            given = vectors[rows] if transform is None else transform(vectors[rows])
            always: dict[str, object] = {"data": task.fingerprint, "bootstrap": f"{bootstrap} resamples, seed {seed}"}
            if task.name in self.differing:
                always["differs"] = _first_of(self.differing[task.name])
            if isinstance(task, Learned):
                number += 1
                found = task.score(given, resamples=bootstrap, seed=seed, progress=_Numbered(progress, number, trained))
            else:
                found = task.score(given, resamples=bootstrap, seed=seed)
            scores += [replace(score, protocol={**score.protocol, **always, **(protocol or {})}) for score in found]
        for tasks, is_standard in (
            (GROUPS["sts"], _is_correlation),
            (GROUPS["transfer"], _is_accuracy),
            (GROUPS["probing"], _is_accuracy),
        ):
            tested = [score for score in scores if score.task in tasks and is_standard(score)]
            if len(tested) > 1:
                scores.append(average(sorted(tested, key=lambda score: tasks.index(score.task))))
        return Results(scores=scores, missing=self.missing, fingerprint=self.fingerprint)


def read_suite(
    tasks: Sequence[str],
    data: Path | None,
    *,
    held_out: HeldOut | None = None,
    classifier: str = DEFAULT_CLASSIFIER,
    stop_on: StopOn = "pearson",
) -> Suite:
    """Find and read the data of the tasks; those that are not there are named as missing.

    Args:
        data: a folder in SentEval's layout, or ``hub`` for copies of the sets there; None where no task needs any.
        classifier: what is trained on the vectors of labelled tasks, one of ``learners.CLASSIFIERS``.
        stop_on: the development correlation that stops the regressions.

    Raises:
        UserError: an unknown task or classifier, no data at all, or data that is not whole.
    """
    if classifier not in CLASSIFIERS:
        raise unknown("classifier", classifier, CLASSIFIERS)
    if stop_on not in relatedness.STOP_ON:
        raise unknown("correlation to stop by", stop_on, relatedness.STOP_ON)
    wanted = resolve_tasks(tasks)
    if not wanted:
        raise UserError(f"no task was asked for: choose some of {', '.join(task_names())}")
    on_disk = [name for name in wanted if name != "retrieval" and not files.is_custom(name)]
    if on_disk and data is None:
        raise UserError(
            f"{on_disk[0]} needs evaluation data: give a folder in SentEval's layout with --data, or the hub's own "
            f"copies with --data {hub.NAME}"
        )
    if "retrieval" in wanted and held_out is None:
        raise UserError("retrieval needs held-out queries and their passages, and none were given")
    readers = _Readers(on_disk, data, CLASSIFIERS[classifier], stop_on)

    found: list[Task] = []
    missing: dict[str, Path | str] = {}
    for name in wanted:
        task: Task | Path | str
        if files.is_custom(name):
            task = files.read_custom_task(name)
        elif name == "retrieval" and held_out:
            task = heldout_retrieval.read_heldout_retrieval(held_out)
        else:
            task = readers.read(name)
        if isinstance(task, Path | str):
            missing[name] = task
        else:
            found.append(task)
    if not found:
        if hub.hub_requested(data):
            raise UserError(f"{', '.join(missing)}: {hub.ABSENT} with --data")
        places = ", ".join(f"{name} at {path}" for name, path in missing.items())
        raise UserError(f"none of the tasks is in the data folder: looked for {places}")
    sentences = list(dict.fromkeys(text for task in found for text in task.texts))
    return Suite(tasks=found, missing=missing, sentences=sentences, differing=readers.differing)


def run_suite(
    encode: Encode,
    tasks: Sequence[str],
    data: Path | None,
    *,
    held_out: HeldOut | None = None,
    classifier: str = DEFAULT_CLASSIFIER,
    stop_on: StopOn = "pearson",
    bootstrap: int = 1000,
    seed: int = 0,
    protocol: Mapping[str, object] | None = None,
    progress: Progress = SILENT,
) -> Results:
    """Read the tasks, encode each of their texts once, and score.

    Args:
        encode: texts to vectors, order kept.
        data: a folder in SentEval's layout, or ``hub``; None where no task needs any.
        held_out: queries and the passage that answers each, for ``retrieval``.
        classifier: what is trained on the vectors of labelled tasks.
        stop_on: the development correlation that stops the regressions.
        protocol: what only the caller knows (pooling, max_length, model); goes into every score.
    """
    suite = read_suite(tasks, data, held_out=held_out, classifier=classifier, stop_on=stop_on)
    for line in suite.notes:
        progress.say(line)
    progress.say(f"encoding {len(suite.sentences):,} texts of {len(suite.tasks)} tasks")
    return suite.score(encode(suite.sentences), bootstrap=bootstrap, seed=seed, protocol=protocol, progress=progress)


def _is_correlation(score: Score) -> bool:
    return (score.metric, score.aggregation) == ("spearman", "all")


def _is_accuracy(score: Score) -> bool:
    # "rows" stands in the protocol of sub-sampled data alone, whose scores are no part of anybody's average.
    return (score.metric, score.split) == ("accuracy", "test") and "rows" not in score.protocol


class _Numbered(Progress):
    """Progress of one task of several."""

    def __init__(self, outer: Progress, number: int, count: int) -> None:
        self._outer, self._prefix = outer, f"task {number} of {count}, "

    def report(self, stage: str, done: int, total: int | None = None) -> None:
        """Report a stage of the task, after its number."""
        self._outer.report(self._prefix + stage, done, total)


class _Readers:
    """Reads tasks from the hub or the data folder, looking for its parts only where a task needs them."""

    def __init__(self, names: Sequence[str], data: Path | None, classifier: Classifier, stop_on: StopOn) -> None:
        self._classifier, self._stop_on = classifier, stop_on
        self._probing = self._folder = Path()
        self.differing: dict[str, list[str]] = {}
        self._hub = hub.hub_requested(data)
        if self._hub:
            return
        if data is not None and any(name in probing.TASKS for name in names):
            self._probing = find_probing(data)
        if data is not None and any(name not in probing.TASKS and name not in public_datasets.TASKS for name in names):
            self._folder = find_folder(data)
        self._data = data or Path()

    def read(self, name: str) -> Task | Path | str:
        """Read one task or return where it should have been, or why it cannot be there."""
        if self._hub and name.startswith("geometry"):
            return _geometry(name, hub.stsb)
        if self._hub:
            return hub.read_hub(name, self._classifier, self._stop_on) or hub.ABSENT
        task = self._from_folder(name)
        if not isinstance(task, Path):
            place = (
                public_datasets.find_public_dataset(name, self._data).parent
                if name in public_datasets.TASKS
                else self._folder
            )
            differing = manifest.differing(name, place)
            if differing:
                self.differing[name] = differing
        return task

    def _from_folder(self, name: str) -> Task | Path:
        if name in probing.TASKS:
            return probing.read_probing(name, self._probing, self._classifier)
        if name in public_datasets.TASKS:
            return public_datasets.read_public_dataset(name, self._data)
        if name in transfer.TASKS:
            return transfer.read_transfer(name, self._folder, self._classifier)
        if name in relatedness.TASKS:
            return relatedness.read_relatedness(name, self._folder, self._stop_on)
        if name == "captions":
            return caption_retrieval.read_captions(self._folder)
        if name.startswith("geometry"):
            return _geometry(name, lambda split: sts.read_stsb(self._folder, split))
        return sts.read_sts(name, self._folder)


def absence(place: Path | str) -> str:
    """Say of a missing task where it was looked for, or why it cannot be there."""
    return f"looked for {place}" if isinstance(place, Path) else place


def _first_of(files: Sequence[str]) -> str:
    return files[0] + (f" (and {len(files) - 1} beside it)" if len(files) > 1 else "")


def _geometry(name: str, read_split: Callable[[str], sts.SentencePairs | Path]) -> Task | Path:
    splits = ("dev",) if name.endswith("-dev") else tuple(sts.STSB)
    parts = [read_split(split) for split in splits]
    for part in parts:
        if isinstance(part, Path):
            return part
    whole = sts.STS(name=name, split="+".join(splits), parts=[p for p in parts if isinstance(p, sts.SentencePairs)])
    return geometry.Geometry(name=name, split=whole.split, pairs=whole)
