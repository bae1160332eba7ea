"""train(), evaluate(), verdict(): the one place where the parts meet."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from selfsent import atomic, hardware, methods, trainer
from selfsent.batching import Batches
from selfsent.config import Recipe, apply_settings, build_config, read_recipe, recipe_table, resolve_recipe
from selfsent.corpus.dataset import DocumentRows
from selfsent.corpus.heldout import HeldOut
from selfsent.corpus.prepare import CorpusConfig, prepare_corpus
from selfsent.corpus.read import DEMO
from selfsent.encoder.dropout import dropout_rate, dropout_rates
from selfsent.encoder.embed import collate, embed
from selfsent.encoder.encode import encode, encode_poolings
from selfsent.encoder.inspect import embedding_width, max_length_of, template_length, tokenizer_of, transformer_of
from selfsent.encoder.load import load_encoder
from selfsent.encoder.pooling import pooling_name
from selfsent.encoder.preflight import probe_tokens, require_dropout
from selfsent.encoder.save import save_encoder
from selfsent.errors import UserError
from selfsent.evaluation import geometry, mteb, sts, suite
from selfsent.evaluation.score import Difference, Results, compare_results, over_seeds
from selfsent.evaluation.senteval import declutr_averages
from selfsent.evaluation.senteval.relatedness import StopOn
from selfsent.evaluation.suite import read_suite
from selfsent.evaluation.whitening import Whitening, whiten_target
from selfsent.hardware import Hardware
from selfsent.objective import Objective
from selfsent.progress import SILENT, Progress
from selfsent.run import Run, versions

STS_DEV = ("stsb-dev", "sickr-dev")
_SAMPLE = 512  # texts behind the figures that watch for collapse, and behind the uniformity of STS-B


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a run gave: where the model is, and the same scores before and after."""

    folder: Path
    model: Path
    outcome: trainer.TrainingOutcome
    before: Results
    after: Results
    verdict: str


