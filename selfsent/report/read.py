"""Read the folders of runs into plain records: nothing here draws, judges or encodes.

A run that is not finished is read as far as it goes.  A line of the log that a kill cut off is left out and counted.
"""

import copy
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from selfsent.atomic import cache_folder
from selfsent.config import recipe_table, resolve_recipe
from selfsent.corpus.dataset import Corpus
from selfsent.errors import UserError
from selfsent.evaluation.score import Score
from selfsent.run import Run

Curve = list[tuple[int, float]]  # (step, value), steps rising
Table = dict[str, Any]

GEOMETRY = ("alignment", "uniformity", "mean_cosine", "effective_rank", "stsb_alignment", "stsb_uniformity")
WORDS = ("better", "worse", "cannot tell")
_OWN = ("config.json", "scores.json", "verdict.json")
_FIELDS = {f.name for f in fields(Score)} - {"replicates"}


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """One model's scores from a file that ``selfsent evaluate --json`` left in the folder of a run."""

    model: str
    scores: list[Score]
    baselines: dict[str, list[Score]]


@dataclass(frozen=True, kw_only=True)
class RunVerdict:
    """What was said of the trained encoder when both had been measured."""

    word: str  # "better", "worse" or "cannot tell"
    sentences: list[str]  # without that word, where it is all that one of them says
    systems: dict[str, list[Score]] = field(default_factory=dict)  # base, trained and others, of verdict.json


@dataclass(frozen=True, kw_only=True)
class Log:
    """What log.jsonl says, by name: every curve over the steps."""

    terms: dict[str, Curve] = field(default_factory=dict)  # the loss is their sum
    figures: dict[str, Curve] = field(default_factory=dict)  # what an objective shows beside its terms
    scores: dict[str, Curve] = field(default_factory=dict)
    best_steps: list[int] = field(default_factory=list)
    alarms: list[tuple[int, str]] = field(default_factory=list)
    unread: int = 0  # lines that are no JSON

    @property
    def last_step(self) -> int:
        """The last step that left a line; 0 before the first."""
        curves = [*self.terms.values(), *self.scores.values()]
        return max((curve[-1][0] for curve in curves), default=0)


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
    evaluated: list[Evaluated]
    status: str | None  # None when finished; otherwise what is missing and what to do

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @property
    def recipe(self) -> Table:
        """What the run was asked for."""
        return self.config["recipe"]

    @property
    def seed(self) -> int | None:
        """The seed of the recipe."""
        return self.recipe.get("seed")

    @property
    def has_model(self) -> bool:
        """Whether the finished encoder is there."""
        return (self.folder / "model" / "modules.json").is_file()


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs of one recipe that differ in the seed alone."""

    name: str
    runs: list[Record]

    @property
    def first(self) -> Record:
        """The run that stands for all where only one can be shown: the first that has a model."""
        return next((run for run in self.runs if run.has_model), self.runs[0])


def read_run(folder: Path) -> Record:
    """Read the folder of one run.

    Raises:
        UserError: it holds no run, one of its files is damaged, or the run has not written a line yet.
    """
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}: give the folder of a run, such as runs/simcse")
    above = folder.resolve().parent
    if (folder / "modules.json").is_file() and (above / "config.json").is_file():
        raise UserError(f"{folder} is the model of a run: give the folder of the run, {above}")
    config = Run(folder).config()
    if isinstance(config, dict) and "recipe" not in config:
        config = _of_static_vectors(config)
    if not isinstance(config, dict) or not isinstance(config.get("recipe"), dict):
        raise UserError(f"{folder} holds no run: its config.json names no recipe, as that of a run does")
    log, scores = read_log(folder / "log.jsonl"), _json(folder / "scores.json")
    record = Record(
        folder=folder,
        kind="train" if "method" in config["recipe"] else "pretrain",
        config=config,
        log=log,
        base=_scores(scores.get("base")),
        trained=_scores(scores.get("trained")),
        verdict=_verdict(_json(folder / "verdict.json") or scores),
        outcome=scores.get("outcome", {} if "trained" in scores else scores),
        evaluated=list(_evaluated(folder)),
        status=None,
    )
    status = _status(record, bool(scores))
    if status and not log.terms and not log.scores and not record.has_model:
        raise UserError(f"{folder} has no line in its log yet: wait until the run has begun, or give one that has")
    return _with_status(record, status)


def _of_static_vectors(config: Table) -> Table:
    """Read as a recipe what ``pretrain --size static`` leaves: how vectors were counted, or which were taken over."""
    if isinstance(config.get("settings"), dict):
        return {**config, "recipe": {"size": "static", "texts": config.get("texts", []), **config["settings"]}}
    if "vectors" in config:
        return {**config, "recipe": {"size": "static", "vectors": config["vectors"]}}
    return config


def read_log(path: Path) -> Log:
    """Read log.jsonl; of two lines for one step the later one holds, as after a resume."""
    found: dict[str, dict[str, dict[int, float]]] = {"terms": {}, "figures": {}, "scores": {}}
    best: set[int] = set()
    alarms: dict[tuple[int, str], None] = {}
    unread = 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []:
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            step = int(entry["step"])
        except (ValueError, KeyError, TypeError):
            unread += 1
            continue
        for kind, curves in found.items():
            for name, value in (entry.get(kind) or {}).items():
                if isinstance(value, int | float) and math.isfinite(value):
                    curves.setdefault(name, {})[step] = float(value)
        if entry.get("best"):
            best.add(step)
        if "alarm" in entry:
            alarms[step, str(entry["alarm"])] = None
    return Log(
        terms=_curves(found["terms"]),
        figures=_curves(found["figures"]),
        scores=_curves(found["scores"]),
        best_steps=sorted(best),
        alarms=sorted(alarms),
        unread=unread,
    )


def _curves(values: Mapping[str, Mapping[int, float]]) -> dict[str, Curve]:
    return {name: sorted(by_step.items()) for name, by_step in values.items()}


def group_runs(runs: Sequence[Record]) -> list[Group]:
    """Put the seeds of one recipe together, in the order in which the recipes come."""
    by_recipe: dict[str, list[Record]] = {}
    for run in runs:
        by_recipe.setdefault(json.dumps(_identity(run), sort_keys=True, default=str), []).append(run)
    found: dict[str, list[Record]] = {}
    for members in by_recipe.values():
        bare = {run.name.removesuffix(str(run.seed)).rstrip("-_. ") for run in members}
        first = members[0]
        common = bare.pop() if len(members) > 1 and len(bare) == 1 else ""
        common = common or (first.name if len(members) == 1 else f"{first.name} and {len(members) - 1} more")
        above = first.folder.resolve().parent.name
        names = [common, f"{above}/{common}", *(f"{common} ({number})" for number in range(2, len(runs) + 2))]
        found[next(name for name in names if name not in found)] = members
    return [Group(name=name, runs=sorted(members, key=lambda run: run.seed or 0)) for name, members in found.items()]


def differences(groups: Sequence[Group]) -> dict[str, list[object]]:
    """Return the recipe keys in which groups differ, each with the value of every group."""
    flat = [dict(flatten(_identity(one.first))) for one in groups]
    keys = list(dict.fromkeys(key for table in flat for key in table))
    return {
        key: [table.get(key) for table in flat]
        for key in keys
        if any(table.get(key) != flat[0].get(key) for table in flat)
    }


def flatten(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, object]]:
    """Yield ("train.steps", 100) and its like from nested tables."""
    for key, value in table.items():
        place = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{place}.")
        elif not isinstance(value, Mapping):
            yield place, value


def corpus_of_run(run: Record) -> Corpus | None:
    """Open the corpus that a run was trained on, or return None where the cache no longer holds it."""
    fingerprint = run.config.get("corpus", {}).get("fingerprint")
    if not fingerprint:
        return None
    try:
        return Corpus(cache_folder("corpora", str(fingerprint)))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def planned_steps(run: Record) -> int | None:
    """Return how many steps the run takes, where its recipe says so."""
    steps = run.recipe.get("train", {}).get("steps")
    return steps if isinstance(steps, int) else None


def _identity(run: Record) -> Table:
    """Return the recipe without what may differ between its seeds, with today's defaults where a key is missing."""
    table = copy.deepcopy(run.recipe)
    if run.kind == "train":
        with suppress(UserError):  # of another version: compared as it stands
            table = recipe_table(resolve_recipe(table))
    for key in ("seed", "paper"):
        table.pop(key, None)
    for key in ("threads", "keep_heap"):
        table.get("hardware", {}).pop(key, None)
    return table


