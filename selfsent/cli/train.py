"""selfsent train: train a sentence encoder from raw text."""

from pathlib import Path
from typing import Annotated, Any

import typer

from selfsent.cli.completion import complete_words
from selfsent.cli.listing import require_methods
from selfsent.cli.options import (
    Base,
    Column,
    Data,
    Engine,
    Method,
    Resume,
    Seed,
    Texts,
    Workers,
    loading,
    require_engine,
    settings_option,
)


def train(
    method: Method,
    text: Texts = None,
    column: Column = None,
    base: Base = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder  \\[default: runs/METHOD]")] = None,
    seed: Seed = None,
    seeds: Annotated[int, typer.Option(help="Train with so many seeds, in OUT/seed-42 and so on")] = 1,
    data: Data = None,
    set_: Annotated[list[str] | None, settings_option("Change a key of the recipe: train.steps=500")] = None,
    resume: Resume = False,
    tracker: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_words("tensorboard", "wandb", "mlflow"),
            help="Also send losses and scores to tensorboard, wandb or mlflow",
        ),
    ] = None,
    prepare_only: Annotated[
        bool, typer.Option("--prepare-only", help="Only read, clean, split, deduplicate and tokenise the text")
    ] = False,
    engine: Engine = "embedded",
    workers: Workers = None,
) -> object:
    """Train a sentence encoder from raw text.

    Every key of a recipe can be changed with --set; `selfsent settings` lists them.  What --prepare-only made lies in
    the cache, where the same command without it finds it; both engines prepare the same rows.

    Example: selfsent train tickets.jsonl --method simcse --out runs/simcse
    """
    from selfsent.errors import ConfigurationError

    if tracker is not None:
        from selfsent.training.tracking import require_tracker

        require_tracker(tracker)
    require_methods(method)
    require_engine(engine, workers)
    if engine != "embedded" and not prepare_only:
        raise ConfigurationError(f"--engine {engine} is for --prepare-only: prepare the text with it, and then train")
    if prepare_only:
        return _prepare(method, text, base, set_ or [], column, engine, workers)
    with loading("torch and transformers") as display:
        from selfsent.cli.search import search_line
        from selfsent.cli.tables import results_table, seeds_table
        from selfsent.evaluation.label_free.scores import BASELINES
        from selfsent.training.train import train

    how: dict[str, Any] = {"base": base, "corpus": text or None, "column": column, "out": out, "seed": seed}
    how |= {"data": data, "settings": set_ or (), "resume": resume, "tracker": tracker, "progress": display}
    if seeds != 1:
        several = train(method, seeds=seeds, **how)
        display.print(seeds_table(several.runs))
        display.print(f"\n{several.verdict}", style="bold")
        display.print(f"models: {several.folder}/seed-*/model")
        display.print(search_line(several.runs[0].folder, several.runs[0].model))
        return several
    result = train(method, **how)
    beside = {BASELINES[name]: scores for name, scores in result.baselines.items()}
    display.print(results_table({"base encoder": result.before, "trained encoder": result.after}, beside))
    display.print(f"\n{result.verdict}", style="bold")
    outcome = result.outcome
    display.print(
        f"weights of step {outcome.best_step:,} of {outcome.steps:,}, selected by {outcome.selected_by}; "
        f"{outcome.texts_per_second:,.0f} texts/s while training"
    )
    display.print(f"model: {result.model}   opens with SentenceTransformer({str(result.model)!r})")
    display.print(search_line(result.folder, result.model))
    return result


def _prepare(
    method: str,
    texts: list[str] | None,
    base: str | None,
    settings: list[str],
    column: str | None,
    engine: str,
    workers: int | None,
) -> object:
    """Prepare the text of a recipe as its training would, and say what was kept of it."""
    with loading("torch and transformers") as display:
        from dataclasses import replace

        from selfsent.bulk.ray import prepare_on_ray
        from selfsent.config import build_config
        from selfsent.corpus.prepare import prepare_corpus
        from selfsent.corpus.settings import CorpusConfig, with_column
        from selfsent.corpus.sources import resolve_sources
        from selfsent.encoder.inspect import template_length, tokenizer_of
        from selfsent.encoder.load import load_encoder
        from selfsent.objectives import registry
        from selfsent.training.train import resolve

    recipe = resolve(method, base=base, corpus=texts, settings=with_column(settings, column))
    unit = registry.plan_objective(recipe.method, recipe.objective).unit
    config = build_config(CorpusConfig, recipe.corpus, "corpus")
    resolve_sources(recipe.texts)  # a missing file is refused before the model is loaded
    encoder = load_encoder(recipe.base, pooling=recipe.encoder.pooling, template=recipe.encoder.template)
    config = replace(config, max_length=config.max_length + template_length(encoder))
    if engine == "ray":
        text = prepare_on_ray(recipe.texts, config, tokenizer_of(encoder), unit=unit, workers=workers, progress=display)
    else:
        text = prepare_corpus(recipe.texts, config, tokenizer_of(encoder), unit=unit, progress=display)
    display.end()
    for line in text.account.lines():
        display.print(line)
    display.say(f"{'found in the cache' if text.reused else 'prepared'}: {text.folder}")  # which wraps no line
    return {"folder": text.folder, "texts": text.account.lines()}
