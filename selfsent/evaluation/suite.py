"""Tasks by name: the texts they need, and scores from the vectors of those texts.

suite = read_suite(["sts", "transfer"], data)   # reads and checks the files
vectors = encode(suite.sentences)               # every distinct text of all tasks, once
results = suite.score(vectors)                  # trains classifiers where a task has them
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from selfsent.errors import ConfigurationError, DataError, EncoderError, unknown
from selfsent.evaluation import geometry, hub, manifest, sts
from selfsent.evaluation.custom import public_datasets
from selfsent.evaluation.custom.tasks import KINDS, is_custom, read_custom_task
from selfsent.evaluation.labelfree import heldout_retrieval
from selfsent.evaluation.score import Results, Score, average
from selfsent.evaluation.senteval import caption_retrieval, declutr_averages, probing, relatedness, transfer
from selfsent.evaluation.senteval.classification import Classification
from selfsent.evaluation.senteval.classifiers import CLASSIFIERS, Classifier
from selfsent.evaluation.senteval.files import find_folder, find_probing
from selfsent.evaluation.senteval.relatedness import StopOn
from selfsent.evaluation.task import Task, fingerprint
from selfsent.progress import SILENT, Prefixed, Progress

Vectors = Float[np.ndarray, "N D"]
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
    """List the names of groups and tasks."""
    return sorted((*GROUPS, *SINGLE))


def resolve_tasks(tasks: Sequence[str]) -> list[str]:
    """Expand groups into tasks, each once, in the given order; own files keep their names.

    Raises:
        ConfigurationError: there is no such task.
    """
    for name in tasks:
        if name not in GROUPS and name not in SINGLE and not is_custom(name):
            raise unknown("task", name, [*task_names(), *(f"{kind}:FILE" for kind in KINDS)])
    return list(dict.fromkeys(task for name in tasks for task in GROUPS.get(name, (name,))))


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The tasks whose data were found, and every distinct text they need."""

    tasks: list[Task]
    missing: dict[str, Path | str]  # where the data was expected, or why there is none
    sentences: list[str]
    differing: dict[str, list[str]] = field(default_factory=dict)  # task -> its files that are not the known ones

    @property
    def notes(self) -> list[str]:
        """What a reader of the scores should know about the data, a sentence each."""
        missing = [f"{name} is missing: {absence(place)}" for name, place in self.missing.items()]
        sampled = [
            f"warning: {task.name} is sub-sampled, {task.facts['rows']} rows: not comparable with published scores"
            for task in self.tasks
            if isinstance(task, Classification) and "rows" in task.facts
        ]
        files = dict.fromkeys(map(_first_of, self.differing.values()))  # several tasks may read the same files
        return missing + sampled + [f"{file} differs from the known file: its scores may not compare" for file in files]

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that identify the data of all tasks."""
        return fingerprint(["\n".join(f"{task.name} {task.fingerprint}" for task in self.tasks)])

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
        """Compute the scores of all tasks from the vectors of ``sentences``.

        Args:
            bootstrap: resamples behind each interval; 0 leaves the intervals out.
            protocol: what only the caller knows (pooling, max_length, model); goes into every score.
            transform: applied to the vectors of each task, whitening fitted to the task for example.

        Raises:
            EncoderError: a vector holds NaN or infinity.
            DataError: no classifier can be trained on a task's labels.
            ValueError: there is not one vector for each sentence.
        """
        if vectors.ndim != 2 or len(vectors) != len(self.sentences):
            raise ValueError(f"expected {len(self.sentences)} vectors, got an array of shape {vectors.shape}")
        row = {text: index for index, text in enumerate(self.sentences)}
        scores: list[Score] = []
        for number, task in enumerate(self.tasks, start=1):
            given = vectors[[row[text] for text in task.texts]]
            _require_finite(task, given)
            always: dict[str, object] = {"data": task.fingerprint, "bootstrap": f"{bootstrap} resamples, seed {seed}"}
            if task.name in self.differing:
                always["differs"] = _first_of(self.differing[task.name])
            numbered = Prefixed(progress, f"task {number} of {len(self.tasks)}, ")
            given = given if transform is None else transform(given)
            for score in task.score(given, resamples=bootstrap, seed=seed, progress=numbered):
                scores.append(replace(score, protocol={**score.protocol, **always, **(protocol or {})}))
        for group, is_averaged in (("sts", _is_spearman), ("transfer", _is_accuracy), ("probing", _is_accuracy)):
            names = GROUPS[group]
            averaged = [score for score in scores if score.task in names and is_averaged(score)]
            if len(averaged) > 1:
                scores.append(average(sorted(averaged, key=lambda score: names.index(score.task))))
        return Results(scores=scores, missing=self.missing, fingerprint=self.fingerprint)


def read_suite(
    tasks: Sequence[str],
    data: Path | None,
    *,
    held_out: HeldOut | None = None,
    classifier: str = DEFAULT_CLASSIFIER,
    stop_on: StopOn = "pearson",
) -> Suite:
    """Find and read the data of the tasks; tasks without data are listed as missing.

    Args:
        data: a folder in SentEval's layout, or ``hub`` for the hub's copies; None where no task needs data.
        held_out: queries and the passage that answers each, for ``retrieval``.
        classifier: trained on the vectors of labelled tasks, one of ``classifiers.CLASSIFIERS``.
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
    on_disk = [name for name in names if name != "retrieval" and not is_custom(name)]
    if on_disk and data is None:
        raise ConfigurationError(
            f"{on_disk[0]} needs evaluation data: give a folder in SentEval's layout with --data, or the hub's own "
            f"copies with --data {hub.NAME}"
        )
    if "retrieval" in names and held_out is None:
        raise ConfigurationError("retrieval needs held-out queries and their passages, and none were given")
    reader = _Reader(on_disk, data or Path(), CLASSIFIERS[classifier], stop_on)

    found: list[Task] = []
    missing: dict[str, Path | str] = {}
    for name in names:
        task: Task | Path | str
        if is_custom(name):
            task = read_custom_task(name)
        elif name == "retrieval" and held_out:
            task = heldout_retrieval.read_heldout_retrieval(held_out)
        else:
            task = reader.read(name)
        if isinstance(task, Path | str):
            missing[name] = task
        else:
            found.append(task)
    if not found:
        if hub.hub_requested(data):
            raise DataError(f"{', '.join(missing)}: {hub.ABSENT} with --data")
        places = ", ".join(f"{name} at {path}" for name, path in missing.items())
        raise DataError(f"none of the tasks is in the data folder: looked for {places}")
    sentences = list(dict.fromkeys(text for task in found for text in task.texts))
    return Suite(tasks=found, missing=missing, sentences=sentences, differing=reader.differing)