def train(
    method: str | Path | Recipe,
    *,
    base: str | None = None,
    texts: Sequence[str | Path] | None = None,
    out: str | Path | None = None,
    seed: int | None = None,
    data: str | Path | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    progress: Progress = SILENT,
) -> Trained:
    """Train a sentence encoder from raw text.

    Args:
        method: the name of a method or preset, a recipe file, or a Recipe.
        base: "builtin", a folder, or a name on the hub.
        texts: files, folders, hub names of data sets, or "pydocs".
        out: the folder of the run; default ``runs/<method>``.
        data: evaluation data in SentEval's layout, or ``hub``, for scores with labels beside those without.
        settings: changes such as ``"train.steps=500"``.
        resume: go on with the run in ``out``, or return what it gave if it is finished; start it where there is none.

    Raises:
        UserError: something given cannot work; the message says what would.
        Interrupted: Ctrl-C or SIGTERM; the state is saved.
    """
    recipe = resolve(method, base=base, texts=texts, seed=seed, data=data, settings=settings)
    plan = methods.plan_objective(recipe.method, recipe.objective)
    corpus_config = build_config(CorpusConfig, recipe.corpus, "corpus")
    folder = Path(out) if out is not None else Path("runs") / _slug(method)
    if not resume and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"output {folder} exists: choose another --out, or add --resume to go on with the run in it")

    machine = hardware.choose_hardware(**asdict(recipe.hardware))
    asked = recipe.encoder
    encoder = load_encoder(recipe.base, pooling=asked.pooling, template=asked.template, dropout=asked.dropout)
    if transformer_of(encoder) is None and recipe.hardware.precision == "auto":
        machine = replace(machine, precision="fp32")  # static vectors have no products for bf16 to speed up
    encoder.to(machine.device)
    progress.say(f"machine: {machine.line()}")
    progress.say(f"base: {describe(encoder, recipe.base)}")

    # A prompt's own word pieces take no room from the text.
    corpus_config = replace(corpus_config, max_length=corpus_config.max_length + template_length(encoder))
    if recipe.texts == (DEMO,):
        progress.say("text: the Python documentation of this machine; --corpus takes yours")
    text = prepare_corpus(recipe.texts, corpus_config, tokenizer_of(encoder), unit=plan.unit, progress=progress)
    progress.say(f"corpus: {'reused from' if text.reused else 'prepared into'} {text.folder}")
    for line in text.account.lines():
        progress.say(f"  {line}")
    torch.manual_seed(recipe.seed)
    objective = plan.build(encoder).to(machine.device)
    if objective.needs_dropout:
        preflight(encoder, objective, progress, paired=text.paired)
    learned: trainer.TrainingRows = text
    lengths, keys = text.lengths, text.keys
    chosen = objective.choose(lengths)
    for line in objective.notes(lengths):
        progress.say(line)
    if plan.unit == "documents":
        rows = np.arange(len(text)) if chosen is None else np.flatnonzero(chosen)
        learned, lengths, keys = DocumentRows(text, rows), lengths[rows], keys[rows]
    batches = Batches(
        lengths,
        keys,
        recipe.train.batch_size,
        seed=recipe.seed,
        bucketed=recipe.train.bucketed,
        least=objective.least_rows,
    )
    batches(0)  # plans the first epoch, or says here why it cannot
    if batches.left_out:
        progress.say(
            f"{batches.left_out:,} of {len(lengths):,} texts stay out of the first epoch: "
            "they are tied to so many others that no batch is free of those"
        )

    validator = Validator(text.held_out, recipe.data, objective)
    select = validator.select(recipe.train.select)
    dev, test = len(text.held_out.dev), len(text.held_out.test)
    progress.say(f"held-out pairs: {dev:,} to choose the weights by, {test:,} others for the table at the end")
    progress.say(f"best weights by: {select}")

    resolved = {
        "recipe": recipe_table(recipe),
        "objective": plan.table(),
        "corpus": {"fingerprint": text.fingerprint, "texts": len(text)},
        "hardware": asdict(machine),
        "versions": versions(),
    }
    run = _open(folder, resolved, resume, machine, progress)
    finished = _finished(run)
    if finished is not None:
        progress.say(f"the run in {folder} is finished: nothing is left to do")
        run.release()
        return finished
    outcome = trainer.fit(
        encoder,
        objective,
        learned,
        batches,
        run,
        config=recipe.train,
        hardware=machine,
        seed=recipe.seed,
        validate=validator,
        select=select,
        progress=progress,
    )
    run.publish(lambda place: save_encoder(encoder, place, head=objective.exported_head()))
    trained = load_encoder(run.model).to(machine.device)
    _verify(trained, validator, outcome, has_head=objective.exported_head() is not None)

    original = load_encoder(recipe.base, pooling=asked.pooling, template=asked.template).to(machine.device)
    before = _final_scores(original, text.held_out, recipe.data, progress)
    after = _final_scores(trained, text.held_out, recipe.data)
    verdict = judge_heldout(before, after)
    run.finish(
        {
            "base": before.as_dict(),
            "trained": after.as_dict(),
            "verdict": verdict,
            "outcome": asdict(outcome),
            "versions": versions(),
        }
    )
    return Trained(folder=folder, model=run.model, outcome=outcome, before=before, after=after, verdict=verdict)


def resolve(
    method: str | Path | Recipe,
    *,
    base: str | None = None,
    texts: Sequence[str | Path] | None = None,
    seed: int | None = None,
    data: str | Path | None = None,
    settings: Sequence[str] = (),
) -> Recipe:
    """Join a method's name or a recipe with what was given beside it.

    Raises:
        UserError: an unknown method or key, or a value that does not fit.
    """
    if isinstance(method, Recipe):
        table = recipe_table(method)
    elif str(method).endswith(".toml"):
        table = read_recipe(Path(method))
    else:
        table = {"method": str(method)}
    given = {
        "base": base,
        "texts": [str(text) for text in texts] if texts else None,
        "seed": seed,
        "data": None if data is None else str(data),
    }
    table = apply_settings(table | {key: value for key, value in given.items() if value is not None}, settings)
    if not isinstance(method, Recipe) and isinstance(table.get("method"), str):
        for section, keys in methods.method_recipe(table["method"]).items():
            asked = table.get(section, {})
            table[section] = {**keys, **asked} if isinstance(asked, dict) else asked
    return resolve_recipe(table)


