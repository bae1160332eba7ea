"""Read the folders of runs into plain records; nothing here draws or encodes.

A run that is not finished is read as far as it goes, and a line of its log that was cut off by a kill is skipped.
"""

import copy
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selfsent.config import Table, recipe_table, resolve_recipe
from selfsent.corpus.dataset import Corpus
from selfsent.errors import ResumeError, UserError, first_line
from selfsent.evaluation.score import Score
from selfsent.storage.atomic import cache_folder, cached, read_sealed, verify
from selfsent.storage.run_folder import Run

Curve = list[tuple[int, float]]  # (step, value), steps rising

VERDICTS = ("better", "worse", "cannot tell")


@dataclass(frozen=True, kw_only=True)
class Record:
    """One run, as its folder holds it."""

    folder: Path
    config: Table
    curves: dict[str, dict[str, Curve]]  # "terms", "figures" and "scores" of the log, each by name
    alarms: list[tuple[int, str]]
    measured: dict[str, dict[str, list[Score]]]  # by file and system: base, trained, and the baselines
    levels: dict[str, dict[str, float]]  # score in training -> baseline -> its value on the same development data
    verdict: str  # one of VERDICTS; empty without one
    reasons: str  # the sentences of the verdict
    outcome: Table
    finished: bool

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @property
    def recipe(self) -> Table:
        """The resolved recipe."""
        return self.config["recipe"]

    @property
    def pretraining(self) -> bool:
        """Whether this run has no base to compare with."""
        return "method" not in self.recipe

    @property
    def has_model(self) -> bool:
        """Whether the finished encoder exists."""
        return (self.folder / "model" / "modules.json").is_file()

    @property
    def last_step(self) -> int:
        """The last step that was logged; 0 before the first."""
        return max((curve[-1][0] for curves in self.curves.values() for curve in curves.values()), default=0)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs of one recipe that differ in the seed alone."""

    name: str
    runs: list[Record]

    @property
    def first(self) -> Record:
        """The run shown where only one can be: the first that has a model."""
        return next((run for run in self.runs if run.has_model), self.runs[0])


def read_run(folder: Path) -> Record:
    """Read the folder of one run.

    Raises:
        UserError: it holds no run, one of its files is damaged, or the run has not logged anything yet.
    """
    config = _with_recipe(Run(folder).config())
    if not isinstance(config.get("recipe"), dict):
        raise ResumeError(f"{folder} holds no run: its config.json has no recipe; give the folder of a run")
    contents = {
        "scores.json": _read_scores(folder / "scores.json"),
        "verdict.json": _read_verdict(folder / "verdict.json"),
    }
    scores, tested = contents.values()
    text = str((tested or scores).get("verdict", ""))
    verdict = next((word for word in VERDICTS if text.lower().startswith(word)), text)
    log = folder / "log.jsonl"
    if scores and log.exists():  # before the end it grows
        verify(log, "delete it to write the report without its curves")
    curves, alarms = read_log(log)
    record = Record(
        folder=folder,
        config=config,
        curves=curves,
        alarms=alarms,
        measured={name: _scores(content) for name, content in contents.items()},
        verdict=verdict,
        levels={"retrieval": _levels(scores)},
        # verdict.json lists the sentences; scores.json has word and sentences in one text.
        reasons=" ".join(tested.get("sentences", [_sentence(text[len(verdict) :])])),
        outcome=scores.get("outcome", scores),
        finished=bool(scores) or config["recipe"].get("size") == "static",  # static vectors are not scored
    )
    if not (record.finished or record.has_model or record.last_step):
        raise ResumeError(f"{folder} has no line in its log yet: wait until the run has begun, or give one that has")
    return record


def _sentence(rest: str) -> str:
    """Make a sentence of what follows a verdict's first word."""
    rest = rest.lstrip(",. ")
    return rest[:1].upper() + rest[1:]


def _with_recipe(config: Table) -> Table:
    """Give a folder of ``pretrain --size static`` a recipe: how vectors were counted, or which were read."""
    if "recipe" not in config and isinstance(config.get("settings"), dict):
        return {**config, "recipe": {"size": "static", "texts": config.get("texts", []), **config["settings"]}}
    if "recipe" not in config and "vectors" in config:
        return {**config, "recipe": {"size": "static", "vectors": config["vectors"]}}
    return config


