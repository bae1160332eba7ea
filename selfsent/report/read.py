"""Read the folders of runs into plain records; nothing here draws or encodes.

A run that is not finished is read as far as it goes.  A truncated line of the log is skipped and counted.
"""

import copy
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from selfsent.atomic import cache_folder
from selfsent.config import Table, recipe_table, resolve_recipe
from selfsent.corpus.dataset import Corpus
from selfsent.errors import ConfigurationError, ResumeError, UserError
from selfsent.evaluation.score import Results, Score
from selfsent.run import Run

Curve = list[tuple[int, float]]  # (step, value), steps rising

VERDICTS = ("better", "worse", "cannot tell")
_RUN_FILES = ("config.json", "scores.json", "verdict.json")


@dataclass(frozen=True, kw_only=True)
class RunVerdict:
    """The verdict on a trained encoder."""

    word: str  # one of VERDICTS
    sentences: list[str]
    systems: dict[str, list[Score]] = field(default_factory=dict)  # of verdict.json: base, trained and baselines


@dataclass(frozen=True, kw_only=True)
class Log:
    """The curves of log.jsonl by name."""

    terms: dict[str, Curve] = field(default_factory=dict)  # the loss is their sum
    figures: dict[str, Curve] = field(default_factory=dict)  # logged by an objective beside its terms
    scores: dict[str, Curve] = field(default_factory=dict)
    alarms: list[tuple[int, str]] = field(default_factory=list)
    unread: int = 0  # lines that are not valid JSON

    @property
    def last_step(self) -> int:
        """The last step that was logged; 0 before the first."""
        return max((curve[-1][0] for curve in [*self.terms.values(), *self.scores.values()]), default=0)


@dataclass(frozen=True, kw_only=True)
class Record:
    """One run, as its folder holds it."""

    folder: Path
    kind: str  # "train", or "pretrain", which has no base to compare with
    config: Table
    log: Log
    base: list[Score]
    trained: list[Score]
    verdict: RunVerdict | None
    outcome: Table
    evaluations: list[tuple[str, str, list[Score]]]  # model, note and scores, from ``selfsent evaluate --json``
    status: str | None = None  # None when finished; otherwise what is missing and what to do

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @property
    def recipe(self) -> Table:
        """The resolved recipe."""
        return self.config["recipe"]

    @property
    def seed(self) -> int | None:
        """The seed of the recipe."""
        return self.recipe.get("seed")

    @property
    def has_model(self) -> bool:
        """Whether the finished encoder exists."""
        return (self.folder / "model" / "modules.json").is_file()


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs of one recipe that differ in the seed alone."""

    name: str
    runs: list[Record]

    @property
    def first(self) -> Record:
        """The run shown where only one can be: the first that has a model."""
        return next((run for run in self.runs if run.has_model), self.runs[0])


# ----------------------------------------------------------------------------------------------------------- one run


def read_run(folder: Path) -> Record:
    """Read the folder of one run.

    Raises:
        UserError: it holds no run, one of its files is damaged, or the run has not logged anything yet.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"there is no folder {folder}: give the folder of a run, such as runs/simcse")
    above = folder.resolve().parent
    if (folder / "modules.json").is_file() and (above / "config.json").is_file():
        raise ConfigurationError(f"{folder} is the model of a run: give the folder of the run, {above}")
    config = _with_recipe(Run(folder).config())
    if not isinstance(config.get("recipe"), dict):
        raise ConfigurationError(f"{folder} holds no run: its config.json has no recipe")
    scores = _read_json(folder / "scores.json")
    record = Record(
        folder=folder,
        kind="train" if "method" in config["recipe"] else "pretrain",
        config=config,
        log=read_log(folder / "log.jsonl"),
        base=_scores(scores.get("base")),
        trained=_scores(scores.get("trained")),
        verdict=_verdict(_read_json(folder / "verdict.json") or scores),
        outcome=scores.get("outcome", {} if "trained" in scores else scores),
        evaluations=list(_evaluations(folder)),
    )
    if not (scores or record.has_model or record.log.terms or record.log.scores):
        raise ResumeError(f"{folder} has no line in its log yet: wait until the run has begun, or give one that has")
    return record if scores else replace(record, status=_unfinished(record))


def _with_recipe(config: Table) -> Table:
    """Give a folder of ``pretrain --size static`` a recipe: how vectors were counted, or which were read."""
    if "recipe" not in config and isinstance(config.get("settings"), dict):
        return {**config, "recipe": {"size": "static", "texts": config.get("texts", []), **config["settings"]}}
    if "recipe" not in config and "vectors" in config:
        return {**config, "recipe": {"size": "static", "vectors": config["vectors"]}}
    return config


def _unfinished(run: Record) -> str | None:
    """Say how far a run without scores is."""
    if run.has_model:
        if run.kind == "pretrain":
            return None  # static vectors are not scored
        return "It has a model but no scores: run the same command with --resume to evaluate it."
    steps = run.recipe.get("train", {}).get("steps")
    reached = f"step {run.log.last_step:,}" + (f" of {steps:,}" if isinstance(steps, int) else "")
    return (
        f"It is at {reached}, still training or stopped: there is no verdict before its end. Wait and make this page "
        "again, or resume it with the same command and --resume."
    )


