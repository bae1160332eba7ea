"""sweep(): train a recipe under many settings, choose one by dev scores, and say whether it is better than the recipe.

Every setting is trained with the same seeds, in ordinary runs ``OUT/trial-007/seed-42``; the recipe as it is, which
they are compared with, in ``OUT/recipe/seed-42``.  The choice uses dev scores alone, the comparison test scores alone.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from selfsent.config import Recipe, build_config, recipe_table, sweep_lists
from selfsent.corpus.in_memory import corpus_sources
from selfsent.corpus.settings import CorpusConfig, with_column
from selfsent.corpus.sources import resolve_sources
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import encoder_digest
from selfsent.errors import ConfigurationError, ResumeError, StorageError, UserError, machine_failure
from selfsent.evaluation.comparison import compare_settings, compare_with_best
from selfsent.evaluation.label_free.held_out_retrieval import LEAST_HELD_OUT
from selfsent.evaluation.score import Score
from selfsent.objectives import registry
from selfsent.progress import SILENT, Progress, Quiet
from selfsent.storage import atomic, locks
from selfsent.storage.run_folder import Run, first_difference
from selfsent.sweeping.outcome import JSON, SweepOutcome, describe_decision, guard_trial, write_outcome
from selfsent.sweeping.space import (
    SweptKey,
    as_settings,
    each_value,
    join_keys,
    parse_range,
    read_lists,
    split_settings,
)
from selfsent.sweeping.trials import (
    AS_IT_IS,
    JOURNAL,
    SweepTrial,
    TrialJournal,
    name_setting,
    plan_points,
    require_optuna,
)
from selfsent.training import train
from selfsent.training.run import Trained, read_finished, train_run
from selfsent.training.train import require_possible_seeds

if TYPE_CHECKING:
    from optuna.trial import Trial

REFERENCE = "recipe"  # the folder of the recipe as it is


def sweep(
    method: str | Path | Recipe,
    *,
    settings: Sequence[str] = (),
    ranges: Sequence[str] = (),
    seeds: int = 1,
    sampler: str = "grid",
    trials: int | None = None,
    prune: bool = False,
    texts: Iterable[str] | None = None,
    corpus: Sequence[str | Path] | str | Path | None = None,
    column: str | None = None,
    base: str | None = None,
    out: str | Path | None = None,
    seed: int | None = None,
    data: str | Path | None = None,
    resume: bool = False,
    progress: Progress = SILENT,
) -> SweepOutcome:
    """Train a recipe under many settings, and say whether the best is better than the recipe as it is.

    The best is chosen by the mean of the dev scores that the runs select their weights by.  It is called better than
    the recipe only if the held-out test says so over three seeds or more, corrected for the number of settings
    (``evaluation.significance``).

    Args:
        method: as of ``train``; so are all others that are not named here.  A recipe may have a table ``[sweep]``.
        settings: changes such as ``"train.steps=500"``; of several values, ``"objective.temperature=0.05,0.1"``, each
            is tried.
        ranges: keys and their ends, such as ``"train.learning_rate=1e-5..1e-3:log"``, for samplers random and tpe.
        seeds: that every setting is trained with; the first is ``seed``.
        sampler: grid (every combination), random, or tpe (Bergstra et al. 2011, by Optuna).
        trials: settings to try; default all of a grid, 20 else.
        prune: give a setting up whose dev score at an evaluation is below the median of the others.
        out: the folder of the sweep; default ``runs/<method>-sweep``.
        resume: resume the sweep in ``out``; it ends as one that was not stopped.

    Raises:
        UserError: something given cannot work; the message says what would.  A trial that fails is recorded instead.
        Interrupted: Ctrl-C or SIGTERM; the state is saved.

    Examples:
        >>> settings = ["objective.temperature=0.05,0.1", "train.steps=500"]
        >>> outcome = selfsent.sweep("simcse", settings=settings, corpus="tickets.jsonl", base="bert-base-uncased")
    """
    single, listed = split_settings(with_column(settings, column))
    shipped = read_lists(sweep_lists(method)) if not isinstance(method, Recipe) else []
    single_keys = {setting.partition("=")[0].strip() for setting in single}
    shipped = [swept for swept in shipped if swept.key not in single_keys]  # a single value of such a key is not swept
    space = join_keys(shipped, listed, map(parse_range, ranges))
    require_optuna(sampler)
    sources = corpus_sources(texts, corpus, column)

    def resolve(chosen: Sequence[str]) -> Recipe:
        return train.resolve(method, base=base, corpus=sources, seed=seed, data=data, settings=[*single, *chosen])

    recipe = resolve(())
    require_possible_seeds(recipe.seed, seeds)
    space = [swept if swept.values else _typed(swept, resolve) for swept in space]
    points = plan_points(space, sampler, trials, recipe.seed)
    for setting in each_value(space):
        _identity(resolve([setting]))  # a value that cannot be is refused before anything is run
    usual = train.default_folder(method)
    folder = Path(out) if out is not None else usual.with_name(f"{usual.name}-sweep")
    if not resume:
        Run.require_free(folder, "choose another --out, or add --resume to resume the sweep in it")
    with locks.exclusive(folder):
        asked = {"recipe": recipe_table(recipe), "space": [asdict(swept) for swept in space], "seeds": seeds}
        asked |= {"sampler": sampler, "prune": prune, **fingerprint_inputs(recipe)}
        plan = json.loads(json.dumps(asked))  # as it is read again
        _open_folder(folder, plan, resume=resume)
        journal = TrialJournal(
            folder, space, points, trials=trials, seed=recipe.seed, tpe=sampler == "tpe", prune=prune
        )
        running = _Sweep(recipe, seeds, prune, resolve, folder, journal, progress)
        running.run()
        outcome = running.judge([swept.key for swept in space])
        write_outcome(outcome, plan)
        return outcome


def _typed(swept: SweptKey, resolve: Callable[[Sequence[str]], Recipe]) -> SweptKey:
    """Return a range of whole numbers where its key takes no others, however its ends are written."""
    if not (swept.low.is_integer() and swept.high.is_integer()):
        return swept
    try:
        _identity(resolve([f"{swept.key}={swept.low + 0.5}"]))
    except UserError:
        return replace(swept, whole=True)
    return replace(swept, whole=False)


def _open_folder(folder: Path, plan: dict[str, Any], *, resume: bool) -> None:
    """Make the folder of a sweep, or check that the one in it is the same."""
    path = folder / JSON
    if not (resume and path.is_file()):
        Run.require_free(folder, f"it has no {JSON} to resume by; choose another --out")
        atomic.write_sealed(path, {"plan": plan, "finished": False})
        return
    before = atomic.read_sealed(path, "start a new sweep with another --out")["plan"]
    if changed := first_difference(before, plan):
        key, was, now = changed
        if key.partition(".")[0] in ("base", "texts"):
            raise ResumeError(
                f"cannot resume {folder}: its {key} changed since it was started; put it back, or start a new one with "
                "another --out"
            )
        raise ResumeError(
            f"cannot resume {folder}: its {key} was {was!r} and is now {now!r}; "
            "give what the sweep was started with, or start a new one with another --out"
        )


def _identity(recipe: Recipe) -> str:
    """Return everything that decides a run, with every default: equal recipes need one run."""
    plan = registry.plan_objective(recipe.method, recipe.objective)
    corpus = build_config(CorpusConfig, recipe.corpus, "corpus")
    return json.dumps([{**recipe_table(recipe), "objective": plan.table(), "corpus": asdict(corpus)}], default=str)


@dataclass
class _Sweep:
    """One sweep while it runs."""

    recipe: Recipe
    seeds: int
    prune: bool
    resolve: Callable[[Sequence[str]], Recipe]
    folder: Path
    journal: TrialJournal
    progress: Progress
    reference: list[Trained] = field(default_factory=list)
    tried: dict[str, SweepTrial] = field(default_factory=dict)  # by identity: the first trial of it

    def run(self) -> None:
        """Train the recipe as it is, then one trial after the other."""
        self.progress.say(f"{AS_IT_IS}: {self.seeds} seed{'s' if self.seeds > 1 else ''}")
        try:
            self.reference = self._train(self.recipe, self.folder / REFERENCE, self.progress)
        except UserError:
            if not (self.folder / REFERENCE).exists():  # nothing was trained: what was asked may be changed
                for name in (JSON, JOURNAL):
                    atomic.remove(self.folder / name)
            raise
        as_it_is = SweepTrial(state="complete", runs=self.reference)
        self.tried = {_identity(self.recipe): replace(as_it_is, score=as_it_is.dev)}
        for trial in self.journal.ended():
            if trial.state in ("complete", "pruned"):
                self.tried.setdefault(_identity(self.resolve(as_settings(trial.settings))), trial)
        while (taken := self.journal.take()) is not None:
            handle, settings = taken
            self.progress.say(f"trial {handle.number + 1} of {self.journal.total}: {name_setting(settings)}")
            trial = self._try(handle, settings)
            if trial.reason:
                self.progress.say(
                    f"warning: trial {trial.number}, {name_setting(settings)}, {trial.state}: {trial.reason}"
                )
            self.journal.end(handle, trial)

    def _try(self, handle: "Trial", settings: dict[str, str]) -> SweepTrial:
        """Run one trial; what goes wrong with its settings is its end, and not that of the sweep."""
        import optuna

        trial = SweepTrial(number=handle.number, settings=settings, state="complete")
        try:
            recipe = self.resolve(as_settings(settings))
            identity = _identity(recipe)
            if identity in self.tried:
                earlier = self.tried[identity]
                return replace(trial, state="repeated", score=earlier.score, same_as=earlier.number)
            first: Progress = Quiet(self.progress)
            if self.prune:  # by the first seed alone
                first = _Watch(self.progress, self.journal, handle, self.reference[0].outcome.selected_by)
            trial = replace(trial, runs=self._train(recipe, self._folder(handle.number), first))
            trial = replace(trial, score=trial.dev)
        except optuna.TrialPruned as pruned:
            trial = replace(trial, state="pruned", reason=str(pruned))
        except (ResumeError, StorageError):
            raise  # of the folder or the disk, not of the settings
        except UserError as error:
            if machine_failure(error):
                raise
            return replace(trial, state="failed", reason=str(error))
        self.tried[identity] = trial
        return trial

    def _folder(self, number: int) -> Path:
        return self.folder / f"trial-{number:03d}"

    def _train(self, recipe: Recipe, folder: Path, progress: Progress) -> list[Trained]:
        """Train a recipe with every seed, or read what was trained before; progress hears of the first."""
        runs: list[Trained] = []
        for number in range(recipe.seed, recipe.seed + self.seeds):
            heard = Quiet(self.progress) if runs and progress is not SILENT else progress
            run = train_seed(replace(recipe, seed=number), folder / f"seed-{number}", heard)
            self._require_comparable(run)
            runs.append(run)
        return runs

    def _require_comparable(self, run: Trained) -> None:
        """Refuse runs that were not selected and scored by what the recipe was."""
        _require_selection("last" if run.dev is None else run.outcome.selected_by)
        first = self.reference[0] if self.reference else run
        selected_by, by = run.outcome.selected_by, first.outcome.selected_by
        if selected_by != by:
            raise ConfigurationError(
                f"its weights are selected by {selected_by} and the recipe's by {by}: set train.select to one score"
            )
        if _data_of(run) != _data_of(first):
            raise ConfigurationError(
                "its held-out queries differ from the recipe's, so their scores cannot be compared: sweep no key that "
                "changes which documents are held out"
            )

    def judge(self, keys: list[str]) -> SweepOutcome:
        """Compare the trials with the recipe and with the best.

        Raises:
            UserError: no trial came to its end.
        """
        trials = [SweepTrial(state="complete", runs=self.reference), *map(self._with_runs, self.journal.ended())]
        done = {trial.number for trial in trials if trial.state == "complete"}  # None: the recipe as it is
        if not any(
            trial.state == "complete" or (trial.state == "repeated" and trial.same_as in done) for trial in trials[1:]
        ):
            reason = next((trial.reason for trial in trials[1:] if trial.reason), "")
            raise UserError(f"no trial of the sweep in {self.folder} came to its end; the first: {reason}")
        complete = [index for index, trial in enumerate(trials) if trial.state == "complete"]
        scores = [_test_scores(trials[index].runs) for index in complete]
        given_up = sum(trial.state == "pruned" for trial in trials)
        best = int(np.argmax(np.array([trials[index].dev for index in complete], float)))
        comparisons = compare_settings(scores, given_up=given_up)
        p_best = compare_with_best(best, scores, given_up=given_up)
        for rank, index in enumerate(complete):
            trials[index] = replace(trials[index], comparison=comparisons[rank], p_best=p_best[rank])
        best_trial, first = trials[complete[best]], self.reference[0]
        tested = first.compared
        metric = "" if tested is None else f"{tested[1].task} {tested[1].metric}"
        comparison = guard_trial(best_trial)
        return SweepOutcome(
            folder=self.folder,
            keys=keys,
            seeds=self.seeds,
            selected_by=first.outcome.selected_by,
            metric=metric,
            trials=trials,
            best=best_trial,
            finding="reference" if best == 0 else comparison.decision if comparison else "cannot tell",
            decision=describe_decision(best_trial, comparison, max(1, len(complete) - 1 + given_up)),
        )

    def _with_runs(self, trial: SweepTrial) -> SweepTrial:
        """Read the runs of a trial from its folder, of this process or of an earlier one."""
        if trial.state != "complete" or trial.number is None:
            return trial
        recipe = self.resolve(as_settings(trial.settings))
        return replace(trial, runs=self._train(recipe, self._folder(trial.number), SILENT))


class _Watch(Quiet):
    """Passes on what a trial reports, and gives it up below the median."""

    def __init__(self, progress: Progress, journal: TrialJournal, trial: "Trial", score: str) -> None:
        super().__init__(progress)
        self._journal, self._trial, self._score = journal, trial, score

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Pass an evaluation on, and end a trial that is below the median."""
        super().evaluated(step, scores, best)
        if step == 0 or self._score not in scores:
            return
        if self._journal.report(self._trial, step, scores[self._score]):
            import optuna

            reason = (
                f"its {self._score} of {scores[self._score]:.2f} at step {step:,} is below the median of the trials"
            )
            raise optuna.TrialPruned(reason)


