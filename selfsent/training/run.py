"""One run, where the parts meet.

recipe -> encoder, corpus, objective, batches -> Trainer -> model folder -> scores before and after
"""

import gc
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from selfsent.config import Recipe, build_config, recipe_table
from selfsent.corpus.dataset import Corpus, DocumentRows
from selfsent.corpus.prepare import first_texts, prepare_corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import DEMO
from selfsent.encoder.checks import check_dropout, require_dropout
from selfsent.encoder.coverage import BEGINNING, check_coverage
from selfsent.encoder.inspect import (
    describe_encoder,
    readable_positions,
    template_length,
    tokenizer_of,
    transformer_of,
)
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import encoder_digest
from selfsent.encoder.pair_module import parts_of
from selfsent.encoder.partial_whitening import whole_width
from selfsent.encoder.save import save_encoder
from selfsent.errors import ConfigurationError, EncoderError, UserError
from selfsent.evaluation.label_free.verdict import judge_held_out
from selfsent.evaluation.score import Results, Score, show_scores
from selfsent.objectives import registry
from selfsent.objectives.base import Objective
from selfsent.objectives.registry import ObjectivePlan
from selfsent.progress import SILENT, Progress
from selfsent.runtime import distributed, hardware
from selfsent.runtime.hardware import Hardware
from selfsent.runtime.printed import Printed, Shown
from selfsent.storage.provenance import versions
from selfsent.storage.run_folder import Run, first_difference, writing
from selfsent.training.batches import Batches
from selfsent.training.final_scores import final_baselines, final_scores, require_same_score
from selfsent.training.tracking import AnyTracker, tracked
from selfsent.training.trainer import Trainer, TrainingOutcome
from selfsent.training.validation import Validator

RETRIEVAL = "retrieval"


@dataclass(frozen=True, kw_only=True, repr=False)
class Trained(Printed):
    """What a run gave: where the model is, the same scores before and after, and those of what needs no training."""

    folder: Path
    model: Path
    seed: int
    outcome: TrainingOutcome
    before: Results
    after: Results
    verdict: str
    structured: bool = True  # False: halves of single lines were held out, which show damage and nothing else
    baselines: Mapping[str, Results] = field(default_factory=dict)  # bm25 and static, on the same held-out pairs

    @property
    def dev(self) -> float | None:
        """The dev score of the best weights; None: the last weights were kept."""
        return self.outcome.best_score

    @property
    def test(self) -> float | None:
        """The test score that belongs to it."""
        return None if self.compared is None else self.compared[1].value

    @property
    def base_test(self) -> float | None:
        """The same of the base encoder."""
        return None if self.compared is None else self.compared[0].value

    @property
    def compared(self) -> tuple[Score, Score] | None:
        """The test scores that belong to the dev score, before and after; None: nothing was held out.

        That is held-out retrieval, or the average of the labelled sets where that selected the weights.
        """
        before, after = (self._test_score(results) for results in (self.before, self.after))
        return None if before is None or after is None else (before, after)

    def shown(self) -> Shown:
        """Return the verdict, and the scores before and after."""
        table = show_scores({"trained encoder": self.after, "base encoder": self.before})
        return table._replace(sentences=[self.verdict, f"model: {self.model}", *table.sentences])

    def _test_score(self, results: Results) -> Score | None:
        labelled = None if self.outcome.selected_by in (RETRIEVAL, "last") else results.average()
        retrieval = next((score for score in results.scores if score.metric == "mrr@10"), None)
        return labelled or retrieval or results.average()


def train_run(
    recipe: Recipe,
    folder: Path,
    *,
    resume: bool = False,
    tracker: AnyTracker | None = None,
    accept: Callable[[str], None] = lambda select: None,
    progress: Progress = SILENT,
) -> Trained:
    """Run a recipe in a folder, or resume it there.

    Args:
        accept: refuses, before the first step, the score that the weights would be selected by.

    Raises:
        UserError: something given cannot work; the message says what would.
        Interrupted: Ctrl-C or SIGTERM; the state is saved.
    """
    plan = registry.plan_objective(recipe.method, recipe.objective)
    corpus_config = build_config(CorpusConfig, recipe.corpus, "corpus")
    try:
        with distributed.joined(recipe.hardware.device) as group, writing(folder, group, resume=resume):
            progress = tracked(progress, tracker, folder) if group.first else SILENT
            return _train_in(folder, recipe, plan, corpus_config, group, accept, resume=resume, progress=progress)
    finally:
        gc.collect()  # encoder, objective and optimizer refer to each other: of many runs of a process all would stay