def read_log(path: Path) -> Log:
    """Read log.jsonl; of two lines for one step the later one holds, as after a resume."""
    curves: dict[str, dict[str, dict[int, float]]] = {"terms": {}, "figures": {}, "scores": {}}
    alarms: set[tuple[int, str]] = set()
    unread = 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []:
        try:
            entry = json.loads(line)
            step = int(entry["step"])
        except (ValueError, KeyError, TypeError):
            unread += bool(line.strip())
            continue
        for kind, by_name in curves.items():
            for name, value in (entry.get(kind) or {}).items():
                if isinstance(value, int | float) and math.isfinite(value):
                    by_name.setdefault(name, {})[step] = float(value)
        if "alarm" in entry:
            alarms.add((step, str(entry["alarm"])))
    terms, figures, scores = (
        {name: sorted(by_step.items()) for name, by_step in by_name.items()} for by_name in curves.values()
    )
    return Log(terms=terms, figures=figures, scores=scores, alarms=sorted(alarms), unread=unread)


def corpus_of_run(run: Record) -> Corpus | None:
    """Open the corpus that a run was trained on, or return None where the cache no longer holds it."""
    fingerprint = run.config.get("corpus", {}).get("fingerprint")
    if not fingerprint:
        return None
    try:
        return Corpus(cache_folder("corpora", str(fingerprint)))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _read_json(path: Path) -> Table:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ResumeError(
            f"{path} is damaged ({error}): run the same command with --resume to write it again"
        ) from error
    if not isinstance(content, dict):
        raise ResumeError(f"{path} is damaged: expected a JSON object, as train writes")
    return content


def _scores(results: object) -> list[Score]:
    """Return the finite scores of a ``Results.as_dict``; an interval that is not finite is left out."""
    if not isinstance(results, Mapping) or "scores" not in results:
        return []
    try:
        scores = Results.from_dict({"missing": {}, "fingerprint": "", **results}).scores
    except TypeError as error:
        raise ResumeError(f"these scores are of another version of selfsent ({error}): evaluate again") from error
    return [
        replace(score, low=_finite(score.low), high=_finite(score.high))
        for score in scores
        if _finite(score.value) is not None
    ]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _evaluations(folder: Path) -> Iterator[tuple[str, str, list[Score]]]:
    """Read the files that ``selfsent evaluate --json`` wrote into the folder of a run."""
    for path in sorted(folder.glob("*.json")):
        content = _read_json(path) if path.name not in _RUN_FILES else {}
        if "scores" in content and "baselines" in content:
            model = str(content.get("model", path.stem))
            yield model, "as it is", _scores(content)
            for name, results in content["baselines"].items():
                yield name, f"of {model}", _scores(results)


def _verdict(content: Table) -> RunVerdict | None:
    """Read verdict.json, or the verdict in scores.json, which is one text."""
    text = content.get("verdict")
    if not isinstance(text, str):
        return None
    word = next((word for word in VERDICTS if text.lower().startswith(word)), text)
    if "sentences" not in content:
        return RunVerdict(word=word, sentences=[text.removeprefix(f"{word.capitalize()}. ")])
    systems = {name: _scores(results) for name, results in content.items()}
    return RunVerdict(
        word=word,
        sentences=[str(sentence) for sentence in content["sentences"]],
        systems={name: scores for name, scores in systems.items() if scores},
    )


# -------------------------------------------------------------------------------------------------------- many runs


def group_runs(runs: Sequence[Record]) -> list[Group]:
    """Group the seeds of one recipe, in the order in which the recipes come."""
    by_recipe: dict[str, list[Record]] = {}
    for run in runs:
        by_recipe.setdefault(json.dumps(_without_seed(run), sort_keys=True, default=str), []).append(run)
    groups: dict[str, list[Record]] = {}
    for members in by_recipe.values():
        first = members[0]
        stems = {run.name.removesuffix(str(run.seed)).rstrip("-_. ") for run in members}
        if len(members) == 1:
            name = first.name
        else:
            name = (stems.pop() if len(stems) == 1 else "") or f"{first.name} and {len(members) - 1} more"
        parent = first.folder.resolve().parent.name
        names = [name, f"{parent}/{name}", *(f"{name} ({number})" for number in range(2, len(runs) + 2))]
        groups[next(name for name in names if name not in groups)] = members
    return [Group(name=name, runs=sorted(members, key=lambda run: run.seed or 0)) for name, members in groups.items()]


def differences(groups: Sequence[Group]) -> dict[str, list[object]]:
    """Return the recipe keys in which groups differ, each with the value of every group."""
    recipes = [dict(flatten(_without_seed(group.first))) for group in groups]
    values = {key: [recipe.get(key) for recipe in recipes] for recipe in recipes for key in recipe}
    return {key: row for key, row in values.items() if any(value != row[0] for value in row)}


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield ("train.steps", 100) and its like from nested tables."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _without_seed(run: Record) -> Table:
    """Return the recipe without what may differ between its seeds, with today's defaults where a key is missing."""
    table = copy.deepcopy(run.recipe)
    if run.kind == "train":
        with suppress(UserError):  # of another version: compared as it is
            table = recipe_table(resolve_recipe(table))
    for key in ("seed", "paper"):
        table.pop(key, None)
    for key in ("threads", "keep_heap"):
        table.get("hardware", {}).pop(key, None)
    return table
