"""Tasks by name: which texts they need, and from the vectors of those texts to scores.

    suite = read(["sts", "geometry"], data)       # which files, checked
    vectors = encode(suite.sentences)             # every different text of all tasks, once
    results = suite.score(vectors)

Whoever has the vectors already, of several poolings or of two models, calls ``score`` alone.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from selfsent.errors import UserError, unknown
from selfsent.evaluation import geometry, retrieval, sts
from selfsent.evaluation.score import Results, Score, average

Vectors = Float[np.ndarray, "N D"]
Encode = Callable[[list[str]], Vectors]
Task = sts.STS | geometry.Geometry | retrieval.Retrieval  # texts in; vectors of those texts to scores
HeldOut = tuple[Sequence[str], Sequence[str]]  # queries, and the passage that answers each

GROUPS = {"sts": (*sts.YEARS, "stsb", "sickr")}
SINGLE = (*GROUPS["sts"], "stsb-dev", "sickr-dev", "geometry", "geometry-dev", "retrieval")


def names() -> list[str]:
    """List the groups and tasks that can be asked for."""
    return sorted((*GROUPS, *SINGLE))


def resolve(tasks: Sequence[str]) -> list[str]:
    """Expand groups into tasks, each once, in the order asked for.

    Raises:
        UserError: there is no such task.
    """
    for name in tasks:
        if name not in GROUPS and name not in SINGLE:
            raise unknown("task", name, names())
    return list(dict.fromkeys(task for name in tasks for task in GROUPS.get(name, (name,))))


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The tasks that were found, and every different text they need."""

    tasks: list[Task]
    missing: dict[str, Path]
    sentences: list[str]

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
    ) -> Results:
        """Turn the vectors of ``sentences`` into scores.

        Args:
            bootstrap: resamples behind each interval; 0 leaves the intervals out.
            protocol: what only the caller knows (pooling, max_length, model); goes into every score.
            transform: is given all vectors of one task at a time, whitening fit on the target for one.

        Raises:
            UserError: a vector holds NaN or infinity.
            ValueError: there is not one vector for each sentence.
        """
        if vectors.ndim != 2 or len(vectors) != len(self.sentences):
            raise ValueError(f"expected {len(self.sentences)} vectors, got an array of shape {vectors.shape}")
        broken = ~np.isfinite(vectors).all(axis=1)
        row = {text: index for index, text in enumerate(self.sentences)}
        scores: list[Score] = []
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
            always = {"data": task.fingerprint, "bootstrap": f"{bootstrap} resamples, seed {seed}"}
            scores += [
                replace(score, protocol={**score.protocol, **always, **(protocol or {})})
                for score in task.score(given, resamples=bootstrap, seed=seed)
            ]
        tested = [score for score in scores if score.task in GROUPS["sts"] and _is_standard(score)]
        if len(tested) > 1:
            scores.append(average(tested))
        return Results(scores=scores, missing=self.missing, fingerprint=self.fingerprint)


def read(tasks: Sequence[str], data: Path | None, *, held_out: HeldOut | None = None) -> Suite:
    """Find and read the data of the tasks; those that are not there are named as missing.

    Raises:
        UserError: an unknown task, no data at all, or data that is not whole.
    """
    wanted = resolve(tasks)
    if not wanted:
        raise UserError(f"no task was asked for: choose some of {', '.join(names())}")
    on_disk = [name for name in wanted if name != "retrieval"]
    if on_disk and data is None:
        raise UserError(f"{on_disk[0]} needs a data folder in SentEval's layout: give one with --data")
    if "retrieval" in wanted and held_out is None:
        raise UserError("retrieval needs held-out queries and their passages, and none were given")
    folder = sts.find_folder(data) if on_disk and data is not None else Path()

    found: list[Task] = []
    missing: dict[str, Path] = {}
    for name in wanted:
        task = retrieval.read(held_out) if name == "retrieval" and held_out else _from_disk(name, folder)
        if isinstance(task, Path):
            missing[name] = task
        else:
            found.append(task)
    if not found:
        places = ", ".join(f"{name} at {path}" for name, path in missing.items())
        raise UserError(f"none of the tasks is in the data folder: looked for {places}")
    sentences = list(dict.fromkeys(text for task in found for text in task.texts))
    return Suite(tasks=found, missing=missing, sentences=sentences)


def run(
    encode: Encode,
    tasks: Sequence[str],
    data: Path | None,
    *,
    held_out: HeldOut | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
    protocol: Mapping[str, object] | None = None,
    report: Callable[[str], None] | None = None,
) -> Results:
    """Read the tasks, encode each of their texts once, and score.

    Args:
        encode: texts to vectors, order kept.
        data: a folder in SentEval's layout; None where no task needs one.
        held_out: queries and the passage that answers each, for ``retrieval``.
        protocol: what only the caller knows (pooling, max_length, model); goes into every score.
        report: is told in a sentence what is missing and what is being done.
    """
    suite = read(tasks, data, held_out=held_out)
    if report is not None:
        for name, path in suite.missing.items():
            report(f"{name} is missing: looked for {path}")
        report(f"encoding {len(suite.sentences):,} texts of {len(suite.tasks)} tasks")
    return suite.score(encode(suite.sentences), bootstrap=bootstrap, seed=seed, protocol=protocol)


def _is_standard(score: Score) -> bool:
    return (score.metric, score.aggregation) == ("spearman", "all")


def _from_disk(name: str, folder: Path) -> Task | Path:
    if not name.startswith("geometry"):
        return sts.read(name, folder)
    splits = ("dev",) if name.endswith("-dev") else tuple(sts.STSB)
    parts = [sts.read_stsb(folder, split) for split in splits]
    for part in parts:
        if isinstance(part, Path):
            return part
    whole = sts.STS(name=name, split="+".join(splits), parts=[p for p in parts if isinstance(p, sts.Pairs)])
    return geometry.Geometry(name=name, split=whole.split, pairs=whole)