def absence(place: Path | str) -> str:
    """Return where the data of a missing task was looked for, or why there is none."""
    return f"looked for {place}" if isinstance(place, Path) else place


def _require_finite(task: Task, vectors: Vectors) -> None:
    broken = ~np.isfinite(vectors).all(axis=1)
    if broken.any():
        texts = list(dict.fromkeys(text for text, is_broken in zip(task.texts, broken, strict=True) if is_broken))
        raise EncoderError(
            f"the encoder gives NaN or infinity for {len(texts)} texts of {task.name}, first for {texts[0][:60]!r}: "
            "its weights are broken or its precision is too low"
        )


def _is_spearman(score: Score) -> bool:
    return (score.metric, score.aggregation) == ("spearman", "all")


def _is_accuracy(score: Score) -> bool:
    # Only sub-sampled data have "rows" in the protocol; their scores are left out of averages.
    return (score.metric, score.split) == ("accuracy", "test") and "rows" not in score.protocol


class _Reader:
    """Reads tasks from the hub or the data folder; folders are looked for only where a task needs them."""

    def __init__(self, names: Sequence[str], data: Path, classifier: Classifier, stop_on: StopOn) -> None:
        self._data, self._classifier, self._stop_on = data, classifier, stop_on
        self._probing = self._folder = Path()
        self.differing: dict[str, list[str]] = {}
        self._from_hub = hub.hub_requested(data)
        if not self._from_hub and any(name in probing.TASKS for name in names):
            self._probing = find_probing(data)
        if not self._from_hub and any(name not in {*probing.TASKS, *public_datasets.TASKS} for name in names):
            self._folder = find_folder(data)

    def read(self, name: str) -> Task | Path | str:
        """Read one task, or return where its data was expected, or why there is none."""
        if self._from_hub and name.startswith("geometry"):
            return _geometry(name, hub.stsb)
        if self._from_hub:
            return hub.read_hub(name, self._classifier, self._stop_on) or hub.ABSENT
        found = self._read_folder(name)
        if not isinstance(found, Path):
            public = name in public_datasets.TASKS
            place = public_datasets.find_public_dataset(name, self._data).parent if public else self._folder
            if differing := manifest.differing(name, place):
                self.differing[name] = differing
        return found

    def _read_folder(self, name: str) -> Task | Path:
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


def _first_of(files: Sequence[str]) -> str:
    return files[0] + (f" (and {len(files) - 1} beside it)" if len(files) > 1 else "")


def _geometry(name: str, read_split: Callable[[str], sts.SentencePairs | Path]) -> Task | Path:
    splits = ("dev",) if name.endswith("-dev") else tuple(sts.STSB)
    parts = []
    for split in splits:
        part = read_split(split)
        if isinstance(part, Path):
            return part
        parts.append(part)
    split = "+".join(splits)
    return geometry.Geometry(name=name, split=split, pairs=sts.STS(name=name, split=split, parts=parts))