def _train_in(
    folder: Path,
    recipe: Recipe,
    plan: ObjectivePlan,
    corpus_config: CorpusConfig,
    group: distributed.Ranks,
    accept: Callable[[str], None],
    *,
    resume: bool,
    progress: Progress,
) -> Trained:
    """Run a recipe in a folder that no other process works in."""
    group.require_equal({"recipe": recipe_table(recipe), "versions": versions()}, first_difference)
    encoder, machine = _load_base(recipe, progress)
    base = encoder_digest(encoder)
    run = Run(folder)
    if resume and not group.on_first(lambda: run.begun(recipe_table(recipe), base)):
        progress.say(f"{folder} holds no run to resume: a new one is started")
    text = group.rank_zero_first(lambda: _prepare_text(recipe, corpus_config, encoder, plan, progress))
    torch.manual_seed(recipe.seed)
    try:
        with whole_width(encoder):  # a folder's truncation is for those who use it
            objective = plan.build(encoder).to(machine.device)
        if objective.needs_dropout:
            check_dropout(encoder, objective.dropout_views(), progress, paired=text.paired)
    except EncoderError as error:
        said = str(error).rstrip(".")  # of a library
        raise EncoderError(f"{said}; methods that train it are {', '.join(fitting_methods(encoder))}") from error
    except ValueError as error:  # a setting that this base does not fit, such as a number of groups
        raise ConfigurationError(f"{recipe.method} does not fit {recipe.base}: {error}") from error
    rows, batches = _plan_batches(recipe, text, plan, objective, progress)
    validator = Validator(text.held_out, recipe.data if group.first else None, objective.selection)
    select = group.on_first(lambda: validator.select(recipe.train.select))
    dev, others = len(text.held_out.dev), len(text.held_out.test)
    progress.say(f"held-out pairs: {dev:,} to select the weights by, {others:,} others for the table at the end")
    progress.say(f"best weights by: {select}")
    accept(select)
    config = {**_resolved(recipe, plan, text, machine), "base": base, **group.table()}
    group.require_equal({**config, "hardware": machine.precision}, first_difference)
    finished = group.on_first(lambda: _opened(Run.open(folder, config, resume=resume, progress=progress), progress))
    if finished is not None:
        return finished
    trainer = Trainer(
        encoder,
        objective,
        rows,
        batches,
        run,
        config=recipe.train,
        hardware=machine,
        seed=recipe.seed,
        validate=validator,
        select=select,
        progress=progress,
    )
    outcome = trainer.train()
    return group.on_first(lambda: _publish(run, recipe, trainer, text, outcome))


def fitting_methods(encoder: SentenceTransformer) -> list[str]:
    """Return the methods that can train an encoder with their usual settings, or with those beside their name."""
    fitting = []
    for method in registry.method_names():
        kind = registry.load_method(method)
        needs = {"teacher": "builtin"} if hasattr(kind.Config(), "teacher") else {}
        for more in [{}, {"mlm_weight": 0.0}] if hasattr(kind.Config(), "mlm_weight") else [{}]:
            try:
                with warnings.catch_warnings(), torch.random.fork_rng(devices=[]), whole_width(encoder):
                    warnings.simplefilter("ignore")
                    if kind(kind.Config(**needs, **more), encoder).needs_dropout:
                        require_dropout(encoder)
            except UserError:
                continue
            fitting.append(f"{method} with objective.mlm_weight=0" if more else method)
            break
    return fitting


def _publish(run: Run, recipe: Recipe, trainer: Trainer, text: Corpus, outcome: TrainingOutcome) -> Trained:
    """Save the encoder that was selected, open it again, and score it."""
    head = trainer.objective.exported_head()
    run.publish(lambda target: save_encoder(trainer.encoder, target, head=head))
    trained = load_encoder(run.model).to(trainer.encoder.device)
    if head is None:  # with a head exported, the saved model is another one by intent
        require_same_score(trained, trainer.encoder, trainer.validate, outcome, trainer.progress)
    return _score_before_and_after(run, recipe, trained, text, outcome, trainer.progress)


def _open_base(recipe: Recipe, *, dropout: float | None = None) -> SentenceTransformer:
    options = recipe.encoder
    return load_encoder(
        recipe.base,
        pooling=options.pooling,
        template=options.template,
        max_length=options.max_length,
        dropout=dropout,
    )


def _load_base(recipe: Recipe, progress: Progress) -> tuple[SentenceTransformer, Hardware]:
    machine = hardware.choose_hardware(**asdict(recipe.hardware))
    encoder = _open_base(recipe, dropout=recipe.encoder.dropout)
    if parts_of(encoder):
        raise EncoderError(f"{recipe.base} is a pair of encoders, which is not trained: give one of them")
    if transformer_of(encoder) is None and recipe.hardware.precision == "auto":
        machine = replace(machine, precision="fp32")  # static vectors have no products for bf16 to speed up
    encoder.to(machine.device)
    progress.say(f"machine: {machine.line()}")
    progress.say(f"base: {describe_encoder(encoder, recipe.base)}")
    return encoder, machine