def train_seed(recipe: Recipe, folder: Path, progress: Progress) -> Trained:
    """Train one run of a sweep, resume it, or read a finished one; its base and text are those of the plan.

    Raises:
        UserError: as ``train``.
    """
    run = Run(folder)
    begun = (folder / "config.json").is_file()
    if begun and run.config()["recipe"] == recipe_table(recipe) and (finished := read_finished(run)) is not None:
        return finished
    return train_run(recipe, folder, resume=begun, accept=_require_selection, progress=progress)


def _require_selection(select: str) -> None:
    if select == "last":
        raise ConfigurationError(
            f"no dev score chooses between settings: give more text, so that {LEAST_HELD_OUT} pairs can be held "
            "out to choose by, or set corpus.held_out_share=0.3, and leave train.select=auto"
        )


def fingerprint_inputs(recipe: Recipe) -> dict[str, Any]:
    """Return what changes with the weights of the base, and with the text."""
    texts = [source.identity() for source in resolve_sources(recipe.texts)]
    return {"base": encoder_digest(load_encoder(recipe.base)), "texts": texts}


def _test_scores(runs: Sequence[Trained]) -> list[Score] | None:
    """Return the test score of each seed; None where nothing was held out."""
    pairs = [run.compared for run in runs]
    scores = [pair[1] for pair in pairs if pair is not None]
    return scores if len(scores) == len(pairs) else None


def _data_of(run: Trained) -> object:
    return None if run.compared is None else run.compared[1].protocol.get("data")