def read_log(path: Path) -> tuple[dict[str, dict[str, Curve]], list[tuple[int, str]]]:
    """Return curves and alarms; of two lines for one step the later one holds, as after a resume."""
    points: dict[str, dict[str, dict[int, float]]] = {"terms": {}, "figures": {}, "scores": {}}
    alarms: set[tuple[int, str]] = set()
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []:
        try:
            entry = json.loads(line)
            step = int(entry["step"])
        except (ValueError, TypeError, KeyError, RecursionError):
            continue  # cut off
        for kind, by_name in points.items():
            values = entry.get(kind)
            for name, value in values.items() if isinstance(values, dict) else ():
                if isinstance(value, int | float) and math.isfinite(value):
                    by_name.setdefault(name, {})[step] = float(value)
        if "alarm" in entry:
            alarms.add((step, str(entry["alarm"])))
    curves = {
        kind: {name: sorted(by_step.items()) for name, by_step in by_name.items()} for kind, by_name in points.items()
    }
    return curves, sorted(alarms)


def corpus_of_run(run: Record) -> Corpus | None:
    """Open the corpus that a run was trained on, or return None where the cache no longer holds it."""
    fingerprint = run.config.get("corpus", {}).get("fingerprint")
    folder = cache_folder("corpora", str(fingerprint))
    return Corpus(folder) if fingerprint and cached(folder) else None


def _read_scores(path: Path) -> Table:
    again = "run the same command with --resume to write it again"
    return read_sealed(path, again) if path.is_file() else {}


def _read_verdict(path: Path) -> Table:
    """Read what a user had ``--out`` write into the folder, which has no checksum."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ResumeError(f"{path} is damaged ({first_line(error)}): write it again") from error
    if not isinstance(content, dict):
        raise ResumeError(f"{path} is damaged (it holds no table): write it again")
    return content


def _scores(content: Table) -> dict[str, list[Score]]:
    """Return the finite scores of every encoder in a file."""
    content = {**content, **content.get("baselines", {})}
    systems = {
        name: value["scores"] for name, value in content.items() if isinstance(value, dict) and "scores" in value
    }
    try:
        read = {name: [Score(**score) for score in scores] for name, scores in systems.items()}
    except TypeError as error:
        raise ResumeError(f"these scores are of another version of selfsent ({error}): evaluate again") from error
    return {name: [score for score in scores if math.isfinite(score.value)] for name, scores in read.items()}


def _levels(content: Table) -> dict[str, float]:
    """Return MRR@10 of the baselines on the held-out pairs that the learning curves are measured on."""
    systems = _scores({"baselines": content.get("baselines_dev", {})})
    return {name: score.value for name, scores in systems.items() for score in scores if score.metric == "mrr@10"}


def group_runs(runs: Sequence[Record]) -> list[Group]:
    """Group the seeds of one recipe on one text, in the order in which the recipes come."""
    by_recipe: dict[str, list[Record]] = {}
    for run in runs:
        same = [_without_seed(run), _text_of(run)]
        by_recipe.setdefault(json.dumps(same, sort_keys=True, default=str), []).append(run)
    groups: dict[str, list[Record]] = {}
    for members in by_recipe.values():
        first = members[0]
        name = first.name
        if len(members) > 1:
            name = name.removesuffix(str(first.recipe.get("seed"))).rstrip("-_. ") or name
        names = name, f"{first.folder.resolve().parent.name}/{name}", str(first.folder)
        groups[next(name for name in names if name not in groups)] = sorted(
            members, key=lambda run: run.recipe.get("seed") or 0
        )
    return [Group(name=name, runs=members) for name, members in groups.items()]


def differences(groups: Sequence[Group]) -> dict[str, list[object]]:
    """Return the recipe keys in which groups differ, each with the value of every group; the text, too."""
    recipes = [
        dict(flatten(_without_seed(group.first))) | {"fingerprint of the text": _text_of(group.first)}
        for group in groups
    ]
    values = {key: [recipe.get(key) for recipe in recipes] for recipe in recipes for key in recipe}
    return {key: row for key, row in values.items() if any(value != row[0] for value in row)}


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield ("train.steps", 100) and its like from nested tables."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _text_of(run: Record) -> str | None:
    """Return the fingerprint of the prepared text, which may have changed under its name."""
    corpus = run.config.get("corpus")
    fingerprint = corpus.get("fingerprint") if isinstance(corpus, Mapping) else None
    return None if fingerprint is None else str(fingerprint)[:8]


def _without_seed(run: Record) -> Table:
    """Return the recipe without what may differ between its seeds, with today's defaults where a key is missing."""
    table = copy.deepcopy(run.recipe)
    if not run.pretraining:
        with suppress(UserError):  # of another version: compared as it is
            table = recipe_table(resolve_recipe(table))
    for key in ("seed", "paper"):
        table.pop(key, None)
    for key in ("threads", "keep_heap"):
        table.get("hardware", {}).pop(key, None)
    return table