def _prepare_text(
    recipe: Recipe, config: CorpusConfig, encoder: SentenceTransformer, plan: ObjectivePlan, progress: Progress
) -> Corpus:
    # A prompt's own tokens are not counted as the text's.
    config = replace(config, max_length=config.max_length + template_length(encoder))
    model = transformer_of(encoder)
    positions = readable_positions(model) or getattr(model and model.config, "max_position_embeddings", None)
    if positions and plan.unit == "sentences" and config.max_length > positions:
        raise ConfigurationError(
            f"corpus.max_length = {config.max_length} is more than the {positions} tokens that {recipe.base} can "
            "read: give fewer"
        )
    if recipe.texts == (DEMO,):
        progress.say("text: the Python documentation of this machine; name yours to train on it")
    check_coverage(encoder, first_texts(recipe.texts, config, BEGINNING), recipe.base, progress)
    text = prepare_corpus(recipe.texts, config, tokenizer_of(encoder), unit=plan.unit, progress=progress)
    progress.say(f"corpus: {'reused from' if text.reused else 'prepared into'} {text.folder}")
    for line in text.account.lines():
        progress.say(f"  {line}")
    return text


def _plan_batches(
    recipe: Recipe, text: Corpus, plan: ObjectivePlan, objective: Objective, progress: Progress
) -> tuple[Corpus | DocumentRows, Batches]:
    """Choose the rows that the objective can learn from, and plan their batches."""
    rows: Corpus | DocumentRows = text
    lengths, keys = text.lengths, text.keys
    chosen = objective.choose(lengths)
    for line in objective.notes(lengths):
        progress.say(line)
    if plan.unit == "documents":
        places = np.arange(len(text)) if chosen is None else np.flatnonzero(chosen)
        rows, lengths, keys = DocumentRows(text, places), lengths[places], keys[places]
    options = recipe.train
    least = max(objective.least_rows, options.batch_size if options.drop_last else 0)
    few = objective.least_rows
    if options.batch_size < few:
        raise ConfigurationError(
            f"train.batch_size = {options.batch_size} is too small: {recipe.method} needs {few} texts in a batch"
        )
    batches = Batches(
        lengths, keys, options.batch_size, seed=recipe.seed, bucketed=options.bucketed, least=least, fewest=few
    )
    batches(0)  # plans the first epoch, or says here why it cannot
    if batches.left_out:
        progress.say(
            f"{batches.left_out:,} of {len(lengths):,} texts are left out of the first epoch: "
            "they equal so many others that no batch is free of those"
        )
    return rows, batches


def _resolved(recipe: Recipe, plan: ObjectivePlan, text: Corpus, machine: Hardware) -> dict[str, Any]:
    return {
        "recipe": recipe_table(recipe),
        "objective": plan.table(),
        "corpus": {"fingerprint": text.fingerprint, "texts": len(text)},
        "sources": text.sources,  # so that the verdict knows them again, wherever they are
        "hardware": asdict(machine),
        "versions": versions(),
    }


def read_finished(run: Run) -> Trained | None:
    """Return the result of a finished run from its folder; None: there is more to do.

    Raises:
        ResumeError: one of its files was changed since.
    """
    saved = run.finished()
    if saved is None:
        return None
    replicates = run.replicates()
    return Trained(
        folder=run.folder,
        model=run.model,
        seed=run.config()["recipe"]["seed"],
        outcome=TrainingOutcome(**saved["outcome"]),
        before=Results.from_dict(saved["base"], replicates, "base"),
        after=Results.from_dict(saved["trained"], replicates, "trained"),
        verdict=saved["verdict"],
        structured=saved["structured"],
        baselines={name: Results.from_dict(results) for name, results in saved["baselines"].items()},
    )


def _opened(run: Run, progress: Progress) -> Trained | None:
    finished = read_finished(run)
    if finished is not None:
        progress.say(f"the run in {run.folder} is finished: nothing is left to do")
        run.release()
    return finished


def _score_before_and_after(
    run: Run, recipe: Recipe, trained: SentenceTransformer, text: Corpus, outcome: TrainingOutcome, progress: Progress
) -> Trained:
    """Score base, trained encoder and what needs no training on the held-out test half, and finish the run."""
    held_out = text.held_out
    before = final_scores(_open_base(recipe).to(trained.device), held_out, recipe.data, progress)
    after = final_scores(trained, held_out, recipe.data, SILENT)
    beside, beside_dev = final_baselines(recipe, text, progress)
    from selfsent.runs import card  # which draws figures, too, and so waits until there is something to say

    structured = held_out.kind != "halves"
    verdict = judge_held_out(before, after, beside, structured=structured)
    scores: dict[str, object] = {
        "base": before.as_dict(),
        "trained": after.as_dict(),
        "baselines": {name: results.as_dict() for name, results in beside.items()},
        "baselines_dev": {name: results.as_dict() for name, results in beside_dev.items()},
        "verdict": verdict,
        "structured": structured,
        "outcome": asdict(outcome),
        "versions": versions(),
    }
    card.write_run_card(run, scores)
    run.finish(scores, before.replicates("base") | after.replicates("trained"))
    finished = read_finished(run)
    assert finished is not None, "it has just been finished"
    return finished