def _status(run: Record, scored: bool) -> str | None:
    if scored:
        return None
    if run.has_model:
        if run.kind == "pretrain":
            return None  # static vectors are counted, not scored
        return "It has a model and no scores: the same command with --resume measures it."
    steps = planned_steps(run)
    far = f"step {run.log.last_step:,}" + (f" of {steps:,}" if steps else "")
    return (
        f"It is at {far}, still being written or stopped: there is no verdict before its end. Wait and make "
        "this page again, or go on with the same command and --resume."
    )


def _with_status(run: Record, status: str | None) -> Record:
    return Record(**{f.name: getattr(run, f.name) for f in fields(Record)} | {"status": status})


def _json(path: Path) -> Table:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is damaged ({error}): run the same command with --resume to write it anew") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged: expected a JSON object, as train writes")
    return content


def _scores(results: object) -> list[Score]:
    listed = results.get("scores") if isinstance(results, Mapping) else None
    found = []
    for entry in listed or []:
        known = {key: value for key, value in entry.items() if key in _FIELDS}
        for key in ("value", "low", "high"):
            value = known.get(key)
            known[key] = None if value is None or not math.isfinite(value) else float(value)
        if known["value"] is not None:
            found.append(Score(**known))
    return found


def _evaluated(folder: Path) -> Iterator[Evaluated]:
    for path in sorted(folder.glob("*.json")):
        if path.name in _OWN:
            continue
        content = _json(path)
        if "scores" in content and "baselines" in content:
            yield Evaluated(
                model=str(content.get("model", path.stem)),
                scores=_scores(content),
                baselines={name: _scores(other) for name, other in content["baselines"].items()},
            )


def _verdict(content: Table) -> RunVerdict | None:
    """Read verdict.json, or the verdict of scores.json, which is one text."""
    said = content.get("verdict")
    if not isinstance(said, str):
        return None
    word = next((word for word in WORDS if said.lower().startswith(word)), said)
    sentences = content.get("sentences")
    if not isinstance(sentences, list):
        return RunVerdict(word=word, sentences=[said.removeprefix(f"{word.capitalize()}. ")])
    systems = {name: _scores(results) for name, results in content.items() if isinstance(results, Mapping)}
    return RunVerdict(
        word=word,
        sentences=[str(sentence) for sentence in sentences],
        systems={name: scores for name, scores in systems.items() if scores},
    )