def evaluate(
    model: str | Path | SentenceTransformer,
    tasks: Sequence[str] = ("sts",),
    *,
    data: str | Path | None = None,
    held_out: suite.HeldOut | None = None,
    pooling: str | None = None,
    poolings: Sequence[str] = (),
    whitening: Sequence[str] = (),
    classifier: str = suite.DEFAULT_CLASSIFIER,
    stop_on: StopOn = "pearson",
    precision: str = "auto",
    bootstrap: int = 1000,
    progress: Progress = SILENT,
) -> dict[str, Results]:
    """Score a model, and training-free baselines of the same encoder beside it, from one reading of the data.

    Args:
        data: a folder in SentEval's layout, or ``hub`` for the copies that are there.
        poolings: also score these poolings of the same encoder, without any head.
        whitening: also score the model's vectors whitened: "pca", "zca" or "group", fitted to each task's texts.
        tasks: groups and tasks by name, own files such as "classification:intents.csv", "mteb:NAME" of that package.
        classifier: trained on the vectors of labelled tasks: "senteval_full", "senteval_fast", "senteval_mlp" or
            "sklearn".
        stop_on: the development correlation that stops the regressions of relatedness: "pearson" or "spearman".

    Raises:
        UserError: an unknown task, pooling or classifier, data that is not whole, labels that cannot be learned, or
            vectors that are not finite.
    """
    public = [name for name in tasks if name.startswith(mteb.PREFIX)]
    foreign = mteb.mteb_tasks(public) if public else []
    tasks = [name for name in tasks if name not in public]
    encoder = model if isinstance(model, SentenceTransformer) else load_encoder(model, pooling=pooling)
    found = []
    if foreign:
        progress.say(f"mteb runs {len(foreign)} task{'s' if len(foreign) != 1 else ''}")
        found = mteb.score_mteb(
            encoder, foreign, atomic.cache_folder("mteb", ""), precision=precision, progress=progress
        )
        if not tasks:
            return {"model": Results(scores=found)}
    suite = read_suite(
        tasks, None if data is None else Path(data), held_out=held_out, classifier=classifier, stop_on=stop_on
    )
    for line in suite.notes:
        progress.say(line)
    tasks_read = f"{len(suite.tasks)} task{'s' if len(suite.tasks) != 1 else ''}"
    progress.say(f"encoding {len(suite.sentences):,} different texts of {tasks_read}")
    vectors = encode(encoder, suite.sentences, precision=precision, progress=progress)
    protocol = {"pooling": pooling_name(encoder), "max_length": max_length_of(encoder)}
    scored = suite.score(vectors, bootstrap=bootstrap, protocol=protocol, progress=progress)
    results = {"model": replace(scored, scores=[*scored.scores, *found])}
    for kind in whitening:
        whiten = whiten_target(Whitening(kind=kind))
        results[f"{kind} whitening"] = suite.score(
            vectors,
            bootstrap=bootstrap,
            protocol={**protocol, "whitening": f"{kind}, target"},
            transform=whiten,
            progress=progress,
        )
    if poolings:
        free = encode_poolings(encoder, suite.sentences, poolings, precision=precision, progress=progress)
        for name, pooled in free.items():
            known = {**protocol, "pooling": name}
            results[name] = suite.score(pooled, bootstrap=bootstrap, protocol=known, progress=progress)
    return results


def compare(
    first: Sequence[str | Path | SentenceTransformer],
    second: Sequence[str | Path | SentenceTransformer],
    tasks: Sequence[str] = ("sts",),
    **how: Any,  # noqa: ANN401  what evaluate takes
) -> tuple[Results, Results, list[Difference]]:
    """Score two recipes, each by its seeds, and say how much the first lies above the second on the same rows.

    Args:
        first, second: the models of one recipe each, one for a seed; the intervals then hold the seeds, too.
        how: as for ``evaluate``.

    Raises:
        UserError: as for ``evaluate``, or nothing was measured in both that has an interval.
    """
    one, two = (over_seeds([evaluate(model, tasks, **how)["model"] for model in models]) for models in (first, second))
    return one, two, compare_results(one, two)


class Validator:
    """Scores that steer a run: label-free ones always, STS development sets where there is data."""

    def __init__(self, held_out: HeldOut, data: str | None, objective: Objective) -> None:
        pairs = held_out.dev
        tasks = [*(["retrieval"] if len(pairs.queries) > 1 else []), *(STS_DEV if data else [])]
        self._preferred = objective.selection
        self._suite = None
        if tasks:
            self._suite = read_suite(
                tasks, None if data is None else Path(data), held_out=(pairs.queries, pairs.passages)
            )
        self._sample = [text for pair in zip(pairs.queries, pairs.passages, strict=True) for text in pair][:_SAMPLE]
        found = [] if self._suite is None else [task.name for task in self._suite.tasks]
        self.names = [*found, *(["sts-dev"] if all(task in found for task in STS_DEV) else [])]

    def select(self, asked: str) -> str:
        """Return the name of the score to select by; checked here, before the first step.

        Raises:
            UserError: no such score can be had from this corpus and data.
        """
        if asked == "auto":
            usable = [name for name in (self._preferred, *STS_DEV, "retrieval") if name in self.names]
            return usable[0] if usable else "last"
        if asked != "last" and asked not in self.names:
            raise UserError(
                f"train.select = {asked!r} cannot be had here: from this corpus and data there are "
                f"{', '.join([*self.names, 'last'])}"
            )
        return asked

    def __call__(self, encoder: SentenceTransformer) -> trainer.Scores:
        """Score the encoder as it is."""
        scores: trainer.Scores = {}
        if self._suite is not None:
            vectors = encode(encoder, self._suite.sentences)
            results = self._suite.score(vectors, bootstrap=0)
            for name in self.names:
                if name != "sts-dev":
                    scores[name] = results.get(name, "mrr@10" if name == "retrieval" else "spearman").value
            if "sts-dev" in self.names:
                scores["sts-dev"] = float(np.mean([scores[name] for name in STS_DEV]))
            for task in self._suite.tasks:
                if isinstance(task, sts.STS) and task.name == "stsb-dev":
                    row = {text: index for index, text in enumerate(self._suite.sentences)}
                    both = vectors[[row[text] for text in task.texts]]
                    half = len(both) // 2
                    scores["stsb_alignment"] = geometry.alignment(both[:half], both[half:], task.gold)
                    scores["stsb_uniformity"] = geometry.uniformity(both[:: len(both) // _SAMPLE + 1])
        if self._sample:
            vectors = encode(encoder, self._sample)
            scores["alignment"] = geometry.alignment(vectors[::2], vectors[1::2])  # of each query and its passage
            scores["uniformity"] = geometry.uniformity(vectors)
            scores["mean_cosine"] = geometry.mean_cosine(vectors)
            scores["effective_rank"] = geometry.effective_rank(vectors)
        return scores


def preflight(encoder: SentenceTransformer, objective: Objective, progress: Progress, *, paired: bool = False) -> None:
    """Print the dropout that training will really have, and stop where two views of a text would be the same.

    Args:
        paired: whether every text has a positive, another text: the views then differ without dropout.

    Raises:
        UserError: dropout out of reach, or at zero.
    """
    require_dropout(encoder)
    own = dropout_rates(encoder)
    row = probe_tokens(encoder, "two views of one text must differ")
    tokens = collate(encoder, [row] * 16)  # few words may all be kept twice, but not sixteen times
    for number, (hidden, attention) in enumerate(objective.dropout_views(), start=1):
        asked = {"hidden": hidden, "attention": attention}
        rates = {kind: rate if (wish := asked[kind]) is None else wish for kind, rate in own.items()}
        progress.say(f"dropout of view {number}: " + ", ".join(f"{kind} {rate:g}" for kind, rate in rates.items()))
        if any(rates.values()):
            with dropout_rate(encoder.train(), rates["hidden"], rates.get("attention")), torch.no_grad():
                views = embed(encoder, tokens)
            encoder.eval()
            if not torch.equal(views, views[:1].expand_as(views)):
                continue
        if paired or len(objective.dropout_views()) > 1:
            continue  # the other view is another text; or one is clean where another is noisy
        raise UserError(
            "the views of a text would be identical: this encoder's dropout is 0, and the method lives on dropout; "
            "set encoder.dropout=0.1"
        )


def judge_heldout(before: Results, after: Results) -> str:
    """Say in words whether the trained encoder is better than its base on what was held out."""
    key = next((s.key for s in after.scores if s.metric == "mrr@10"), None)
    if key is None:
        if after.average is None or before.average is None:
            return (
                "Cannot tell: too few documents could be held out to measure it on (2 for the test at least); "
                "give more text, or set corpus.held_out_share=0.2"
            )
        key = after.average.key
    old = next(score for score in before.scores if score.key == key)
    new = next(score for score in after.scores if score.key == key)
    change = next(d for d in compare_results(after, before) if (d.task, d.split, d.metric, d.aggregation) == key)
    what = "finding the right text from its summary (MRR@10)" if key[2] == "mrr@10" else f"the {old.task}"
    figures = (
        f"{old.value:.1f} before, {new.value:.1f} after: a change of {change.value:+.1f} "
        f"(95 % interval {change.low:+.1f} to {change.high:+.1f})"
    )
    if change.low > 0:
        return f"Better. In {what}: {figures}."
    if change.high < 0:
        return f"Worse, do not use it. In {what}: {figures}."
    return f"Cannot tell. In {what}: {figures}."


def describe(encoder: SentenceTransformer, name: str) -> str:
    """Say in one line what an encoder is."""
    model = transformer_of(encoder)
    pooling = f"pooling {pooling_name(encoder)}, {embedding_width(encoder)} wide"
    if model is None:
        return f"{name}, static vectors, {pooling}"
    size = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    return f"{name}, {model.config.model_type}, {size:.1f} M parameters, {pooling}"


def _final_scores(
    encoder: SentenceTransformer,
    held_out: HeldOut,
    data: str | None,
    progress: Progress = SILENT,
) -> Results:
    pairs = held_out.test
    tasks = [*(["retrieval"] if len(pairs.queries) > 1 else []), *(["sts", "geometry"] if data else [])]
    if not tasks:
        return Results(scores=[])
    held = (pairs.queries, pairs.passages)
    return evaluate(encoder, tasks, data=data, held_out=held, progress=progress)["model"]


def _open(folder: Path, config: Mapping[str, Any], resume: bool, machine: Hardware, progress: Progress) -> Run:
    if not (resume and (folder / "config.json").is_file()):
        return Run.create(folder, config)
    run = Run.reopen(folder, config)
    before = run.config()
    for what in ("hardware", "versions"):
        changed = [key for key in config[what] if before.get(what, {}).get(key) != config[what][key]]
        if changed:
            progress.say(
                f"warning: {', '.join(changed)} changed since the run was started; it goes on, "
                "but need not end with the same bits"
            )
    return run


def _finished(run: Run) -> Trained | None:
    """Return what a run gave that came to its end, as its folder tells it."""
    said = run.finished()
    if said is None:
        return None
    try:
        return Trained(
            folder=run.folder,
            model=run.model,
            outcome=trainer.TrainingOutcome(**said["outcome"]),
            before=Results.from_dict(said["base"]),
            after=Results.from_dict(said["trained"]),
            verdict=said["verdict"],
        )
    except (KeyError, TypeError):
        return None  # of another version: it is measured anew


def _verify(
    trained: SentenceTransformer, validator: Validator, outcome: trainer.TrainingOutcome, *, has_head: bool
) -> None:
    """Make sure that the saved model is the one that was selected."""
    if outcome.best_score is None or has_head:  # with a head exported, the saved model is another one by intent
        return
    again = validator(trained)[outcome.selected_by]
    if not math.isclose(again, outcome.best_score, rel_tol=0, abs_tol=1e-6):
        raise UserError(
            f"the saved model scores {again:.4f} in {outcome.selected_by}, and its best weights scored "
            f"{outcome.best_score:.4f} in training: the disk may be damaged, or the folder was changed meanwhile"
        )


def _slug(method: str | Path | Recipe) -> str:
    name = method.method if isinstance(method, Recipe) else Path(method).name.removesuffix(".toml")
    return name.replace(".", "-")


def write_json(path: Path, results: Mapping[str, Results], model: str) -> None:
    """Write what ``evaluate`` returned: the model's own scores first, each of its baselines beside them."""
    content = {
        **results["model"].as_dict(),
        "model": model,
        "versions": versions(),
        "baselines": {name: other.as_dict() for name, other in results.items() if name != "model"},
    }
    if any("classifier" in score.protocol for score in results["model"].scores):
        content["declutr_averages"] = asdict(declutr_averages.averages(results["model"].scores))
    try:
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
